/**
 * Afterwards every temporary buffer has an aligned place in the arena, and no two that are live at the same time
 * overlap; a result may reuse the memory of an operand whose last use is the same step, and an output that of a
 * donated input. A loop that replaces its stacked operand slice by slice is such a step.
 *
 * Unchanged are the steps, their order, and every input that is not donated.
 */

import { getOrInsert } from "../../ir/collections.js";
import { ALIGNMENT } from "../steps.js";
import { innerSteps } from "../stepTree.js";
import { sharablePairs, slicePairs } from "./inPlace.js";
import type { Buffer } from "./planBuffers.js";
import { accesses, type PlannedCollective, type UnplacedStep } from "./plannedSteps.js";

/** Where every buffer of the arena lies. */
export interface MemoryPlan {
  readonly arenaBytes: number;
  /** Largest size of a page of the arena; no buffer lies in two, unless it is larger. */
  readonly pageBytes: number;
  /** Bytes that are used of each page. */
  readonly pages: readonly number[];
  /** Offsets of temporary buffers in the arena. */
  readonly offsets: ReadonlyMap<Buffer, number>;
  /** For every output the donated input whose memory it takes over. */
  readonly donatedTo: ReadonlyMap<number, number>;
}

/** From the first to the last step that touches a buffer. */
interface Interval {
  first: number;
  last: number;
}

/**
 * Finds a place in the arena for every temporary buffer, such that buffers that are alive at the same time do not
 * overlap. Results reuse the memory of operands that die with the step that computes them, and outputs that of donated
 * inputs.
 *
 * @param pageBytes the size of the pages that the arena consists of, a multiple of the alignment; by default it is one
 */
export function planMemory(
  steps: readonly UnplacedStep[],
  inputs: readonly Buffer[],
  outputs: readonly Buffer[],
  donated: readonly boolean[],
  pageBytes = Number.MAX_SAFE_INTEGER,
): MemoryPlan {
  const timeline = new Timeline(steps);
  const donatedTo = new Map<number, number>();
  const takeOver = (output: Buffer, input: Buffer): boolean => {
    const [to, from] = [outputs.indexOf(output), inputs.indexOf(input)];
    if (to < 0 || from < 0 || !donated[from] || donatedTo.has(to) || [...donatedTo.values()].includes(from)) {
      return false;
    }
    donatedTo.set(to, from);
    return true;
  };
  shareMemory(timeline, takeOver);
  mergeSlots(timeline.order, (w, r) => {
    const donor = w.kind.kind === "output" ? donatedTo.get(w.kind.index) : undefined;
    return w === r || (donor !== undefined && inputs[donor] === r);
  });
  // Outputs that are computed after a donated input's last use can have its memory too.
  for (const output of outputs) {
    const interval = timeline.interval(output);
    const free = inputs.find((input) => {
      const used = timeline.interval(input);
      const isOver = !used || (interval !== undefined && used.last < interval.first);
      return input.bytes === output.bytes && isOver && donated[inputs.indexOf(input)];
    });
    if (free && output.bytes > 0 && !donatedTo.has(outputs.indexOf(output))) takeOver(output, free);
  }
  return { ...assignOffsets(timeline, pageBytes), donatedTo };
}

/** When steps run and which buffers they touch; steps inside loops have times of their own. */
class Timeline {
  readonly order: UnplacedStep[] = [];
  private readonly intervals = new Map<Buffer, Interval>();
  private readonly touches = new Map<Buffer, number[]>();
  private readonly loops: { readonly start: number; end: number }[] = [];

  constructor(steps: readonly UnplacedStep[]) {
    this.visit(steps);
    for (const [buffer, times] of this.touches) {
      this.intervals.set(buffer, { first: Math.min(...times), last: Math.max(...times) });
    }
    // Inner loops come first in this list.
    for (const loop of this.loops) {
      for (const [buffer, times] of this.touches) {
        const interval = this.intervals.get(buffer);
        if (!interval) continue;
        const isInside = times.some((t) => t > loop.start && t <= loop.end);
        const isOutside = interval.first <= loop.start || interval.last > loop.end;
        if (isInside && isOutside) {
          interval.first = Math.min(interval.first, loop.start);
          interval.last = Math.max(interval.last, loop.end);
        }
      }
    }
  }

  private visit(steps: readonly UnplacedStep[]): void {
    for (const step of steps) {
      const time = this.order.length;
      this.order.push(step);
      const { reads, writes } = accesses(step);
      for (const buffer of [...reads, ...writes]) this.touch(buffer, time);
      const inner = innerSteps(step);
      for (const list of inner) this.visit(list);
      const loop = { start: time, end: this.order.length - 1 };
      if (step.op === "while") this.touch(step.predicate.buffer, loop.end);
      if (step.op === "loop" || step.op === "while") this.loops.push(loop);
    }
  }

  private touch(buffer: Buffer, time: number): void {
    const root = buffer.root();
    if (root.kind.kind === "dynamic") {
      for (const parent of root.kind.parents) this.touch(parent, time);
      return;
    }
    getOrInsert(this.touches, root, () => []).push(time);
  }

