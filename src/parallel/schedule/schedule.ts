/**
 * A pipeline's schedule as a value: what every stage does, in order. The same table is checked, drawn, simulated and
 * executed.
 *
 * A *stage* is a position along the mesh's pipe axis. The model is split into *parts*, equally many for each stage,
 * which are the stage's *chunks*; a microbatch passes through the parts in order.
 */
import { need } from "../../ir/arguments.js";
import { ShardwiseError, ValueError } from "../../ir/errors.js";

/**
 * What a stage does with one microbatch and one chunk. `F`: forward. `B`: the whole backward pass. `I` and `W`: its two
 * halves, the gradient of the chunk's input, which the stage before waits for, and that of its weights, which no stage
 * waits for.
 */
export type ActionKind = "F" | "B" | "I" | "W";

/** One entry of a schedule. */
export interface PipelineAction {
  readonly kind: ActionKind;
  readonly chunk: number;
  readonly microbatch: number;
}

/**
 * The placement of the model's parts. `loop`: part i is on stage i mod stages, so that a microbatch moves in a circle.
 * `v`: every other chunk runs from the last stage to the first, so that the first stage has the first and the last
 * part.
 */
export type PipelinePlacement = "loop" | "v";

/** What every stage of a pipeline does in a training step. */
export interface PipelineSchedule {
  readonly name: string;
  readonly numMicrobatches: number;
  /** How many parts of the model every stage has. */
  readonly numChunks: number;
  readonly placement: PipelinePlacement;
  /** By stage, its actions in order. */
  readonly stages: readonly (readonly PipelineAction[])[];
}

/** The fields of a schedule that {@link partOf} and {@link placeOf} need. */
export type PipelineLayout = Pick<PipelineSchedule, "numChunks" | "placement"> & {
  readonly numStages: number;
};

/** Maximum number of actions of a schedule. */
const maxActions = 2 ** 22;

const isCount = (n: unknown, least: number) => typeof n === "number" && Number.isSafeInteger(n) && n >= least;

/** Throws unless a value has the form of a schedule; `checkSchedule` says whether it can run. */
export function needSchedule(schedule: unknown, caller: string): asserts schedule is PipelineSchedule {
  need("object", schedule, "the schedule", caller);
  const { name, numMicrobatches, numChunks, placement, stages } = schedule as Partial<PipelineSchedule>;
  need("string", name, "the name of the schedule", caller);
  need("list", stages, "the stages of the schedule", caller);
  for (const stage of stages) need("list", stage, "each stage of the schedule", caller);
  const actions = stages.flat();
  const isRight =
    isCount(numMicrobatches, 1) &&
    isCount(numChunks, 1) &&
    (placement === "loop" || placement === "v") &&
    actions.length <= maxActions &&
    actions.every((action) => isCount(action?.chunk, 0) && isCount(action.microbatch, 0));
  if (isRight) return;
  throw new ValueError(
    `[${caller}] the schedule must have integers of microbatches and chunks, the placement loop or v, and actions of chunks and microbatches: make it with makeSchedule`,
  );
}

/** The layout of a schedule's parts. */
export function layoutOf({ numChunks, placement, stages }: PipelineSchedule): PipelineLayout {
  return { numChunks, placement, numStages: stages.length };
}

/** The number of a stage's chunk among all parts of the model. */
export function partOf({ numStages, placement }: PipelineLayout, stage: number, chunk: number): number {
  const isTurned = placement === "v" && chunk % 2 === 1;
  return chunk * numStages + (isTurned ? numStages - 1 - stage : stage);
}

/** The stage and the chunk that a part of the model is. */
export function placeOf(layout: PipelineLayout, part: number): { stage: number; chunk: number } {
  const { numStages, placement } = layout;
  const chunk = Math.floor(part / numStages);
  const place = part % numStages;
  return { chunk, stage: placement === "v" && chunk % 2 === 1 ? numStages - 1 - place : place };
}

/** The number of parts of the model. */
export function numParts({ numStages, numChunks }: PipelineLayout): number {
  return numStages * numChunks;
}

/** An action as PyTorch writes it: the part, the kind and the microbatch, `3F0`. */
export function formatAction(
  layout: PipelineLayout,
  stage: number,
  { kind, chunk, microbatch }: PipelineAction,
): string {
  return `${partOf(layout, stage, chunk)}${kind}${microbatch}`;
}

/** What is wrong with a schedule. */
export interface ScheduleViolation {
  readonly stage: number;
  /** The position among the stage's actions; −1 where one is missing. */
  readonly slot: number;
  readonly reason: string;
}

/** A schedule that cannot run; `violations` says where and why. */
export class ScheduleError extends ShardwiseError {
  static override readonly name: string = "ScheduleError";
  readonly violations: readonly ScheduleViolation[];

  constructor(name: string, violations: readonly ScheduleViolation[]) {
    const shown = violations.slice(0, 12).map(({ stage, slot, reason }) => {
      return `  stage ${stage}${slot < 0 ? "" : `, slot ${slot}`}: ${reason}`;
    });
    const more = violations.length > shown.length ? [`  and ${violations.length - shown.length} more`] : [];
    super("value", [`[PipelineSchedule] the schedule "${name}" cannot run:`, ...shown, ...more].join("\n"));
    this.violations = violations;
  }
}

/** A unique key of an action within its stage. */
export function actionKey({ kind, chunk, microbatch }: PipelineAction): string {
  return `${kind} ${chunk} ${microbatch}`;
}

/** All pairs of a chunk and a microbatch. */
export function* eachTask({
  numChunks,
  numMicrobatches,
}: Pick<PipelineSchedule, "numChunks" | "numMicrobatches">): Generator<{
  chunk: number;
  microbatch: number;
}> {
  for (let chunk = 0; chunk < numChunks; chunk++)
    for (let microbatch = 0; microbatch < numMicrobatches; microbatch++) yield { chunk, microbatch };
}
