/** Runs the training job on a simulated cluster, whose launcher starts it again until it has finished. */
import { Disk, systemError } from "../disk.js";
import { Failure } from "../machine.js";
import type { Callable } from "../runtime.js";
import { randomFrom } from "../search.js";
import { type Fault, LATE_MS, permitted } from "./faults.js";
import { enter } from "./host.js";
import { ClusterMachine } from "./machine.js";
import { Network, type Traffic } from "./network.js";
import { type Ending, SimulatedProcess } from "./process.js";
import { giveBackMemories } from "./setting.js";
import type { Job } from "./training.js";

/** How a job is run. */
export interface Launch {
  /** The code of a process. */
  readonly code: () => Callable;
  readonly job: Job;
  readonly numProcesses: number;
  readonly seed: number;
  readonly traffic: Traffic;
  readonly savesInBackground: boolean;
  readonly faults: readonly Fault[];
  /** The losses of steps that are known; each that is read must be the same. */
  readonly losses?: Losses;
}

/** The loss of each step. */
export type Losses = ReadonlyMap<number, number>;

/** One start of a job. */
interface Started {
  readonly endings: readonly Ending[];
  /** The calls of MPI that each process has made. */
  readonly numCalls: readonly number[];
  readonly happened: readonly Fault[];
  readonly numMessages: number;
  readonly time: number;
}

/** What became of a job, with all its starts. */
export interface JobOutcome {
  readonly values: unknown;
  readonly numStarts: number;
  readonly numMessages: number;
  readonly losses: Losses;
  readonly happened: readonly Fault[];
  readonly errors: readonly string[];
  readonly numCalls: readonly number[];
  readonly time: number;
}

/** A launcher ends the processes that are left when one is gone, within this time. */
const LAUNCHER_MS = 1500;

const MAX_STARTS = 12;

/** Starts a job again and again until it has finished. */
export function runJob(launch: Launch): JobOutcome {
  const random = randomFrom(launch.seed);
  const losses = new Map(launch.losses);
  const storage: Storage = { disk: new Disk(), saved: 0, hasLied: false, losses };
  const happened: Fault[] = [];
  const errors: string[] = [];
  let [numMessages, time] = [0, 0];
  for (let number = 1; number <= MAX_STARTS; number++) {
    const started = startJob(launch, number, storage, random);
    happened.push(...started.happened);
    numMessages += started.numMessages;
    time += started.time;
    const { endings, numCalls } = started;
    for (const ending of endings) if (ending.how === "failed") errors.push(textOf(ending.error));
    if (endings.every(({ how }) => how === "finished"))
      return {
        values: valuesOf(endings),
        losses,
        numStarts: number,
        numMessages,
        happened,
        errors,
        numCalls,
        time,
      };
    checkEndings(started);
  }
  throw new Failure("no end", `the job was started ${MAX_STARTS} times: ${errors.at(-1)}`);
}

/** What outlives the starts of a job. */
interface Storage {
  disk: Disk;
  /** The newest step whose save has returned. */
  saved: number;
  /** Whether the disk has ever said that something was synced which was not. */
  hasLied: boolean;
  readonly losses: Map<number, number>;
}

/** Throws if a loss that is read is not the one that is known, as of a program that not all have agreed on. */
function checkRead({ losses }: Storage, step: number, loss: number): void {
  const known = losses.get(step) ?? loss;
  losses.set(step, known);
  if (!Object.is(known, loss))
    throw new Failure("wrong result", `the loss of step ${step} is read as ${loss} and is ${known}`);
}

/** Throws if a checkpoint is damaged, or lost although its save had returned. */
function checkFound({ saved, hasLied }: Storage, step: number, damaged: readonly string[]): void {
  if (hasLied) return;
  if (damaged.length > 0) throw new Failure("wrong result", `a checkpoint is damaged: ${damaged[0]}`);
  if (step < saved) throw new Failure("wrong result", `step ${saved} was saved, but step ${step} is found`);
}

