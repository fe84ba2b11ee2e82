import { need } from "../../ir/arguments.js";
import { axesSize, type MeshAxis } from "../../ir/mesh.js";
import {
  type CollectiveOp,
  type ControlOp,
  flopsOf,
  isCollectiveEqn,
  isControlEqn,
  opFacts,
} from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import { type Eqn, type EqnParts, innerPrograms, type Program } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, formatBytes } from "../../ir/shape.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import { type JitOptions, jitOptions, partitionCall } from "../run/call.js";

/** What the collectives of one kind over the same axes cost. */
export interface CollectiveCost {
  readonly op: CollectiveOp;
  readonly axes: readonly string[];
  /** How many of them run. */
  readonly count: number;
  /** The bytes that every device sends for all of them. */
  readonly bytes: number;
}

/** What a program costs every device; see {@link costAnalysis}. */
export class CostReport {
  /** Floating-point operations: two for each product and sum of a contraction, one for each element elsewhere. */
  readonly flops: number;
  readonly collectives: readonly CollectiveCost[];
  /** The most bytes that are alive at one time, before elementwise equations are fused. */
  readonly peakBytes: number;
  readonly inputBytes: number;
  readonly outputBytes: number;
  /** Whether there are `while` loops, which count as one iteration because their number is not known. */
  readonly hasOpenLoops: boolean;

  constructor(program: Program, donated: readonly boolean[] = []) {
    const tally = new Tally();
    tally.add(program, 1);
    this.flops = tally.flops;
    this.collectives = [...tally.collectives.values()];
    this.hasOpenLoops = tally.hasOpenLoops;
    this.peakBytes = peakBytes(program, donated);
    this.inputBytes = bytesOfAll(program.inputs);
    this.outputBytes = bytesOfAll(program.outputs);
  }

  /** The bytes that every device sends, of all collectives or of those over an axis or of one op. */
  bytesMoved(filter: { readonly op?: CollectiveOp; readonly axis?: string } = {}): number {
    return this.collectives
      .filter(({ op, axes }) => op === (filter.op ?? op) && axes.includes(filter.axis ?? at(axes, 0)))
      .reduce((bytes, cost) => bytes + cost.bytes, 0);
  }

  toString(): string {
    const lines = formatCollectives(this.collectives);
    return [
      `flops          ${this.flops.toLocaleString("en-US")}${this.hasOpenLoops ? " and more in while loops" : ""}`,
      `peak memory    ${formatBytes(this.peakBytes)} (inputs ${formatBytes(this.inputBytes)}, outputs ${formatBytes(this.outputBytes)})`,
      `communication  ${lines.length === 0 ? "none" : `${formatBytes(this.bytesMoved())} sent by every device`}`,
      ...lines,
    ].join("\n");
  }
}

/**
 * What a call would cost each device, computed from the partitioned program without running it.
 *
 * ```ts
 * const cost = costAnalysis(trainStep, { mesh })(params, batch);
 * console.log(`${cost}`, cost.bytesMoved({ axis: "model" }));
 * ```
 *
 * @param options those of `jit`
 *
 * @example
 * ```ts
 * const cost = costAnalysis((x: Tensor) => np.matmul(x, x))(np.ones([4, 4]));
 * cost.flops; // 128
 * ```
 */
export function costAnalysis<A extends readonly unknown[], R, S extends number = never>(
  fn: (...args: A) => R,
  options: JitOptions<A, R, S> = {},
): (...args: A) => CostReport {
  need("function", fn, "fn", "costAnalysis");
  jitOptions.read(options, "costAnalysis");
  return (...args) => {
    const { program, donated } = partitionCall(fn, args, options);
    return new CostReport(simplify(program), donated);
  };
}

/** One line for every kind of collective: how often it runs, over which axes, and what a device sends for it. */
export function formatCollectives(collectives: readonly CollectiveCost[]): string[] {
  return collectives.map(
    ({ op, axes, count, bytes }) =>
      `  ${`${count} ${op}`.padEnd(16)} over ${axes.join(", ").padEnd(12)} ${formatBytes(bytes)}`,
  );
}

/** Adds up what equations cost, as often as they run. */
class Tally {
  flops = 0;
  hasOpenLoops = false;
  readonly collectives = new Map<string, CollectiveCost>();

