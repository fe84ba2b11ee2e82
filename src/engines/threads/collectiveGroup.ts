import { at } from "../../ir/shape.js";
import type { MoveKernels } from "./moveKernels.js";
import type { Peers } from "./peers.js";
import { SEVERAL, type Signals } from "./signals.js";

/** What is shared per collective and mesh position, on cache lines of its own. */
export const WORDS = {
  ready: 0,
  finished: 1,
  source: 2,
  target: 3,
  staged: 4,
  // The counts are on another line than what their owner publishes alone.
  readyCount: 16,
  finishedCount: 24,
  stride: 32,
} as const;

/** The words that the collectives of one loaded program share among its devices. */
export function newCollectiveWords(
  numCollectives: number,
  numPositions: number,
): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(4 * WORDS.stride * Math.max(1, numCollectives * numPositions)));
}

/** What a collective needs to know of the device it runs on. */
export interface CollectiveHost {
  readonly signals: Signals;
  readonly kernels: MoveKernels;
  readonly peers: Peers;
  /** The start of {@link COLLECTIVE_SCRATCH_BYTES} bytes. */
  readonly scratch: number;
  /** The words made by {@link newCollectiveWords}. */
  readonly words: Int32Array;
  /** The device's position in the mesh. */
  readonly position: number;
  /** The device at every position of the mesh. */
  readonly devices: readonly number[];
}

/**
 * The members of a group as one of them sees them, and the words they share. Members tell each other how far
 * they are in one of two ways. Where somebody waits for one peer only, that is the peer's own word. Where all wait
 * for all and sleep, it is a count in the words of the first member: the last one to arrive wakes the others, so
 * that each of them sleeps and wakes once.
 */
export class Link {
  readonly me: number;
  readonly members: readonly number[];
  private readonly lines: readonly number[];
  private readonly mine: number;

  constructor(
    index: number,
    private readonly host: CollectiveHost,
    group: readonly number[],
  ) {
    this.me = group.indexOf(host.position);
    this.members = group.map((position) => at(host.devices, position));
    this.lines = group.map((position) => (index * host.devices.length + position) * WORDS.stride);
    this.mine = at(this.lines, this.me);
  }

  put(word: number, value: number): void {
    this.host.words[this.mine + word] = value;
  }

  addresses(word: number, into: number[]): void {
    const { words } = this.host;
    for (let i = 0; i < this.lines.length; i++) into[i] = (words[(this.lines[i] ?? 0) + word] ?? 0) >>> 0;
  }

  /** A way for `reads` to be told of by their own words, and to tell `readBy`. */
  byPeers(reads: readonly number[], readBy: readonly number[]): Signal {
    const { signals, words } = this.host;
    const [sources, readers] = [reads, readBy].map((list) => list.map((i) => at(this.members, i)));
    const awaitPeers = (list: readonly number[], word: number, sequence: number) => {
      for (const i of list) {
        signals.waitForSequence(words, (this.lines[i] ?? 0) + word, sequence, this.members[i] ?? 0);
      }
    };
    const tell = (word: number, sequence: number, devices: readonly number[]) => {
      Atomics.store(words, this.mine + word, sequence);
      signals.wake(devices);
    };
    return {
      ready: (sequence) => tell(WORDS.ready, sequence, readers ?? []),
      awaitReady: (sequence) => awaitPeers(reads, WORDS.ready, sequence),
      finished: (sequence) => tell(WORDS.finished, sequence, sources ?? []),
      awaitFinished: (sequence) => awaitPeers(readBy, WORDS.finished, sequence),
    };
  }

  /** A way for all to tell all, by counting. */
  byCount(): Signal {
    const { signals, words } = this.host;
    const { members } = this;
    const size = members.length;
    const line = at(this.lines, 0);
    const arrive = (word: number, sequence: number) => {
      const count = Atomics.add(words, line + word, 1) + 1;
      if (((count - Math.imul(sequence, size)) | 0) === 0) signals.wake(members);
    };
    const awaitAll = (word: number, sequence: number) =>
      signals.waitForSequence(words, line + word, Math.imul(sequence, size), SEVERAL);
    return {
      ready: (sequence) => arrive(WORDS.readyCount, sequence),
      awaitReady: (sequence) => awaitAll(WORDS.readyCount, sequence),
      finished: (sequence) => arrive(WORDS.finishedCount, sequence),
      awaitFinished: (sequence) => awaitAll(WORDS.finishedCount, sequence),
    };
  }
}

/** How the members of a group learn how far the others are. */
export interface Signal {
  /** Tells that the source can be read. */
  ready(sequence: number): void;
  /** Waits until the sources that are needed can be read. */
  awaitReady(sequence: number): void;
  /** Tells that the sources have been read. */
  finished(sequence: number): void;
  /** Waits until those who need the own source have read it. */
  awaitFinished(sequence: number): void;
}
