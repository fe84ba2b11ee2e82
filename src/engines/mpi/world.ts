import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import { writeCallList } from "../../compiler/native/callList.js";
import { writeLookLoop } from "../../compiler/native/lookLoop.js";
import { lazily } from "../../ir/identity.js";
import { at, range } from "../../ir/shape.js";
import { EngineLoadError } from "../errors.js";
import { detectLaunch } from "../launch.js";
import { CodeMemory } from "../system/codeMemory.js";
import { parseCpuList } from "./cores.js";
import type { LinksSetup } from "./exchange/links.js";
import { Calls, sharedBytes } from "./library/calls.js";
import { Clocks } from "./library/clocks.js";
import { type CodePlaces, Mpi } from "./library/library.js";
import { MessageBatch, TransportError } from "./library/messages.js";

/** How long processes wait for each other when an engine is opened. */
const OPEN_MS = 120_000;

/** How long a process that failed waits for the others to end by themselves. */
const LEAVE_MS = 1500;

const TAGS = { length: 1, text: 2, subset: 4 } as const;

/** Where this process has the code that looks after messages, for good; undefined where none can be loaded. */
const codeHere = lazily((): CodePlaces | undefined => {
  const pieces = [writeLookLoop(process.arch), writeCallList(process.arch)].filter(
    (one) => one !== undefined,
  );
  const memory = pieces.length === 2 ? CodeMemory.open() : undefined;
  if (!(memory instanceof CodeMemory)) return undefined;
  try {
    const places = memory.load(pieces);
    return { look: at(places, 0), callAll: at(places, 1) };
  } catch {
    // The system does not allow generated code: each message and each look is a call.
    return undefined;
  }
});

/** All processes of the job, as one of them sees them. */
export class World {
  readonly rank: number;
  readonly size: number;
  /** What processes say to each other apart from tensors. */
  private readonly control: number;
  private sharing: Promise<unknown> = Promise.resolve();
  /** What processes call out to each other at any time. */
  readonly calls: Calls;

  private constructor(readonly mpi: Mpi) {
    this.rank = mpi.rank(mpi.world);
    this.size = mpi.size(mpi.world);
    this.control = mpi.duplicate(mpi.world);
    this.calls = new Calls(mpi, mpi.duplicate(mpi.world), this.rank, this.size);
    process.on("exit", (code) => this.leave(code));
  }

  /** Joins the other processes; once is enough for all engines of a process. */
  static readonly join = lazily(() => World.begin());

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

  /** Tells the others something when this process ends with an error. @returns takes that back */
  whenItFails(tell: () => void): () => void {
    const leave = (code: number) => {
      if (code !== 0 && this.mpi.isRunning) tell();
    };
    // Before the threads of devices end, after which nobody knows any more what they were doing.
    process.prependListener("exit", leave);
    return () => void process.off("exit", leave);
  }

  /** What the devices of an engine need to reach each other, with a communicator of its own. */
  newLinks(): LinksSetup {
    const { mpi } = this;
    const comm = mpi.duplicate(mpi.world);
    return { mpi: mpi.choice, comm, largestTag: mpi.largestTag, code: codeHere() };
  }

  /**
   * A communicator of some processes, which all ask for it at this point. Making one cannot be broken off, so they meet
   * first, for which there is a limit.
   *
   * @param meanwhile called again and again while the others are waited for
   */
  communicatorOf(ranks: readonly number[], meanwhile: () => void): number {
    const others = ranks.filter((rank) => rank !== this.rank);
    const own = sharedBytes(new Uint8Array(1));
    const rounds = this.swap(TAGS.subset, own, () => 1, "form sums together", others);
    for (let next = rounds.next(); !next.done; next = rounds.next()) {
      meanwhile();
      pauseFor(next.value);
    }
    return this.mpi.subset(this.mpi.world, ranks, TAGS.subset);
  }

  /**
   * Gives every process the texts of all, in their order; they all call this together.
   *
   * @param what what they do, for the message when one of them does not come
   */
  share(text: string, what: string): string[] {
    const rounds = this.rounds(text, what);
    for (;;) {
      const { done, value } = rounds.next();
      if (done) return value;
      pauseFor(value);
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

  /** By how many milliseconds the clock of process 0 is ahead of this one's; all processes call it together. */
  clockAhead(): number {
    return new Clocks(this.mpi, this.control, this.rank, this.size).ahead();
  }

  private get others(): number[] {
    return range(this.size).filter((rank) => rank !== this.rank);
  }

  /** The work of sharing a text; gives the time to wait before it is taken up again. */
  private *rounds(text: string, what: string): Generator<number, string[]> {
    const own = sharedBytes(Buffer.from(text));
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
    others = this.others,
  ): Generator<number, Uint8Array[]> {
    const { mpi, control } = this;
    const results = range(this.size).map((rank) =>
      rank === this.rank ? own : new Uint8Array(new SharedArrayBuffer(Math.max(1, length(rank)))),
    );
    const batches = others.map((rank) => {
      const batch = new MessageBatch(mpi, control, 2);
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
    // Worker threads end before everything else, so that no device looks for messages after the end.
    if (this.meet(code === 0 ? Number.POSITIVE_INFINITY : LEAVE_MS)) mpi.finalize();
  }

  /** Whether all processes come here in time. */
  private meet(limitMs: number): boolean {
    const barrier = new MessageBatch(this.mpi, this.control, 1);
    barrier.meet();
    const begin = performance.now();
    while (!barrier.isDone()) {
      if (performance.now() - begin > limitMs) return false;
      pauseFor(1);
    }
    return true;
  }
}

const pause = new Int32Array(new SharedArrayBuffer(4));

/** Holds up this thread. */
function pauseFor(milliseconds: number): void {
  Atomics.wait(pause, 0, 0, milliseconds);
}

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

function bytesOfLength(length: number): Uint8Array {
  const bytes = sharedBytes(new Uint8Array(4));
  new DataView(bytes.buffer).setInt32(0, length, true);
  return bytes;
}
