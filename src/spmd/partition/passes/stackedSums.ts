import { type Eqn, newVar, type Var } from "../../../ir/program.js";
import { at, type TensorType } from "../../../ir/shape.js";
import { countUses } from "./joinSums.js";

/** A sum over devices in the body of a loop, of which the loop only stacks the results, such as gradients of layers. */
export interface StackedSum {
  readonly sum: Eqn<"psum">;
  /** The number of the body's output, and of the loop's result. */
  readonly index: number;
  /** The stack. */
  readonly out: Var;
}

/** The sums over devices that a loop only stacks. */
export function stackedSums({ params, outs }: Eqn<"scan">): readonly StackedSum[] {
  const { body, numCarry } = params;
  const sums = new Map(body.eqns.flatMap((eqn) => (eqn.op === "psum" ? [[at(eqn.outs, 0).id, eqn]] : [])));
  if (sums.size === 0) return [];
  const uses = countUses(body);
  return body.outputs.flatMap((output, index) => {
    const sum = output.kind === "var" && uses.get(output.id) === 1 ? sums.get(output.id) : undefined;
    return sum && index >= numCarry ? [{ sum, index, out: at(outs, index) }] : [];
  });
}

/**
 * A loop in which some of these sums are scattered along dims of the stack: every device stacks its blocks.
 *
 * @param shares for each sum the dim of the stack, the type of a block of it, and the new result of the loop
 */
export function withScatteredSums(
  eqn: Eqn<"scan">,
  shares: ReadonlyMap<StackedSum, { readonly dim: number; readonly block: Var }>,
): Eqn<"scan"> {
  const { body } = eqn.params;
  const scattered = new Map<Eqn, Eqn>();
  const outputs = [...body.outputs];
  const outs = [...eqn.outs];
  for (const [{ sum, index }, { dim, block }] of shares) {
    const own = newVar(sliceType(block.type));
    const params = { axes: sum.params.axes, dim: dim - 1 };
    scattered.set(sum, { ...sum, op: "psumScatter", outs: [own], params });
    outputs[index] = own;
    outs[index] = block;
  }
  const eqns = body.eqns.map((one) => scattered.get(one) ?? one);
  return { ...eqn, outs, params: { ...eqn.params, body: { ...body, eqns, outputs } } };
}

/** The type of what one iteration adds to a stack. */
const sliceType = (type: TensorType): TensorType => ({ ...type, shape: type.shape.slice(1) });
