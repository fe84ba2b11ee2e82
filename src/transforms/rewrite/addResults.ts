/**
 * Runs a program and adds its results to sums. Where a loop stacks a result, such as the gradients of its layers, every
 * iteration adds to its own slice of the sum, so that the stack is never stored beside the sum.
 */
import type { Eqn, Program, Var } from "../../ir/program.js";
import { at } from "../../ir/shape.js";
import { atSource, Environment, inline, rebind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { extrasOf, Threading } from "./threadBodies.js";

/**
 * Records the equations of a program in the current trace.
 *
 * @param sums what its first results are added to; they keep their dtype
 * @returns the sums, and the other results
 */
export function inlineAdding(
  program: Program,
  ins: readonly Tensor[],
  sums: readonly Tensor[],
): { readonly sums: Tensor[]; readonly rest: Tensor[] } {
  const { inputs, eqns, outputs } = program;
  const environment = new Environment(inputs, ins);
  const after = new Map<number, Tensor>();
  const sumOf = summedStacks(program, sums.length);
  for (const eqn of eqns) {
    const stacks = eqn.outs.filter(({ id }) => sumOf.has(id));
    if (eqn.op !== "scan" || stacks.length === 0) {
      rebind(eqn, environment);
      continue;
    }
    const numbers = stacks.map(({ id }) => sumOf.get(id) ?? 0);
    const own = numbers.map((number) => at(sums, number));
    const looped = atSource(eqn.source, () => addInLoop(eqn, environment.read(eqn.ins), stacks, own));
    environment.define(eqn.outs, looped.outs);
    numbers.forEach((number, i) => void after.set(number, at(looped.sums, i)));
  }
  const results = environment.read(outputs);
  return {
    sums: sums.map((sum, i) => after.get(i) ?? added(sum, at(results, i))),
    rest: results.slice(sums.length),
  };
}

const added = (sum: Tensor, value: Tensor) => ops.add(sum, value.astype(sum.dtype));

/** The sum of each value that a loop stacks and nothing else reads. */
function summedStacks({ eqns, outputs }: Program, numSums: number): Map<number, number> {
  const reads = [...eqns.flatMap(({ ins }) => ins), ...outputs].flatMap((atom) =>
    atom.kind === "var" ? [atom.id] : [],
  );
  const isReadAgain = new Set(reads.filter((id, i) => reads.indexOf(id) !== i));
  const stacked = eqns.flatMap((eqn) => (eqn.op === "scan" ? eqn.outs.slice(eqn.params.numCarry) : []));
  const isStacked = new Set(stacked.map(({ id }) => id));
  return new Map(
    outputs
      .slice(0, numSums)
      .flatMap((atom, i) =>
        atom.kind === "var" && isStacked.has(atom.id) && !isReadAgain.has(atom.id)
          ? [[atom.id, i] as const]
          : [],
      ),
  );
}

/** A loop that carries the sums of some of its stacks; what it stacked of them remains unread. */
function addInLoop(
  eqn: Eqn<"scan">,
  ins: readonly Tensor[],
  stacks: readonly Var[],
  sums: readonly Tensor[],
): { readonly outs: readonly Tensor[]; readonly sums: readonly Tensor[] } {
  const places = stacks.map((stack) => eqn.outs.indexOf(stack));
  const number = ops.iota("int32", [eqn.params.length], 0);
  const threading = new Threading(eqn, ins, { carry: extrasOf(sums), xs: extrasOf([number]) });
  const { own: outs, added: after } = threading.apply(({ program }, { own, added: given }) => {
    const results = inline(program, own);
    const [iteration = number] = given.xs ?? [];
    const carry = (given.carry ?? []).map((sum, i) => addSlice(sum, at(results, at(places, i)), iteration));
    return { own: results, added: { carry } };
  }, "addResults");
  return { outs, sums: after.carry ?? [] };
}

function addSlice(sum: Tensor, value: Tensor, index: Tensor): Tensor {
  const [, ...rest] = sum.shape;
  const starts = [index, ...rest.map(() => Tensor.scalar(0, "int32"))];
  const own = ops.dynamicSlice(sum, starts, [1, ...rest]);
  return ops.dynamicUpdateSlice(sum, added(own, value.reshape([1, ...rest])), starts);
}
