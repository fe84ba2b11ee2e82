/** The baseline of the engine's collectives: MPI called directly through koffi by the main thread. */
import type { CollectiveSpec } from "../../src/compiler/steps.js";
import { detectLaunch } from "../../src/engines/launch.js";
import { Mpi } from "../../src/engines/mpi/library/library.js";
import { mpich, openMpi } from "../../src/engines/mpi/library/mpiFamilies.js";
import { reductionOf } from "../../src/engines/mpi/library/mpiGroup.js";
import { loadKoffi } from "../../src/engines/system/koffi.js";
import { range } from "../../src/ir/shape.js";

type Native = (...args: number[]) => number;
type Kind = CollectiveSpec["kind"];

/**
 * A call of every process with the same collective of float32.
 *
 * @param bytes those of the whole: what an all-gather produces and a reduce-scatter takes
 */
export type Straight = (kind: Kind, bytes: number) => () => void;

/** Two ways to call MPI directly. */
export interface StraightWays {
  /** The library's own collective. */
  readonly own: Straight;
  /** The messages that the engine sends, and what it does with them: sums in the order of the mesh. */
  readonly messages: Straight;
}

/** The functions of a library that both ways need, with its constants. */
function bindLibrary() {
  const koffi = loadKoffi();
  if (koffi === undefined) throw new Error("koffi does not load here");
  const { choice } = Mpi.find(detectLaunch());
  const library = koffi.load(choice.path, { global: true });
  const family = choice.family === "Open MPI" ? openMpi : mpich;
  const { handle, handleBytes } = family;
  const bind = (name: string, args: readonly string[]): Native => library.func(name, "int", [...args]);
  const pair = ["uintptr_t", "uintptr_t"];
  const copy: Native = koffi.load(null).func("memcpy", "uintptr_t", [...pair, "size_t"]);
  const block = ["uintptr_t", "int", handle];
  const reduction = [...pair, "int", handle, handle, handle];
  const message = [...block, "int", "int", handle, "uintptr_t"];
  const exchange = [...block, "int", "int", ...block, "int", "int", handle, "uintptr_t"];
  return {
    constants: family.constants(library, koffi),
    handleBytes,
    allReduce: bind("MPI_Allreduce", reduction),
    reduceScatter: bind("MPI_Reduce_scatter_block", reduction),
    allGather: bind("MPI_Allgather", [...block, ...block, handle]),
    allToAll: bind("MPI_Alltoall", [...block, ...block, handle]),
    sendReceive: bind("MPI_Sendrecv", exchange),
    send: bind("MPI_Isend", message),
    receive: bind("MPI_Irecv", message),
    waitAll: bind("MPI_Waitall", ["int", ...pair]),
    add: bind("MPI_Reduce_local", [...pair, "int", handle, handle]),
    copy,
    /** Memory that does not move, and its address. */
    allocate: (bytes: number) => {
      // Pages that were never written all share one zero page, which is always in the cache.
      const buffer = new Uint8Array(new SharedArrayBuffer(bytes)).fill(1);
      return { buffer, address: Number(koffi.address(buffer)) };
    },
  };
}

type Bound = ReturnType<typeof bindLibrary>;

/** Binds the library that the engine uses, which has to be open. */
export function bindStraight(rank: number, size: number): StraightWays {
  const bound = bindLibrary();
  return {
    own: (kind, bytes) => ownCollective(bound, rank, size, kind, bytes),
    messages: (kind, bytes) => ownMessages(bound, rank, size, kind, bytes),
  };
}

function ownCollective(bound: Bound, rank: number, size: number, kind: Kind, bytes: number): () => void {
  const { world, types, sum } = bound.constants;
  const buffers = [0, 1, 2].map(() => bound.allocate(bytes));
  const [source = 0, target = 0, status = 0] = buffers.map(({ address }) => address);
  const [count, part, type] = [bytes / 4, bytes / 4 / size, types.float32];
  const [next, last] = [(rank + 1) % size, (rank + size - 1) % size];
  const ring = () =>
    bound.sendReceive(source, count, type, next, 0, target, count, type, last, 0, world, status);
  const calls: { readonly [K in Kind]: () => number } = {
    allReduce: () => bound.allReduce(source, target, count, type, sum, world),
    reduceScatter: () => bound.reduceScatter(source, target, part, type, sum, world),
    allGather: () => bound.allGather(source, part, type, target, part, type, world),
    allToAll: () => bound.allToAll(source, part, type, target, part, type, world),
    permute: ring,
  };
  const call = calls[kind];
  return () => {
    if (call() !== 0 || buffers.length === 0) throw new Error(`${kind} failed`);
  };
}

function ownMessages(bound: Bound, rank: number, size: number, kind: Kind, bytes: number): () => void {
  const { world, types, sum, byte } = bound.constants;
  const buffers = [bytes, bytes, bytes * size, 64 * size].map((n) => bound.allocate(n));
  const [source = 0, target = 0, staging = 0, words = 0] = buffers.map(({ address }) => address);
  const others = range(size - 1).map((i) => (rank + 1 + i) % size);
  const statuses = words + 2 * size * bound.handleBytes;
  let count = 0;
  const start = (call: Native, address: number, n: number, other: number) =>
    call(address, n, byte, other, 0, world, words + count++ * bound.handleBytes);
  const receive = (address: number, n: number, from: number) => start(bound.receive, address, n, from);
  const send = (address: number, n: number, to: number) => start(bound.send, address, n, to);
  const finish = () => {
    if (bound.waitAll(count, words, statuses) !== 0 || buffers.length === 0)
      throw new Error(`${kind} failed`);
    count = 0;
  };
  const part = bytes / size;
  /** Sums of what all have for a block of this process, which is `own` here. */
  const reduce = (own: number, to: number, n: number, sent: (other: number) => number) => {
    others.forEach((other, i) => {
      receive(i === 0 ? to : staging + i * n, n, other);
    });
    for (const other of others) send(sent(other), n, other);
    finish();
    bound.add(own, to, n / 4, types.float32, sum);
    for (let i = 1; i < others.length; i++) bound.add(staging + i * n, to, n / 4, types.float32, sum);
  };
  const spread = (own: number, n: number) => {
    for (const other of others) receive(target + other * n, n, other);
    for (const other of others) send(own, n, other);
    finish();
  };
  const calls: { readonly [K in Kind]: () => void } = {
    allReduce: () => {
      if (reductionOf(bytes) === "whole") return reduce(source, target, bytes, () => source);
      const own = target + rank * part;
      reduce(source + rank * part, own, part, (other) => source + other * part);
      spread(own, part);
    },
    reduceScatter: () => reduce(source + rank * part, target, part, (other) => source + other * part),
    allGather: () => {
      spread(source, part);
      bound.copy(target + rank * part, source, part);
    },
    allToAll: () => {
      for (const other of others) receive(target + other * part, part, other);
      for (const other of others) send(source + other * part, part, other);
      finish();
      bound.copy(target + rank * part, source + rank * part, part);
    },
    permute: () => {
      receive(target, bytes, (rank + size - 1) % size);
      send(source, bytes, (rank + 1) % size);
      finish();
    },
  };
  return calls[kind];
}
