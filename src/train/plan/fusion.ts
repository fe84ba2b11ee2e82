/**
 * Which kernels a fusing compiler such as XLA makes of a per-device program: elementwise ops, movements and reductions
 * become part of the kernels that store something other equations need, and everything between them is never stored.
 */
import { getKnown, getOrInsert } from "../../ir/collections.js";
import { type Family, factsOf, isReduction } from "../../ir/opFacts.js";
import type { OpName } from "../../ir/ops.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, bytesOf } from "../../ir/shape.js";

/** A fused kernel. */
export interface Kernel {
  /** The index of the equation at which it runs. */
  readonly position: number;
  /** What it reads, with the bytes it needs of each value. */
  readonly reads: ReadonlyMap<Var, number>;
  /** What it stores. */
  readonly writes: readonly Var[];
}

/** Results that share the memory of an operand, or that XLA lays out by choosing the layout of what reads them. */
const views: ReadonlySet<OpName> = new Set<OpName>([
  "reshape",
  "transpose",
  "name",
  "stopGradient",
  "optimizationBarrier",
]);

/** Ops that are computed where their results are needed. */
const fusedFamilies: ReadonlySet<Family> = new Set<Family>([
  "unary",
  "binary",
  "elementwise",
  "source",
  "movement",
  "reduction",
  "position",
]);

/** Whether an op can be a part of a larger kernel; updates of a slice happen in place. */
function isFused(op: OpName): boolean {
  return op !== "dynamicUpdateSlice" && fusedFamilies.has(factsOf(op).family);
}

interface Definition {
  readonly eqn: Eqn;
  readonly position: number;
  readonly result: number;
}

/** A kernel to which later results may be added. */
interface OpenKernel {
  readonly position: number;
  readonly reads: Map<Var, number>;
  readonly writes: Var[];
}

/** The kernels of one program; those of bodies inside it are made separately. */
export class Fusion {
  /** The kernels that run at an equation. */
  readonly kernels = new Map<number, OpenKernel[]>();
  private readonly definitions = new Map<number, Definition>();
  /** The values in memory, and the index of the equation that stores each; inputs at −1. */
  private readonly stored = new Map<number, number>();
  private readonly levels = new Map<number, number>();

  constructor(private readonly program: Program) {
    program.eqns.forEach((eqn, position) => {
      eqn.outs.forEach(({ id }, result) => {
        this.definitions.set(id, { eqn, position, result });
      });
    });
    for (const input of program.inputs) this.stored.set(input.id, -1);
    const needed = this.neededInMemory();
    const open = new Map<string, OpenKernel[]>();
    program.eqns.forEach((eqn, position) => {
      if (views.has(eqn.op)) return;
      if (!isFused(eqn.op)) {
        const level = 1 + Math.max(0, ...this.operands(eqn).map(({ id }) => this.levels.get(id) ?? 0));
        for (const { id } of eqn.outs) {
          this.stored.set(id, position);
          this.levels.set(id, level);
        }
        return;
      }
      for (const out of eqn.outs) if (needed.has(out.id)) this.addKernel(out, eqn, position, open);
    });
  }

  /** The value in memory, or computed where it is needed, that an operand is a view of; none for a scalar constant. */
  root(atom: Atom): Var | undefined {
    let found: Atom | undefined = atom;
    while (found?.kind === "var") {
      const made: Definition | undefined = this.definitions.get(found.id);
      if (!made || !views.has(made.eqn.op)) return found;
      found = made.eqn.ins[made.eqn.op === "optimizationBarrier" ? made.result : 0];
    }
    return undefined;
  }

  /** What an equation reads from memory that is a kernel, product, collective or control op by itself. */
  operands(eqn: Eqn): Var[] {
    return eqn.ins.flatMap((atom) => this.root(atom) ?? []);
  }

  /** Whether an equation is computed by itself: not a view, and not inside fused kernels. */
  isSeparate({ op }: Eqn): boolean {
    return !views.has(op) && !isFused(op);
  }

  /** The equation that computes a value, if it is not an input. */
  definition({ id }: Var): Eqn | undefined {
    return this.definitions.get(id)?.eqn;
  }

  /** The index of the equation at which a value has been stored. */
  storedAt({ id }: Var): number {
    return getKnown(this.stored, id);
  }

  /** Values that other kinds of equations read, results of the program, and those of reductions. */
  private neededInMemory(): Set<number> {
    const { eqns, outputs } = this.program;
    const roots = outputs.map((atom) => this.root(atom));
    for (const eqn of eqns) {
      if (this.isSeparate(eqn)) roots.push(...this.operands(eqn));
      else if (isReduction(eqn)) roots.push(...eqn.outs);
    }
    return new Set(roots.flatMap((value) => value?.id ?? []));
  }

  private addKernel(out: Var, eqn: Eqn, position: number, open: Map<string, OpenKernel[]>): void {
    const reads = new Map<Var, number>();
    this.collectReads(eqn, Number.POSITIVE_INFINITY, reads, new Map());
    const level = 1 + Math.max(0, ...[...reads.keys()].map(({ id }) => this.levels.get(id) ?? 0));
    const [largest] = [...reads].sort((a, b) => b[1] - a[1])[0] ?? [];
    const rivals = getOrInsert(open, `${level} ${largest?.id ?? ""}`, (): OpenKernel[] => []);
    // Kernels that read the same tensor are one if nothing that the second reads comes after the first.
    const fits = (kernel: OpenKernel) =>
      [...reads.keys()].every((leaf) => this.storedAt(leaf) <= kernel.position);
    const kernel: OpenKernel = rivals.find(fits) ?? { position, reads: new Map(), writes: [] };
    if (kernel.writes.length === 0) {
      rivals.push(kernel);
      getOrInsert(this.kernels, position, (): OpenKernel[] => []).push(kernel);
    }
    for (const [leaf, bytes] of reads) kernel.reads.set(leaf, Math.max(bytes, kernel.reads.get(leaf) ?? 0));
    kernel.writes.push(out);
    this.stored.set(out.id, kernel.position);
    this.levels.set(out.id, level);
  }

  /** Adds what an equation inside a kernel reads from memory, at most `limit` bytes of each value. */
  private collectReads(eqn: Eqn, limit: number, reads: Map<Var, number>, seen: Map<number, number>): void {
    const isPart = eqn.op === "slice" || eqn.op === "dynamicSlice";
    const most = isPart ? Math.min(limit, bytesOf(at(eqn.outs, 0).type)) : limit;
    for (const value of this.operands(eqn)) {
      if (this.stored.has(value.id)) {
        reads.set(value, Math.max(reads.get(value) ?? 0, Math.min(most, bytesOf(value.type))));
        continue;
      }
      if ((seen.get(value.id) ?? 0) >= most) continue;
      seen.set(value.id, most);
      this.collectReads(getKnown(this.definitions, value.id).eqn, most, reads, seen);
    }
  }
}
