/** What the stages of a pipeline should work on in every iteration, and what they did in a recorded step. */
import type { ControlRole, PipelineLoop } from "../../ir/ops.js";
import { range } from "../../ir/shape.js";
import type { ActionKind, PipelineSchedule } from "../../parallel/schedule/schedule.js";
import { slotTable } from "../../parallel/schedule/slots.js";
import type { LayerLayout } from "../models/layerOrder.js";
import { devicesOf, type LoopIteration, type StepTrace } from "./stepTrace.js";

/** What a stage works on in an iteration. */
export interface PipelineTask {
  readonly microbatch: number;
  /** How often the microbatch has passed through all stages before. */
  readonly repeat: number;
  /** If forward and backward are interleaved: forward, backward, or a half of the backward pass. */
  readonly kind?: ActionKind;
}

/** What every stage works on, iteration by iteration; null in the bubble. */
export interface PipelinePlan {
  readonly numMicrobatches: number;
  readonly numRepeats: number;
  /** What compiled steps call the loops that a step runs: one if forward and backward are interleaved, else one each. */
  readonly loops: readonly PipelineLoop[];
  /** By stage and iteration of the forward pass; a backward pass runs the iterations from the last to the first. */
  readonly stages: readonly (readonly (PipelineTask | null)[])[];
}

/** The plan of a run's pipeline. */
export function planPipeline(
  { numStages, numRepeats }: Pick<LayerLayout, "numStages" | "numRepeats">,
  numMicrobatches: number,
): PipelinePlan {
  const stages = range(numStages).map((stage) =>
    range(numMicrobatches * numRepeats + numStages - 1).map((iteration) => {
      const done = iteration - stage;
      if (done < 0 || done >= numMicrobatches * numRepeats) return null;
      return { microbatch: done % numMicrobatches, repeat: Math.floor(done / numMicrobatches) };
    }),
  );
  const loop = { numStages, numMicrobatches, numRepeats };
  const loops = (["forward", "backward"] as const).map((kind) => ({ kind, ...loop }));
  return { numMicrobatches, numRepeats, loops, stages };
}

/** The plan of a pipeline that runs by a schedule of forward and backward actions. */
export function planSchedule(schedule: PipelineSchedule): PipelinePlan {
  const { slots, branches, role } = slotTable(schedule, false);
  const begunIn = (slot: number, stage: number): PipelineTask | null => {
    const cell = slots[slot]?.[stage];
    const branch = cell && branches[cell.branch - 1];
    return branch ? { microbatch: cell.microbatch, repeat: branch.chunk, kind: branch.kind } : null;
  };
  const stages = schedule.stages.map((_, stage) =>
    slots.map((_, slot) => {
      // A whole backward pass takes two slots.
      const before = begunIn(slot - 1, stage);
      return begunIn(slot, stage) ?? (before?.kind === "B" ? before : null);
    }),
  );
  const { numMicrobatches, numChunks } = schedule;
  return { numMicrobatches, numRepeats: numChunks, loops: [role], stages };
}

/** The number of iterations in each direction. */
export function numIterations({ stages }: PipelinePlan): number {
  return stages[0]?.length ?? 0;
}

/** The share of a plan's slots, from 0 to 1, in which a stage has no microbatch. */
export function plannedBubble({ stages }: PipelinePlan): number {
  const slots = stages.flat();
  return slots.filter((task) => task === null).length / Math.max(1, slots.length);
}

/** The label of a task: its kind if there are several, the microbatch, and the repeat if there are several. */
export function taskLabel({ microbatch, repeat, kind }: PipelineTask, { numRepeats }: PipelinePlan): string {
  return `${kind ?? ""}${microbatch}${numRepeats === 1 ? "" : `·${repeat}`}`;
}

/** A direction of the pipeline, or a step in which both are interleaved. */
export type Pass = "forward" | "backward" | "step";

/** The pass that a loop runs. */
export function passOf({ kind }: PipelineLoop): Pass {
  return kind === "slots" ? "step" : kind;
}

/** One iteration of the pipeline as a device ran it; times in milliseconds. */
export interface MeasuredSlot {
  readonly device: number;
  readonly stage: number;
  /** Which part of the batch went through the pipeline, 0 unless gradients are accumulated over several. */
  readonly part: number;
  readonly pass: Pass;
  /** Numbered as in the plan, so that the backward pass begins with the last one. */
  readonly iteration: number;
  /** Null in the bubble, where the device computes unused values. */
  readonly task: PipelineTask | null;
  readonly begin: number;
  readonly end: number;
  /** When it waited for other devices. */
  readonly waits: readonly { readonly begin: number; readonly end: number }[];
}

