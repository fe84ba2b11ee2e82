/**
 * Measures how long every step of a program takes: the engine records some runs, and a low quantile of each step
 * counts.
 */
import type { CompiledProgram, Step } from "../../compiler/steps.js";
import { forEachStep } from "../../compiler/stepTree.js";
import type { Engine } from "../../ir/engine.js";
import type { TraceEvent } from "../../ir/engineReports.js";
import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { MachineLoad, Observed } from "./machineLoad.js";

/** A step and its time. */
export interface ProfiledStep {
  readonly step: Step;
  /** Its index in the program. */
  readonly number: number;
  /** Seconds; for the `done` of a collective, since its `start`. */
  readonly seconds: number;
  /** How often a device executes it in a run. */
  readonly count: number;
}

/** The result of a {@link Profiler}. */
export interface Profile {
  readonly steps: readonly ProfiledStep[];
  /** Seconds of the fastest run that was not recorded. */
  readonly seconds: number;
  /** The seconds of all steps of a run. */
  readonly stepSeconds: number;
}

/** How often a program runs in a round. */
export interface RunCounts {
  /** Runs that are not recorded. */
  readonly plain: number;
  readonly recorded: number;
}

/** Maximum number of events that a device records. */
const capacity = 2 ** 19;

/**
 * The quantile of a step's times that counts: low, because other processes only make steps slower, and not the lowest,
 * because a device that works while others wait has the memory bandwidth to itself.
 */
const quick = 0.25;

/** The measurements of one round. */
interface Round {
  /** Seconds of the fastest run that was not recorded. */
  readonly seconds: number;
  /** The seconds of every execution, by step index. */
  readonly times: ReadonlyMap<number, readonly number[]>;
  readonly numDevices: number;
}

/** Measures a program in rounds, between which other programs may run. */
export class Profiler {
  private readonly rounds: Observed<Round>[] = [];
  private readonly steps: Step[] = [];

  constructor(
    private readonly engine: Engine,
    private readonly load: MachineLoad,
    readonly compiled: CompiledProgram,
    private readonly run: () => Promise<void>,
    private readonly counts: RunCounts,
  ) {
    forEachStep(compiled.steps, (step) => this.steps.push(step));
  }

  /** Runs without measuring, because first runs are slower. */
  async warmUp(): Promise<void> {
    for (let i = 0; i < 2; i++) await this.run();
  }

  /** Measures some runs. */
  async round(): Promise<void> {
    this.rounds.push(await this.load.observe(() => this.measure()));
  }

  /** The number of rounds in which no other process slowed the machine down. */
  get numUndisturbed(): number {
    return this.load.numUndisturbed(this.rounds);
  }

  /** The time of each step over all undisturbed rounds. */
  profile(): Profile {
    const rounds = this.load.undisturbed(this.rounds);
    const steps = this.steps.flatMap((step, number): ProfiledStep[] => {
      const all = rounds.flatMap(({ times }) => times.get(number) ?? []);
      if (all.length === 0) return [];
      const numRuns = rounds.reduce((sum, { numDevices }) => sum + numDevices * this.counts.recorded, 0);
      return [{ step, number, seconds: quickOf(all), count: all.length / numRuns }];
    });
    return {
      steps,
      seconds: Math.min(...rounds.map(({ seconds }) => seconds)),
      stepSeconds: steps.reduce((sum, one) => sum + one.seconds * one.count, 0),
    };
  }

  private async measure(): Promise<Round> {
    const { tracer } = this.engine;
    if (!tracer) throw new InternalError("an engine without a tracer cannot be calibrated");
    let seconds = Number.POSITIVE_INFINITY;
    for (let i = 0; i < this.counts.plain; i++) {
      const begin = performance.now();
      await this.run();
      seconds = Math.min(seconds, (performance.now() - begin) / 1000);
    }
    tracer.start(capacity);
    for (let i = 0; i < this.counts.recorded; i++) await this.run();
    const events = (await tracer.stop()).filter(({ program }) => program === this.compiled.name);
    const numDevices = Math.max(1, new Set(events.map(({ device }) => device)).size);
    return { seconds, times: timesOf(events, this.steps), numDevices };
  }
}

function quickOf(times: readonly number[]): number {
  const sorted = [...times].sort((a, b) => a - b);
  return at(sorted, Math.floor(quick * (sorted.length - 1)));
}

/** The seconds of all executions on all devices, by step index; loops and branches have none. */
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