  /** When the last step inside a step runs, or the step itself. */
  endOf(start: number): number {
    return this.loops.find((loop) => loop.start === start)?.end ?? start;
  }

  interval(buffer: Buffer): Interval | undefined {
    return this.intervals.get(buffer.root());
  }

  /** Makes one buffer live where another does. */
  share(buffer: Buffer, host: Buffer): void {
    const [own, other] = [this.interval(buffer), this.interval(host)];
    if (own && other) {
      other.first = Math.min(own.first, other.first);
      other.last = Math.max(own.last, other.last);
    }
    this.intervals.delete(buffer);
    buffer.sharedWith = host;
  }

  temporaries(): (readonly [Buffer, Interval])[] {
    return [...this.intervals].filter(([buffer]) => buffer.kind.kind === "temporary");
  }
}

function shareMemory(timeline: Timeline, takeOver: (output: Buffer, input: Buffer) => boolean): void {
  timeline.order.forEach((step, time) => {
    if (step.op === "start") shareCollective(timeline, step.collective, time);
    const taken = new Set<Buffer>();
    const end = timeline.endOf(time);
    for (const [written, read] of sharablePairs(step)) {
      const [w, r] = [written.buffer.root(), read.buffer.root()];
      if (w === r || taken.has(w) || taken.has(r) || written.offset !== 0 || read.offset !== 0) continue;
      const [born, dying] = [timeline.interval(w), timeline.interval(r)];
      if (!born || !dying || born.first !== time || dying.last > end || w.bytes !== r.bytes) continue;
      const [to, from] = [w.kind.kind, r.kind.kind];
      if (to === "output" && from === "input" && takeOver(w, r)) taken.add(w).add(r);
      else if (from === "temporary" && to === "output") {
        taken.add(w).add(r);
        timeline.share(r, w);
      } else if (from === "temporary" && to === "temporary") {
        taken.add(w).add(r);
        timeline.share(w, r);
      }
    }
  });
}

/** Lets loops see slices of one memory through one slot, so that a slice that stays is not copied to itself. */
function mergeSlots(
  steps: readonly UnplacedStep[],
  isOneMemory: (written: Buffer, read: Buffer) => boolean,
): void {
  for (const step of steps) {
    if (step.op !== "loop") continue;
    for (const [written, read] of slicePairs(step)) {
      if (isOneMemory(written.whole.root(), read.whole.root())) read.slot.sharedWith = written.slot;
    }
  }
}

/** An all-reduce works in place if nothing reads its operand afterwards. */
function shareCollective(timeline: Timeline, collective: PlannedCollective, start: number): void {
  const { kind, source, target } = collective;
  const [from, to] = [source.buffer.root(), target.buffer.root()];
  if (kind !== "allReduce" || from === to || source.offset !== 0 || target.offset !== 0) return;
  if (from.kind.kind !== "temporary" || from.bytes !== to.bytes) return;
  const done = timeline.order.findIndex((step) => step.op === "done" && step.collective === collective);
  const [dying, born] = [timeline.interval(from), timeline.interval(to)];
  if (!dying || !born || dying.last !== done || born.first !== start) return;
  if (to.kind.kind === "output") timeline.share(from, to);
  else if (to.kind.kind === "temporary") timeline.share(to, from);
}

/** Largest first, each in the smallest gap that fits between the buffers alive at the same time. */
function assignOffsets(
  timeline: Timeline,
  pageBytes: number,
): Pick<MemoryPlan, "arenaBytes" | "offsets" | "pageBytes" | "pages"> {
  const offsets = new Map<Buffer, number>();
  const placed: {
    readonly first: number;
    readonly last: number;
    readonly start: number;
    readonly end: number;
  }[] = [];
  let arenaBytes = 0;
  const pages: number[] = [];
  const pageOf = (offset: number) => Math.floor(offset / pageBytes);
  const buffers = timeline
    .temporaries()
    .sort(([a, x], [b, y]) => b.bytes - a.bytes || x.first - y.first || a.id - b.id);
  for (const [buffer, { first, last }] of buffers) {
    const size = Math.ceil(buffer.bytes / ALIGNMENT) * ALIGNMENT;
    /** The first place from an offset on that is not in two pages. */
    const within = (offset: number) =>
      pageOf(offset) === pageOf(offset + size - 1) || offset % pageBytes === 0
        ? offset
        : (pageOf(offset) + 1) * pageBytes;
    const around = placed.filter((p) => p.first <= last && first <= p.last).sort((p, q) => p.start - q.start);
    let best: { start: number; gap: number } | undefined;
    let end = 0;
    for (const p of around) {
      const start = within(end);
      const gap = p.start - start;
      if (gap >= size && (!best || gap < best.gap)) best = { start, gap };
      end = Math.max(end, p.end);
    }
    const start = best?.start ?? within(end);
    placed.push({ first, last, start, end: start + size });
    offsets.set(buffer, start);
    arenaBytes = Math.max(arenaBytes, start + size);
    const page = pageOf(start);
    while (pages.length <= page) pages.push(0);
    pages[page] = Math.max(pages[page] ?? 0, start + size - page * pageBytes);
  }
  return { arenaBytes, offsets, pageBytes, pages };
}
