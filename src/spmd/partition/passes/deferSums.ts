import { getOrInsert } from "../../../ir/collections.js";
import { isFloat } from "../../../ir/dtype.js";
import type { MeshAxis } from "../../../ir/mesh.js";
import { linearOperand } from "../../../ir/opFacts.js";
import { afterPass } from "../../../ir/passes.js";
import {
  type Atom,
  type Eqn,
  mapInnerPrograms,
  newVar,
  type Program,
  type Var,
} from "../../../ir/program.js";
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
 * layers, which an inner loop stacks, and where branches add to the carry or leave it as it is, as the actions of a
 * pipeline do. Scattered sums wait too if there is memory to accumulate them whole.
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
  const level = levelOf(body, isEqualAlong);
  const sums = new Map<number, LateSum>();
  const dropped: Dropped = new Map();
  carries.forEach((position, c) => {
    const [carry, result] = [at(body.inputs, position), at(body.outputs, c)];
    // Blocks of a carry are those of layers, each of which one iteration sums: waiting would only take memory.
    const isInBlocks = level.definitionOf(result)?.op === "dynamicUpdateSlice";
    if (isInBlocks || !isFloat(carry.type.dtype)) return;
    const found = findAdded(level, carry, result);
    const [first] = found ?? [];
    if (!found || !first) return;
    sums.set(c, { axes: first.sum.params.axes });
    for (const { sum, program } of found) {
      getOrInsert(dropped, program, () => new Map()).set(at(sum.outs, 0).id, at(sum.ins, 0));
    }
  });
  const left = withoutSums(body, dropped);
  const { body: whole, sums: scattered } = deferScatters(left, carries, room);
  if (sums.size === 0 && scattered.size === 0) return { body, sums };
  return { body: afterPass("deferSums", whole, "partitioned"), sums: new Map([...sums, ...scattered]) };
}

