import { getOrInsert, zip } from "../../../ir/collections.js";
import { isFloat } from "../../../ir/dtype.js";
import { axesSize, type MeshAxis, type Spec } from "../../../ir/mesh.js";
import { isElementwiseEqn, isReduction } from "../../../ir/opFacts.js";
import type { Atom, Eqn, Program, Var } from "../../../ir/program.js";
import { at, bytesOf } from "../../../ir/shape.js";
import { countUses } from "./joinSums.js";
import { type Varying, varyingOutputs } from "./replication.js";
import { stackedSums } from "./stackedSums.js";

/** How a value that was whole on every device is split: each device along the axes gets its block of a dim. */
export interface Share {
  readonly axes: readonly MeshAxis[];
  readonly dim: number;
}

/** Which values of a program need not be whole on every device. */
export interface Updates {
  /** The values of which every device computes its block. */
  readonly shares: ReadonlyMap<number, Share>;
  /** Those that are gathered, because they leave the program whole. */
  readonly gathered: ReadonlySet<number>;
  /** The inputs of which a device reads only its block. */
  readonly blocks: ReadonlyMap<number, Share>;
}

/** Below this size latency, not work, dominates a sum over devices. */
const LEAST_BYTES = 64 * 1024;

/** Sums over devices with the same share, and the elementwise work connected with them. */
interface Update {
  readonly share: Share;
  readonly values: Var[];
  sumBytes: number;
}

/**
 * Finds the updates of a training step: elementwise work that begins with sums over devices and ends in outputs, so
 * that all devices along the axes of the sums repeat it. An update is worth splitting when what has to be gathered
 * afterwards is no more than what was summed: then as much is sent as before, and each device does a part of the work.
 *
 * State that only updates read and write (the moments of Adam) stays split from step to step and is not gathered: an
 * output is considered the next value of an input if it is the only output computed from that input.
 *
 * @param inSpecs how the inputs are split
 */
export function findUpdates(program: Program, inSpecs: readonly Spec[]): Updates {
  if (!program.eqns.some((eqn) => sumsOf(eqn).length > 0)) return noUpdates;
  const finder = new Finder(program, inSpecs);
  let updates = finder.updates();
  for (;;) {
    const found = finder.decide(updates);
    const worth = updates.filter((update) => finder.isWorth(update, found));
    if (worth.length === updates.length) return found;
    updates = worth;
  }
}

const noUpdates: Updates = { shares: new Map(), gathered: new Set(), blocks: new Map() };

/** The dim along which the devices that sum a value can share it, if it is worth sharing and splits evenly. */
function sharedDim({ params, outs }: Eqn<"psum">): number | undefined {
  const { type } = at(outs, 0);
  const size = axesSize(params.axes);
  if (size === 1 || !isFloat(type.dtype) || bytesOf(type) < LEAST_BYTES) return undefined;
  const dim = type.shape.findIndex((n) => n % size === 0);
  return dim < 0 ? undefined : dim;
}

/** A value that is summed over devices, and the dim along which they can share it. */
interface SharedSum {
  readonly value: Var;
  readonly axes: readonly MeshAxis[];
  readonly dim: number;
}

/** The sums that an equation gives: its own, or those that a loop stacks. */
function sumsOf(eqn: Eqn): readonly SharedSum[] {
  const shared = (sum: Eqn<"psum">, value: Var, outer: number): SharedSum[] => {
    const dim = sharedDim(sum);
    return dim === undefined ? [] : [{ value, axes: sum.params.axes, dim: dim + outer }];
  };
  if (eqn.op === "psum") return shared(eqn, at(eqn.outs, 0), 0);
  return eqn.op === "scan" ? stackedSums(eqn).flatMap(({ sum, out }) => shared(sum, out, 1)) : [];
}

