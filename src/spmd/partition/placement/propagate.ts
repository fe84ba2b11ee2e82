import { getOrInsert } from "../../../ir/collections.js";
import { InternalError } from "../../../ir/errors.js";
import { axisSizeIn, type DimAxes, type MeshShape, type Spec, splitCount } from "../../../ir/mesh.js";
import { type Atom, type Eqn, forEachEqn, type Program } from "../../../ir/program.js";
import { at, bytesOf, range, type Shape, type TensorType } from "../../../ir/shape.js";
import { type DimFactors, type Factor, type FactoredOp, type FactorRule, factorRule } from "./factors.js";
import { specOn } from "./reshard.js";
import { movedDims } from "./rowValues.js";

/** Tensors whose dims correspond through shared factors: an equation, or a value passed into an inner program. */
interface Relation {
  readonly factors: readonly Factor[];
  readonly members: readonly RelatedValue[];
  /** Whether the result repeats an operand along dims that the operand does not have. */
  readonly grows?: boolean;
}

interface RelatedValue {
  readonly dims: DimFactors;
  readonly type: TensorType;
  /** The value, or a spec that an equation requires. */
  readonly value: Atom | { readonly kind: "pin"; readonly spec: Spec };
  /** Axes that must not split the value, because devices along them run a shard map's body on blocks of their own. */
  readonly barred?: readonly string[];
}

/** The shardings found so far; dims that the user fixed never change. */
export class Shardings {
  private readonly specs = new Map<number, DimAxes[]>();
  private readonly shapes = new Map<number, Shape>();
  private readonly fixedDims = new Map<number, boolean[]>();

  /** The spec of a value; whole if nothing is known. */
  get(atom: Atom): Spec {
    return (atom.kind === "var" ? this.specs.get(atom.id) : undefined) ?? atom.type.shape.map(() => []);
  }

  fixed(atom: Atom, dim: number): boolean {
    return atom.kind === "literal" || (this.fixedDims.get(atom.id)?.[dim] ?? false);
  }

  /** Fixes a dim, unless it is fixed already or another dim has one of the axes: the first one wins. */
  fix(atom: Atom, dim: number, axes: DimAxes): void {
    if (atom.kind !== "var" || this.fixed(atom, dim)) return;
    if (this.get(atom).some((other, d) => d !== dim && other.some((axis) => axes.includes(axis)))) return;
    this.set(atom, dim, axes);
    getOrInsert(this.fixedDims, atom.id, () => atom.type.shape.map(() => false))[dim] = true;
  }

  set(atom: Atom, dim: number, axes: DimAxes): void {
    if (atom.kind !== "var") return;
    getOrInsert(this.specs, atom.id, () => atom.type.shape.map(() => []))[dim] = axes;
    this.shapes.set(atom.id, atom.type.shape);
  }

  /** Removes axes that do not divide their dim; they only served to split other values. */
  trim(mesh: MeshShape): void {
    for (const [id, spec] of this.specs) {
      const shape = this.shapes.get(id) ?? [];
      spec.forEach((axes, d) => {
        const fits = axes.findIndex((_, i) => (shape[d] ?? 1) % splitCount(mesh, axes.slice(0, i + 1)) !== 0);
        if (fits >= 0) spec[d] = axes.slice(0, fits);
      });
    }
  }
}

/**
 * Spreads known shardings over a program, forwards and backwards: first through ops that need no
 * communication, then through reductions and contractions, and finally through broadcasts, whose small operand
 * must not decide how the large tensors next to it are split. What the user fixed stays.
 */
export function propagate(program: Program, mesh: MeshShape, shardings: Shardings): void {
  if (mesh.axes.length === 0) return;
  const all = relations(program, mesh);
  const isLocal = ({ factors }: Relation) => factors.every(({ kind }) => kind === "parallel");
  const even = all.filter((relation) => !relation.grows || !isLocal(relation));
  // A list without additional relations has nothing left to spread.
  let numBefore = 0;
  for (const list of [even.filter(isLocal), even, all]) {
    if (list.length > numBefore) spreadAll(list, mesh, shardings);
    numBefore = list.length;
  }
  shardings.trim(mesh);
}

