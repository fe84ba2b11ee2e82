import { range } from "../../../ir/shape.js";
import { sharedBytes } from "./calls.js";
import type { Mpi } from "./library.js";
import { MessageBatch, TransportError } from "./messages.js";

/** How often two processes ask each other for the time: the quickest answer counts. */
const ROUNDS = 16;

/** How long a process waits for another one to look at its clock. */
const LIMIT_MS = 120_000;

const TAG = 3;

/** Finds out how far the clocks of processes are apart; `performance.now()` is what each of them shows. */
export class Clocks {
  private readonly bytes = sharedBytes(new Uint8Array(8));
  private readonly time = new Float64Array(this.bytes.buffer);

  constructor(
    private readonly mpi: Mpi,
    private readonly comm: number,
    private readonly rank: number,
    private readonly size: number,
  ) {}

  /** By how many milliseconds the clock of process 0 is ahead of this one's; all processes call it together. */
  ahead(): number {
    if (this.rank !== 0) return this.answer();
    for (const rank of range(this.size).slice(1)) this.ask(rank);
    return 0;
  }

  /** Asks a process for its time and tells it by how much it is behind. */
  private ask(rank: number): void {
    let quickest = Number.POSITIVE_INFINITY;
    let ahead = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const begin = performance.now();
      this.send(rank, begin);
      const there = this.receive(rank);
      const end = performance.now();
      if (end - begin >= quickest) continue;
      quickest = end - begin;
      // The answer was given in the middle, as far as anyone can tell.
      ahead = (begin + end) / 2 - there;
    }
    this.send(rank, ahead);
  }

  private answer(): number {
    for (let round = 0; round < ROUNDS; round++) {
      this.receive(0);
      this.send(0, performance.now());
    }
    return this.receive(0);
  }

  private send(rank: number, value: number): void {
    this.time[0] = value;
    const batch = new MessageBatch(this.mpi, this.comm, 1);
    batch.send(this.mpi.addressOf(this.bytes), this.bytes.length, rank, TAG);
    this.finish(batch, rank);
  }

  private receive(rank: number): number {
    const batch = new MessageBatch(this.mpi, this.comm, 1);
    batch.receive(this.mpi.addressOf(this.bytes), this.bytes.length, rank, TAG);
    this.finish(batch, rank);
    return this.time[0] ?? 0;
  }

  private finish(batch: MessageBatch, rank: number): void {
    const begin = performance.now();
    while (!batch.isDone()) {
      if (performance.now() - begin < LIMIT_MS) continue;
      throw new TransportError(
        `[mpi] process ${this.rank} of ${this.size} has waited ${LIMIT_MS / 1000} s for process ${rank} to compare clocks`,
      );
    }
  }
}