/** Whether an equation reduces all elements of its operand to one number. */
export function reducesAll(eqn: Eqn): boolean {
  const { shape } = eqn.ins[0]?.type ?? { shape: [] };
  return isReduction(eqn) && shape.length > 0 && eqn.params.dims.length === shape.length;
}

class Finder {
  private readonly varying = new Map<number, Varying>();
  private readonly updateOf = new Map<number, Update>();
  /** Equal shares are one object. */
  private readonly shares = new Map<string, Share>();
  private readonly inputs: ReadonlySet<number>;
  private readonly uses: ReadonlyMap<number, number>;

  constructor(
    private readonly program: Program,
    inSpecs: readonly Spec[],
  ) {
    const inputs = inSpecs.map((spec) => new Set(spec.flat()));
    varyingOutputs(program, inputs, (eqn, ins) => {
      for (const [atom, varying] of zip(eqn.ins, ins))
        if (atom.kind === "var") this.varying.set(atom.id, varying);
    });
    this.inputs = new Set(program.inputs.map(({ id }) => id));
    this.uses = countUses(program);
  }

  /** All elementwise work on sums over devices, worth splitting or not. */
  updates(): Update[] {
    for (const eqn of this.program.eqns) {
      const [out] = eqn.outs;
      for (const sum of sumsOf(eqn)) {
        const { value } = sum;
        const share = this.shareOf(sum);
        this.updateOf.set(value.id, { share, values: [value], sumBytes: bytesOf(value.type) });
      }
      if (out && isElementwiseEqn(eqn)) this.follow(eqn, out);
    }
    return [...new Set(this.updateOf.values())];
  }

  /** The share of a value that is summed over devices. */
  private shareOf({ axes, dim }: SharedSum): Share {
    const key = `${dim} ${axes.map(({ name }) => name).join()}`;
    return getOrInsert(this.shares, key, () => ({ axes, dim }));
  }

  /** Adds an equation to the update that its operands belong to, unless one of them does not fit. */
  private follow(eqn: Eqn, out: Var): void {
    const ofOperands = [...new Set(eqn.ins.flatMap((atom) => this.ofAtom(atom) ?? []))];
    const [first] = ofOperands;
    if (!first || !eqn.ins.every((atom) => this.fits(atom, first.share))) return;
    for (const other of ofOperands) if (other !== first) this.merge(first, other);
    first.values.push(out);
    this.updateOf.set(out.id, first);
  }

  /** Whether the devices of a share have blocks of a value, or could take them from the same whole one. */
  private fits(atom: Atom, share: Share): boolean {
    if (atom.kind === "literal") return true;
    const own = this.updateOf.get(atom.id);
    const varying = this.varying.get(atom.id);
    return own ? own.share === share : !share.axes.some(({ name }) => varying?.has(name));
  }

  private ofAtom(atom: Atom): Update | undefined {
    return atom.kind === "var" ? this.updateOf.get(atom.id) : undefined;
  }

  private merge(into: Update, from: Update): void {
    into.values.push(...from.values);
    into.sumBytes += from.sumBytes;
    for (const { id } of from.values) this.updateOf.set(id, into);
  }

  /** The splits of the program's values if some updates are split. */
  decide(updates: readonly Update[]): Decision {
    const decision: Decision = {
      shares: new Map(updates.flatMap(({ share, values }) => values.map(({ id }) => [id, share] as const))),
      gathered: new Set(),
      blocks: new Map(),
      reads: new Map(),
      madeOf: new Map(),
    };
    const wanted = new Map<number, Share>();
    for (const eqn of this.program.eqns.toReversed()) this.noteReads(eqn, wanted, decision);
    for (const { id } of this.program.inputs) {
      const share = wanted.get(id);
      if (share && this.isOnlyRead(id, decision)) decision.blocks.set(id, share);
    }
    for (const eqn of this.program.eqns) this.noteOrigin(eqn, decision);
    this.pairOutputs(decision);
    return decision;
  }

