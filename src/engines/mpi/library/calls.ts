import { range } from "../../../ir/shape.js";
import type { Mpi } from "./library.js";
import { MessageBatch } from "./messages.js";

/** How often a process looks whether another one calls when nothing is expected. */
const LISTEN_MS = 250;

/** How often it looks when an answer is expected. */
const POLL_MS = 10;

const TAG = 1;

/** What is called out on one channel. */
export interface Channel {
  /** Sends a text to some processes, by default to all others, whether they listen or not. */
  tell(text: string, ranks?: readonly number[]): void;
  /** Hands what has come, on all channels, to those that opened them; never waits. */
  listen(): void;
  close(): void;
}

/** Listens until something is so, but no longer than some milliseconds. */
export async function listenUntil(channel: Channel, isSo: () => boolean, ms: number): Promise<void> {
  for (const begin = performance.now(); !isSo() && performance.now() - begin < ms; ) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    channel.listen();
  }
}

/** Hears what a process called out. */
export type Listener = (rank: number, text: string) => void;

/** Where channels are opened. */
export type Channels = Pick<Calls, "open">;

/**
 * What processes call out to each other apart from tensors, on numbered channels: nobody waits for it, and what comes
 * from one process comes in its order.
 */
export class Calls {
  /** What was called out and may not have left yet: MPI knows only the address of the bytes, which are kept here. */
  private readonly leaving = new Map<MessageBatch, Uint8Array>();
  private readonly arriving = new Map<number, { readonly batch: MessageBatch; readonly bytes: Uint8Array }>();
  private readonly listeners = new Map<number, Listener>();
  private readonly others: readonly number[];
  private numChannels = 0;
  private listening: NodeJS.Timeout | undefined;

  /** @param comm a communicator on which nothing else is sent */
  constructor(
    private readonly mpi: Mpi,
    private readonly comm: number,
    rank: number,
    size: number,
  ) {
    this.others = range(size).filter((other) => other !== rank);
  }

  /** Opens a channel; all processes open theirs in the same order. */
  open(listener: Listener): Channel {
    const number = this.numChannels++;
    this.listeners.set(number, listener);
    this.listening ??= setInterval(() => this.listen(), LISTEN_MS).unref();
    return {
      tell: (text, ranks = this.others) => this.tell(`${number} ${text}`, ranks),
      listen: () => this.listen(),
      close: () => {
        this.listeners.delete(number);
        if (this.listeners.size > 0) return;
        clearInterval(this.listening);
        this.listening = undefined;
      },
    };
  }

  private tell(text: string, ranks: readonly number[]): void {
    const bytes = sharedBytes(Buffer.from(text));
    for (const rank of ranks) {
      const batch = new MessageBatch(this.mpi, this.comm, 1);
      batch.send(this.mpi.addressOf(bytes), bytes.length, rank, TAG);
      this.leaving.set(batch, bytes);
    }
  }

  private listen(): void {
    if (!this.mpi.isRunning) return;
    for (const batch of this.leaving.keys()) if (batch.isDone()) this.leaving.delete(batch);
    for (const rank of this.others) {
      for (let text = this.receive(rank); text !== undefined; text = this.receive(rank)) {
        const end = text.indexOf(" ");
        // What was meant for a channel that is closed here is for nobody.
        this.listeners.get(Number(text.slice(0, end)))?.(rank, text.slice(end + 1));
      }
    }
  }

  /** The next text of a process, if it is here as a whole. */
  private receive(rank: number): string | undefined {
    const { mpi, comm, arriving } = this;
    const waiting = arriving.has(rank) ? undefined : mpi.waitingBytes(rank, TAG, comm);
    if (waiting !== undefined) {
      const bytes = new Uint8Array(new SharedArrayBuffer(waiting));
      const batch = new MessageBatch(mpi, comm, 1);
      batch.receive(mpi.addressOf(bytes), waiting, rank, TAG);
      arriving.set(rank, { batch, bytes });
    }
    const message = arriving.get(rank);
    if (!message?.batch.isDone()) return undefined;
    arriving.delete(rank);
    return Buffer.from(message.bytes.slice()).toString();
  }
}

/** Bytes that do not move, as MPI needs them. */
export function sharedBytes(source: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(new SharedArrayBuffer(Math.max(1, source.length)));
  bytes.set(source);
  return bytes.subarray(0, source.length);
}
