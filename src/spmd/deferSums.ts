import { isFloat } from "../ir/dtype.js";
import type { MeshAxis } from "../ir/mesh.js";
import type { Atom, Eqn, Program } from "../ir/program.js";
import { at, range } from "../ir/shape.js";
import { countUses } from "./joinSums.js";
import { type Varying, varyingOutputs } from "./replication.js";

/** The body of a loop without sums over devices that can wait until the loop has ended. */
export interface Deferred {
  readonly body: Program;
  /** For every carry whose additions are now partial the axes to sum over after the loop. */
  readonly sums: ReadonlyMap<number, readonly MeshAxis[]>;
}

/**
 * A carry that only collects sums over devices, as that of a weight's gradient does, can collect what each device
 * has: then the devices are summed over once, not in every iteration.
 *
 * @param carries the positions of the carries among the body's inputs; they are its first outputs
 * @param varying the axes along which each input may differ from device to device
 */
export function deferSums(body: Program, carries: readonly number[], varying: readonly Varying[]): Deferred {
  const uses = countUses(body);
  const definitions = new Map(body.eqns.flatMap((eqn) => eqn.outs.map((out) => [out.id, eqn] as const)));
  const definitionOf = (atom: Atom) => (atom.kind === "var" ? definitions.get(atom.id) : undefined);
  const isOnlyUsedOnce = (atom: Atom) => atom.kind === "var" && uses.get(atom.id) === 1;
  const isEqualAlong = (atoms: readonly Atom[], axes: readonly MeshAxis[]) =>
    varyingOutputs({ ...body, outputs: atoms }, varying).every((set) =>
      axes.every(({ name }) => !set.has(name)),
    );

  /** The sum at the end of a chain of linear equations that nobody else reads. */
  const findSum = (atom: Atom): Eqn<"psum"> | undefined => {
    const eqn = definitionOf(atom);
    if (!eqn || !isOnlyUsedOnce(atom)) return undefined;
    if (eqn.op === "psum") return eqn;
    const step = linearStep(eqn, definitionOf);
    const sum = step && findSum(step.operand);
    return sum && isEqualAlong(step.others, sum.params.axes) ? sum : undefined;
  };

  const sums = new Map<number, readonly MeshAxis[]>();
  const dropped = new Map<number, Atom>();
  carries.forEach((position, c) => {
    const carry = at(body.inputs, position);
    const result = at(body.outputs, c);
    const eqn = definitionOf(result);
    if (eqn?.op !== "add" || !isFloat(carry.type.dtype)) return;
    if (!isOnlyUsedOnce(result) || !isOnlyUsedOnce(carry)) return;
    const isCarry = eqn.ins.map((atom) => atom.kind === "var" && atom.id === carry.id);
    const sum = isCarry.includes(true) ? findSum(at(eqn.ins, isCarry.indexOf(false))) : undefined;
    if (!sum) return;
    sums.set(c, sum.params.axes);
    dropped.set(at(sum.outs, 0).id, at(sum.ins, 0));
  });
  if (sums.size === 0) return { body, sums };
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (dropped.get(atom.id) ?? atom) : atom);
  const eqns = body.eqns
    .filter(({ outs }) => !outs.some(({ id }) => dropped.has(id)))
    .map((eqn): Eqn => ({ ...eqn, ins: eqn.ins.map(resolve) }));
  return { body: { ...body, eqns }, sums };
}

/** The operand in which an equation is linear, and the others, which must be equal on the devices of a sum. */
function linearStep(
  eqn: Eqn,
  definitionOf: (atom: Atom) => Eqn | undefined,
): { readonly operand: Atom; readonly others: readonly Atom[] } | undefined {
  const isZero = (atom: Atom) => {
    const made = definitionOf(atom);
    const value = made?.op === "broadcastInDim" ? at(made.ins, 0) : atom;
    return value.kind === "literal" && value.value === 0;
  };
  const through = (i: number) => ({
    operand: at(eqn.ins, i),
    others: range(eqn.ins.length)
      .filter((other) => other !== i)
      .map((other) => at(eqn.ins, other)),
  });
  switch (eqn.op) {
    case "reshape":
    case "transpose":
    case "neg":
    case "reduceSum":
    case "broadcastInDim":
    case "slice":
    case "reverse":
      return through(0);
    case "pad":
      return isZero(at(eqn.ins, 1)) ? through(0) : undefined;
    case "scatter":
      return eqn.params.combine === "add" && isZero(at(eqn.ins, 0)) ? through(2) : undefined;
    case "dynamicUpdateSlice":
      return isZero(at(eqn.ins, 0)) ? through(1) : undefined;
    default:
      return undefined;
  }
}
