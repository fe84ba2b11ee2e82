/** How long every step of a program takes: the engine records some runs, and each step counts with its quick ones. */
import type { CompiledProgram, Step } from "../../compiler/steps.js";
import { forEachStep } from "../../compiler/stepTree.js";
import type { Engine } from "../../ir/engine.js";
import type { TraceEvent } from "../../ir/engineReports.js";
import { InternalError } from "../../ir/errors.js";

/** A step and its time. */
export interface ProfiledStep {
  readonly step: Step;
  /** Its number in the program. */
  readonly number: number;
  /** Seconds; of the end of a collective, those since its beginning. */
  readonly seconds: number;
  /** How often a device executes it in a run. */
  readonly count: number;
}

/** What {@link profileProgram} finds out. */
export interface Profile {
  readonly steps: readonly ProfiledStep[];
  /** Seconds of the fastest run that nobody recorded. */
  readonly seconds: number;
  /** The seconds of all steps of a run. */
  readonly stepSeconds: number;
}

/** The most events that a device records. */
const capacity = 2 ** 19;

/**
 * The place among sorted times that stands for a step: low, because whoever else uses the machine only makes steps
 * slower, and not the lowest, because a device that works while others wait has the memory for itself.
 */
const quick = 0.25;

/** Runs a program several times and gives the time of each of its steps. */
export async function profileProgram(
  { tracer }: Engine,
  compiled: CompiledProgram,
  run: () => Promise<void>,
  numRuns: number,
): Promise<Profile> {
  if (!tracer) throw new InternalError("an engine without a tracer cannot be calibrated");
  for (let i = 0; i < 2; i++) await run();
  let seconds = Number.POSITIVE_INFINITY;
  for (let i = 0; i < numRuns; i++) {
    const begin = performance.now();
    await run();
    seconds = Math.min(seconds, (performance.now() - begin) / 1000);
  }
  tracer.start(capacity);
  for (let i = 0; i < numRuns; i++) await run();
  const events = (await tracer.stop()).filter(({ program }) => program === compiled.name);
  const steps: Step[] = [];
  forEachStep(compiled.steps, (step) => steps.push(step));
  const times = timesOf(events, steps);
  const numDevices = Math.max(1, new Set(events.map(({ device }) => device)).size);
  const profiled = steps.flatMap((step, number): ProfiledStep[] => {
    const own = times.get(number);
    if (!own) return [];
    return [{ step, number, seconds: quickOf(own), count: own.length / (numRuns * numDevices) }];
  });
  return {
    steps: profiled,
    seconds,
    stepSeconds: profiled.reduce((sum, one) => sum + one.seconds * one.count, 0),
  };
}

function quickOf(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.floor(quick * (sorted.length - 1))] ?? 0;
}

/** By number of the step, the seconds of all its executions on all devices; loops and choices have none. */
function timesOf(events: readonly TraceEvent[], steps: readonly Step[]): Map<number, number[]> {
  const times = new Map<number, number[]>();
  const begun = new Map<string, number>();
  for (const { device, step: number, kind, begin, end } of events) {
    const step = steps[number];
    if (kind === "iteration" || !step || step.op === "loop" || step.op === "while" || step.op === "cond")
      continue;
    if (step.op !== kind) {
      throw new InternalError(`step ${number} was compiled as ${step.op} and recorded as ${kind}`);
    }
    const key = step.op === "start" || step.op === "done" ? `${device} ${step.collective}` : "";
    if (step.op === "start") {
      begun.set(key, begin);
      continue;
    }
    const from = step.op === "done" ? (begun.get(key) ?? begin) : begin;
    const own = times.get(number);
    if (own) own.push((end - from) / 1000);
    else times.set(number, [(end - from) / 1000]);
  }
  return times;
}
