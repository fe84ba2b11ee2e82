/**
 * Who has come to which collective. Collectives pair up by counting, so that a device which left one out, or came to
 * one too often, would exchange what belongs to another run or iteration. Therefore each device stamps every
 * collective with the run and with its count among the collectives of the same groups, and compares stamps with those
 * it reads from when they meet; where it waits, it looks whether they are past that place already.
 *
 * Two things are shared, in the words of the program: the stamp of each use of a collective, kept for two uses as the
 * copies of staged collectives are, and for each kind of groups the place up to which a device has come. A stamp is
 * written before its collective is told to be ready, the place after it; so whoever reads a place and then a stamp
 * finds no older stamp than the place promises.
 */
import type { CollectiveSpec } from "../../compiler/steps.js";
import { at } from "../../ir/shape.js";
import { fingerprintOf } from "../flight/fingerprint.js";
import type { FlightRecorder } from "../flight/recorder.js";
import { type Link, WORDS } from "./collectiveGroup.js";

/** The words of a place, on a cache line of their own. */
const PLACE = { run: 0, sequence: 1, fingerprint: 2, count: 3 } as const;

/** The sequence number of a device that has left the run. */
const LEFT = 0x7fffffff;

/** Thrown inside a worker whose peers are somewhere else; what is shared tells the main thread where. */
export class Parted extends Error {
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
    const key = JSON.stringify(groups);
    const number = numbers.get(key) ?? numbers.size;
    numbers.set(key, number);
    return number;
  });
  return { count: numbers.size, of };
}

/** Where the place of a device lies among a program's words: after those of all collectives. */
function placeLine(numCollectives: number, communicator: number, numPositions: number, position: number) {
  return ((numCollectives + communicator) * numPositions + position) * WORDS.stride;
}

/** Up to where a device has come. */
export interface Place {
  readonly run: number;
  /** How many collectives of these groups it has come to in the run. */
  readonly count: number;
  /** The collective it came to last. */
  readonly fingerprint: number;
  readonly hasLeft: boolean;
}

/** The places of all devices of a program, in the order of mesh positions. */
export function readPlaces(
  words: Int32Array,
  numCollectives: number,
  communicator: number,
  numPositions: number,
): Place[] {
  return Array.from({ length: numPositions }, (_, position) => {
    const line = placeLine(numCollectives, communicator, numPositions, position);
    const word = (offset: number) => Atomics.load(words, line + offset);
    return {
      run: word(PLACE.run),
      count: word(PLACE.count),
      fingerprint: word(PLACE.fingerprint),
      hasLeft: word(PLACE.sequence) === LEFT,
    };
  });
}

/** What the detector needs to know of a loaded program on one device. */
export interface DesyncDetectorHost {
  /** The program's number, for the flight recorder. */
  readonly program: number;
  readonly words: Int32Array;
  readonly position: number;
  readonly numPositions: number;
  readonly recorder: FlightRecorder;
  /** Called before everything ends because peers are somewhere else, with the kind of groups. */
  parted(communicator: number): void;
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
      // Between the two stores the place is one that nobody waits for.
      Atomics.store(words, line + PLACE.sequence, 0);
      words[line + PLACE.count] = 0;
      Atomics.store(words, line + PLACE.run, this.run);
    }
    this.record = recorder.beginRun(program, this.run);
  }

  /** Ends it: whoever still waits for this device in it waits in vain. */
  endRun(): void {
    for (const line of this.lines) Atomics.store(this.host.words, line + PLACE.sequence, LEFT);
    this.host.recorder.end(this.record);
  }

  /** The detector of one collective. */
  at(index: number, link: Link): Visits {
    const communicator = at(this.communicators.of, index);
    const fingerprint = fingerprintOf(at(this.collectives, index));
    const lines = link.group.map((position) => this.lineOf(communicator, position));
    return new Visits(this, { index, communicator, fingerprint, link, lines });
  }

  /** Counts one more collective of these groups. */
  next(communicator: number): number {
    const count = (this.counts[communicator] ?? 0) + 1;
    this.counts[communicator] = count;
    return count;
  }

  private lineOf(communicator: number, position: number): number {
    return placeLine(this.collectives.length, communicator, this.host.numPositions, position);
  }
}

interface Visited {
  readonly index: number;
  readonly communicator: number;
  readonly fingerprint: number;
  readonly link: Link;
  /** Where the places of the members lie. */
  readonly lines: readonly number[];
}

/** Detects divergence at one collective, use after use. */
export class Visits {
  private run = 0;
  private sequence = 0;
  private stamp: number = WORDS.stamps;
  private record = 0;
  private readonly own: number;

  constructor(
    private readonly desyncDetector: DesyncDetector,
    private readonly visited: Visited,
  ) {
    this.own = at(visited.lines, visited.link.me);
  }

  /** Stamps a use, before it is told to be ready. @param use counts the uses of this collective */
  come(use: number): void {
    const { communicator, link, index } = this.visited;
    const { program, recorder } = this.desyncDetector.host;
    this.run = this.desyncDetector.run;
    this.sequence = this.desyncDetector.next(communicator);
    this.stamp = WORDS.stamps + 2 * (use & 1);
    link.put(this.stamp, this.run);
    link.put(this.stamp + 1, this.sequence);
    this.record = recorder.beginCollective(program, this.run, this.sequence, index);
  }

  /** Publishes the place, after the use was told to be ready. */
  publish(): void {
    const { words } = this.desyncDetector.host;
    words[this.own + PLACE.fingerprint] = this.visited.fingerprint;
    words[this.own + PLACE.count] = this.sequence;
    Atomics.store(words, this.own + PLACE.sequence, this.sequence);
  }

  /** Compares stamps with those whose sources are read, who are all ready. */
  meet(): void {
    const { link } = this.visited;
    for (const member of link.reads) if (!this.isHere(member)) this.part();
  }

  /** Ends everything when one of those that this device waits for is past this place already. */
  readonly suspect = (): void => {
    const { link, lines } = this.visited;
    const { words } = this.desyncDetector.host;
    for (const member of link.reads) {
      const line = lines[member] ?? 0;
      const run = Atomics.load(words, line + PLACE.run);
      const sequence = Atomics.load(words, line + PLACE.sequence);
      // In between the device may have begun another run, of which the next look will tell.
      if (Atomics.load(words, line + PLACE.run) !== run) continue;
      const ahead = (run - this.run) | 0;
      if ((ahead > 0 || (ahead === 0 && sequence >= this.sequence)) && !this.isHere(member)) this.part();
    }
  };

  /** Notes that the collective is over. */
  leave(): void {
    this.desyncDetector.host.recorder.end(this.record);
  }

  private isHere(member: number): boolean {
    const { link } = this.visited;
    return link.word(member, this.stamp) === this.run && link.word(member, this.stamp + 1) === this.sequence;
  }

  private part(): never {
    this.desyncDetector.host.parted(this.visited.communicator);
    throw new Parted();
  }
}
