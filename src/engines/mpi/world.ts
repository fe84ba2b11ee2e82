import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { at, range } from "../../ir/shape.js";
import { EngineLoadError } from "../errors.js";
import { detectLaunch, parseCpuList } from "./launcher.js";
import { Mpi } from "./library.js";
import { Batch, TransportError } from "./messages.js";

/** How long processes wait for each other when an engine is opened. */
const OPEN_MS = 120_000;

/** How long a process that failed waits for the others to end by themselves. */
const LEAVE_MS = 1500;

const TAGS = { length: 1, text: 2, call: 3 } as const;

/** All processes of the job, as one of them sees them. */
export class World {
  readonly rank: number;
  readonly size: number;
  /** What processes say to each other apart from tensors. */
  private readonly control: number;
  private sharing: Promise<unknown> = Promise.resolve();
  /** What was called out and may not have left yet, and what is arriving. */
  private readonly leaving = new Set<Batch>();
  private readonly arriving = new Map<number, { readonly batch: Batch; readonly bytes: Uint8Array }>();

  private constructor(readonly mpi: Mpi) {
    this.rank = mpi.rank(mpi.world);
    this.size = mpi.size(mpi.world);
    this.control = mpi.duplicate(mpi.world);
    process.on("exit", (code) => this.leave(code));
  }

  /** Joins the other processes; once is enough for all engines of a process. */
  static join(): World {
    joined ??= World.begin();
    return joined;
  }

  private static begin(): World {
    const launch = detectLaunch();
    const mpi = Mpi.find(launch);
    mpi.initialize();
    const size = mpi.size(mpi.world);
    if (launch !== undefined && launch.size !== size) {
      throw new EngineLoadError(
        `[mpi] ${launch.launcher} started ${launch.size} processes, but ${mpi.choice.path} (${mpi.version}) sees ${size}: use the launcher of the same MPI, or set SHARDWISE_MPI to the library that belongs to the launcher`,
      );
    }
    return new World(mpi);
  }

  /** A communicator of its own for the messages of an engine. */
  newCommunicator(): number {
    return this.mpi.duplicate(this.mpi.world);
  }

  /**
   * Gives every process the texts of all, in their order; they all call this together.
   *
   * @param what what they do, for the message when one of them does not come
   */
  share(text: string, what: string): string[] {
    const rounds = this.rounds(text, what);
    const pause = new Int32Array(new SharedArrayBuffer(4));
    for (;;) {
      const { done, value } = rounds.next();
      if (done) return value;
      Atomics.wait(pause, 0, 0, value);
    }
  }

  /** Like {@link share}, without holding up the thread; one after the other, in the order of the calls. */
  shareLater(text: string): Promise<string[]> {
    const shared = this.sharing.then(async () => {
      const rounds = this.rounds(text, "say something");
      for (;;) {
        const { done, value } = rounds.next();
        if (done) return value;
        await new Promise((resolve) => setTimeout(resolve, value));
      }
    });
    this.sharing = shared.catch(() => {});
    return shared;
  }

  /** Sends a text to all others, whether they listen or not. */
  tellAll(text: string): void {
    const bytes = bytesOf(text);
    for (const rank of this.others) {
      const batch = new Batch(this.mpi, this.control, 1);
      batch.send(this.mpi.addressOf(bytes), bytes.length, rank, TAGS.call);
      this.leaving.add(batch);
    }
  }

  /** The texts that others have sent to all since the last time; never waits. */
  hear(): { rank: number; text: string }[] {
    const { mpi, control, arriving, leaving } = this;
    if (!mpi.isRunning) return [];
    for (const batch of leaving) if (batch.isDone()) leaving.delete(batch);
    return this.others.flatMap((rank) => {
      const waiting = arriving.has(rank) ? undefined : mpi.waitingBytes(rank, TAGS.call, control);
      if (waiting !== undefined) {
        const bytes = new Uint8Array(new SharedArrayBuffer(Math.max(1, waiting)));
        const batch = new Batch(mpi, control, 1);
        batch.receive(mpi.addressOf(bytes), waiting, rank, TAGS.call);
        arriving.set(rank, { batch, bytes: bytes.subarray(0, waiting) });
      }
      const message = arriving.get(rank);
      if (!message?.batch.isDone()) return [];
      arriving.delete(rank);
      return [{ rank, text: Buffer.from(message.bytes.slice()).toString() }];
    });
  }