  add(program: Program, times: number): void {
    for (const eqn of program.eqns) this.addEqn(eqn, times);
  }

  private addEqn(eqn: Eqn, times: number): void {
    this.flops += flopsOf(eqn) * times;
    if (isCollectiveEqn(eqn)) {
      const { axes } = eqn.params;
      this.addCollective(eqn.op, axes, opFacts[eqn.op].sends(bytesOfAll(eqn.ins), axesSize(axes)), times);
    }
    if (isControlEqn(eqn)) addControl(this, eqn, times);
    else for (const [, inner] of innerPrograms(eqn)) this.add(inner, times);
  }

  /** Adds the most expensive of some programs, only one of which runs. */
  addDearest(programs: readonly Program[], times: number): void {
    const tallies = programs.map((program) => {
      const tally = new Tally();
      tally.add(program, times);
      return tally;
    });
    const bytes = ({ collectives }: Tally) => [...collectives.values()].reduce((n, c) => n + c.bytes, 0);
    const [dearest] = tallies.sort((a, b) => b.flops - a.flops || bytes(b) - bytes(a));
    if (dearest) this.merge(dearest);
  }

  private merge(other: Tally): void {
    this.flops += other.flops;
    this.hasOpenLoops ||= other.hasOpenLoops;
    for (const [key, cost] of other.collectives) this.put(key, cost);
  }

  private addCollective(op: CollectiveOp, axes: readonly MeshAxis[], bytes: number, times: number): void {
    const names = axes.map(({ name }) => name);
    this.put(`${op} ${names}`, { op, axes: names, count: times, bytes: bytes * times });
  }

  private put(key: string, cost: CollectiveCost): void {
    const known = this.collectives.get(key);
    this.collectives.set(key, {
      ...cost,
      count: cost.count + (known?.count ?? 0),
      bytes: cost.bytes + (known?.bytes ?? 0),
    });
  }
}

/** The cost of running a control op `times` times. */
const controls: { readonly [K in ControlOp]: (tally: Tally, params: OpParams[K], times: number) => void } = {
  scan: (tally, { body, length }, times) => tally.add(body, times * length),
  while: (tally, { condition, body }, times) => {
    tally.hasOpenLoops = true;
    for (const inner of [condition, body]) tally.add(inner, times);
  },
  cond: (tally, { branches }, times) => tally.addDearest(branches, times),
};

function addControl<K extends ControlOp>(tally: Tally, { op, params }: EqnParts<K>, times: number): void {
  controls[op](tally, params, times);
}

/**
 * The most bytes alive at one time when equations run in order: inputs stay unless they are donated, every
 * other value lives from its equation to its last reader.
 */
function peakBytes(program: Program, donated: readonly boolean[]): number {
  const lastUse = new Map<number, number>();
  program.eqns.forEach(({ ins }, i) => {
    for (const atom of ins) if (atom.kind === "var") lastUse.set(atom.id, i);
  });
  const kept = new Set(program.outputs.flatMap((atom) => (atom.kind === "var" ? [atom.id] : [])));
  program.inputs.forEach((input, i) => {
    if (!donated[i]) kept.add(input.id);
  });
  let alive = bytesOfAll(program.inputs);
  let peak = alive;
  program.eqns.forEach((eqn, i) => {
    alive += bytesOfAll(eqn.outs);
    const inner = Math.max(0, ...innerPrograms(eqn).map(([, body]) => innerPeak(eqn, body)));
    peak = Math.max(peak, alive + inner);
    const ending = new Map(
      [...eqn.ins, ...eqn.outs].flatMap((atom) => (atom.kind === "var" ? [[atom.id, atom]] : [])),
    );
    for (const [id, atom] of ending) {
      if (!kept.has(id) && (lastUse.get(id) ?? i) <= i) alive -= bytesOf(atom.type);
    }
  });
  return peak;
}

/** What a program inside an equation needs besides the operands that it shares with it. */
function innerPeak(eqn: Eqn, body: Program): number {
  const shared = eqn.op === "scan" ? body.inputs.slice(0, eqn.params.numConsts) : body.inputs;
  return Math.max(0, peakBytes(body, []) - bytesOfAll(shared));
}
