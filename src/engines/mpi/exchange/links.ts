import { getOrInsert } from "../../../ir/collections.js";
import { at } from "../../../ir/shape.js";
import { EngineLoadError } from "../../errors.js";
import { SEVERAL, type Signals } from "../../protocol/signals.js";
import { loadKoffi } from "../../system/koffi.js";
import { type BatchCode, type CodePlaces, Mpi, type MpiChoice } from "../library/library.js";
import { MessageBatch } from "../library/messages.js";
import type { Member } from "../library/mpiGroup.js";
import { type DevicePair, MAX_LOCAL_DEVICES, Tags } from "../library/tags.js";

/** What the worker of a device needs to reach those of other processes. */
export interface LinksSetup {
  readonly mpi: MpiChoice;
  /** The communicator of the engine. */
  readonly comm: number;
  /** The largest tag of a message; asked for once, so that a thread that starts as the process ends never calls MPI. */
  readonly largestTag: number;
  /** Where the code is that begins messages and looks for them; undefined where there is none. */
  readonly code: CodePlaces | undefined;
}

/** A collective that is under way and can be moved on between steps. */
export interface PendingCollective {
  advance(): void;
}

/** Messages that {@link ProcessLinks.follow} looks after. */
export interface Followed {
  /** Begins them. */
  begin(): void;
  /** Waits until they have arrived and left. */
  finish(): void;
}

/** One device's way to the devices of other processes. */
export class ProcessLinks {
  /** The native address of the device's memory. */
  base = 0;
  private readonly mpi: Mpi;
  private readonly comm: number;
  private readonly code: BatchCode | undefined;
  private readonly yieldCore: () => void;
  /** How messages of collectives are named. */
  readonly tags: Tags;
  private readonly pairs = new Map<number, DevicePair>();
  private readonly underway: PendingCollective[] = [];

  constructor(
    { mpi, comm, largestTag, code }: LinksSetup,
    readonly signals: Signals,
    memory: WebAssembly.Memory,
  ) {
    const bound = Mpi.load(mpi.path);
    if (!(bound instanceof Mpi)) throw new EngineLoadError(`[mpi] ${mpi.path} does not load: ${bound}`);
    this.mpi = bound;
    this.comm = comm;
    this.code = code && bound.batchCode(code);
    this.tags = new Tags(largestTag, mpi.path);
    this.moveTo(memory);
    const schedYield: () => number = loadKoffi()?.load(null).func("sched_yield", "int", []) ?? (() => 0);
    this.yieldCore = () => void schedYield();
  }

  /** Tells that the device's elements lie in another memory from now on. */
  moveTo(memory: WebAssembly.Memory): void {
    this.base = this.mpi.addressOf(new Uint8Array(memory.buffer));
  }

  /** Moves on the collectives that are under way. */
  progress(): void {
    if (this.underway.length > 0) this.signals.throwIfAborted();
    for (let i = 0; i < this.underway.length; i++) at(this.underway, i).advance();
  }

  /** Room for messages that are on their way together; on another communicator for sums that MPI forms. */
  batch(capacity: number, comm = this.comm): MessageBatch {
    return new MessageBatch(this.mpi, comm, capacity, this.code);
  }

  /** What this device counts together with a device of another process, whatever collectives they are in. */
  pairWith({ process, device }: Member): DevicePair {
    return getOrInsert(this.pairs, process * MAX_LOCAL_DEVICES + device, () => this.tags.newPair());
  }

  /** Looks after messages that are begun and finished as one: moved on between steps, and waited for at the end. */
  follow(batch: MessageBatch): Followed {
    const underway = { advance: () => void batch.isDone() };
    return {
      begin: () => {
        batch.begin();
        this.begin(underway);
      },
      finish: () => {
        this.wait(batch);
        this.end(underway);
      },
    };
  }

  begin(underway: PendingCollective): void {
    this.underway.push(underway);
  }

  end(underway: PendingCollective): void {
    // Mostly it is the last one, and nothing has to move up.
    if (this.underway.at(-1) === underway) this.underway.pop();
    else this.underway.splice(this.underway.indexOf(underway), 1);
  }

  /** Waits until messages have arrived and left. */
  wait(batch: MessageBatch): void {
    this.signals.poll(batch, SEVERAL, this.yieldCore);
  }
}
