import type { CollectiveSpec } from "../../compiler/steps.js";
import { byteSize } from "../../ir/dtype.js";
import { InternalError } from "../../ir/errors.js";
import { at, range } from "../../ir/shape.js";
import type { CombineKernel, MoveKernels } from "./moveKernels.js";
import type { Peers } from "./peers.js";
import { SEVERAL, type Signals } from "./signals.js";

/**
 * Collectives on shared memory. `start` publishes where this device's source and target lie and never waits;
 * `done` waits until all members have started, does this device's share of the work, and waits until all members
 * have done theirs, because only then its result is complete and its source free.
 *
 * Small collectives are *staged*: `start` copies the source aside and `done` computes the own result from the
 * copies of all members. That is more work but one wait less, which is what counts when it is small. A copy is
 * overwritten two uses later, when every member has long finished with it.
 *
 * Words per collective and mesh position, on a cache line of their own:
 */
const WORDS = {
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

/** Sources up to this size (times the number of members) are staged; sleeping costs more than copying. */
const STAGED_BYTES = { ownCore: 1024, sharedCore: 16 * 1024 } as const;
/** What a program may spend on staging. */
const MAX_STAGING_BYTES = 4 * 1024 * 1024;

/** Reductions work in pieces that stay in the first-level cache. */
const TILE = 16 * 1024;

/** Scratch memory of a device for collectives: two borrowed tiles, and two more for sums in float32. */
export const COLLECTIVE_SCRATCH_BYTES = 4 * TILE;

/** The words that the collectives of one loaded program share among its devices. */
export function newCollectiveWords(
  numCollectives: number,
  numPositions: number,
): Int32Array<SharedArrayBuffer> {
  return new Int32Array(new SharedArrayBuffer(4 * WORDS.stride * Math.max(1, numCollectives * numPositions)));
}

/** Which collectives are staged and where their two copies lie, as an offset into the program's staging memory. */
export function planStaging(
  collectives: readonly CollectiveSpec[],
  crowded: boolean,
): {
  readonly bytes: number;
  readonly offsets: readonly (number | undefined)[];
} {
  const limit = crowded ? STAGED_BYTES.sharedCore : STAGED_BYTES.ownCore;
  let bytes = 0;
  const offsets = collectives.map((spec) => {
    const size = Math.ceil((spec.elements * byteSize(spec.dtype)) / 64) * 64;
    if (spec.size === 1 || size * spec.size > limit || bytes + 2 * size > MAX_STAGING_BYTES) return undefined;
    const offset = bytes;
    bytes += 2 * size;
    return offset;
  });
  return { bytes, offsets };
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

/** One device's end of one collective. */
export interface Collective {
  start(source: number, target: number): void;
  done(): void;
}

/** Prepares a collective of a program; `stagingAddress` is where its two copies lie when it is staged. */
export function prepareCollective(
  spec: CollectiveSpec,
  index: number,
  host: CollectiveHost,
  stagingAddress: number | undefined,
): Collective {
  const group = spec.groups.find((positions) => positions.includes(host.position));
  if (group === undefined) {
    throw new InternalError(`[threads] position ${host.position} is in no group of collective ${index}`);
  }
  const link = new Link(index, host, group);
  const move = prepareWork(spec, link, host);
  if (group.length === 1) return aloneCollective(move);
  return stagingAddress === undefined
    ? directCollective(link, move)
    : stagedCollective(spec, link, move, host, stagingAddress);
}

/** The work between the waits: what this device writes for itself, or for all members. */
interface Work {
  readonly signal: Signal;
  /** Computes the own result; `sources` are the members' addresses. */
  own(sources: readonly number[], target: number): void;
  /** Computes a share of everybody's result, when splitting the work pays. */
  readonly shared: ((sources: readonly number[], targets: readonly number[]) => void) | undefined;
}

/**
 * The members of a group as one of them sees them, and the words they share. Members tell each other how far
 * they are in one of two ways. Where somebody waits for one peer only, that is the peer's own word. Where all wait
 * for all and sleep, it is a count in the words of the first member: the last one to arrive wakes the others, so
 * that each of them sleeps and wakes once.
 */
class Link {
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
interface Signal {
  /** Tells that the source can be read. */
  ready(sequence: number): void;
  /** Waits until the sources that are needed can be read. */
  awaitReady(sequence: number): void;
  /** Tells that the sources have been read. */
  finished(sequence: number): void;
  /** Waits until those who need the own source have read it. */
  awaitFinished(sequence: number): void;
}

function aloneCollective(work: Work): Collective {
  let [source, target] = [0, 0];
  return {
    start(from, to) {
      [source, target] = [from, to];
    },
    done: () => work.own([source], target),
  };
}

function directCollective(link: Link, work: Work): Collective {
  let sequence = 0;
  let target = 0;
  const sources: number[] = [];
  const targets: number[] = [];
  return {
    start(from, to) {
      sequence = (sequence + 1) | 0;
      target = to;
      link.put(WORDS.source, from);
      link.put(WORDS.target, to);
      work.signal.ready(sequence);
    },
    done() {
      work.signal.awaitReady(sequence);
      link.addresses(WORDS.source, sources);
      if (work.shared) {
        link.addresses(WORDS.target, targets);
        work.shared(sources, targets);
      } else {
        work.own(sources, target);
      }
      work.signal.finished(sequence);
      work.signal.awaitFinished(sequence);
    },
  };
}

function stagedCollective(
  spec: CollectiveSpec,
  link: Link,
  work: Work,
  host: CollectiveHost,
  stagingAddress: number,
): Collective {
  const bytes = spec.elements * byteSize(spec.dtype);
  const stride = Math.ceil(bytes / 64) * 64;
  let sequence = 0;
  let target = 0;
  const sources: number[] = [];
  link.put(WORDS.staged, stagingAddress);
  link.put(WORDS.staged + 1, stagingAddress + stride);
  return {
    start(from, to) {
      sequence = (sequence + 1) | 0;
      target = to;
      work.signal.awaitFinished((sequence - 2) | 0);
      host.kernels.copy(stagingAddress + (sequence & 1) * stride, from, bytes);
      work.signal.ready(sequence);
    },
    done() {
      work.signal.awaitReady(sequence);
      link.addresses(WORDS.staged + (sequence & 1), sources);
      work.own(sources, target);
      work.signal.finished(sequence);
    },
  };
}

function prepareWork(spec: CollectiveSpec, link: Link, host: CollectiveHost): Work {
  const { members, me } = link;
  const { kernels, peers } = host;
  const size = members.length;
  const element = byteSize(spec.dtype);
  const bytes = spec.elements * element;
  const inner = spec.inner * element;
  const others = range(size).filter((i) => i !== me);
  const everybody = {
    // Words of their own are faster to spin on; a count spares sleepers wake-ups.
    signal: size > 2 && host.signals.crowded ? link.byCount() : link.byPeers(others, others),
    shared: undefined,
  };
  switch (spec.kind) {
    case "allReduce": {
      const combine = prepareCombine(spec, members, host);
      const own = (sources: readonly number[], target: number) => combine(target, sources, 0, bytes);
      return { ...everybody, own, shared: shareReduction(spec, combine, link, host, bytes) };
    }
    case "reduceScatter": {
      const combine = prepareCombine(spec, members, host);
      const own = (sources: readonly number[], target: number) => {
        for (let o = 0; o < spec.outer; o++) {
          combine(target + o * inner, sources, (o * size + me) * inner, inner);
        }
      };
      return { ...everybody, own };
    }
    case "allGather": {
      const own = (sources: readonly number[], target: number) => {
        for (let i = 0; i < size; i++) {
          // Each member begins with its own block, so that they do not all read the same one.
          const from = (me + i) % size;
          const [peer, source] = [members[from] ?? 0, sources[from] ?? 0];
          if (spec.outer === 1) peers.pull(target + from * inner, peer, source, inner);
          else peers.pullRows(target + from * inner, peer, source, inner, spec.outer, size * inner, inner);
        }
      };
      return { ...everybody, own };
    }
    case "permute": {
      const pair = spec.permutation.find(([, to]) => to === me);
      const reads = others.filter((i) => i === pair?.[0]);
      const readBy = others.filter((i) => spec.permutation.some(([from, to]) => from === me && to === i));
      const own = (sources: readonly number[], target: number) => {
        if (pair === undefined) kernels.zero(target, bytes);
        else peers.pull(target, members[pair[0]] ?? 0, sources[pair[0]] ?? 0, bytes);
      };
      return { signal: link.byPeers(reads, readBy), own, shared: undefined };
    }
    case "allToAll": {
      const own = (sources: readonly number[], target: number) => {
        for (let i = 0; i < size; i++) {
          const from = (me + i) % size;
          peers.pull(target + from * inner, members[from] ?? 0, (sources[from] ?? 0) + me * inner, inner);
        }
      };
      return { ...everybody, own };
    }
  }
}

/** Combines `bytes` bytes at `offset` of all sources into the target, in the order of the group. */
type CombineSources = (target: number, sources: readonly number[], offset: number, bytes: number) => void;

function prepareCombine(
  spec: CollectiveSpec,
  members: readonly number[],
  host: CollectiveHost,
): CombineSources {
  const { dtype } = spec;
  const { kernels, peers, scratch } = host;
  const size = members.length;
  const [borrowed0, borrowed1, wide0, wide1] = [
    scratch,
    scratch + TILE,
    scratch + 2 * TILE,
    scratch + 3 * TILE,
  ];
  const borrow = (i: number, sources: readonly number[], offset: number, bytes: number, at: number) =>
    peers.borrow(members[i] ?? 0, (sources[i] ?? 0) + offset, bytes, at);
  if (size === 1)
    return (target, sources, offset, bytes) => kernels.copy(target, (sources[0] ?? 0) + offset, bytes);

  if (dtype === "bfloat16" || dtype === "float16") {
    const [widen, narrow] = [kernels.widen[dtype], kernels.narrow[dtype]];
    const kernel = kernels.combine("float32", spec.combine);
    return tiled(TILE / 2, (target, sources, offset, bytes) => {
      const n = bytes / 2;
      widen(wide0, borrow(0, sources, offset, bytes, borrowed0), n);
      for (let i = 1; i < size; i++) {
        widen(wide1, borrow(i, sources, offset, bytes, borrowed0), n);
        kernel(wide0, wide0, wide1, n * 4);
      }
      narrow(borrowed0, wide0, n);
      kernels.copy(target, borrowed0, bytes);
    });
  }

  const kernel: CombineKernel = kernels.combine(dtype, spec.combine);
  return tiled(TILE, (target, sources, offset, bytes) => {
    let sum = borrow(0, sources, offset, bytes, borrowed0);
    for (let i = 1; i < size; i++) {
      const next = borrow(i, sources, offset, bytes, borrowed1);
      // The target may be one of the sources, so it is written last.
      const into = i === size - 1 ? target : wide0;
      kernel(into, sum, next, bytes);
      sum = into;
    }
  });
}

function tiled(tile: number, combine: CombineSources): CombineSources {
  return (target, sources, offset, bytes) => {
    for (let done = 0; done < bytes; done += tile) {
      combine(target + done, sources, offset + done, Math.min(tile, bytes - done));
    }
  };
}

/** Splits a reduction among the members: each combines its part and copies it to all others. */
function shareReduction(
  spec: CollectiveSpec,
  combine: CombineSources,
  link: Link,
  host: CollectiveHost,
  bytes: number,
): (sources: readonly number[], targets: readonly number[]) => void {
  const { members, me } = link;
  const part = Math.ceil(bytes / members.length / 64) * 64;
  const begin = Math.min(bytes, me * part);
  const end = Math.min(bytes, begin + part);
  if (host.peers.direct && members.length === 2 && spec.dtype === "float32" && spec.combine === "sum") {
    const { sumTwice } = host.kernels;
    return ([a = 0, b = 0], [first = 0, second = 0]) =>
      sumTwice(first + begin, second + begin, a + begin, b + begin, end - begin);
  }
  return (sources, targets) => {
    const target = targets[me] ?? 0;
    for (let offset = begin; offset < end; offset += TILE) {
      const n = Math.min(TILE, end - offset);
      combine(target + offset, sources, offset, n);
      for (let i = 1; i < members.length; i++) {
        const to = (me + i) % members.length;
        host.peers.push(members[to] ?? 0, (targets[to] ?? 0) + offset, target + offset, n);
      }
    }
  };
}
