/** Analyses a schedule before it runs: whether it can, what it keeps in memory, and its bubble. */
import { at, range } from "../../ir/shape.js";
import {
  type ActionKind,
  actionKey,
  eachTask,
  formatAction,
  layoutOf,
  needSchedule,
  type PipelineAction,
  type PipelineSchedule,
  placeOf,
  ScheduleError,
  type ScheduleViolation,
} from "./schedule.js";
import { type ActionCosts, type TimedAction, type Timeline, timeline, unitCosts } from "./timeline.js";

/** The result of {@link checkSchedule}. */
export interface ScheduleReport {
  /** The time that the schedule takes with the given costs. */
  readonly length: number;
  /** The share of the stages' time in which they are idle, from 0 to 1. */
  readonly bubble: number;
  /**
   * By stage, the maximum number of pairs of a chunk and a microbatch whose activations are alive at one time: from `F`
   * to the end of `B` or `W`.
   */
  readonly activations: readonly number[];
  /** By stage, the maximum number of weight gradients that are postponed at one time: between `I` and `W`. */
  readonly postponed: readonly number[];
  /**
   * By stage, the idle time between its first action and its last: the bubble if finished stages do not wait for the
   * others.
   */
  readonly idle: readonly number[];
  /** When every action runs. */
  readonly timeline: Timeline;
}

/**
 * Checks that every action occurs once, that its inputs are computed before, and that there is no deadlock. Throws a
 * {@link ScheduleError} that names stage, slot and reason of everything that is wrong.
 *
 * @param costs how long actions take; one unit each by default, a whole backward pass two
 *
 * @example
 * ```ts
 * parallel.checkSchedule(parallel.zeroBubbleH1({ numStages: 2, numMicrobatches: 4 })).activations; // [2, 2]
 * ```
 */
export function checkSchedule(schedule: PipelineSchedule, costs: ActionCosts = unitCosts): ScheduleReport {
  checkActions(schedule);
  const times = timeline(schedule, costs);
  return {
    length: times.length,
    bubble: bubbleOf(times),
    idle: times.stages.map(idleOf),
    activations: activationsOf(schedule),
    postponed: schedule.stages.map((actions) => maxAlive(actions, ["I"], ["W"])),
    timeline: times,
  };
}

/** By stage, the maximum number of pairs of a chunk and a microbatch whose activations are alive at one time. */
export function activationsOf({ stages }: PipelineSchedule): number[] {
  return stages.map((actions) => maxAlive(actions, ["F"], ["B", "W"]));
}

/** Throws if the actions of a schedule are invalid regardless of their times. */
export function checkActions(schedule: PipelineSchedule): void {
  needSchedule(schedule, "checkSchedule");
  const violations = scheduleViolations(schedule);
  if (violations.length > 0) throw new ScheduleError(schedule.name, violations);
}

/** The share of the stages' time in which they are idle. */
export function bubbleOf({ stages, length }: Timeline): number {
  const busy = stages.flat().reduce((sum, { begin, end }) => sum + end - begin, 0);
  return length === 0 ? 0 : 1 - busy / (length * stages.length);
}

/** The idle time of a stage between its first action and its last. */
function idleOf(actions: readonly TimedAction[]): number {
  const busy = actions.reduce((sum, { begin, end }) => sum + end - begin, 0);
  return (actions.at(-1)?.end ?? 0) - (actions[0]?.begin ?? 0) - busy;
}

/** The maximum number of values alive at one time, given the actions that start and end their lifetimes. */
function maxAlive(
  actions: readonly PipelineAction[],
  begins: readonly ActionKind[],
  ends: readonly ActionKind[],
): number {
  let [alive, most] = [0, 0];
  for (const { kind } of actions) {
    if (begins.includes(kind)) alive++;
    most = Math.max(most, alive);
    if (ends.includes(kind)) alive--;
  }
  return most;
}