  private isOnlyRead(id: number, { reads }: Decision): boolean {
    return reads.get(id) === this.uses.get(id);
  }

  /**
   * Counts what updates read. Equations come from the last to the first, so that elementwise work which only updates
   * read is found after all of its readers, and is split with them.
   *
   * @param wanted the share under which a value is read
   */
  private noteReads(eqn: Eqn, wanted: Map<number, Share>, decision: Decision): void {
    const { shares, reads } = decision;
    const [out] = eqn.outs;
    if (!out || eqn.op === "psum" || eqn.op === "scan") return;
    const asked = wanted.get(out.id);
    if (asked && isElementwiseEqn(eqn) && eqn.outs.length === 1 && this.isOnlyRead(out.id, decision)) {
      shares.set(out.id, asked);
    }
    const share = shares.get(out.id);
    if (!share && !reducesAll(eqn)) return;
    for (const atom of eqn.ins) {
      if (atom.kind === "literal" || (!share && !shares.has(atom.id))) continue;
      reads.set(atom.id, (reads.get(atom.id) ?? 0) + 1);
      if (!share || shares.has(atom.id) || atom.type.shape.length === 0) continue;
      // A value that is read under two shares is needed whole.
      if ((wanted.get(atom.id) ?? share) !== share) reads.set(atom.id, Number.NaN);
      wanted.set(atom.id, share);
    }
  }

  /** Records which inputs a value of an update is computed from. */
  private noteOrigin({ op, ins, outs }: Eqn, { shares, madeOf }: Decision): void {
    const [out] = outs;
    if (!out || !shares.has(out.id) || op === "psum" || op === "scan") return;
    const origins = ins.flatMap((atom) => {
      if (atom.kind === "literal" || atom.type.shape.length === 0) return [];
      return this.inputs.has(atom.id) ? [atom.id] : [...(madeOf.get(atom.id) ?? [])];
    });
    madeOf.set(out.id, new Set(origins));
  }

  /** Finds out which outputs are the next values of inputs that are split, and gathers the others. */
  private pairOutputs({ shares, blocks, gathered, madeOf }: Decision): void {
    const inputsOf = ({ id }: Var) => madeOf.get(id) ?? new Set<number>();
    const results = this.program.outputs
      .filter((atom) => atom.kind === "var")
      .filter(({ id }) => shares.has(id));
    const taken = new Set<number>();
    for (const result of results.sort((a, b) => inputsOf(a).size - inputsOf(b).size)) {
      const free = this.program.inputs.filter(
        ({ id, type }) => inputsOf(result).has(id) && !taken.has(id) && type.dtype === result.type.dtype,
      );
      for (const { id } of free) taken.add(id);
      if (free.length === 0 || !free.every(({ id }) => blocks.has(id))) gathered.add(result.id);
    }
  }

  /** Whether an update does any work, only leaves through outputs, and gathers no more than was summed. */
  isWorth({ values, sumBytes }: Update, { gathered, reads, madeOf }: Decision): boolean {
    const bytes = values.reduce((sum, { id, type }) => sum + (gathered.has(id) ? bytesOf(type) : 0), 0);
    const isReadElsewhere = values.some(({ id }) => {
      const asOutput = this.program.outputs.filter((atom) => atom.kind === "var" && atom.id === id).length;
      return (reads.get(id) ?? 0) + asOutput !== this.uses.get(id);
    });
    return bytes <= sumBytes && !isReadElsewhere && values.some(({ id }) => (madeOf.get(id)?.size ?? 0) > 0);
  }
}

/** What is known about values if some updates are split. */
interface Decision extends Updates {
  readonly shares: Map<number, Share>;
  readonly gathered: Set<number>;
  readonly blocks: Map<number, Share>;
  /** How often updates read a value. */
  readonly reads: Map<number, number>;
  /** The inputs that a value of an update is computed from. */
  readonly madeOf: Map<number, ReadonlySet<number>>;
}
