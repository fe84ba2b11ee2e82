/**
 * What MPI promises, and no more. Messages between two processes with the same communicator and tag are matched in the
 * order in which they were sent; all others arrive in any order. A send may be complete at once, or only when its
 * message is received; until then its bytes are read at any moment, also some time after the receive has begun.
 * Nothing is said about a receive's buffer before it is complete, so it holds garbage.
 */
import type { ClusterMachine } from "./machine.js";
import type { SimulatedProcess } from "./process.js";

/** How quick messages are, in milliseconds. */
export interface Traffic {
  readonly usual: number;
  readonly slow: number;
  /** The share of messages that are slow. */
  readonly slowShare: number;
  /** The share of sends that are complete only when their message has arrived. */
  readonly lateShare: number;
  /** The communicator whose messages are all slow, if one is; those that all processes share count from 100. */
  readonly slowComm?: number;
}

/** A send, a receive or a barrier that is under way. */
export interface Request {
  isDone: boolean;
  bytes: number;
  isCut: boolean;
}

interface Message {
  readonly from: SimulatedProcess;
  readonly request: Request;
  /** Of a message that left at once. */
  content: Uint8Array | undefined;
  readonly source: Uint8Array;
  isHere: boolean;
  receive: Receive | undefined;
}

interface Receive {
  readonly request: Request;
  readonly target: Uint8Array;
}

interface Way {
  readonly messages: Message[];
  readonly receives: Receive[];
}

interface Barrier {
  readonly requests: Request[];
  count: number;
}

const SPAN = 2 ** 34;
const GARBAGE = 0xa5;

export class Network {
  private readonly ways = new Map<string, Way>();
  private readonly barriers = new Map<string, Barrier>();
  private readonly barrierCalls = new Map<string, number>();
  private readonly requests = new Map<number, Request>();
  private readonly buffers: ArrayBufferLike[] = [];
  private readonly bases = new WeakMap<ArrayBufferLike, number>();
  private readonly communicators = new Map<string, number>();
  private readonly copies = new Map<string, number>();
  numMessages = 0;

  constructor(
    private readonly machine: ClusterMachine,
    readonly processes: readonly SimulatedProcess[],
    private readonly random: () => number,
    private readonly traffic: Traffic,
  ) {}

  /** The address of elements. */
  addressOf(view: ArrayBufferView): number {
    let base = this.bases.get(view.buffer);
    if (base === undefined) {
      this.buffers.push(view.buffer);
      base = this.buffers.length * SPAN;
      this.bases.set(view.buffer, base);
    }
    return base + view.byteOffset;
  }

  bytesAt(address: number, bytes: number): Uint8Array {
    const buffer = this.buffers[Math.floor(address / SPAN) - 1];
    if (buffer === undefined) throw new Error(`no memory at address ${address}`);
    return new Uint8Array(buffer, address % SPAN, bytes);
  }

  /** The handle that all processes get for what they make together: the same calls give the same handles. */
  communicator(process: SimulatedProcess, what: string): number {
    const key = `${process.rank} ${what}`;
    const nth = (this.copies.get(key) ?? 0) + 1;
    this.copies.set(key, nth);
    const name = `${what} ${nth}`;
    const handle = this.communicators.get(name) ?? 100 + this.communicators.size;
    this.communicators.set(name, handle);
    return handle;
  }

  send(from: SimulatedProcess, to: number, comm: number, tag: number, source: Uint8Array, at: number): void {
    const request = this.request(at, source.length);
    const isLate = this.random() < this.traffic.lateShare;
    const message: Message = {
      from,
      request,
      source,
      content: isLate ? undefined : source.slice(),
      isHere: false,
      receive: undefined,
    };
    if (!isLate) request.isDone = true;
    this.numMessages++;
    const way = this.way(from.rank, to, comm, tag);
    message.receive = way.receives.shift();
    if (message.receive === undefined) way.messages.push(message);
    this.machine.after(this.delay(comm), () => {
      message.isHere = true;
      this.deliver(message);
    });
  }

  receive(
    to: SimulatedProcess,
    from: number,
    comm: number,
    tag: number,
    target: Uint8Array,
    at: number,
  ): void {
    target.fill(GARBAGE);
    const receive = { request: this.request(at, 0), target };
    const way = this.way(from, to.rank, comm, tag);
    const message = way.messages.shift();
    if (message === undefined) {
      way.receives.push(receive);
      return;
    }
    message.receive = receive;
    // The bytes of a message that was only announced come now.
    if (message.isHere && !message.content) this.machine.after(this.delay(comm), () => this.deliver(message));
    else this.deliver(message);
  }

  /** The bytes of the next message of a way, if it has come and nobody receives it. */
  waitingBytes(to: SimulatedProcess, from: number, comm: number, tag: number): number | undefined {
    const [message] = this.way(from, to.rank, comm, tag).messages;
    return message?.isHere ? message.source.length : undefined;
  }

  meet(process: SimulatedProcess, comm: number, at: number): void {
    const key = `${process.rank} ${comm}`;
    const nth = (this.barrierCalls.get(key) ?? 0) + 1;
    this.barrierCalls.set(key, nth);
    const name = `${comm} ${nth}`;
    const barrier = this.barriers.get(name) ?? { requests: [], count: 0 };
    this.barriers.set(name, barrier);
    barrier.requests.push(this.request(at, 0));
    if (++barrier.count < this.processes.length) return;
    for (const request of barrier.requests) {
      this.machine.after(this.delay(comm), () => {
        request.isDone = true;
      });
    }
  }

  /** The requests that were begun at addresses. */
  at(address: number, count: number): Request[] {
    return Array.from({ length: count }, (_, i) => {
      const request = this.requests.get(address + 8 * i);
      if (request === undefined) throw new Error("a request that was never begun is looked at");
      return request;
    });
  }

  private request(at: number, bytes: number): Request {
    const request = { isDone: false, bytes, isCut: false };
    this.requests.set(at, request);
    return request;
  }

  private deliver(message: Message): void {
    const { from, receive, isHere, source, content, request } = message;
    if (!isHere || receive === undefined) return;
    // What has not left a process that is gone is gone, too.
    if (content === undefined && from.ending) return;
    const bytes = content ?? source;
    receive.request.isCut = bytes.length > receive.target.length;
    receive.target.set(bytes.subarray(0, receive.target.length));
    receive.request.bytes = bytes.length;
    receive.request.isDone = true;
    request.isDone = true;
  }

  private delay(comm: number): number {
    const { usual, slow, slowShare, slowComm } = this.traffic;
    return this.random() * (this.random() < slowShare || comm === slowComm ? slow : usual);
  }

  private way(from: number, to: number, comm: number, tag: number): Way {
    const key = `${comm} ${from} ${to} ${tag}`;
    const found = this.ways.get(key) ?? { messages: [], receives: [] };
    this.ways.set(key, found);
    return found;
  }
}