/** Everything that is wrong with the actions of a schedule regardless of their times. */
export function scheduleViolations(schedule: PipelineSchedule): ScheduleViolation[] {
  const { numMicrobatches, numChunks, stages } = schedule;
  const sizes = { stages: stages.length, microbatches: numMicrobatches, chunks: numChunks };
  for (const [what, value] of Object.entries(sizes)) {
    if (Number.isInteger(value) && value >= 1) continue;
    return [
      { stage: 0, slot: -1, reason: `the number of ${what} is ${value}: use an integer of at least 1` },
    ];
  }
  return [
    ...placementViolations(schedule),
    ...range(stages.length).flatMap((stage) => stageViolations(schedule, stage)),
  ];
}

function placementViolations({ placement, numChunks }: PipelineSchedule): ScheduleViolation[] {
  if (placement !== "v" || numChunks % 2 === 0 || numChunks === 1) return [];
  const reason = `a V has an even number of chunks, not ${numChunks}: use ${numChunks - 1} or ${numChunks + 1}`;
  return [{ stage: 0, slot: -1, reason }];
}

/** Maximum number of violations that a stage is examined for: a table can name more microbatches than it has actions. */
const MAX_VIOLATIONS = 100;

function stageViolations(schedule: PipelineSchedule, stage: number): ScheduleViolation[] {
  const { numMicrobatches, numChunks } = schedule;
  const layout = layoutOf(schedule);
  const actions = at(schedule.stages, stage);
  const violations: ScheduleViolation[] = [];
  const say = (slot: number, reason: string) => violations.push({ stage, slot, reason });
  const name = (action: PipelineAction) => formatAction(layout, stage, action);
  const slots = new Map<string, number>();
  actions.forEach((action, slot) => {
    const { kind, chunk, microbatch } = action;
    const isKnown = (value: number, count: number) => Number.isInteger(value) && value >= 0 && value < count;
    if (!isKnown(chunk, numChunks)) {
      say(slot, `${kind} is of chunk ${chunk}, but a stage has ${numChunks}: 0 to ${numChunks - 1}`);
      return;
    }
    if (!isKnown(microbatch, numMicrobatches)) {
      say(slot, `${name(action)} is of microbatch ${microbatch}, but there are ${numMicrobatches}`);
      return;
    }
    const before = slots.get(actionKey(action));
    if (before !== undefined) say(slot, `${name(action)} is already in slot ${before}`);
    else slots.set(actionKey(action), slot);
  });
  for (const task of eachTask(schedule)) {
    if (violations.length >= MAX_VIOLATIONS) break;
    const slotOf = (kind: ActionKind) => slots.get(actionKey({ kind, ...task }));
    const [F, B, I, W] = [slotOf("F"), slotOf("B"), slotOf("I"), slotOf("W")];
    const called = (kind: ActionKind) => name({ kind, ...task });
    if (F === undefined) say(-1, `${called("F")} is missing`);
    if (B !== undefined && (I ?? W) !== undefined) {
      say(
        I ?? W ?? -1,
        `${called(I === undefined ? "W" : "I")} is a half of ${called("B")}, which is in slot ${B}: do one or the other`,
      );
    } else if (B === undefined && I === undefined) {
      say(-1, `${called("B")} is missing, and ${called("I")} with ${called("W")} is missing, too`);
    } else if (B === undefined && W === undefined)
      say(-1, `${called("W")} is missing, the other half of ${called("I")}`);
    const back = B ?? I;
    if (F !== undefined && back !== undefined && back < F) {
      say(back, `${called(B === undefined ? "I" : "B")} comes before ${called("F")}, which is in slot ${F}`);
    }
    if (I !== undefined && W !== undefined && W < I) {
      say(W, `${called("W")} comes before ${called("I")}, which is in slot ${I}`);
    }
  }
  return violations;
}

/** The largest number of any stage. */
export function most(counts: readonly number[]): number {
  return Math.max(0, ...counts);
}

/** The stage of the first and of the last part of the model. */
export function endsOf(schedule: PipelineSchedule): {
  readonly first: { stage: number; chunk: number };
  readonly last: { stage: number; chunk: number };
} {
  const layout = layoutOf(schedule);
  return {
    first: placeOf(layout, 0),
    last: placeOf(layout, layout.numStages * layout.numChunks - 1),
  };
}
