/** Stands in for the MPI library of the system: the same calls, on the simulated network. */
import type { BatchCode, CodePlaces, MpiChoice } from "../../../../src/engines/mpi/library/library.js";
import { openMpi, type SummedType } from "../../../../src/engines/mpi/library/mpiFamilies.js";
import { giveTurn, park } from "../../runtime.js";
import { cluster, ownProcess } from "../host.js";

export type { BatchCode, CodePlaces, MpiChoice };

const WORLD = 1;

export class Mpi {
  readonly world = WORLD;
  readonly handleBytes = 8;
  readonly statusBytes = openMpi.statusBytes;
  readonly choice: MpiChoice = { path: "simulated", family: "Open MPI" };
  readonly version = "simulated MPI";
  readonly largestTag = 2 ** 23 - 1;
  readonly isRunning = true;
  readonly byteType = 0;
  private numLooks = 0;

  static find(): Mpi {
    return new Mpi();
  }

  static load(): Mpi | string {
    return new Mpi();
  }

  addressOf(view: Int32Array | Uint8Array): number {
    return cluster().network.addressOf(view);
  }

  initialize(): void {}

  finalize(): void {}

  rank(): number {
    return ownProcess().rank;
  }

  size(): number {
    return ownProcess().size;
  }

  duplicate(comm: number): number {
    const { network } = cluster();
    const process = ownProcess();
    return network.communicator(process, `copy of ${comm}`);
  }

  subset(comm: number, ranks: readonly number[], tag: number): number {
    const { network } = cluster();
    const process = ownProcess();
    return network.communicator(process, `${ranks.join()} of ${comm} by ${tag}`);
  }

  freeCommunicator(): void {}

  iallreduce(
    _source: number,
    _target: number,
    _count: number,
    _dtype: SummedType,
    _comm: number,
    _request: number,
  ): void {
    throw new Error("sums by MPI are not simulated");
  }

  isend(address: number, bytes: number, rank: number, tag: number, comm: number, request: number): void {
    cluster().called(ownProcess());
    giveTurn();
    const { network } = cluster();
    const process = ownProcess();
    network.send(process, rank, comm, tag, network.bytesAt(address, bytes), request);
  }

  irecv(address: number, bytes: number, rank: number, tag: number, comm: number, request: number): void {
    cluster().called(ownProcess());
    giveTurn();
    const { network } = cluster();
    const process = ownProcess();
    network.receive(process, rank, comm, tag, network.bytesAt(address, bytes), request);
  }

  waitingBytes(rank: number, tag: number, comm: number): number | undefined {
    const { network } = cluster();
    const process = ownProcess();
    return network.waitingBytes(process, rank, comm, tag);
  }

  ibarrier(comm: number, request: number): void {
    const { network } = cluster();
    const process = ownProcess();
    network.meet(process, comm, request);
  }

  testall(count: number, requests: number, flag: number, statuses: number): number {
    cluster().called(ownProcess());
    giveTurn();
    const { network } = cluster();
    const looked = network.at(requests, count);
    const isDone = () => looked.every((one) => one.isDone);
    // Who looks in vain again and again leaves time to others.
    this.numLooks = isDone() ? 0 : this.numLooks + 1;
    park(isDone, Math.min(2, 0.01 * 2 ** this.numLooks));
    const done = isDone();
    const flags = new Int32Array(network.bytesAt(flag, 4).buffer, flag % 2 ** 34, 1);
    flags[0] = done ? 1 : 0;
    if (!done) return 0;
    const words = new Int32Array(
      network.bytesAt(statuses, 0).buffer,
      statuses % 2 ** 34,
      (count * openMpi.statusBytes) / 4,
    );
    let code = 0;
    for (let i = 0; i < count; i++) {
      const request = looked[i];
      const base = (i * openMpi.statusBytes) / 4;
      words[base + openMpi.statusCount] = request?.bytes ?? 0;
      words[base + openMpi.statusError] = request?.isCut ? 15 : 0;
      if (request?.isCut) code = 15;
    }
    return code;
  }

  batchCode(_places: CodePlaces): BatchCode {
    throw new Error("generated code is not simulated");
  }

  statusError(words: Int32Array, base: number): number {
    return words[base + openMpi.statusError] ?? 0;
  }

  statusBytesReceived(words: Int32Array, base: number): number {
    return (words[base + openMpi.statusCount] ?? 0) >>> 0;
  }

  describe(code: number): string {
    return code === 15 ? "message truncated" : `error ${code}`;
  }

  check(code: number, name: string): void {
    if (code !== 0) throw new Error(`${name} failed: ${code}`);
  }
}
