import type { Buffer } from "./buffers.js";
import { accesses, innerSteps, type PlannedStep } from "./plannedSteps.js";
import type { StepInfo } from "./steps.js";

/** Rates of a slow core, which only have to tell long steps from short ones. */
const FLOPS_PER_SECOND = 20e9;
const BYTES_PER_SECOND = 8e9;
const LATENCY_SECONDS = 5e-6;

/** How many times a collective's own duration of other work is put between its start and its end. */
const COVER = 2;

/**
 * Moves the starts of collectives up and their ends down, so that other devices are waited for while there is
 * something else to do. Both move only as far as it takes to hide the collective: further would keep its
 * buffers alive for nothing. The order of everything else, and of the collectives' starts, stays.
 */
export function scheduleCollectives(
  steps: readonly PlannedStep[],
  infos: readonly StepInfo[],
): PlannedStep[] {
  const list = steps.map((step) => withInner(step, (inner) => scheduleCollectives(inner, infos)));
  if (!list.some((step) => step.op === "start")) return list;
  const touched = new Map(list.map((step) => [step, footprint(step)]));
  const conflicts = (a: PlannedStep, b: PlannedStep) => clash(touched.get(a), touched.get(b));
  const seconds = (step: PlannedStep) => duration(step, infos);
  for (const start of list.filter((step) => step.op === "start")) {
    let i = list.indexOf(start);
    let covered = 0;
    while (i > 0 && covered < COVER * seconds(start)) {
      const before = list[i - 1];
      if (!before || before.op === "start" || before.op === "done" || conflicts(before, start)) break;
      covered += seconds(before);
      list[i] = before;
      list[i - 1] = start;
      i--;
    }
  }
  for (const done of list.filter((step) => step.op === "done").reverse()) {
    let i = list.indexOf(done);
    let covered = 0;
    while (i + 1 < list.length && covered < COVER * seconds(done)) {
      const after = list[i + 1];
      if (!after || after.op === "done" || conflicts(after, done)) break;
      covered += after.op === "start" ? 0 : seconds(after);
      list[i] = after;
      list[i + 1] = done;
      i++;
    }
  }
  return list;
}

function withInner(step: PlannedStep, change: (steps: readonly PlannedStep[]) => PlannedStep[]): PlannedStep {
  switch (step.op) {
    case "loop":
      return { ...step, body: change(step.body) };
    case "while":
      return { ...step, condition: change(step.condition), body: change(step.body) };
    case "cond":
      return { ...step, branches: step.branches.map(change) };
    default:
      return step;
  }
}

/** What a step and the steps inside it read and write. */
interface Footprint {
  readonly reads: Set<Buffer>;
  readonly writes: Set<Buffer>;
}

function footprint(step: PlannedStep): Footprint {
  const result: Footprint = { reads: new Set(), writes: new Set() };
  const visit = (s: PlannedStep): void => {
    const { reads, writes } = accesses(s);
    for (const buffer of reads) resources(buffer, result.reads);
    for (const buffer of writes) resources(buffer, result.writes);
    // Whoever sets a slot must not pass those who read through it.
    if (s.op === "address") result.writes.add(s.target.root());
    if (s.op === "loop" || s.op === "while")
      for (const { target } of s.sets) result.writes.add(target.root());
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

function clash(a: Footprint | undefined, b: Footprint | undefined): boolean {
  if (!a || !b) return true;
  const meets = (x: ReadonlySet<Buffer>, y: ReadonlySet<Buffer>) => [...x].some((buffer) => y.has(buffer));
  return meets(a.writes, b.reads) || meets(a.reads, b.writes) || meets(a.writes, b.writes);
}

function duration(step: PlannedStep, infos: readonly StepInfo[]): number {
  const info = infos[step.info];
  const own = (info?.flops ?? 0) / FLOPS_PER_SECOND + (info?.bytes ?? 0) / BYTES_PER_SECOND;
  const isCollective = step.op === "start" || step.op === "done";
  const times = step.op === "loop" ? step.count : 1;
  const inside = innerSteps(step).reduce(
    (sum, list) => sum + list.reduce((n, s) => n + duration(s, infos), 0),
    0,
  );
  return own + times * inside + (isCollective ? LATENCY_SECONDS : 0);
}
