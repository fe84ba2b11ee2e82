/** When every action of a schedule runs, given how long actions and messages take. */
import { at, range } from "../../ir/shape.js";
import {
  type ActionKind,
  formatAction,
  layoutOf,
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

/** When every action of every stage has ended, by stage, chunk, microbatch and kind. */
class Ends {
  private readonly times = new Map<string, number>();

  private static key(stage: number, chunk: number, microbatch: number, kind: ActionKind): string {
    return `${stage} ${chunk} ${microbatch} ${kind}`;
  }

  set(stage: number, { chunk, microbatch, kind }: PipelineAction, time: number): void {
    this.times.set(Ends.key(stage, chunk, microbatch, kind), time);
  }

  of({ stage, chunk, microbatch, kinds }: Need): number | undefined {
    for (const kind of kinds) {
      const time = this.times.get(Ends.key(stage, chunk, microbatch, kind));
      if (time !== undefined) return time;
    }
    return undefined;
  }
}

/**
 * Runs a schedule on paper: every action begins when the one before it on its stage has ended and what it reads is
 * there. Throws a {@link ScheduleError} where stages wait for each other for ever.
 */
export function timeline(
  schedule: PipelineSchedule,
  costs: ActionCosts | { readonly of: CostOf; readonly send: number } = unitCosts,
): Timeline {
  const layout = layoutOf(schedule);
  const costOf: CostOf = "of" in costs ? costs.of : ({ kind }) => costs[kind];
  const ends = new Ends();
  const stages: TimedAction[][] = schedule.stages.map(() => []);
  const tryNext = (stage: number): boolean => {
    const own = at(stages, stage);
    const action = at(schedule.stages, stage)[own.length];
    if (!action) return false;
    let begin = own.at(-1)?.end ?? 0;
    for (const need of needsOf(layout, stage, action)) {
      const end = ends.of(need);
      if (end === undefined) return false;
      begin = Math.max(begin, end + (need.stage === stage ? 0 : costs.send));
    }
    const end = begin + costOf(action, stage);
    ends.set(stage, action, end);
    own.push({ ...action, begin, end });
    return true;
  };
  const numStages = schedule.stages.length;
  for (let moved = true; moved; ) {
    moved = false;
    for (const stage of range(numStages)) while (tryNext(stage)) moved = true;
  }
  const stuck = waiting(schedule, layout, stages, ends);
  if (stuck.length > 0) throw new ScheduleError(schedule.name, stuck);
  return { stages, length: Math.max(0, ...stages.map((own) => own.at(-1)?.end ?? 0)) };
}

/** The stages that cannot go on, and what each of them waits for. */
function waiting(
  schedule: PipelineSchedule,
  layout: PipelineLayout,
  done: readonly (readonly TimedAction[])[],
  ends: Ends,
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