function startJob(launch: Launch, number: number, storage: Storage, random: () => number): Started {
  const { disk } = storage;
  const { numProcesses, job, code, faults, traffic } = launch;
  const machine = new ClusterMachine(random);
  const processes = Array.from(
    { length: numProcesses },
    (_, rank) => new SimulatedProcess(machine, rank, numProcesses),
  );
  const network = new Network(machine, processes, random, traffic);
  const due = faults.filter(({ start }) => start === number);
  const happened: Fault[] = [];
  const happen = (fault: Fault, process: SimulatedProcess) => {
    happened.push(fault);
    if (fault.kind === "kill") process.kill();
    else if (fault.kind === "stop") process.stoppedUntil = machine.time + fault.amount;
    else if (fault.kind === "clock") process.clockAhead += fault.amount;
    else if (fault.kind === "sleep") {
      process.stoppedUntil = machine.time + LATE_MS;
      machine.after(LATE_MS, () => {
        for (const one of processes) one.stoppedUntil = machine.time + fault.amount;
      });
    } else if (fault.kind === "full disk") fillDisk(disk, Math.ceil(fault.amount / 100));
    else if (fault.kind === "power cut") {
      for (const one of processes) one.kill();
      storage.disk = disk.survive(random);
    }
  };
  const lies = due.some(({ kind }) => kind === "lying disk");
  storage.hasLied ||= lies;
  disk.before = (operation) => lies && operation === "sync" && random() < 0.5;
  enter({
    hasDiverged: (rank) => {
      // Only one of them: if all run the other program, they agree.
      const fault = due.find(({ kind }) => kind === "other program");
      if (fault?.process !== rank) return false;
      happened.push(fault);
      return true;
    },
    savesInBackground: launch.savesInBackground,
    machine,
    network,
    disk,
    saved: (step) => {
      storage.saved = Math.max(storage.saved, step);
    },
    read: (step, loss) => checkRead(storage, step, loss),
    found: (step, damaged) => checkFound(storage, step, damaged),
    called(process) {
      process.numCalls++;
      for (const fault of due) {
        if (fault.process === process.rank && fault.call === process.numCalls) happen(fault, process);
      }
    },
  });
  for (const process of processes) {
    const train = code();
    process.start(withJob(train, job));
  }
  const isGone = ({ ending }: SimulatedProcess) => ending !== undefined;
  let isEnding = false;
  machine.run(() => {
    const hasFailed = processes.some(({ ending }) => ending && ending.how !== "finished");
    if (hasFailed && !isEnding) {
      isEnding = true;
      machine.after(random() * LAUNCHER_MS, () => {
        for (const process of processes) if (!isGone(process)) process.kill();
      });
    }
    return processes.every(isGone);
  });
  giveBackMemories();
  const endings = processes.flatMap(({ ending }) => ending ?? []);
  const numCalls = processes.map((process) => process.numCalls);
  return { endings, numCalls, happened, numMessages: network.numMessages, time: machine.time };
}

/** Refuses some of the next writes. */
function fillDisk(disk: Disk, count: number): void {
  const before = disk.before;
  let left = count;
  disk.before = (operation) => {
    if (operation === "write" && left > 0) {
      left--;
      throw systemError("ENOSPC", "ENOSPC: no space left on device, write");
    }
    return before(operation);
  };
}

function withJob(train: Callable, job: Job): Callable {
  const call = () => train(job);
  return Object.assign(call, { $twin: () => train.$twin?.(job) }) as Callable;
}

/** Throws unless processes ended as the faults that happened explain it. */
function checkEndings({ endings, happened }: Started): void {
  for (const ending of endings) {
    if (ending.how !== "failed") continue;
    const text = textOf(ending.error);
    if (permitted(text, happened)) continue;
    const cause =
      happened.length === 0 ? "without a fault" : `after ${happened.map(({ kind }) => kind).join(", ")}`;
    throw new Failure("wrong result", `a process failed ${cause}: ${text}`);
  }
  const isKilled = endings.some(({ how }) => how === "killed");
  const isFailed = endings.some(({ how }) => how === "failed");
  if (isKilled && !isFailed && happened.length === 0)
    throw new Failure("wrong result", "a process was killed without a fault");
}

function valuesOf(endings: readonly Ending[]): unknown {
  const values = endings.map((ending) => (ending.how === "finished" ? JSON.stringify(ending.value) : ""));
  if (new Set(values).size > 1) throw new Failure("wrong result", "processes end with different values");
  return values[0];
}

function textOf(error: unknown): string {
  return error instanceof Error ? `${error.name}: ${error.message}` : String(error);
}
