/** MPI's own collectives, called straight through koffi by the main thread, as a measure for those of the engine. */
import type { CollectiveSpec } from "../../src/compiler/steps.js";
import { mpich, openMpi } from "../../src/engines/mpi/families.js";
import { detectLaunch } from "../../src/engines/mpi/launcher.js";
import { Mpi } from "../../src/engines/mpi/library.js";
import { loadKoffi } from "../../src/engines/threads/koffi.js";

type Native = (...args: number[]) => number;

/**
 * A call of every process with the same collective of float32.
 *
 * @param bytes those of the whole: what an all-gather produces and a reduce-scatter takes
 */
export type Straight = (kind: CollectiveSpec["kind"], bytes: number) => () => void;

/** Binds the library that the engine uses, which has to be open. */
export function bindStraight(rank: number, size: number): Straight {
  const koffi = loadKoffi();
  if (koffi === undefined) throw new Error("koffi does not load here");
  const { choice } = Mpi.find(detectLaunch());
  const library = koffi.load(choice.path, { global: true });
  const family = choice.family === "Open MPI" ? openMpi : mpich;
  const { handle } = family;
  const { world, types, sum } = family.constants(library, koffi);
  const bind = (name: string, args: readonly string[]): Native => library.func(name, "int", [...args]);
  const pair = ["uintptr_t", "uintptr_t"];
  const block = ["uintptr_t", "int", handle];
  const allReduce = bind("MPI_Allreduce", [...pair, "int", handle, handle, handle]);
  const reduceScatter = bind("MPI_Reduce_scatter_block", [...pair, "int", handle, handle, handle]);
  const allGather = bind("MPI_Allgather", [...block, ...block, handle]);
  const allToAll = bind("MPI_Alltoall", [...block, ...block, handle]);
  const sendReceive = bind("MPI_Sendrecv", [
    ...block,
    "int",
    "int",
    ...block,
    "int",
    "int",
    handle,
    "uintptr_t",
  ]);
  return (kind, bytes) => {
    const buffers = [0, 1, 2].map(() => new Uint8Array(new SharedArrayBuffer(bytes)));
    const [source = 0, target = 0, status = 0] = buffers.map((buffer) => Number(koffi.address(buffer)));
    const [count, part, type] = [bytes / 4, bytes / 4 / size, types.float32];
    const [next, last] = [(rank + 1) % size, (rank + size - 1) % size];
    const calls: { readonly [K in CollectiveSpec["kind"]]: () => number } = {
      allReduce: () => allReduce(source, target, count, type, sum, world),
      reduceScatter: () => reduceScatter(source, target, part, type, sum, world),
      allGather: () => allGather(source, part, type, target, part, type, world),
      allToAll: () => allToAll(source, part, type, target, part, type, world),
      permute: () => sendReceive(source, count, type, next, 0, target, count, type, last, 0, world, status),
    };
    const call = calls[kind];
    return () => {
      if (call() !== 0 || buffers.length === 0) throw new Error(`${kind} failed`);
    };
  };
}
