import { getOrInsert } from "../../../ir/collections.js";
import { isFloat } from "../../../ir/dtype.js";
import type { MeshAxis } from "../../../ir/mesh.js";
import { linearOperand } from "../../../ir/opFacts.js";
import { afterPass } from "../../../ir/passes.js";
import { type Atom, type Eqn, newVar, type Program } from "../../../ir/program.js";
import { at, bytesOf } from "../../../ir/shape.js";
import { countUses } from "./joinSums.js";
import { type Varying, varyingOutputs } from "./replication.js";

/** The body of a loop without the sums over devices that can wait until the loop has ended. */
export interface Deferred {
  readonly body: Program;
  /** How to sum carries that are now partial sums after the loop, by carry. */
  readonly sums: ReadonlyMap<number, LateSum>;
}

/** A sum over devices; with a dim, each device keeps its block of it. */
export interface LateSum {
  readonly axes: readonly MeshAxis[];
  readonly dim?: number;
}

/**
 * A carry that only accumulates sums over devices, such as the gradient of a weight, can accumulate each device's
 * partial sums: the devices are then summed over once instead of in every iteration. The same applies to gradients of
 * layers, which an inner loop stacks. Scattered sums wait too if there is memory to accumulate them whole.
 *
 * @param carries the positions of the carries among the body's inputs; they are its first outputs
 * @param varying the axes along which each input may differ from device to device
 * @param room the bytes available for keeping sums whole instead of scattered
 */
export function deferSums(
  body: Program,
  carries: readonly number[],
  varying: readonly Varying[],
  room = 0,
): Deferred {
  const isEqualAlong = (atoms: readonly Atom[], axes: readonly MeshAxis[]) =>
    varyingOutputs({ ...body, outputs: atoms }, varying).every((set) =>
      axes.every(({ name }) => !set.has(name)),
    );
  const level = levelOf(body, undefined, isEqualAlong);
  const sums = new Map<number, LateSum>();
  const dropped: Dropped = new Map();
  carries.forEach((position, c) => {
    const carry = at(body.inputs, position);
    const result = at(body.outputs, c);
    const eqn = level.definitionOf(result);
    if (eqn?.op !== "add" || !isFloat(carry.type.dtype)) return;
    if (!level.isOnlyUsedOnce(result) || !level.isOnlyUsedOnce(carry)) return;
    const isCarry = eqn.ins.map((atom) => atom.kind === "var" && atom.id === carry.id);
    const found = isCarry.includes(true) ? findSums(level, at(eqn.ins, isCarry.indexOf(false))) : undefined;
    if (!found) return;
    sums.set(c, { axes: found.axes });
    for (const { sum, loop } of found.sums) {
      getOrInsert(dropped, loop, () => new Map()).set(at(sum.outs, 0).id, at(sum.ins, 0));
    }
  });
  const left = withoutSums(body, undefined, dropped);
  const { body: whole, sums: scattered } = deferScatters(left, carries, room);
  if (sums.size === 0 && scattered.size === 0) return { body, sums };
  return { body: afterPass("deferSums", whole, "partitioned"), sums: new Map([...sums, ...scattered]) };
}

/** Lets carries accumulate whole sums instead of scattered ones, as long as there is memory. */
function deferScatters(body: Program, carries: readonly number[], room: number): Deferred {
  const level = levelOf(body, undefined, () => false);
  const sums = new Map<number, LateSum>();
  const inputs = [...body.inputs];
  const outputs = [...body.outputs];
  const replaced = new Map<Eqn, readonly Eqn[]>();
  let left = room;
  carries.forEach((position, c) => {
    const carry = at(body.inputs, position);
    const result = at(body.outputs, c);
    const sum = level.definitionOf(result);
    if (sum?.op !== "add" || !isFloat(carry.type.dtype)) return;
    const added = sum.ins.find((atom) => atom.kind !== "var" || atom.id !== carry.id);
    const scatter = added && level.definitionOf(added);
    if (scatter?.op !== "psumScatter" || sum.ins.every((atom) => atom.kind !== "var" || atom.id !== carry.id))
      return;
    if (![carry, result, added].every((atom) => atom && level.isOnlyUsedOnce(atom))) return;
    const partial = at(scatter.ins, 0);
    if (bytesOf(partial.type) > left) return;
    left -= bytesOf(partial.type);
    const [collected, next] = [newVar(partial.type), newVar(partial.type)];
    inputs[position] = collected;
    outputs[c] = next;
    replaced.set(scatter, []).set(sum, [{ ...sum, ins: [collected, partial], outs: [next] }]);
    sums.set(c, { axes: scatter.params.axes, dim: scatter.params.dim });
  });
  return { body: { inputs, outputs, eqns: body.eqns.flatMap((eqn) => replaced.get(eqn) ?? [eqn]) }, sums };
}

