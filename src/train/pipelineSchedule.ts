/** What the stages of a pipeline should work on in every iteration, and what a recorded step shows they did. */
import { range } from "../ir/shape.js";
import type { LayerLayout } from "./canonical.js";
import type { LoopIteration, StepTrace } from "./stepTrace.js";

/** What a stage works on in an iteration. */
export interface PipelineTask {
  readonly microbatch: number;
  /** How often the microbatch went round all stages before. */
  readonly repeat: number;
}

/** What every stage works on, iteration by iteration; null where it belongs to the bubble. */
export interface PipelinePlan {
  readonly numMicrobatches: number;
  readonly numRepeats: number;
  /** By stage and iteration of the forward pass; the backward pass runs the iterations from the last to the first. */
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
  return { numMicrobatches, numRepeats, stages };
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

/** A task as a label: the microbatch, and the repeat where there are several. */
export function taskLabel({ microbatch, repeat }: PipelineTask, { numRepeats }: PipelinePlan): string {
  return numRepeats === 1 ? `${microbatch}` : `${microbatch}·${repeat}`;
}

/** A direction of the pipeline. */
export type Pass = "forward" | "backward";

/** One iteration of the pipeline as a device ran it; times in milliseconds. */
export interface MeasuredSlot {
  readonly device: number;
  readonly stage: number;
  readonly pass: Pass;
  /** Counted as in the plan, so that the backward pass begins with the last one. */
  readonly iteration: number;
  /** Null in the bubble, where the device computes on what nobody uses. */
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
  readonly shares: PipelineShares;
}

/**
 * Finds the pipeline in a recorded step: the two loops with as many iterations as the plan has that are in no
 * other loop, the first forward and the second backward. Undefined when there are none, or a device shows others.
 *
 * @param stageOf the stage that lies on a device
 */
export function measurePipeline(
  plan: PipelinePlan,
  trace: StepTrace,
  stageOf: (device: number) => number,
): MeasuredPipeline | undefined {
  const total = numIterations(plan);
  const outer = trace.iterations.filter(({ depth }) => depth === 0);
  const slots: MeasuredSlot[] = [];
  for (const device of new Set(outer.map((one) => one.device))) {
    const own = outer.filter((one) => one.device === device);
    const loops = loopRuns(own).filter((run) => run.length === total);
    if (loops.length !== 2) return undefined;
    const waits = trace.work.filter((one) => one.device === device && one.kind === "wait");
    const stage = stageOf(device);
    loops.forEach((run, pass) => {
      for (const { iteration: ran, begin, end } of run) {
        const iteration = pass === 0 ? ran : total - 1 - ran;
        slots.push({
          device,
          stage,
          pass: pass === 0 ? "forward" : "backward",
          iteration,
          task: plan.stages[stage]?.[iteration] ?? null,
          begin,
          end,
          waits: waits
            .filter((wait) => wait.begin >= begin && wait.end <= end)
            .map((wait) => ({ begin: wait.begin, end: wait.end })),
        });
      }
    });
  }
  return slots.length > 0 ? { slots, shares: pipelineShares(slots) } : undefined;
}

/** Iterations in the order in which they ran, by the runs of loops that they belong to. */
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
  const key = (device: number, begin: number) => `${device} ${begin}`;
  const names = new Map(
    slots.map(({ device, begin, pass, iteration, task }) => {
      const what = task ? `microbatch ${taskLabel(task, plan)}` : "bubble";
      return [key(device, begin), `${pass} ${iteration}: ${what}`];
    }),
  );
  return ({ device, begin, depth }) => (depth === 0 ? names.get(key(device, begin)) : undefined);
}
