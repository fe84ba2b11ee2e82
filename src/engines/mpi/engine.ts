import { randomUUID } from "node:crypto";
import { availableParallelism } from "node:os";
import { oneOf } from "../../ir/arguments.js";
import type { HostData } from "../../ir/dtype.js";
import type { CompileOptions, DevicePlace, Engine } from "../../ir/engine.js";
import type { EngineInfo } from "../../ir/engineReports.js";
import { reasonOf, ValueError } from "../../ir/errors.js";
import type { FlightAgreement, FlightRecording } from "../../ir/flight.js";
import type { Program } from "../../ir/program.js";
import { type OptionsOf, optional, pick, schema } from "../../ir/schema.js";
import { at, range } from "../../ir/shape.js";
import { version } from "../../ir/version.js";
import { EngineLoadError, ProgramsDifferError } from "../errors.js";
import type { ThreadsBuffer } from "../memory/buffers.js";
import type { DeviceLocations } from "../protocol/locations.js";
import { DEFAULT_DEADLINE_MS } from "../settings.js";
import type { LoadedProgram } from "../shell.js";
import { type LocalDevices, WorkersEngine } from "../workers/workersEngine.js";
import { workersOptions } from "../workers/workersOptions.js";
import { Agreement } from "./agreement.js";
import { Communicators } from "./communicators.js";
import { shareCores } from "./cores.js";
import type { LinksSetup } from "./exchange/links.js";
import { planExchanges } from "./exchange/staging.js";
import { FailureReport } from "./failureReport.js";
import { FlightFiles } from "./flightFiles.js";
import { MAX_LOCAL_DEVICES } from "./library/tags.js";
import { workerCode } from "./workerCode.js";
import { ownSite, type Site, World } from "./world.js";

const mpiEngineOptions = schema({
  ...pick(workersOptions.fields, "memoryBytes", "deadlineMs", "gemm"),
  /** The least number of devices of all processes together; each process has the same number, at least one. */
  numDevices: optional("number"),
  /**
   * Who adds up tensors of several processes: the devices, in the order of the mesh, so that sums have the bits that
   * worker threads give (`exact`, the default), or MPI's own all-reduce, in an order of its own (`fast`).
   */
  reduction: optional(oneOf("exact", "fast"), "exact"),
});

/** How an engine of several processes is made; all of them ask for the same. */
export interface MpiEngineOptions extends OptionsOf<typeof mpiEngineOptions> {}

/** What an engine of several processes runs on. */
export interface MpiEngineInfo extends EngineInfo {
  readonly engine: "mpi";
  /** Which MPI carries messages, for example `Open MPI v4.1.4`. */
  readonly mpi: string;
  readonly processIndex: number;
  readonly processCount: number;
  /** How many devices each process has. */
  readonly numLocalDevices: number;
  /** The host of every process. */
  readonly hosts: readonly string[];
  readonly memoryBytes: number;
  readonly gemm: string;
  readonly numCores: number;
}

/** What processes tell each other when an engine is opened. */
interface Greeting extends Site {
  /** What all processes must have alike, by what it is called in messages. */
  readonly alike: Readonly<Record<string, string>>;
  /** A number that hardly another process has. */
  readonly nonce: string;
}

/** By how much a device that waits in vain is reported before the program that others did not begin. */
const GRACE_MS = 5000;

/** What is done about settings in which processes differ. */
const advice: Readonly<Record<string, string>> = {
  "the release of shardwise": "install the same release on all hosts",
  "the number of devices": "all processes run the same script with the same mesh",
};

/**
 * Opens the engine of a job that `mpirun` or `srun` started: every process runs the same script and holds some of
 * the devices, which are worker threads. Inside a process they meet in shared memory, between processes by MPI.
 */
export function createMpiEngine(options?: MpiEngineOptions): MpiEngine {
  const wanted = mpiEngineOptions.read(options, "createMpiEngine");
  return new MpiEngine(wanted, joinJob(wanted));
}

/** What this process knows about the job that it is part of. */
interface Job {
  readonly world: World;
  readonly greetings: readonly Greeting[];
  /** How many devices each process has. */
  readonly numLocal: number;
}

