/** Runs scenarios under schedulers, and makes failing schedules short. */
import type { SimulatedCode } from "./load.js";
import { Failure, Machine, Pruned, type Scheduler, type Step } from "./machine.js";
import { current, runThread } from "./runtime.js";
import type { Scenario } from "./scenario.js";
import {
  type Decisions,
  ExhaustiveScheduler,
  GivenScheduler,
  PriorityScheduler,
  RandomScheduler,
} from "./search.js";
import { Transitions } from "./transitions.js";

/** What all runs have seen. */
export const transitions = new Transitions();

/** How a run ended. */
export interface Outcome {
  readonly failure: Failure | undefined;
  readonly isPruned: boolean;
  readonly machine: Machine;
}

/** Runs a scenario once. */
export function runOnce(
  { sites }: SimulatedCode,
  scenario: Scenario,
  scheduler: Scheduler,
  keepsSteps = false,
): Outcome {
  transitions.begin();
  const machine = new Machine({ sites, keepsSteps, transitions });
  current.machine = machine;
  try {
    const { threads, daemons = [], timeoutsAreExpected = false, check } = scenario.setUp();
    machine.timeoutsAreExpected = timeoutsAreExpected;
    for (const [name, code] of Object.entries(threads)) {
      machine.start(name, runThread(code), daemons.includes(name));
    }
    machine.run(scheduler);
    check?.();
  } catch (error) {
    if (error instanceof Failure) return { failure: error, isPruned: false, machine };
    if (error instanceof Pruned) return { failure: undefined, isPruned: true, machine };
    throw error;
  }
  return { failure: undefined, isPruned: false, machine };
}

/** The scheduler of a seed: even seeds choose at random, odd ones by priorities. */
export function schedulerOf(seed: number): RandomScheduler | PriorityScheduler {
  if (seed % 2 === 0) return new RandomScheduler(seed);
  return new PriorityScheduler(seed, [50, 200, 1000][(seed >> 1) % 3] ?? 200, 1 + ((seed >> 1) % 4));
}

/** A failure and how to see it again. */
export interface Found {
  readonly failure: Failure;
  readonly decisions: Decisions;
  readonly stopsAtPlain: boolean;
}

export interface Explored {
  readonly found: Found | undefined;
  readonly numSchedules: number;
  readonly numSteps: number;
  readonly numStates: number;
  /** Whether there are no other schedules. */
  readonly isComplete: boolean;
}

/** Goes through all schedules of a scenario, or as many as time permits. */
export function exploreAll(code: SimulatedCode, scenario: Scenario, milliseconds: number): Explored {
  const scheduler = new ExhaustiveScheduler();
  const end = performance.now() + milliseconds;
  let [numSchedules, numSteps] = [0, 0];
  const result = (isComplete: boolean, found?: Found): Explored => {
    return { found, numSchedules, numSteps, numStates: scheduler.numStates, isComplete };
  };
  do {
    const { failure, isPruned, machine } = runOnce(code, scenario, scheduler);
    numSteps += machine.numSteps;
    if (!isPruned) numSchedules++;
    if (failure) return result(false, { failure, decisions: scheduler.decisions, stopsAtPlain: false });
    if (performance.now() > end) return result(false);
  } while (scheduler.advance());
  return result(true);
}

/** Runs a scenario under the schedule of one seed. */
export function exploreSeed(code: SimulatedCode, scenario: Scenario, seed: number): Explored {
  const scheduler = schedulerOf(seed);
  const { failure, machine } = runOnce(code, scenario, scheduler);
  const { decisions } = scheduler;
  return {
    found: failure && { failure, decisions, stopsAtPlain: true },
    numSchedules: 1,
    numSteps: machine.numSteps,
    numStates: machine.numSteps,
    isComplete: false,
  };
}

/** A schedule as what it decides differently from a scheduler that continues with the same thread. */
export type Deviations = ReadonlyMap<number, number>;

/** The fewest decisions found that still cause a failure of the same kind. */
export function minimise(code: SimulatedCode, scenario: Scenario, found: Found): Deviations {
  const fails = (given: Deviations): Decisions | undefined => {
    const scheduler = new GivenScheduler(given, found.stopsAtPlain);
    const { failure } = runOnce(code, scenario, scheduler);
    return failure?.kind === found.failure.kind ? scheduler.decisions : undefined;
  };
  let best = new Map(found.decisions.entries());
  if (fails(best) === undefined) throw new Error("the failure does not repeat itself");
  for (let size = best.size; size >= 1; size = Math.floor(size / 2)) {
    for (let begin = 0; begin < best.size; ) {
      const entries = [...best];
      const fewer = new Map([...entries.slice(0, begin), ...entries.slice(begin + size)]);
      if (fails(fewer) === undefined) begin += size;
      else best = fewer;
    }
  }
  return best;
}

/** The steps of a schedule, one line each, and how it ends. */
export function printSchedule(
  code: SimulatedCode,
  scenario: Scenario,
  given: Deviations,
  stopsAtPlain: boolean,
): string {
  const { machine, failure } = runOnce(code, scenario, new GivenScheduler(given, stopsAtPlain), true);
  const width = Math.max(...machine.threads.map(({ name }) => name.length));
  let before: Step | undefined;
  const lines = machine.steps.map((step) => {
    const { thread, operation, result } = step;
    const name = before?.thread === thread ? "" : thread.name;
    before = step;
    const value = operation.kind === "write" || operation.kind === "store" ? operation.value : result;
    const text = code.sites[operation.site]?.text ?? "sleeps until there is something to do";
    const where = machine.siteText(operation.site);
    return `${name.padEnd(width)}  ${where}  ${text}  ${machine.nameOf(operation)} ${String(value)}`;
  });
  return [...lines, failure ? `${failure.kind}: ${failure.message}` : "no failure"].join("\n");
}
