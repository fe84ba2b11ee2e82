/**
 * The desync detector finds devices of one process that have diverged (docs/divergence.md). Collectives pair up by
 * counting, so that a device that skips or repeats one would exchange data of different runs or iterations. Therefore
 * each device stamps every collective with the run and with its sequence number among the collectives of the same
 * groups. When all members are ready, it compares its stamp with those of the members it reads from; while it waits, it
 * checks whether they have already passed this collective.
 *
 * The words of the program hold two things: the stamp of each use of a collective, kept for two uses like the copies
 * of staged collectives, and the progress of every device for each kind of groups. A device writes its stamp before it
 * announces that it is ready, and its progress afterwards, so a reader that reads the progress first and then the stamp
 * never finds a stamp older than that progress.
 */

import type { CollectiveSpec } from "../../compiler/steps.js";
import { getOrInsert } from "../../ir/collections.js";
import { at } from "../../ir/shape.js";
import type { FlightRecorder } from "../flight/recorder.js";
import { blockOf, PROGRESS, STAMP, WORDS } from "./collectiveWords.js";

/** The sequence number of a device that has left the run. */
const LEFT = 0x7fffffff;

/** Thrown inside a worker whose peers have diverged from it; the flight recorders tell the main thread where they are. */
export class Diverged extends Error {
  constructor() {
    super("the devices came to different collectives");
  }
}

/** For each collective the number of its kind of groups, counted in the order in which they come. */
export function communicatorsOf(collectives: readonly CollectiveSpec[]): {
  readonly count: number;
  readonly of: readonly number[];
} {
  const numbers = new Map<string, number>();
  const of = collectives.map(({ groups }) => {
    return getOrInsert(numbers, JSON.stringify(groups), () => numbers.size);
  });
  return { count: numbers.size, of };
}

/** What the detector needs to know about a loaded program on one device. */
export interface DesyncDetectorHost {
  /** The program's number, for the flight recorder. */
  readonly program: number;
  readonly words: Int32Array;
  readonly position: number;
  readonly numPositions: number;
  readonly recorder: FlightRecorder;
  /** Called before the run is aborted because the members of a kind of groups have diverged. */
  diverged(communicator: number): void;
}

/** The stamps of the members of a group, as one of them writes its own and reads the others'. */
export interface Stamps {
  /** The mesh positions of the members. */
  readonly group: readonly number[];
  /** The index of the member that this device is. */
  readonly me: number;
  /** The members whose sources it reads, by their index. */
  readonly reads: readonly number[];
  /** A word of a member. */
  word(member: number, word: number): number;
  /** Publishes a word of its own. */
  put(word: number, value: number): void;
}

/** Detects on one device whether the devices of a program have diverged. */
export class DesyncDetector {
  run = 0;
  private record = 0;
  private readonly communicators: ReturnType<typeof communicatorsOf>;
  private readonly counts: Int32Array;
  private readonly lines: readonly number[];

  constructor(
    readonly host: DesyncDetectorHost,
    private readonly collectives: readonly CollectiveSpec[],
  ) {
    this.communicators = communicatorsOf(collectives);
    this.counts = new Int32Array(this.communicators.count);
    this.lines = Array.from(this.counts, (_, communicator) => this.lineOf(communicator, host.position));
  }

  /** Begins a run of the program. */
  beginRun(): void {
    const { words, recorder, program } = this.host;
    this.run = (this.run + 1) | 0;
    this.counts.fill(0);
    for (const line of this.lines) {
      // A reader between the two stores sees progress that no device waits for.
      Atomics.store(words, line + PROGRESS.sequence, 0);
      Atomics.store(words, line + PROGRESS.run, this.run);
    }
    this.record = recorder.beginRun(program, this.run);
  }

  /** Ends the run: from now on, devices that wait for this one in this run know that it will not come. */
  endRun(): void {
    // The record comes first, so that a device that sees that this one has left finds it in the records, too.
    this.host.recorder.end(this.record);
    for (const line of this.lines) Atomics.store(this.host.words, line + PROGRESS.sequence, LEFT);
  }

  /** Begins to follow the uses of one collective. */
  follow(index: number, stamps: Stamps): CollectiveProgress {
    const communicator = at(this.communicators.of, index);
    const lines = stamps.group.map((position) => this.lineOf(communicator, position));
    return new CollectiveProgress(this, { index, communicator, stamps, lines });
  }

  /** Counts one more collective of these groups. */
  next(communicator: number): number {
    const count = (this.counts[communicator] ?? 0) + 1;
    this.counts[communicator] = count;
    return count;
  }

  private lineOf(communicator: number, position: number): number {
    return blockOf(this.collectives.length + communicator, this.host.numPositions, position);
  }
}

/** A collective that is followed. */
interface Followed {
  readonly index: number;
  readonly communicator: number;
  readonly stamps: Stamps;
  /** Where the progress of the members lies. */
  readonly lines: readonly number[];
}

/** The progress of one device through the uses of one collective, which finds members that have diverged. */
export class CollectiveProgress {
  private run = 0;
  private sequence = 0;
  /** Where the stamp of this use lies. */
  private stampAt = WORDS.stamps;
  private record = 0;
  private readonly own: number;

  constructor(
    private readonly desyncDetector: DesyncDetector,
    private readonly followed: Followed,
  ) {
    this.own = at(followed.lines, followed.stamps.me);
  }

  /** Stamps a use, before it is told to be ready. @param use counts the uses of this collective */
  stamp(use: number): void {
    const { communicator, stamps, index } = this.followed;
    const { program, recorder } = this.desyncDetector.host;
    this.run = this.desyncDetector.run;
    this.sequence = this.desyncDetector.next(communicator);
    this.stampAt = WORDS.stamps + STAMP.size * (use & 1);
    stamps.put(this.stampAt + STAMP.run, this.run);
    stamps.put(this.stampAt + STAMP.sequence, this.sequence);
    this.record = recorder.beginCollective(program, this.run, this.sequence, index);
  }

  /** Publishes the progress, after the device has announced that it is ready. */
  publish(): void {
    Atomics.store(this.desyncDetector.host.words, this.own + PROGRESS.sequence, this.sequence);
  }

  /** Compares the own stamp with those of the members whose sources are read; all of them are ready. */
  verifyPeers(): void {
    for (const member of this.followed.stamps.reads) if (!this.isHere(member)) this.fail();
  }

  /** Aborts the run if a member that this device waits for has already passed this collective. */
  readonly verifyWait = (): void => {
    const { stamps, lines } = this.followed;
    const { words } = this.desyncDetector.host;
    for (const member of stamps.reads) {
      const line = lines[member] ?? 0;
      const run = Atomics.load(words, line + PROGRESS.run);
      const sequence = Atomics.load(words, line + PROGRESS.sequence);
      // Meanwhile the member may have begun another run; the next check will find that.
      if (Atomics.load(words, line + PROGRESS.run) !== run) continue;
      const ahead = (run - this.run) | 0;
      if ((ahead > 0 || (ahead === 0 && sequence >= this.sequence)) && !this.isHere(member)) this.fail();
    }
  };

  /** Notes that the collective is over. */
  end(): void {
    this.desyncDetector.host.recorder.end(this.record);
  }

  private isHere(member: number): boolean {
    const { stamps } = this.followed;
    return (
      stamps.word(member, this.stampAt + STAMP.run) === this.run &&
      stamps.word(member, this.stampAt + STAMP.sequence) === this.sequence
    );
  }

  private fail(): never {
    this.desyncDetector.host.diverged(this.followed.communicator);
    throw new Diverged();
  }
}
