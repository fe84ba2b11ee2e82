/** When every action of a schedule runs, given how long actions and messages take. */
import { need } from "../../ir/arguments.js";
import { at, range } from "../../ir/shape.js";
import {
  type ActionKind,
  formatAction,
  layoutOf,
  needSchedule,
  numParts,
  type PipelineAction,
  type PipelineLayout,
  type PipelineSchedule,
  partOf,
  placeOf,
  ScheduleError,
  type ScheduleViolation,
} from "./schedule.js";

/** How long the actions of a schedule take, in any unit, and a message from stage to stage. */
export type ActionCosts = { readonly [K in ActionKind | "send"]: number };

/** Every kind of action takes one unit, a whole backward pass two, and messages none. */
export const unitCosts: ActionCosts = { F: 1, I: 1, W: 1, B: 2, send: 0 };

/** An action and when it runs. */
export interface TimedAction extends PipelineAction {
  readonly begin: number;
  readonly end: number;
}

/** How long an action takes; it may depend on stage and chunk, as embedding and head do. */
export type CostOf = (action: PipelineAction, stage: number) => number;

/** The actions of every stage with their times. */
export interface Timeline {
  readonly stages: readonly (readonly TimedAction[])[];
  /** When the last action ends. */
  readonly length: number;
}

/** What an action needs of other actions. */
interface Need {
  readonly stage: number;
  readonly chunk: number;
  readonly microbatch: number;
  /** The kinds that give it. */
  readonly kinds: readonly ActionKind[];
}

const backward: readonly ActionKind[] = ["I", "B"];

/** The actions whose results an action reads. */
export function needsOf(layout: PipelineLayout, stage: number, action: PipelineAction): Need[] {
  const { kind, chunk, microbatch } = action;
  const own = (kinds: readonly ActionKind[]): Need => ({ stage, chunk, microbatch, kinds });
  const ofPart = (part: number, kinds: readonly ActionKind[]): Need[] =>
    part < 0 || part >= numParts(layout) ? [] : [{ ...placeOf(layout, part), microbatch, kinds }];
  const part = partOf(layout, stage, chunk);
  if (kind === "F") return ofPart(part - 1, ["F"]);
  if (kind === "W") return [own(["I"])];
  return [own(["F"]), ...ofPart(part + 1, backward)];
}

const kindNumbers: { readonly [K in ActionKind]: number } = { F: 0, B: 1, I: 2, W: 3 };

/** A time for actions by stage, chunk, microbatch and kind. */
class Times {
  private readonly times = new Map<number, number>();

  constructor(private readonly schedule: PipelineSchedule) {}

  private key(stage: number, chunk: number, microbatch: number, kind: ActionKind): number {
    const { numChunks, numMicrobatches } = this.schedule;
    return ((stage * numChunks + chunk) * numMicrobatches + microbatch) * 4 + kindNumbers[kind];
  }

  set(stage: number, { chunk, microbatch, kind }: PipelineAction, time: number): void {
    this.times.set(this.key(stage, chunk, microbatch, kind), time);
  }

  of({ stage, chunk, microbatch, kinds }: Need): number | undefined {
    for (const kind of kinds) {
      const time = this.times.get(this.key(stage, chunk, microbatch, kind));
      if (time !== undefined) return time;
    }
    return undefined;
  }
}

/** What {@link runActions} needs to know besides the schedule. */
export interface RunSettings {
  readonly costOf: CostOf;
  /** When a message arrives of which a stage has the content at `ready`; called in the order in which it sends. */
  readonly arrival: (from: number, to: number, ready: number) => number;
  /** Whether a stage can continue only after its messages have arrived. */
  readonly isBlocking?: boolean;
  /** How long a forward action and the whole backward pass right behind it take at the same time, if they can. */
  readonly pairCost?: PairCostOf;
}

/** How long two actions take that a stage computes at the same time; undefined where it does them in turn. */
export type PairCostOf = (
  forward: PipelineAction,
  backward: PipelineAction,
  stage: number,
) => number | undefined;

/**
 * Runs a schedule on paper: every action begins when the one before it on its stage has ended and what it reads is
 * there. Throws a {@link ScheduleError} where stages wait for each other for ever.
 */