/** Spreads along relations, forwards and backwards in turn, until nothing changes. */
function spreadAll(list: readonly Relation[], mesh: MeshShape, shardings: Shardings): void {
  const readers = new Map<number, number[]>();
  list.forEach(({ members }, i) => {
    for (const { value } of members) {
      if (value.kind !== "var") continue;
      getOrInsert(readers, value.id, () => []).push(i);
    }
  });
  const waiting = new Set(list.keys());
  const visit = (i: number) => {
    if (!waiting.delete(i)) return;
    for (const id of spread(at(list, i), mesh, shardings)) {
      for (const reader of readers.get(id) ?? []) waiting.add(reader);
    }
  };
  while (waiting.size > 0) {
    for (let i = 0; i < list.length; i++) visit(i);
    for (let i = list.length - 1; i >= 0; i--) visit(i);
  }
}

/** Fixes the specs of a program's sharding constraints. */
export function fixConstraints(program: Program, mesh: MeshShape, shardings: Shardings): void {
  forEachEqn(program, (eqn) => {
    if (eqn.op !== "shardingConstraint") return;
    const out = at(eqn.outs, 0);
    eqn.params.spec.forEach((axes, d) => {
      if (axes !== "unconstrained") shardings.fix(out, d, at(specOn(mesh, [axes]), 0));
    });
  });
}

/** The axes that a shard map leaves to the partitioner. */
export function autoAxes({ params }: Eqn<"shardMap">, mesh: MeshShape): string[] {
  return mesh.axes.map(({ name }) => name).filter((name) => !params.manual.includes(name));
}

/** Two values that are the same tensor, up to leading dims that only one of them has. */
function link(a: Atom, b: Atom): Relation {
  const extra = a.type.shape.length - b.type.shape.length;
  const factors = b.type.shape.map((size): Factor => ({ size, kind: "parallel" }));
  const dims = b.type.shape.map((_, d) => [d]);
  const leading = range(Math.max(0, extra)).map(() => []);
  return {
    factors,
    members: [
      { value: a, type: a.type, dims: [...leading, ...dims] },
      { value: b, type: b.type, dims },
    ],
  };
}

/**
 * A whole value and the block of it that a shard map's body sees: every dim is a factor that the body's axes
 * split and the rest, which other axes may split inside and outside alike.
 */
function linkBlock(whole: Atom, block: Atom, spec: Spec, barred: readonly string[]): Relation {
  const factors = block.type.shape.flatMap((size, d): Factor[] => [
    { size: at(whole.type.shape, d) / size, kind: "parallel" },
    { size, kind: "parallel" },
  ]);
  const outer = block.type.shape.map((_, d) => [2 * d]);
  return {
    factors,
    members: [
      { value: { kind: "pin", spec }, type: whole.type, dims: outer },
      { value: whole, type: whole.type, dims: outer.map(([d = 0]) => [d, d + 1]) },
      { value: block, type: block.type, dims: outer.map(([d = 0]) => [d + 1]), barred },
    ],
  };
}

/** The size of a factor that any axes may split. */
const anySize = 0;

/** Ops that move rows along dims keep them split: neighbours exchange the rows. */
function alongRows(eqn: Eqn, rule: FactorRule): FactorRule {
  const moved = movedDims(eqn);
  if (moved.length === 0) return rule;
  const rows = rule.factors.length;
  const through = (tensors: readonly DimFactors[], atoms: readonly Atom[]) =>
    tensors.map((dims, i) =>
      dims.map((factors, d) =>
        moved.includes(d) && at(atoms, i).type.shape[d] !== 1 ? [rows + moved.indexOf(d)] : factors,
      ),
    );
  const factors = rule.factors.map(({ size, kind }) => ({
    size,
    kind: kind === "whole" ? "parallel" : kind,
  }));
  return {
    factors: [...factors, ...moved.map(() => ({ size: anySize, kind: "parallel" }) as const)],
    operands: through(rule.operands, eqn.ins),
    results: through(rule.results, eqn.outs),
  };
}

function relations(program: Program, mesh: MeshShape): Relation[] {
  return program.eqns.flatMap((eqn) => relationsOf(eqn, mesh));
}