/** Where the time of a pipeline's iterations went, over all devices; shares from 0 to 1. */
export interface PipelineShares {
  /** On microbatches. */
  readonly useful: number;
  /** Computing in the bubble. */
  readonly bubble: number;
  /** Waiting for other devices, in the bubble or not. */
  readonly waiting: number;
}

/** A pipeline as it ran. */
export interface MeasuredPipeline {
  readonly slots: readonly MeasuredSlot[];
  /** How many parts of a batch went through it one after the other. */
  readonly numParts: number;
  readonly shares: PipelineShares;
}

/**
 * Finds the pipeline in a recorded step by the roles of its loops. Undefined if there are none, or if devices differ.
 *
 * @param stageOf the stage of a device
 */
export function measurePipeline(
  plan: PipelinePlan,
  trace: StepTrace,
  stageOf: (device: number) => number,
): MeasuredPipeline | undefined {
  const total = numIterations(plan);
  const slots: MeasuredSlot[] = [];
  let numParts: number | undefined;
  for (const device of devicesOf(trace.iterations)) {
    const own = trace.iterations.filter((one) => one.device === device);
    const waits = trace.work.filter((one) => one.device === device && one.kind === "wait");
    const stage = stageOf(device);
    const measured: MeasuredSlot[] = [];
    for (const loop of plan.loops) {
      const runs = loopRuns(own.filter(({ role }) => isSameLoop(role, loop))).filter(
        (run) => run.length === total,
      );
      numParts ??= runs.length;
      if (numParts === 0 || numParts !== runs.length) return undefined;
      runs.forEach((run, part) => {
        for (const { iteration: ran, begin, end } of run) {
          const iteration = loop.kind === "backward" ? total - 1 - ran : ran;
          const task = plan.stages[stage]?.[iteration] ?? null;
          const inside = waits.filter((wait) => wait.begin >= begin && wait.end <= end);
          const pauses = inside.map((wait) => ({ begin: wait.begin, end: wait.end }));
          const pass = passOf(loop);
          measured.push({ device, stage, part, pass, iteration, task, begin, end, waits: pauses });
        }
      });
    }
    slots.push(...measured.sort((a, b) => a.begin - b.begin));
  }
  return numParts === undefined ? undefined : { slots, numParts, shares: pipelineShares(slots) };
}

const isSameLoop = (role: ControlRole | undefined, loop: PipelineLoop): boolean =>
  role?.kind === loop.kind &&
  role.numStages === loop.numStages &&
  role.numMicrobatches === loop.numMicrobatches &&
  role.numRepeats === loop.numRepeats;

/** The iterations of a device in the order in which they ran, by the runs of their loops. */
function loopRuns(iterations: readonly LoopIteration[]): LoopIteration[][] {
  const runs: LoopIteration[][] = [];
  for (const one of iterations) {
    if (one.iteration === 0) runs.push([]);
    runs.at(-1)?.push(one);
  }
  return runs;
}

function pipelineShares(slots: readonly MeasuredSlot[]): PipelineShares {
  const length = (spans: readonly { readonly begin: number; readonly end: number }[]) =>
    spans.reduce((sum, { begin, end }) => sum + end - begin, 0);
  const total = length(slots) || 1;
  const worked = (some: readonly MeasuredSlot[]) =>
    (length(some) - length(some.flatMap(({ waits }) => waits))) / total;
  return {
    useful: worked(slots.filter(({ task }) => task !== null)),
    bubble: worked(slots.filter(({ task }) => task === null)),
    waiting: length(slots.flatMap(({ waits }) => waits)) / total,
  };
}

/** Names the iterations of a pipeline's loops for a trace, and no others. */
export function pipelineIterationNames(
  plan: PipelinePlan,
  { slots }: MeasuredPipeline,
): (iteration: LoopIteration) => string | undefined {
  const key = ({ device, begin, end }: Pick<MeasuredSlot, "device" | "begin" | "end">) =>
    `${device} ${begin} ${end}`;
  const names = new Map(
    slots.map((slot) => {
      const { pass, iteration, task } = slot;
      const what = task ? `microbatch ${taskLabel(task, plan)}` : "bubble";
      return [key(slot), `${pass} ${iteration}: ${what}`];
    }),
  );
  return (iteration) => names.get(key(iteration));
}