/** The engine of several processes; see {@link createMpiEngine}. */
export class MpiEngine extends WorkersEngine {
  readonly name = "mpi";
  override readonly process: Engine["process"];
  private readonly world: World;
  private readonly numLocal: number;
  private readonly greetings: readonly Greeting[];
  private readonly agreement: Agreement;
  /** What this process runs together with others, by the number of the program. */
  private readonly agreed = new Map<number, FlightAgreement>();
  private readonly flights: FlightFiles;
  /** Takes back what others are told when this process fails. */
  private readonly forget: () => void;
  private readonly failureReport: FailureReport;
  /** Where MPI forms sums itself, if it does. */
  private readonly communicators: Communicators | undefined;
  private readonly links: LinksSetup;

  /** @internal */
  constructor(options: MpiEngineOptions, job: Job) {
    const { world, numLocal, greetings } = job;
    const { rank, size } = world;
    const links = world.newLinks();
    super(numLocal * size, localDevices(job, options, links), options);
    this.world = world;
    this.process = { index: rank, count: size };
    this.numLocal = numLocal;
    this.greetings = greetings;
    this.links = links;
    this.communicators =
      options.reduction === "fast" ? new Communicators(world, () => this.answerCalls()) : undefined;
    this.flights = new FlightFiles((reason) => this.flightRecording(reason), rank);
    this.forget = world.whenItFails(() => this.failureReport.warn(this.flights.lastReason));
    const hosts = greetings.map(({ host }) => host);
    this.agreement = new Agreement(world.calls, rank, (options.deadlineMs ?? DEFAULT_DEADLINE_MS) + GRACE_MS);
    const record = (reason: string) => this.flightRecording(reason);
    this.failureReport = new FailureReport(world, record, (reason) => this.flights.write(reason), hosts);
  }

  /** A program of several processes is compared with theirs when it is first run. */
  protected override prepare(program: Program, options: CompileOptions): LoadedProgram<ThreadsBuffer> {
    const locations = this.locate(options);
    const channels = this.communicators?.for(program, options, locations);
    const loaded = this.prepareAt(program, options, channels ? { ...locations, channels } : locations);
    const together = [...new Set(locations.processes)].sort((a, b) => a - b);
    if (together.length === 1 || !together.includes(locations.process)) return loaded;
    let unconfirmed: Program | undefined = program;
    return {
      start: (inputs) => {
        if (unconfirmed) {
          this.agreed.set(loaded.id, this.agreement.propose(unconfirmed, options, together));
        }
        unconfirmed = undefined;
        return loaded.start(inputs);
      },
      release: () => {
        this.agreed.delete(loaded.id);
        loaded.release();
      },
    };
  }

  protected override read(buffer: ThreadsBuffer): Promise<HostData> {
    return this.explained(super.read(buffer));
  }

  protected override written(buffer: ThreadsBuffer): Promise<void> {
    return this.explained(super.written(buffer));
  }

  protected override view(buffer: ThreadsBuffer): HostData | undefined {
    return this.agreement.isSettled ? super.view(buffer) : undefined;
  }

  protected override async end(): Promise<void> {
    const { failure } = this;
    this.forget();
    this.flights.close();
    this.failureReport.close();
    this.agreement.close();
    await super.end();
    // After a failure messages may still be under way; they end with the process.
    if (failure || !this.world.mpi.isRunning) return;
    this.communicators?.close();
    this.world.mpi.freeCommunicator(this.links.comm);
  }

  /** Which process and host a device belongs to. */
  placeOf(device: number): DevicePlace {
    const process = Math.floor(device / this.numLocal);
    return { process, host: this.hostOf(process) };
  }

  /** Gives every process the texts of all, in their order. */
  share(text: string): Promise<string[]> {
    return this.world.shareLater(text);
  }

  /** By how many milliseconds the clock of process 0 is ahead of this one's. */
  clockAhead(): number {
    return this.world.clockAhead();
  }

  /** What the engine runs on. */
  info(): MpiEngineInfo {
    const { gemm, gemmShareOfPeak, memoryBytes, numCores } = this.localInfo();
    return {
      engine: this.name,
      numDevices: this.numDevices,
      mpi: this.world.mpi.version,
      processIndex: this.process.index,
      processCount: this.process.count,
      numLocalDevices: this.numLocal,
      hosts: this.greetings.map(({ host }) => host),
      memoryBytes,
      gemm,
      gemmShareOfPeak,
      numCores,
    };
  }

  /** Says in which folder processes write down what their devices did last when one of them fails. */
  keepFlightsIn(folder: string): void {
    this.flights.keepIn(folder);
  }

  /** What the devices of this process did last. */
  override flightRecording(reason: string): FlightRecording {
    const recording = super.flightRecording(reason);
    return {
      ...recording,
      process: { ...recording.process, job: this.job },
      programs: recording.programs.map((program) => {
        const agreement = this.agreed.get(program.id);
        return agreement ? { ...program, agreement } : program;
      }),
    };
  }