function relationsOf(eqn: Eqn, mesh: MeshShape): Relation[] {
  switch (eqn.op) {
    case "scan": {
      const { body, numCarry, numConsts } = eqn.params;
      const carry = range(numCarry).map((i) => link(at(body.outputs, i), at(body.inputs, numConsts + i)));
      return [
        ...eqn.ins.map((atom, i) => link(atom, at(body.inputs, i))),
        ...relations(body, mesh),
        ...carry,
        ...eqn.outs.map((out, i) => link(out, at(body.outputs, i))),
      ];
    }
    case "while": {
      const { condition, body, numConditionConsts, numBodyConsts } = eqn.params;
      const bodyIns = eqn.ins.slice(numConditionConsts);
      const carryOf = (i: number) => at(body.inputs, numBodyConsts + i);
      return [
        ...range(numConditionConsts).map((i) => link(at(eqn.ins, i), at(condition.inputs, i))),
        ...bodyIns.map((atom, i) => link(atom, at(body.inputs, i))),
        ...relations(condition, mesh),
        ...relations(body, mesh),
        ...eqn.outs.flatMap((out, i) => [link(at(body.outputs, i), carryOf(i)), link(out, carryOf(i))]),
      ];
    }
    case "optimizationBarrier":
      return eqn.ins.map((atom, i) => link(atom, at(eqn.outs, i)));
    case "cond":
      return eqn.params.branches.flatMap((branch) => [
        ...branch.inputs.map((input, i) => link(at(eqn.ins, i + 1), input)),
        ...relations(branch, mesh),
        ...eqn.outs.map((out, i) => link(out, at(branch.outputs, i))),
      ]);
    case "shardMap": {
      const { inSpecs, outSpecs, manual, body } = eqn.params;
      const linkTo = (blocks: readonly Atom[], specs: readonly Spec[]) => (atom: Atom, i: number) =>
        linkBlock(atom, at(blocks, i), specOn(mesh, at(specs, i)), manual);
      return [
        ...eqn.ins.map(linkTo(body.inputs, inSpecs)),
        ...(autoAxes(eqn, mesh).length > 0 ? relations(body, mesh) : []),
        ...eqn.outs.map(linkTo(body.outputs, outSpecs)),
      ];
    }
    case "remat":
    case "customVjp":
      throw new InternalError(`[partition] ${eqn.op} must stand as its body`);
    default:
      return [relationOf(eqn)];
  }
}

/** What an op with factors relates. */
function relationOf(eqn: Eqn<FactoredOp>): Relation {
  const rule = alongRows(eqn, factorRule(eqn));
  const member = (value: Atom, dims: DimFactors): RelatedValue => ({ value, type: value.type, dims });
  const lacks = (dims: DimFactors) => rule.results.flat(2).some((factor) => !dims.flat().includes(factor));
  return {
    factors: rule.factors,
    grows: rule.operands.some((dims) => dims.length > 0 && lacks(dims)),
    members: [
      ...eqn.ins.map((atom, i) => member(atom, at(rule.operands, i))),
      ...eqn.outs.map((atom, i) => member(atom, at(rule.results, i))),
    ],
  };
}

/** Spreads along one relation; returns the values that changed. */
function spread(relation: Relation, mesh: MeshShape, shardings: Shardings): ReadonlySet<number> {
  const wishes = relation.members.flatMap(({ value, dims, type }) => {
    const spec = value.kind === "pin" ? value.spec : shardings.get(value);
    return spec.flatMap((axes, d) => {
      const fixed = value.kind === "pin" || shardings.fixed(value, d);
      return wishesOf(axes, at(dims, d), relation.factors, mesh, bytesOf(type), fixed);
    });
  });
  const changed = new Set<number>();
  if (wishes.length === 0) return changed;
  const reduces = relation.factors.some(({ kind }) => kind !== "parallel");
  // What is fixed on one side of a contraction must not decide how larger tensors on the other side are split.
  const weighed = reduces ? wishes.map((wish) => ({ ...wish, fixed: false })) : wishes;
  const assigned = assignAxes(weighed, relation.factors);
  for (const { value, dims, barred = [] } of relation.members) {
    if (value.kind !== "var") continue;
    dims.forEach((factors, d) => {
      if (shardings.fixed(value, d)) return;
      const current = shardings.get(value);
      const wanted = dimAxes(factors, assigned, relation.factors, mesh);
      const mine = at(current, d);
      if (wanted.length <= mine.length || !mine.every((axis, i) => axis === wanted[i])) return;
      const elsewhere = current.flatMap((axes, other) => (other === d ? [] : axes));
      const taken = new Set([...elsewhere, ...barred]);
      if (wanted.some((axis) => taken.has(axis))) return;
      shardings.set(value, d, wanted);
      changed.add(value.id);
    });
  }
  return changed;
}

