import { at, range } from "../../ir/shape.js";
import { SLEEP } from "../protocol/control.js";
import type { DeviceLocations } from "../protocol/locations.js";
import { SEVERAL, type Signals } from "../protocol/signals.js";
import { blockOf, WORDS } from "./collectiveWords.js";

/** What a device's side of a group needs to know about the device. */
export interface LinkHost {
  readonly signals: Signals;
  /** The words of the program's collectives; see `collectiveWords.ts`. */
  readonly words: Int32Array;
  /** The device's position in the mesh. */
  readonly position: number;
  readonly locations: DeviceLocations;
}

/**
 * One member's view of its group and of the words that the members share. Members announce their progress in one of
 * two ways. If a member waits for single peers, each peer writes a word of its own. If all members wait for all others
 * and sleep, they increment a counter in the words of the first member; the last one to arrive wakes the others, so
 * that each of them sleeps and wakes only once.
 */
export class PeerLink {
  readonly me: number;
  readonly members: readonly number[];
  /** The members whose sources are read, by their index. */
  reads: readonly number[] = [];
  private readonly lines: readonly number[];
  private readonly mine: number;
  /** The words as float64. */
  private readonly doubles: Float64Array;

  constructor(
    index: number,
    private readonly host: LinkHost,
    readonly group: readonly number[],
  ) {
    this.me = group.indexOf(host.position);
    this.members = group.map((position) => at(host.locations.devices, position));
    const numPositions = host.locations.devices.length;
    this.lines = group.map((position) => blockOf(index, numPositions, position));
    this.mine = at(this.lines, this.me);
    this.doubles = new Float64Array(host.words.buffer);
  }

  /** A word of a member. */
  word(member: number, word: number): number {
    return this.host.words[(this.lines[member] ?? 0) + word] ?? 0;
  }

  /** Publishes a word for the other members. */
  put(word: number, value: number): void {
    this.host.words[this.mine + word] = value;
  }

  /** Publishes an address for the other members. */
  putAddress(word: number, address: number): void {
    this.doubles[(this.mine + word) / 2] = address;
  }

  /** The addresses that all members published. */
  addresses(word: number, into: number[]): void {
    for (let i = 0; i < this.lines.length; i++) into[i] = this.address(i, word);
  }

  /**
   * The addresses of this member and of those whose sources it reads. It does not read those of the others, because
   * reading takes the cache line away from the member that writes it, and in a ring all members would do so.
   */
  addressesRead(word: number, into: number[]): void {
    into[this.me] = this.address(this.me, word);
    for (const i of this.reads) into[i] = this.address(i, word);
  }

  private address(member: number, word: number): number {
    return this.doubles[((this.lines[member] ?? 0) + word) / 2] ?? 0;
  }

  /** Stores this member's progress in one of its own words, and wakes devices that may wait for it. */
  tell(word: number, sequence: number, devices: readonly number[]): void {
    Atomics.store(this.host.words, this.mine + word, sequence);
    this.host.signals.wake(devices);
  }

  /**
   * Waits until the words of some members have reached a sequence number.
   *
   * @param verify called while it waits; it throws when they never will
   */
  awaitMembers(list: readonly number[], word: number, sequence: number, verify?: () => void): void {
    const { signals, words } = this.host;
    for (const i of list) {
      const index = (this.lines[i] ?? 0) + word;
      signals.waitForSequence(words, index, sequence, this.members[i] ?? 0, SLEEP.forPeer, verify);
    }
  }

  /** Announces by words: waits for the words of the members in `reads`, and wakes those in `readBy`. */
  byPeers(reads: readonly number[], readBy: readonly number[]): Signal {
    const [sources, readers] = [reads, readBy].map((list) => list.map((i) => at(this.members, i)));
    this.reads = reads;
    return {
      ready: (sequence) => this.tell(WORDS.ready, sequence, readers ?? []),
      awaitReady: (sequence, verify) => this.awaitMembers(reads, WORDS.ready, sequence, verify),
      finished: (sequence) => this.tell(WORDS.finished, sequence, sources ?? []),
      awaitFinished: (sequence) => this.awaitMembers(readBy, WORDS.finished, sequence),
    };
  }

  /** Announces by counters that all members share. */
  byCount(): Signal {
    const { signals, words } = this.host;
    const { members } = this;
    const size = members.length;
    const line = at(this.lines, 0);
    this.reads = range(size).filter((i) => i !== this.me);
    const arrive = (word: number, sequence: number) => {
      const count = Atomics.add(words, line + word, 1) + 1;
      if (((count - Math.imul(sequence, size)) | 0) === 0) signals.wake(members);
    };
    const awaitAll = (word: number, sequence: number, verify?: () => void) => {
      const total = Math.imul(sequence, size);
      signals.waitForSequence(words, line + word, total, SEVERAL, SLEEP.forPeer, verify);
    };
    return {
      ready: (sequence) => arrive(WORDS.readyCount, sequence),
      awaitReady: (sequence, verify) => awaitAll(WORDS.readyCount, sequence, verify),
      finished: (sequence) => arrive(WORDS.finishedCount, sequence),
      awaitFinished: (sequence) => awaitAll(WORDS.finishedCount, sequence),
    };
  }
}

/** How the members of a group announce their progress to each other. */
export interface Signal {
  /** Announces that the own source can be read. */
  ready(sequence: number): void;
  /** Waits until the sources that are needed can be read; calls `verify` meanwhile, which may throw. */
  awaitReady(sequence: number, verify: () => void): void;
  /** Announces that the sources have been read. */
  finished(sequence: number): void;
  /** Waits until all members that need the own source have read it. */
  awaitFinished(sequence: number): void;
}
