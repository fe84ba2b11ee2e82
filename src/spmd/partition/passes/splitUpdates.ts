import { getOrInsert } from "../../../ir/collections.js";
import { axesSize, type Spec } from "../../../ir/mesh.js";
import { isReduction, type ReduceOp } from "../../../ir/opFacts.js";
import { afterPass } from "../../../ir/passes.js";
import {
  type Atom,
  type Eqn,
  makeEqn,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "../../../ir/program.js";
import { at, type TensorType, tensorType } from "../../../ir/shape.js";
import { removeDeadCode } from "../../../transforms/rewrite/deadCode.js";
import { findUpdates, reducesAll, type Share, type Updates } from "./findUpdates.js";
import { stackedSums, withScatteredSums } from "./stackedSums.js";

/** A per-device program and how its inputs and outputs are split. */
interface Split {
  readonly program: Program;
  readonly inSpecs: readonly Spec[];
  readonly outSpecs: readonly Spec[];
}

/**
 * Splits the updates of a training step (see {@link findUpdates}) over the devices that would all repeat them: instead
 * of summing gradients on every device and updating everything there, each device sums its block, updates it, and
 * weights are gathered. This sends as much as before, and repeats neither the work nor the optimiser's state. Sums that a
 * loop over layers stacks are scattered in the loop.
 *
 * Elements have the same bits as before: a scattered sum adds in the order of a whole one, and elementwise work does
 * not depend on other elements. A sum over all elements, as in the norm of gradients, becomes a sum of the devices' sums
 * and may differ in rounding.
 *
 * @returns the program and the new specs of its inputs and outputs: those that changed are split further
 */
export function splitUpdates({ program, inSpecs, outSpecs }: Split): Split {
  const updates = findUpdates(program, inSpecs);
  if (updates.shares.size === 0) return { program, inSpecs, outSpecs };
  const result = new Splitter(updates).program(program);
  const kept = (atom: Atom) =>
    atom.kind === "var" && !updates.gathered.has(atom.id) ? updates.shares.get(atom.id) : undefined;
  return {
    program: afterPass("splitUpdates", removeDeadCode(result), "partitioned"),
    inSpecs: program.inputs.map(({ id, type }, i) =>
      finer(at(inSpecs, i), updates.blocks.get(id), type.shape.length),
    ),
    outSpecs: program.outputs.map((atom, i) => finer(at(outSpecs, i), kept(atom), atom.type.shape.length)),
  };
}

/** A spec with a dim split over further axes. */
function finer(spec: Spec, share: Share | undefined, rank: number): Spec {
  if (!share) return spec;
  const names = share.axes.map(({ name }) => name);
  return Array.from({ length: rank }, (_, d) => [...(spec[d] ?? []), ...(d === share.dim ? names : [])]);
}

function blockType({ dtype, shape }: TensorType, { axes, dim }: Share): TensorType {
  return tensorType(dtype, shape.with(dim, at(shape, dim) / axesSize(axes)));
}

/** How results of a reduction are combined over devices. */
const together = { reduceSum: "psum", reduceMax: "pmax", reduceMin: "pmin" } as const satisfies {
  readonly [K in ReduceOp]: "psum" | "pmax" | "pmin";
};

class Splitter {
  private readonly eqns: Eqn[] = [];
  private readonly blocks = new Map<number, Var>();
  private readonly definitions = new Map<number, Eqn>();
  private readonly starts = new Map<string, Var>();

  constructor(private readonly updates: Updates) {}

  program(program: Program): Program {
    const { blocks, gathered } = this.updates;
    const inputs = program.inputs.map((input) => {
      const share = blocks.get(input.id);
      return share ? this.define(input, share) : input;
    });
    for (const eqn of program.eqns) this.eqn(eqn);
    const outputs = program.outputs.map((atom) =>
      atom.kind === "var" && !gathered.has(atom.id) && this.updates.shares.has(atom.id)
        ? (this.blocks.get(atom.id) ?? atom)
        : atom,
    );
    return { inputs, eqns: this.eqns, outputs };
  }

  private eqn(eqn: Eqn): void {
    const [out] = eqn.outs;
    const share = out && this.updates.shares.get(out.id);
    if (eqn.op === "scan") this.scan(eqn);
    else if (out && share) this.work(eqn, out, share);
    else if (isReduction(eqn) && reducesAll(eqn) && this.isSplit(at(eqn.ins, 0))) this.reduce(eqn);
    else this.eqns.push(eqn);
    for (const made of eqn.outs) this.definitions.set(made.id, eqn);
  }

  /** A loop whose stacks of sums over devices are shared: this device's blocks of them. */
  private scan(eqn: Eqn<"scan">): void {
    const shared = stackedSums(eqn).flatMap((sum) => {
      const share = this.updates.shares.get(sum.out.id);
      return share ? [{ sum, share, block: this.define(sum.out, share) }] : [];
    });
    const scattered = new Map(
      shared.map(({ sum, share, block }) => [sum, { dim: share.dim, block }] as const),
    );
    this.eqns.push(shared.length === 0 ? eqn : withScatteredSums(eqn, scattered));
    for (const { sum, share, block } of shared) this.gather(block, sum.out, share, eqn);
  }

  /** This device's block of a sum over devices, or of elementwise work. */
  private work(eqn: Eqn, out: Var, share: Share): void {
    const { axes, dim } = share;
    const ins = eqn.op === "psum" ? eqn.ins : eqn.ins.map((atom) => this.block(atom, share));
    const block = this.define(out, share);
    if (eqn.op === "psum") this.eqns.push(makeEqn("psumScatter", ins, [block], { axes, dim }, eqn.source));
    else this.eqns.push({ ...eqn, ins, outs: [block] });
    this.gather(block, out, share, eqn);
  }

  /** Gathers a value that leaves the program whole. */
  private gather(block: Var, out: Var, { axes, dim }: Share, { source }: Eqn): void {
    if (!this.updates.gathered.has(out.id)) return;
    this.eqns.push(makeEqn("allGather", [block], [out], { axes, dim }, source));
  }

  private reduce(eqn: Eqn<ReduceOp>): void {
    const x = at(eqn.ins, 0);
    const share = x.kind === "var" ? this.updates.shares.get(x.id) : undefined;
    if (!share) return;
    const own = newVar(at(eqn.outs, 0).type);
    this.eqns.push({ ...eqn, ins: [this.block(x, share)], outs: [own] });
    this.eqns.push(makeEqn(together[eqn.op], [own], eqn.outs, { axes: share.axes }, eqn.source));
  }

  private isSplit(atom: Atom): boolean {
    return atom.kind === "var" && this.updates.shares.has(atom.id);
  }

  private define(value: Var, share: Share): Var {
    const block = newVar(blockType(value.type, share));
    this.blocks.set(value.id, block);
    return block;
  }

  /** This device's block of a value; scalars stay whole. */
  private block(atom: Atom, share: Share): Atom {
    if (atom.kind === "literal" || atom.type.shape.length === 0) return atom;
    const known = this.blocks.get(atom.id);
    if (known) return known;
    const spread = this.definitions.get(atom.id);
    const block = this.define(atom, share);
    const { shape } = block.type;
    if (spread?.op === "broadcastInDim" && at(spread.ins, 0).type.shape.length === 0) {
      this.eqns.push(makeEqn("broadcastInDim", spread.ins, [block], { shape, dims: [] }, spread.source));
    } else {
      const zero = newLiteral(0, "int32");
      const starts = shape.map((n, d) => (d === share.dim ? this.start(share, n) : zero));
      this.eqns.push(makeEqn("dynamicSlice", [atom, ...starts], [block], { sizes: shape }));
    }
    return block;
  }

  /** The first row of this device's block. */
  private start({ axes }: Share, rows: number): Var {
    const key = `${axes.map(({ name }) => name).join()} ${rows}`;
    return getOrInsert(this.starts, key, () => {
      const [index, start] = [newVar(tensorType("int32", [])), newVar(tensorType("int32", []))];
      this.eqns.push(makeEqn("axisIndex", [], [index], { axes }));
      this.eqns.push(makeEqn("mul", [index, newLiteral(rows, "int32")], [start], {}));
      return start;
    });
  }
}