/** The axes that one dim of one tensor requests for a factor. */
export interface AxisRequest {
  readonly factor: number;
  readonly axes: DimAxes;
  /** The bytes that would have to move if the request is not met. */
  readonly weight: number;
  readonly fixed: boolean;
}

/** Gives a dim's axes to its factors, outermost first, as far as they fill them evenly. */
export function wishesOf(
  axes: DimAxes,
  dimFactors: readonly number[],
  factors: readonly Factor[],
  mesh: MeshShape,
  weight: number,
  fixed: boolean,
): AxisRequest[] {
  const wishes: AxisRequest[] = [];
  let place = 0;
  let split = 1;
  let own: string[] = [];
  const flush = () => {
    const factor = dimFactors[place];
    if (factor !== undefined && own.length > 0) wishes.push({ factor, axes: own, weight, fixed });
    own = [];
    split = 1;
  };
  for (const axis of axes) {
    const size = axisSizeIn(mesh, axis) ?? 1;
    const room = () => at(factors, dimFactors[place] ?? 0).size;
    if (place < dimFactors.length && split === room() && size > 1) {
      flush();
      place++;
    }
    if (place >= dimFactors.length || room() % (split * size) !== 0) break;
    own.push(axis);
    split *= size;
  }
  flush();
  return wishes;
}

/** Gives every axis to at most one factor: fixed requests first, then those that would move most bytes. */
export function assignAxes(wishes: readonly AxisRequest[], factors: readonly Factor[]): DimAxes[] {
  const totals = new Map<string, AxisRequest>();
  for (const wish of wishes) {
    if (at(factors, wish.factor).kind === "whole") continue;
    const key = `${wish.factor}:${wish.axes.join()}`;
    const known = totals.get(key);
    totals.set(key, {
      ...wish,
      weight: wish.weight + (known?.weight ?? 0),
      fixed: wish.fixed || (known?.fixed ?? false),
    });
  }
  const order = [...totals.values()].sort((a, b) => Number(b.fixed) - Number(a.fixed) || b.weight - a.weight);
  const assigned: string[][] = factors.map(() => []);
  const owner = new Map<string, number>();
  for (const { factor, axes } of order) {
    const mine = at(assigned, factor);
    if (!mine.every((axis, i) => axes[i] === axis)) continue;
    for (const axis of axes.slice(mine.length)) {
      if (owner.has(axis)) break;
      owner.set(axis, factor);
      mine.push(axis);
    }
  }
  return assigned;
}

/**
 * The axes that factors can use: if an outer factor of a dim is not fully split, the inner ones cannot be split. Their
 * axes go to the outer factor if it is divisible by them, so that blocks only have to change places.
 */
export function usableAxes(
  assigned: readonly DimAxes[],
  dims: DimFactors,
  factors: readonly Factor[],
  mesh: MeshShape,
): DimAxes[] {
  const usable = [...assigned];
  const sizeOfFactor = (factor: number) => at(factors, factor).size;
  const isFull = (factor: number) => splitCount(mesh, at(usable, factor)) === sizeOfFactor(factor);
  for (let changed = true; changed; ) {
    changed = false;
    for (const dim of dims) {
      const open = dim.find((factor) => !isFull(factor));
      if (open === undefined) continue;
      for (const factor of dim.slice(dim.indexOf(open) + 1)) {
        const axes = at(usable, factor);
        if (axes.length === 0) continue;
        usable[factor] = [];
        const more = [...at(usable, open), ...axes];
        if (sizeOfFactor(open) % splitCount(mesh, more) === 0) usable[open] = more;
        changed = true;
      }
    }
  }
  return usable;
}

/** The axes of a dim, given those of its factors; an inner factor counts only if the outer one is fully split. */
export function dimAxes(
  dimFactors: readonly number[],
  assigned: readonly DimAxes[],
  factors: readonly Factor[],
  mesh: MeshShape,
): string[] {
  const axes: string[] = [];
  for (const factor of dimFactors) {
    const own = at(assigned, factor);
    axes.push(...own);
    if (splitCount(mesh, own) !== at(factors, factor).size) break;
  }
  return axes;
}