/** The body of a loop during the search for sums. */
interface Level {
  /** The inner loop that is searched; undefined for the body itself. */
  readonly loop: Eqn | undefined;
  readonly definitionOf: (atom: Atom) => Eqn | undefined;
  readonly isOnlyUsedOnce: (atom: Atom) => boolean;
  readonly isEqualAlong: (atoms: readonly Atom[], axes: readonly MeshAxis[]) => boolean;
}

function levelOf(body: Program, loop: Eqn | undefined, isEqualAlong: Level["isEqualAlong"]): Level {
  const uses = countUses(body);
  const definitions = new Map(body.eqns.flatMap((eqn) => eqn.outs.map((out) => [out.id, eqn] as const)));
  return {
    loop,
    definitionOf: (atom) => (atom.kind === "var" ? definitions.get(atom.id) : undefined),
    isOnlyUsedOnce: (atom) => atom.kind === "var" && uses.get(atom.id) === 1,
    isEqualAlong,
  };
}

/** Sums over the same axes whose results are added to each other. */
interface Found {
  readonly axes: readonly MeshAxis[];
  readonly sums: readonly { readonly sum: Eqn<"psum">; readonly loop: Eqn | undefined }[];
}

/** The sums at the ends of chains of linear equations without other readers. */
function findSums(level: Level, atom: Atom): Found | undefined {
  const eqn = level.definitionOf(atom);
  if (!eqn || !level.isOnlyUsedOnce(atom)) return undefined;
  if (eqn.op === "psum") return { axes: eqn.params.axes, sums: [{ sum: eqn, loop: level.loop }] };
  if (eqn.op === "scan") return findStackedSums(eqn, atom);
  const step = linearStep(eqn, level.definitionOf);
  if (step) {
    const found = findSums(level, step.operand);
    return found && level.isEqualAlong(step.others, found.axes) ? found : undefined;
  }
  if (eqn.op !== "add") return undefined;
  const [a, b] = eqn.ins.map((operand) => findSums(level, operand));
  const names = (found: Found) => found.axes.map(({ name }) => name).join();
  return a && b && names(a) === names(b) ? { axes: a.axes, sums: [...a.sums, ...b.sums] } : undefined;
}

/** Sums that a loop stacks, one per iteration, as a loop over layers does with their gradients. */
function findStackedSums(eqn: Eqn<"scan">, atom: Atom): Found | undefined {
  const { body, numCarry } = eqn.params;
  const index = eqn.outs.findIndex((out) => atom.kind === "var" && out.id === atom.id);
  if (index < numCarry) return undefined;
  const level = levelOf(body, eqn, (atoms) => atoms.every(({ kind }) => kind === "literal"));
  return findSums(level, at(body.outputs, index));
}

/** What replaces the results of removed sums, by the loop that contains them. */
type Dropped = Map<Eqn | undefined, Map<number, Atom>>;

function withoutSums(body: Program, loop: Eqn | undefined, dropped: Dropped): Program {
  const here = dropped.get(loop);
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (here?.get(atom.id) ?? atom) : atom);
  const eqns = body.eqns
    .filter(({ outs }) => !outs.some(({ id }) => here?.has(id)))
    .map((eqn): Eqn => {
      const ins = eqn.ins.map(resolve);
      if (eqn.op !== "scan") return { ...eqn, ins };
      return { ...eqn, ins, params: { ...eqn.params, body: withoutSums(eqn.params.body, eqn, dropped) } };
    });
  return { ...body, eqns, outputs: body.outputs.map(resolve) };
}

/** The operand in which an equation is linear, and the others, which must be equal on the devices of a sum. */
function linearStep(
  eqn: Eqn,
  definitionOf: (atom: Atom) => Eqn | undefined,
): { readonly operand: Atom; readonly others: readonly Atom[] } | undefined {
  const isZero = (atom: Atom): boolean => {
    const made = definitionOf(atom);
    const value = made?.op === "broadcastInDim" ? at(made.ins, 0) : atom;
    return value.kind === "literal" && value.value === 0;
  };
  const linear = linearOperand(eqn, isZero);
  if (linear === undefined) return undefined;
  return { operand: at(eqn.ins, linear), others: eqn.ins.filter((_, i) => i !== linear) };
}