/** Lets carries accumulate whole sums instead of scattered ones, as long as there is memory. */
function deferScatters(body: Program, carries: readonly number[], room: number): Deferred {
  const level = levelOf(body, () => false);
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

/** The body of a loop, or a program inside of it, during the search for sums. */
interface Level {
  readonly program: Program;
  readonly definitionOf: (atom: Atom) => Eqn | undefined;
  readonly usesOf: (value: Var) => number;
  readonly isOnlyUsedOnce: (atom: Atom) => boolean;
  readonly isEqualAlong: (atoms: readonly Atom[], axes: readonly MeshAxis[]) => boolean;
}

function levelOf(program: Program, isEqualAlong: Level["isEqualAlong"]): Level {
  const uses = countUses(program);
  const definitions = new Map(program.eqns.flatMap((eqn) => eqn.outs.map((out) => [out.id, eqn] as const)));
  return {
    program,
    definitionOf: (atom) => (atom.kind === "var" ? definitions.get(atom.id) : undefined),
    usesOf: ({ id }) => uses.get(id) ?? 0,
    isOnlyUsedOnce: (atom) => atom.kind === "var" && uses.get(atom.id) === 1,
    isEqualAlong,
  };
}

/** A program inside of an equation, where only literals are known to be equal on all devices. */
const innerLevel = (program: Program): Level =>
  levelOf(program, (atoms) => atoms.every(({ kind }) => kind === "literal"));

/** A sum, and the program that computes it. */
interface PlacedSum {
  readonly sum: Eqn<"psum">;
  readonly program: Program;
}

const axisNames = ({ sum }: PlacedSum): string => sum.params.axes.map(({ name }) => name).join();

/** All of some lists of sums over the same axes; undefined if one is missing or axes differ. */
function together(lists: readonly (readonly PlacedSum[] | undefined)[]): readonly PlacedSum[] | undefined {
  const all: PlacedSum[] = [];
  for (const list of lists) {
    if (!list) return undefined;
    all.push(...list);
  }
  return all.every((placed) => axisNames(placed) === axisNames(at(all, 0))) ? all : undefined;
}

const isVar = (atom: Atom, { id }: Var): boolean => atom.kind === "var" && atom.id === id;
const isSame = (a: Atom, b: Atom | undefined): boolean =>
  a.kind === "var" ? b !== undefined && isVar(b, a) : b?.kind === "literal" && b.value === a.value;

/** The sums that a result adds to a value, which nothing else reads; undefined if it is not the value and sums. */
function findAdded(level: Level, value: Var, result: Atom): readonly PlacedSum[] | undefined {
  if (!level.isOnlyUsedOnce(result)) return undefined;
  const eqn = level.definitionOf(result);
  if (eqn?.op === "dynamicUpdateSlice") return findInBlock(level, eqn, value);
  if (!level.isOnlyUsedOnce(value)) return undefined;
  if (isVar(result, value)) return [];
  const place = eqn?.ins.findIndex((atom) => isVar(atom, value)) ?? -1;
  if (!eqn || place < 0) return undefined;
  const index = eqn.outs.findIndex((out) => isVar(result, out));
  if (eqn.op === "add") return findSums(level, at(eqn.ins, 1 - place));
  if (eqn.op === "cond") return findInBranches(eqn, place - 1, index);
  return eqn.op === "scan" ? findInLoop(eqn, place, index) : undefined;
}

/** What is added to a block of a value, which is read for nothing else. */
function findInBlock(level: Level, { ins }: Eqn<"dynamicUpdateSlice">, value: Var) {
  const [whole, update, ...starts] = ins;
  const sum = update && level.definitionOf(update);
  if (!whole || !update || !isVar(whole, value) || sum?.op !== "add" || level.usesOf(value) !== 2)
    return undefined;
  const isBlock = (atom: Atom): boolean => {
    const block = level.definitionOf(atom);
    if (block?.op !== "dynamicSlice" || !level.isOnlyUsedOnce(atom)) return false;
    const [source, ...places] = block.ins;
    return (
      source !== undefined && isVar(source, value) && places.every((place, d) => isSame(place, starts[d]))
    );
  };
  const place = sum.ins.findIndex(isBlock);
  return place < 0 || !level.isOnlyUsedOnce(update) ? undefined : findSums(level, at(sum.ins, 1 - place));
}

/** What branches add to one of their operands. */
function findInBranches({ params }: Eqn<"cond">, operand: number, index: number) {
  if (operand < 0) return undefined;
  return together(
    params.branches.map((branch) =>
      findAdded(innerLevel(branch), at(branch.inputs, operand), at(branch.outputs, index)),
    ),
  );
}

/** What a loop adds to a carry, or to the slices of an operand, which it stacks again. */
function findInLoop({ params }: Eqn<"scan">, operand: number, index: number) {
  const { body, numConsts, numCarry } = params;
  const isCarry = operand === numConsts + index && index < numCarry;
  const isStacked = operand >= numConsts + numCarry && index >= numCarry;
  if (!isCarry && !isStacked) return undefined;
  return findAdded(innerLevel(body), at(body.inputs, operand), at(body.outputs, index));
}

/** The sums at the ends of chains of linear equations without other readers. */
function findSums(level: Level, atom: Atom): readonly PlacedSum[] | undefined {
  const eqn = level.definitionOf(atom);
  if (!eqn || !level.isOnlyUsedOnce(atom)) return undefined;
  if (eqn.op === "psum") return [{ sum: eqn, program: level.program }];
  if (eqn.op === "scan") return findStackedSums(eqn, atom);
  const step = linearStep(eqn, level.definitionOf);
  if (step) {
    const found = findSums(level, step.operand);
    const [first] = found ?? [];
    return first && level.isEqualAlong(step.others, first.sum.params.axes) ? found : undefined;
  }
  return eqn.op === "add" ? together(eqn.ins.map((operand) => findSums(level, operand))) : undefined;
}

/** Sums that a loop stacks, one per iteration, as a loop over layers does with their gradients. */
function findStackedSums(eqn: Eqn<"scan">, atom: Atom): readonly PlacedSum[] | undefined {
  const { body, numCarry } = eqn.params;
  const index = eqn.outs.findIndex((out) => isVar(atom, out));
  return index < numCarry ? undefined : findSums(innerLevel(body), at(body.outputs, index));
}

/** What replaces the results of removed sums, by the program that computes them. */
type Dropped = Map<Program, Map<number, Atom>>;

function withoutSums(program: Program, dropped: Dropped): Program {
  const here = dropped.get(program);
  const resolve = (atom: Atom): Atom => (atom.kind === "var" ? (here?.get(atom.id) ?? atom) : atom);
  const eqns = program.eqns
    .filter(({ outs }) => !outs.some(({ id }) => here?.has(id)))
    .map((eqn) =>
      mapInnerPrograms({ ...eqn, ins: eqn.ins.map(resolve) }, (inner) => withoutSums(inner, dropped)),
    );
  return { ...program, eqns, outputs: program.outputs.map(resolve) };
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