export function runActions(schedule: PipelineSchedule, settings: RunSettings): Timeline {
  needSchedule(schedule, "timeline");
  const { costOf, arrival, isBlocking = false, pairCost } = settings;
  const layout = layoutOf(schedule);
  const ends = new Times(schedule);
  const arrivals = new Times(schedule);
  const stages: TimedAction[][] = schedule.stages.map(() => []);
  const free = schedule.stages.map(() => 0);
  const waking = new Set(range(schedule.stages.length));
  const tryNext = (stage: number): boolean => {
    const own = at(stages, stage);
    const [action, next] = at(schedule.stages, stage).slice(own.length, own.length + 2);
    if (!action) return false;
    const pair = action.kind === "F" && next?.kind === "B" ? pairCost?.(action, next, stage) : undefined;
    const now = pair !== undefined && next ? [action, next] : [action];
    let begin = at(free, stage);
    for (const need of now.flatMap((action) => needsOf(layout, stage, action))) {
      const there = (need.stage === stage ? ends : arrivals).of(need);
      if (there === undefined) return false;
      begin = Math.max(begin, there);
    }
    const end = begin + (pair ?? costOf(action, stage));
    free[stage] = end;
    for (const done of now) {
      ends.set(stage, done, end);
      own.push({ ...done, begin, end });
      const to = receiverOf(layout, stage, done);
      if (to === undefined) continue;
      const there = to === stage ? end : arrival(stage, to, end);
      arrivals.set(stage, done, there);
      if (to !== stage) waking.add(to);
      if (isBlocking) free[stage] = Math.max(at(free, stage), there);
    }
    return true;
  };
  // A set gives what is added while it is walked, so a stage is tried again when something for it has arrived.
  for (const stage of waking) {
    waking.delete(stage);
    while (tryNext(stage));
  }
  const stuck = waiting(schedule, layout, stages, ends);
  if (stuck.length > 0) throw new ScheduleError(schedule.name, stuck);
  return { stages, length: Math.max(0, ...stages.map((own) => own.at(-1)?.end ?? 0)) };
}

/** The stage that reads what an action computes; undefined where nobody does. */
function receiverOf(layout: PipelineLayout, stage: number, action: PipelineAction): number | undefined {
  if (action.kind === "W") return undefined;
  const part = partOf(layout, stage, action.chunk) + (action.kind === "F" ? 1 : -1);
  return part < 0 || part >= numParts(layout) ? undefined : placeOf(layout, part).stage;
}

/**
 * Runs a schedule on paper as `runActions` does, with messages that all take equally long and keep nobody.
 *
 * @example
 * ```ts
 * const schedule = parallel.scheduleOf("mine", [["0F0", "0B0"], ["1F0", "1B0"]]);
 * parallel.timeline(schedule).length; // 6
 * ```
 */
export function timeline(
  schedule: PipelineSchedule,
  costs: ActionCosts | { readonly of: CostOf; readonly send: number } = unitCosts,
): Timeline {
  need("object", costs, "the costs", "timeline");
  const costOf: CostOf = "of" in costs ? costs.of : ({ kind }) => costs[kind];
  return runActions(schedule, { costOf, arrival: (_from, _to, ready) => ready + costs.send });
}

/** The stages that cannot continue, and what each of them waits for. */
function waiting(
  schedule: PipelineSchedule,
  layout: PipelineLayout,
  done: readonly (readonly TimedAction[])[],
  ends: Times,
): ScheduleViolation[] {
  return schedule.stages.flatMap((actions, stage) => {
    const slot = at(done, stage).length;
    const action = actions[slot];
    if (!action) return [];
    const missing = needsOf(layout, stage, action).find((need) => ends.of(need) === undefined);
    if (!missing) return [];
    const place = at(schedule.stages, missing.stage).findIndex(
      (other) =>
        other.chunk === missing.chunk &&
        other.microbatch === missing.microbatch &&
        missing.kinds.includes(other.kind),
    );
    const kind = missing.kinds.length > 1 ? "I" : at(missing.kinds, 0);
    const what = formatAction(
      layout,
      missing.stage,
      place < 0 ? { ...missing, kind } : at(at(schedule.stages, missing.stage), place),
    );
    const where =
      place < 0
        ? `which stage ${missing.stage} never does`
        : `which stage ${missing.stage} does in slot ${place}${
            missing.stage === stage
              ? ", after it"
              : `, and it is still in slot ${at(done, missing.stage).length}`
          }`;
    return [{ stage, slot, reason: `${formatAction(layout, stage, action)} waits for ${what}, ${where}` }];
  });
}
