/** Runs the job under the plans of seeds, and makes plans that fail as short as possible. */
import { Failure } from "../machine.js";
import type { Callable } from "../runtime.js";
import { type JobOutcome, runJob } from "./cluster.js";
import { type Fault, type Plan, planOf } from "./faults.js";
import { type Job, trainingJob } from "./training.js";

/** How the code of processes is made; planted bugs change it. */
export type Code = () => Callable;

/** What a seed led to. */
export interface Result {
  readonly plan: Plan;
  readonly outcome: JobOutcome | undefined;
  readonly failure: Failure | undefined;
}

const calm = { usual: 0.1, slow: 0, slowShare: 0, lateShare: 0 };

interface Undisturbed {
  readonly job: Job;
  readonly outcome: JobOutcome;
}

/** The jobs of a cluster by their shapes, each with what comes of it if nothing disturbs it. */
export class Jobs {
  private readonly known = new Map<string, Undisturbed>();

  /** @param sound the code without planted bugs */
  constructor(readonly sound: Code) {}

  of(numProcesses: number, devicesEach: number): Undisturbed {
    const key = `${numProcesses} x ${devicesEach}`;
    const found = this.known.get(key);
    if (found) return found;
    const job = trainingJob(numProcesses * devicesEach);
    const launch = { code: this.sound, job, numProcesses, traffic: calm, savesInBackground: false };
    const outcome = runJob({ ...launch, seed: 1, faults: [] });
    this.known.set(key, { job, outcome });
    return { job, outcome };
  }

  /** The plan of a seed. */
  plan(seed: number): Plan {
    return planOf(seed, (processes, devices) => Math.min(...this.of(processes, devices).outcome.numCalls));
  }

  /** Runs a plan; the job must end with the undisturbed values. */
  run(code: Code, seed: number, plan = this.plan(seed)): Result {
    const { job, outcome: undisturbed } = this.of(plan.numProcesses, plan.devicesEach);
    try {
      const outcome = runJob({ code, job, seed, losses: undisturbed.losses, ...plan });
      if (outcome.values !== undisturbed.values)
        throw new Failure("wrong result", "the values at the end differ from those of the undisturbed job");
      return { plan, outcome, failure: undefined };
    } catch (error) {
      const failure = error instanceof Failure ? error : new Failure("exception", String(error));
      return { plan, outcome: undefined, failure };
    }
  }

  /** The shortest plan found that fails in the same way: with fewer faults, or in simpler surroundings. */
  minimise(code: Code, seed: number, { plan, failure }: Result): Plan {
    let best = plan;
    const fails = (other: Plan) => this.run(code, seed, other).failure?.kind === failure?.kind;
    for (const fault of plan.faults) {
      const fewer = { ...best, faults: best.faults.filter((one) => one !== fault) };
      if (fails(fewer)) best = fewer;
    }
    for (const [numProcesses, devicesEach] of [
      [2, 1],
      [3, 1],
    ] as const) {
      if (devicesEach === best.devicesEach && numProcesses >= best.numProcesses) break;
      const smaller = { ...best, numProcesses, devicesEach };
      if (best.faults.every(({ process }) => process < numProcesses) && fails(smaller)) best = smaller;
    }
    const quiet = { ...best, traffic: calm };
    if (fails(quiet)) best = quiet;
    const waiting = { ...best, savesInBackground: false };
    return fails(waiting) ? waiting : best;
  }
}

/** A plan on a few lines. */
export function describePlan(plan: Plan): string {
  const { numProcesses, devicesEach, traffic, faults, savesInBackground } = plan;
  const { usual, slow, slowShare, lateShare, slowComm } = traffic;
  const slowOnes = slowComm ? ` and all of communicator ${slowComm}` : "";
  const lines = faults.map(describeFault);
  return [
    `${numProcesses} processes with ${devicesEach} device${devicesEach === 1 ? "" : "s"} each; messages take up to ${usual} ms, ${100 * slowShare} % of them${slowOnes} up to ${slow} ms; ${100 * lateShare} % of sends end with the receive; checkpoints are written ${savesInBackground ? "while training goes on" : "before it goes on"}`,
    ...(lines.length === 0 ? ["no fault"] : lines),
  ].join("\n  ");
}

function describeFault({ kind, start, process, call, amount }: Fault): string {
  return `start ${start}, call ${call} of process ${process}: ${kind} (${amount})`;
}
