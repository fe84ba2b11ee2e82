import type { CollectiveSpec, RaggedExchange, SlotAddress } from "../../compiler/steps.js";
import { byteSize, partType } from "../../ir/dtype.js";
import { checkRows } from "../../ir/rowBlocks.js";
import { range } from "../../ir/shape.js";
import type { LinkHost, PeerLink, Signal } from "./collectiveGroup.js";
import type { CombineKernel, MoveKernels } from "./moveKernels.js";
import type { Peers } from "./peers.js";

/** Reductions work in pieces that stay in the first-level cache. */
const TILE = 16 * 1024;

/** Scratch memory of a device for collectives: two borrowed tiles, and two more for sums in float32. */
export const COLLECTIVE_SCRATCH_BYTES = 4 * TILE;

/** What moving elements needs to know about the device that does it. */
export interface MoveHost {
  readonly kernels: MoveKernels;
  readonly memory: WebAssembly.Memory;
  readonly peers: Peers;
  /** The start of {@link COLLECTIVE_SCRATCH_BYTES} bytes. */
  readonly scratch: number;
}

/** What the work of a collective needs to know about the device it runs on. */
export interface WorkHost extends LinkHost, MoveHost {}

/** The devices of a group, and the index of the one that does the work. */
type Membership = Pick<PeerLink, "members" | "me">;

/** What a device computes when all members are ready: its own result, or a share of the result of all members. */
export interface MemberWork {
  /** The members whose sources it reads, by their index, and those that read its own. */
  readonly reads: readonly number[];
  readonly readBy: readonly number[];
  /** Whether anybody, the device itself included, reads its source. */
  readonly isRead: boolean;
  /** Computes the own result; `sources` are the members' addresses, `receives` that of the table of an exchange. */
  own(sources: readonly number[], target: number, receives: number): void;
  /** Computes a share of the result of all members; set if splitting the work pays. */
  readonly shared: ((sources: readonly number[], targets: readonly number[]) => void) | undefined;
}

/** The work of one device in one collective, between the waits for others. */
export interface Work extends MemberWork {
  readonly signal: Signal;
}

/** The work of one device in one collective. */
export function prepareWork(spec: CollectiveSpec, link: PeerLink, host: WorkHost): Work {
  const moves = prepareMemberWork(spec, link, host);
  // For members that spin, words are faster than counters, however many members there are: a word lies on the cache
  // line with the address and the stamp of its owner, which are read next. Counters wake sleeping members less often.
  const counts = spec.kind !== "permute" && link.members.length > 2 && host.signals.crowded;
  return { ...moves, signal: counts ? link.byCount() : link.byPeers(moves.reads, moves.readBy) };
}

/** What one device moves and combines in one collective. */
export function prepareMemberWork(spec: CollectiveSpec, link: Membership, host: MoveHost): MemberWork {
  const { members, me } = link;
  const { kernels, peers } = host;
  const size = members.length;
  const element = byteSize(spec.dtype);
  const bytes = spec.elements * element;
  const inner = spec.inner * element;
  const others = range(size).filter((i) => i !== me);
  const everybody = { reads: others, readBy: others, isRead: true, shared: undefined };
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
    case "allGather":
      return { ...everybody, own: gatherBlocks(inner, spec.outer, link, host) };
    case "permute": {
      const pair = spec.permutation.find(([, to]) => to === me);
      const reads = others.filter((i) => i === pair?.[0]);
      const readBy = others.filter((i) => spec.permutation.some(([from, to]) => from === me && to === i));
      const own = (sources: readonly number[], target: number) => {
        if (pair !== undefined) peers.pull(target, members[pair[0]] ?? 0, sources[pair[0]] ?? 0, bytes);
        else if (!spec.unset) kernels.zero(target, bytes);
      };
      const isRead = spec.permutation.some(([from]) => from === me);
      return { reads, readBy, isRead, own, shared: undefined };
    }
    case "allToAll": {
      if (spec.ragged) return { ...everybody, own: pullRowBlocks(spec, spec.ragged, link, host) };
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

/** Takes the rows that members send to this one; its own table says where they are. */
function pullRowBlocks(
  { elements, dtype }: CollectiveSpec,
  { rows, targetRows, numBlocks }: RaggedExchange<SlotAddress>,
  { members }: Membership,
  { memory, peers }: MoveHost,
): MemberWork["own"] {
  const row = (elements / rows) * byteSize(dtype);
  const words = new Int32Array(memory.buffer);
  return (sources, target, receives) => {
    for (let i = 0; i < members.length * numBlocks; i++) {
      const from = Math.floor(i / numBlocks);
      const [start, size, there] = rowBlock(words, receives, i);
      checkRows(start, size, targetRows, "the result");
      checkRows(there, size, rows, "x");
      const source = (sources[from] ?? 0) + there * row;
      if (size > 0) peers.pull(target + start * row, members[from] ?? 0, source, size * row);
    }
  };
}

/** An entry of a table of row blocks: the first row in the own tensor, the number of rows, the peer's first row. */
export function rowBlock(
  words: Int32Array,
  table: number,
  index: number,
): readonly [start: number, size: number, there: number] {
  const at = table / 4 + 3 * index;
  return [words[at] ?? 0, words[at + 1] ?? 0, words[at + 2] ?? 0];
}

/** Puts the blocks of all members side by side, in `outer` rows of `inner` bytes each. */
function gatherBlocks(
  inner: number,
  outer: number,
  link: Membership,
  { peers }: MoveHost,
): MemberWork["own"] {
  const { members, me } = link;
  const size = members.length;
  return (sources, target) => {
    for (let i = 0; i < size; i++) {
      // Each member begins with its own block, so that they do not all read the same one.
      const from = (me + i) % size;
      const [peer, source] = [members[from] ?? 0, sources[from] ?? 0];
      if (outer === 1) peers.pull(target + from * inner, peer, source, inner);
      else peers.pullRows(target + from * inner, peer, source, inner, outer, size * inner, inner);
    }
  };
}

/** Combines `bytes` bytes at `offset` of all sources into the target, in the order of the group. */
export type CombineSources = (
  target: number,
  sources: readonly number[],
  offset: number,
  bytes: number,
) => void;

/** How a device combines sources; each lies in the memory of one of the `members`, its own process's devices. */
export function prepareCombine(
  spec: Pick<CollectiveSpec, "dtype" | "combine">,
  members: readonly number[],
  host: MoveHost,
): CombineSources {
  const dtype = partType(spec.dtype);
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
  link: Membership,
  host: MoveHost,
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