  /** What comes of a run; where devices waited in vain, the error tells what those of all processes were doing. */
  private async explained<T>(outcome: Promise<T>): Promise<T> {
    try {
      const [value] = await Promise.all([outcome, this.agreement.settled()]);
      return value;
    } catch (error) {
      const difference = error instanceof ProgramsDifferError ? error : await this.agreement.difference();
      if (difference === undefined) throw await this.failureReport.explain(error);
      this.flights.write(reasonOf(difference));
      throw difference;
    }
  }

  /** @internal Which processes hold the devices of a program. */
  protected locate({ devices }: CompileOptions): DeviceLocations {
    return {
      devices: devices.map((device) => device % this.numLocal),
      processes: devices.map((device) => Math.floor(device / this.numLocal)),
      process: this.process.index,
    };
  }

  /** What tells this job from others. */
  private get job(): string {
    return at(this.greetings, 0).nonce;
  }

  /** The host of a process. */
  private hostOf(rank: number): string {
    return at(this.greetings, rank).host;
  }
}

/** Joins the other processes of the job; all of them must have been started alike. */
function joinJob(options: MpiEngineOptions): Job {
  const world = World.join();
  const numLocal = chooseLocal(options.numDevices ?? world.size, world.size);
  const own: Greeting = { ...ownSite(), alike: settingsOf(options, numLocal), nonce: randomUUID() };
  const greetings = world
    .share(JSON.stringify(own), "open the engine")
    .map((text) => JSON.parse(text) as Greeting);
  const [first = own] = greetings;
  greetings.forEach(({ alike }, rank) => {
    for (const what of new Set([...Object.keys(first.alike), ...Object.keys(alike)])) {
      const [a = "nothing", b = "nothing"] = [first.alike[what], alike[what]];
      if (a === b) continue;
      throw new EngineLoadError(
        `[mpi] the processes differ in ${what}: process 0 has ${a} and process ${rank} has ${b}: ${advice[what] ?? "start all of them with the same settings and environment"}`,
      );
    }
  });
  return { world, greetings, numLocal };
}

/** The devices of this process, which share its host with those of other processes. */
function localDevices(
  { world, greetings, numLocal }: Job,
  { deadlineMs }: MpiEngineOptions,
  links: LinksSetup,
): LocalDevices {
  const { rank } = world;
  const { host } = at(greetings, rank);
  const neighbours = range(world.size).filter((other) => at(greetings, other).host === host);
  const cores = shareCores(neighbours.map((other) => at(greetings, other).cpus));
  return {
    count: numLocal,
    first: rank * numLocal,
    code: workerCode(),
    extra: links,
    numCores: cores[neighbours.indexOf(rank)] ?? availableParallelism(),
    memoryShare: 1 / neighbours.length,
    // Devices of other processes, for which all of this process may wait, can be busy with something else.
    deadlockMs: deadlineMs ?? DEFAULT_DEADLINE_MS,
    planStaging: planExchanges,
  };
}

/** What this process wants of the engine, and what else decides which bits come of it. */
function settingsOf(
  { deadlineMs, memoryBytes, gemm, reduction }: MpiEngineOptions,
  numLocal: number,
): Greeting["alike"] {
  const { SHARDWISE_GEMM, SHARDWISE_KERNELS } = process.env;
  const wanted = { deadlineMs, memoryBytes, gemm, reduction, SHARDWISE_GEMM, SHARDWISE_KERNELS };
  return {
    "the release of shardwise": version,
    "the number of devices": String(numLocal),
    ...Object.fromEntries(
      Object.entries(wanted).map(([name, value]) => [name, String(value ?? "its default")]),
    ),
  };
}

function chooseLocal(numDevices: number, size: number): number {
  if (!Number.isInteger(numDevices) || numDevices < 1) {
    throw new ValueError(`[createMpiEngine] numDevices must be an integer of at least 1, not ${numDevices}`);
  }
  const numLocal = Math.ceil(numDevices / size);
  if (numLocal > MAX_LOCAL_DEVICES) {
    throw new ValueError(
      `[createMpiEngine] ${numDevices} devices / ${size} processes = ${numLocal} a process, more than ${MAX_LOCAL_DEVICES}: start ${Math.ceil(numDevices / MAX_LOCAL_DEVICES)} processes or more`,
    );
  }
  return numLocal;
}
