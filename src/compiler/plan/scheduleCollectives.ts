/**
 * Afterwards a collective starts as soon as its operands are computed and ends late enough for other work to hide
 * it. Each step comes after those that write what it reads; between start and done nothing writes what is being
 * sent or touches what arrives; all devices, which compile the same program, start and end collectives in the same
 * order.
 *
 * Unchanged are the steps and what each of them reads and writes; without a collective, the order too.
 */

import { getOrInsert } from "../../ir/collections.js";
import { at } from "../../ir/shape.js";
import type { StepInfo } from "../steps.js";
import { innerSteps } from "../stepTree.js";
import { Buffer } from "./planBuffers.js";
import { accesses, type UnplacedStep, withInner } from "./plannedSteps.js";

/** Rates of a slow core, which only have to tell long steps from short ones. */
const FLOPS_PER_SECOND = 20e9;
const BYTES_PER_SECOND = 8e9;
const LATENCY_SECONDS = 5e-6;

/** Amount of other work that is put between the start and the end of a collective, as a multiple of its duration. */
const OVERLAP_FACTOR = 2;

/**
 * Orders steps so that waiting for other devices overlaps with other work: what a collective needs comes first, it
 * starts at once, and it ends when enough other work has been done to hide it, or when nothing else is left. Otherwise
 * the order stays. All devices compile the same program, so they agree on the order.
 */
export function scheduleCollectives(
  steps: readonly UnplacedStep[],
  infos: readonly StepInfo[],
): UnplacedStep[] {
  const list = steps.map((step) => withInner(step, (inner) => scheduleCollectives(inner, infos)));
  if (!list.some((step) => step.op === "start")) return list;
  const { waits, next } = dependencies(list);
  const urgency = urgencies(list, next);
  const startOf = new Map(
    list.flatMap((step, i) => (step.op === "start" ? [[step.collective, i] as const] : [])),
  );
  const uncovered = new Map<number, number>();
  const waiting = waits.map((set) => set.size);
  const ready = new Set(list.flatMap((_, i) => (waiting[i] === 0 ? [i] : [])));
  const order: UnplacedStep[] = [];
  while (ready.size > 0) {
    const chosen = choose(list, ready, urgency, (i) => {
      const step = at(list, i);
      return step.op === "done" && (uncovered.get(startOf.get(step.collective) ?? -1) ?? 0) > 0;
    });
    const step = at(list, chosen);
    ready.delete(chosen);
    order.push(step);
    if (step.op === "start") uncovered.set(chosen, OVERLAP_FACTOR * duration(step, infos));
    else if (step.op === "done") uncovered.delete(startOf.get(step.collective) ?? -1);
    else for (const [start, rest] of uncovered) uncovered.set(start, rest - duration(step, infos));
    for (const later of at(next, chosen)) {
      const left = at(waiting, later) - 1;
      waiting[later] = left;
      if (left === 0) ready.add(later);
    }
  }
  return order;
}

/** Starts first; then the most urgent of the others, where ends come last until they are covered by other work. */
function choose(
  list: readonly UnplacedStep[],
  ready: ReadonlySet<number>,
  urgency: readonly number[],
  isEarly: (i: number) => boolean,
): number {
  let best = -1;
  let bestRank: readonly number[] = [];
  for (const i of ready) {
    const rank = [at(list, i).op === "start" ? 0 : isEarly(i) ? 2 : 1, at(urgency, i), i];
    if (best < 0 || comesBefore(rank, bestRank)) {
      best = i;
      bestRank = rank;
    }
  }
  return best;
}

function comesBefore(a: readonly number[], b: readonly number[]): boolean {
  const place = a.findIndex((value, i) => value !== b[i]);
  return place >= 0 && at(a, place) < at(b, place);
}

/** For every step the position of the first start that cannot happen before it. */
function urgencies(list: readonly UnplacedStep[], next: readonly ReadonlySet<number>[]): number[] {
  const urgency = list.map(() => list.length);
  for (let i = list.length - 1; i >= 0; i--) {
    const start = at(list, i).op === "start" ? i : list.length;
    urgency[i] = Math.min(start, ...[...at(next, i)].map((later) => at(urgency, later)));
  }
  return urgency;
}

/** Which steps a step waits for, and which wait for it: those that read or write the same memory. */
function dependencies(list: readonly UnplacedStep[]): {
  readonly waits: readonly Set<number>[];
  readonly next: readonly Set<number>[];
} {
  const waits = list.map(() => new Set<number>());
  const next = list.map(() => new Set<number>());
  const writer = new Map<Buffer, number>();
  const readers = new Map<Buffer, number[]>();
  const link = (earlier: number | undefined, later: number) => {
    if (earlier === undefined || earlier === later) return;
    at(waits, later).add(earlier);
    at(next, earlier).add(later);
  };
  list.forEach((step, i) => {
    const { reads, writes } = footprint(step);
    for (const buffer of reads) {
      link(writer.get(buffer), i);
      getOrInsert(readers, buffer, () => []).push(i);
    }
    for (const buffer of writes) {
      link(writer.get(buffer), i);
      for (const reader of readers.get(buffer) ?? []) link(reader, i);
      writer.set(buffer, i);
      readers.set(buffer, []);
    }
  });
  return { waits, next };
}

/** What a step and the steps inside it read and write. */
interface Footprint {
  readonly reads: Set<Buffer>;
  readonly writes: Set<Buffer>;
}

/** Represents the effects of host callbacks: every step that calls one reads and writes it. */
const theHost = new Buffer(-1, 0, { kind: "temporary" }, 0);

function footprint(step: UnplacedStep): Footprint {
  const result: Footprint = { reads: new Set(), writes: new Set() };
  const visit = (s: UnplacedStep): void => {
    const { reads, writes } = accesses(s);
    for (const buffer of reads) resources(buffer, result.reads);
    for (const buffer of writes) resources(buffer, result.writes);
    // Host callbacks keep their order.
    if (s.op === "callback") result.writes.add(theHost);
    // A step that sets a slot must not move past steps that read through it.
    if (s.op === "address") result.writes.add(s.slot.root());
    if (s.op === "loop" || s.op === "while") for (const { slot } of s.sets) result.writes.add(slot.root());
    for (const inner of innerSteps(s)) inner.forEach(visit);
  };
  visit(step);
  return result;
}

function resources(buffer: Buffer, into: Set<Buffer>): void {
  const root = buffer.root();
  into.add(root);
  if (root.kind.kind === "dynamic") for (const parent of root.kind.parents) resources(parent, into);
}

function duration(step: UnplacedStep, infos: readonly StepInfo[]): number {
  const info = infos[step.info];
  const seconds = (info?.flops ?? 0) / FLOPS_PER_SECOND + (info?.bytes ?? 0) / BYTES_PER_SECOND;
  const isCollective = step.op === "start" || step.op === "done";
  const times = step.op === "loop" ? step.count : 1;
  const inside = innerSteps(step).reduce(
    (sum, list) => sum + list.reduce((n, s) => n + duration(s, infos), 0),
    0,
  );
  return seconds + times * inside + (isCollective ? LATENCY_SECONDS : 0);
}
