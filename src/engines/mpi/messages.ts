import { byteSize } from "../../ir/dtype.js";
import { ShardwiseError } from "../../ir/errors.js";
import type { SummedType } from "./families.js";
import type { LookLoop, Mpi } from "./library.js";

/** What is longer is sent in pieces, because MPI counts bytes in 31 bits. */
export const PIECE_BYTES = 2 ** 30;

/** How often messages are looked for in one call of native code. */
const LOOKS = 8;

/** Messages of a collective: first sources, then parts of results. */
export const PHASE = { sources: 0, results: 1 } as const;

/** A message between processes was lost, cut short or of another length than the receiver's. */
export class TransportError extends ShardwiseError {
  constructor(message: string) {
    super("desync", message);
  }
}

/** How many requests a message of so many bytes takes. */
export function numPieces(bytes: number): number {
  return Math.max(1, Math.ceil(bytes / PIECE_BYTES));
}

/** Messages that are on their way together: they are begun one by one and looked after all at once. */
export class Batch {
  private readonly words: Int32Array;
  private readonly statusWords: number;
  private readonly requests: number;
  private readonly flag: number;
  private readonly statuses: number;
  /** For every request the bytes that must arrive; −1 for one that sends. */
  private readonly expected: number[] = [];
  private readonly ranks: number[] = [];
  private count = 0;

  /**
   * @param capacity how many requests there are at most
   * @param lookLoop looks several times in one call, where there is such a function
   */
  constructor(
    private readonly mpi: Mpi,
    private readonly comm: number,
    capacity: number,
    private readonly lookLoop?: LookLoop,
  ) {
    const requestsAt = 16;
    const statusesAt = requestsAt + 8 * capacity;
    this.words = new Int32Array(new SharedArrayBuffer(statusesAt + mpi.statusBytes * capacity + 8));
    const base = mpi.addressOf(this.words);
    this.flag = base;
    this.requests = base + requestsAt;
    this.statuses = base + statusesAt;
    this.statusWords = statusesAt / 4;
  }

  /** Begins to send bytes at a native address, which stay as they are until the batch is done. */
  send(address: number, bytes: number, rank: number, tag: number): void {
    for (let at = 0; at < bytes || at === 0; at += PIECE_BYTES) {
      const request = this.add(rank, -1);
      this.mpi.isend(address + at, Math.min(PIECE_BYTES, bytes - at), rank, tag, this.comm, request);
    }
  }

  /** Begins to receive exactly so many bytes. */
  receive(address: number, bytes: number, rank: number, tag: number): void {
    for (let at = 0; at < bytes || at === 0; at += PIECE_BYTES) {
      const piece = Math.min(PIECE_BYTES, bytes - at);
      this.mpi.irecv(address + at, piece, rank, tag, this.comm, this.add(rank, piece));
    }
  }

  /** Begins to add up so many elements of all processes of the communicator; the source may be the target. */
  sum(source: number, target: number, count: number, dtype: SummedType): void {
    const bytes = byteSize(dtype);
    const piece = PIECE_BYTES / bytes;
    for (let at = 0; at < count || at === 0; at += piece) {
      const request = this.add(-1, -1);
      const offset = at * bytes;
      const number = Math.min(piece, count - at);
      this.mpi.iallreduce(source + offset, target + offset, number, dtype, this.comm, request);
    }
  }

  /** Begins to wait for all processes to do the same. */
  meet(): void {
    this.mpi.ibarrier(this.comm, this.add(-1, -1));
  }

  /** Whether all messages have arrived or left; looking also moves them on. */
  isDone(): boolean {
    if (this.count === 0) return true;
    return this.accept(this.mpi.testall(this.count, this.requests, this.flag, this.statuses));
  }

  /** Like {@link isDone}, but looks again for about a microsecond. */
  isDoneSoon(): boolean {
    if (this.lookLoop === undefined || this.count === 0) return this.isDone();
    this.lookLoop(this.count, this.requests, this.flag, this.statuses, LOOKS);
    return this.accept(this.words[2] ?? 0);
  }

  private accept(code: number): boolean {
    if (code !== 0) throw this.failure(code);
    if (this.words[0] === 0) return false;
    this.checkLengths();
    this.count = 0;
    return true;
  }

  private add(rank: number, expected: number): number {
    const i = this.count++;
    this.expected[i] = expected;
    this.ranks[i] = rank;
    return this.requests + i * this.mpi.handleBytes;
  }

  private checkLengths(): void {
    for (let i = 0; i < this.count; i++) {
      const expected = this.expected[i] ?? -1;
      if (expected < 0) continue;
      const bytes = this.mpi.statusBytesReceived(this.words, this.statusAt(i));
      if (bytes === expected) continue;
      throw new TransportError(
        `[mpi] a message of ${bytes} bytes came from process ${this.ranks[i]} where ${expected} were expected: the processes do not run the same program`,
      );
    }
  }

  private failure(code: number): TransportError {
    for (let i = 0; i < this.count; i++) {
      const error = this.mpi.statusError(this.words, this.statusAt(i));
      if (error === 0) continue;
      const what = (this.expected[i] ?? -1) < 0 ? "to" : "from";
      return new TransportError(
        `[mpi] the message ${what} process ${this.ranks[i]} failed: ${this.mpi.describe(error)}`,
      );
    }
    return new TransportError(`[mpi] a message failed: ${this.mpi.describe(code)}`);
  }

  private statusAt(i: number): number {
    return this.statusWords + (i * this.mpi.statusBytes) / 4;
  }
}
