import { CALL_WORDS } from "../../../compiler/native/callList.js";
import { byteSize } from "../../../ir/dtype.js";
import { errorClass } from "../../../ir/errors.js";
import type { BatchCode, Mpi } from "./library.js";
import type { SummedType } from "./mpiFamilies.js";

/** What is longer is sent in pieces, because MPI counts bytes in 31 bits. */
export const PIECE_BYTES = 2 ** 30;

/** How many looks of native code take as long as one that is called from JavaScript. */
const LOOKS_PER_CALL = 4;

/** Which 32-bit words of a call in a list hold what changes from use to use. */
const CALL = { function: 0, address: 2, bytes: 4, type: 6, rank: 8, tag: 10, comm: 12, request: 14 } as const;

/** Messages of a collective: first sources, then parts of results. */
export const PHASE = { sources: 0, results: 1 } as const;

/** A message between processes was lost, cut short, or its length differs from the receiver's. */
export class TransportError extends errorClass("TransportError", "desync") {}

/** How many requests a message of `bytes` bytes takes. */
export function numPieces(bytes: number): number {
  return Math.max(1, Math.ceil(bytes / PIECE_BYTES));
}

/**
 * Messages that are on their way together and looked after all at once. Where code can be generated, they are
 * begun by {@link begin} in one call of it; elsewhere each is begun when it is added.
 */
export class MessageBatch {
  private readonly words: Int32Array;
  /** The calls that begin messages, and how many of them are still to be made. */
  private readonly calls: Uint32Array;
  private readonly callsAt: number;
  private numCalls = 0;
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
   * @param code begins several messages and looks several times in one call, where there is such code
   */
  constructor(
    private readonly mpi: Mpi,
    private readonly comm: number,
    capacity: number,
    private readonly code?: BatchCode,
  ) {
    const requestsAt = 16;
    const callsAt = requestsAt + 8 * capacity;
    const statusesAt = callsAt + (code ? 8 * CALL_WORDS * capacity : 0);
    this.words = new Int32Array(new SharedArrayBuffer(statusesAt + mpi.statusBytes * capacity + 8));
    this.calls = new Uint32Array(this.words.buffer, callsAt, (statusesAt - callsAt) / 4);
    const base = mpi.addressOf(this.words);
    this.callsAt = base + callsAt;
    this.flag = base;
    this.requests = base + requestsAt;
    this.statuses = base + statusesAt;
    this.statusWords = statusesAt / 4;
  }

  /** Begins to send bytes at a native address, which stay as they are until the batch is done. */
  send(address: number, bytes: number, rank: number, tag: number): void {
    for (let at = 0; at < bytes || at === 0; at += PIECE_BYTES) {
      const [request, piece] = [this.add(rank, -1), Math.min(PIECE_BYTES, bytes - at)];
      if (this.code) this.list(this.code.isend, address + at, piece, rank, tag, request);
      else this.mpi.isend(address + at, piece, rank, tag, this.comm, request);
    }
  }

  /** Begins to receive exactly `bytes` bytes. */
  receive(address: number, bytes: number, rank: number, tag: number): void {
    for (let at = 0; at < bytes || at === 0; at += PIECE_BYTES) {
      const piece = Math.min(PIECE_BYTES, bytes - at);
      const request = this.add(rank, piece);
      if (this.code) this.list(this.code.irecv, address + at, piece, rank, tag, request);
      else this.mpi.irecv(address + at, piece, rank, tag, this.comm, request);
    }
  }

  /** Begins the messages that were added and have not begun. */
  begin(): void {
    if (this.numCalls === 0 || this.code === undefined) return;
    this.code.callAll(this.callsAt, this.numCalls, this.flag);
    this.numCalls = 0;
    this.mpi.check(this.words[2] ?? 0, "beginning a message");
  }

  /** Begins to add up `count` elements of all processes of the communicator; the source may be the target. */
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

  /** Like {@link isDone}, but looks `looks` times. */
  isDoneWithin(looks: number): boolean {
    if (this.count === 0) return true;
    if (this.code !== undefined) {
      this.code.look(this.count, this.requests, this.flag, this.statuses, looks);
      return this.accept(this.words[2] ?? 0);
    }
    for (let i = 0; i < looks; i += LOOKS_PER_CALL) if (this.isDone()) return true;
    return false;
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

  /** Describes the call that begins a message. */
  private list(fn: number, address: number, bytes: number, rank: number, tag: number, request: number): void {
    const { calls } = this;
    const at = 2 * CALL_WORDS * this.numCalls++;
    putLong(calls, at + CALL.function, fn);
    putLong(calls, at + CALL.address, address);
    calls[at + CALL.bytes] = bytes;
    putLong(calls, at + CALL.type, this.mpi.byteType);
    calls[at + CALL.rank] = rank;
    calls[at + CALL.tag] = tag;
    putLong(calls, at + CALL.comm, this.comm);
    putLong(calls, at + CALL.request, request);
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

/** Writes an integer of up to 53 bits as one of 64. */
function putLong(words: Uint32Array, at: number, value: number): void {
  words[at] = value;
  words[at + 1] = value / 2 ** 32;
}