  private get others(): number[] {
    return range(this.size).filter((rank) => rank !== this.rank);
  }

  /** The work of sharing a text; gives the time to wait before it is taken up again. */
  private *rounds(text: string, what: string): Generator<number, string[]> {
    const own = bytesOf(text);
    const lengths = yield* this.swap(TAGS.length, bytesOfLength(own.length), () => 4, what);
    const sizes = lengths.map((bytes) => new DataView(bytes.buffer).getInt32(0, true));
    const texts = yield* this.swap(TAGS.text, own, (rank) => at(sizes, rank), what);
    return texts.map((bytes) => Buffer.from(bytes.slice()).toString());
  }

  private *swap(
    tag: number,
    own: Uint8Array,
    length: (rank: number) => number,
    what: string,
  ): Generator<number, Uint8Array[]> {
    const { mpi, control } = this;
    const results = range(this.size).map((rank) =>
      rank === this.rank ? own : new Uint8Array(new SharedArrayBuffer(Math.max(1, length(rank)))),
    );
    const batches = this.others.map((rank) => {
      const batch = new Batch(mpi, control, 2);
      batch.receive(mpi.addressOf(at(results, rank)), length(rank), rank, tag);
      batch.send(mpi.addressOf(own), own.length, rank, tag);
      return { rank, batch };
    });
    const pending = new Set(batches);
    const begin = performance.now();
    while (pending.size > 0) {
      for (const entry of pending) if (entry.batch.isDone()) pending.delete(entry);
      const waited = performance.now() - begin;
      if (waited > OPEN_MS) {
        const missing = [...pending].map(({ rank }) => rank).join(", ");
        throw new TransportError(
          `[mpi] process ${this.rank} of ${this.size} has waited ${OPEN_MS / 1000} s for process ${missing} to ${what}`,
        );
      }
      if (pending.size > 0) yield Math.min(5, waited / 20);
    }
    return results.map((bytes, rank) => bytes.subarray(0, length(rank)));
  }

  /**
   * A process that ends well waits for the others. One that fails gives them a moment to end, too; without them it
   * leaves MPI as it is, which makes the launcher end the job, and prints its error, which comes after this.
   */
  private leave(code: number): void {
    const { mpi } = this;
    if (!mpi.isRunning) return;
    if (this.meet(code === 0 ? Number.POSITIVE_INFINITY : LEAVE_MS)) mpi.finalize();
  }

  /** Whether all processes come here in time. */
  private meet(limitMs: number): boolean {
    const barrier = new Batch(this.mpi, this.control, 1);
    barrier.meet();
    const pause = new Int32Array(new SharedArrayBuffer(4));
    const begin = performance.now();
    while (!barrier.isDone()) {
      if (performance.now() - begin > limitMs) return false;
      Atomics.wait(pause, 0, 0, 1);
    }
    return true;
  }
}

let joined: World | undefined;

/** What processes tell each other about where they run. */
export interface Site {
  readonly host: string;
  /** The cores that the process may use. */
  readonly cpus: readonly number[];
}

/** Where this process runs. */
export function ownSite(): Site {
  return { host: hostname(), cpus: ownCpus() };
}

function ownCpus(): number[] {
  try {
    const line = /^Cpus_allowed_list:\s*(.*)$/m.exec(readFileSync("/proc/self/status", "utf8"));
    return parseCpuList(line?.[1] ?? "");
  } catch {
    return [];
  }
}

function bytesOf(text: string): Uint8Array {
  const encoded = Buffer.from(text);
  const bytes = new Uint8Array(new SharedArrayBuffer(Math.max(1, encoded.length)));
  bytes.set(encoded);
  return bytes.subarray(0, encoded.length);
}

function bytesOfLength(length: number): Uint8Array {
  const bytes = new Uint8Array(new SharedArrayBuffer(4));
  new DataView(bytes.buffer).setInt32(0, length, true);
  return bytes;
}
