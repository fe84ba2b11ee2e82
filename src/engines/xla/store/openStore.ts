import { hostname } from "node:os";
import { MessageChannel, type MessagePort } from "node:worker_threads";
import { at, range } from "../../../ir/shape.js";
import { startWorker } from "../../../platform/startWorker.js";
import { XlaPluginError } from "../errors.js";
import { addressOf, type XlaProcesses } from "../processes.js";
import type { CallbackAddresses, CallbackName, CallbackWorkerData } from "./callbackWorker.js";
import { callbackWorkerCode } from "./callbackWorkerCode.js";
import type { Answered } from "./connection.js";
import type { StoreRequest } from "./messageFrames.js";
import { newPorts, type PortEnd, waitForMessage } from "./ports.js";
import type { PortAnswer, PortRequest, StoreOpened, StoreWorkerData } from "./worker.js";
import { workerCode } from "./workerCode.js";

/** How long to wait for a message from one of our own threads, in milliseconds, before giving up. */
const START_MS = 60_000;

/** Threads that serve one plug-in: gets wait for other processes, and must not delay puts. */
const threads: readonly (readonly CallbackName[])[] = [["get"], ["put", "tryGet"]];

/** The callbacks through which a plug-in reaches the store. */
export type StoreCallbacks = Readonly<Record<CallbackName, bigint>>;

/**
 * The store through which the processes of a run find each other. Process 0 holds it; every process waits until all
 * have joined.
 */
export class ProcessStore {
  /** The host name of every process. */
  readonly hosts: readonly string[];
  private readonly ends: PortEnd[];
  private readonly waiting = new Map<number, (answer: Answered) => void>();
  private nextId = 0;
  private numClients = 0;
  private numShared = 0;

  private constructor(
    private readonly processes: XlaProcesses,
    { hosts }: StoreOpened,
    ends: readonly PortEnd[],
    private readonly free: MessagePort,
  ) {
    this.hosts = hosts;
    this.ends = [...ends];
    this.free.on("message", ({ id, ...answered }: PortAnswer) => {
      this.waiting.get(id)?.(answered);
      this.waiting.delete(id);
      if (this.waiting.size === 0) this.free.unref();
    });
    this.free.unref();
  }

  /** Opens the store, which blocks until all processes have joined. */
  static open(processes: XlaProcesses): ProcessStore {
    const { coordinator, index, count, secret, timeoutMs } = processes;
    const { host, port } = addressOf(coordinator);
    // Two threads for every client of a process, which rarely has more than one.
    const pairs = range(threads.length * MAX_CLIENTS).map(() => newPorts());
    const leaving = newPorts();
    const { port1, port2 } = new MessageChannel();
    const data: StoreWorkerData = {
      host,
      port,
      process: index,
      count,
      hostName: hostname(),
      secret,
      timeoutMs,
      ends: [...pairs, leaving].map(({ answering }) => answering),
      free: port2,
    };
    start(workerCode(), data, [...data.ends.map((end) => end.port), port2]);
    const ends = pairs.map(({ waiting }) => waiting);
    // It connects, asks three times and then answers, each within its timeout.
    const opened = waitForMessage(at(ends, 0), 4 * timeoutMs + START_MS) as StoreOpened | undefined;
    if (opened === undefined || opened.reason !== undefined) {
      const reason = opened?.reason ?? "its thread does not start";
      throw new XlaPluginError(
        `process ${index} of ${count} did not find the others at ${coordinator}: ${reason}; SHARDWISE_COORDINATOR must be an address of process 0 that all can reach, and every process needs its own number`,
      );
    }
    leaving.waiting.port.unref();
    process.once("exit", (code) => {
      // The others see a process that failed as lost; they need not wait to learn it.
      if (code === 0) leave(leaving.waiting, timeoutMs);
    });
    return new ProcessStore(processes, opened, ends, port1);
  }

  /** The callbacks for one more client; all processes create the same clients in the same order. */
  callbacks(): StoreCallbacks {
    const number = this.numClients++;
    const addresses = threads.map((names) => this.startCallbacks(names, `client ${number}: `));
    const all: CallbackAddresses = Object.assign({}, ...addresses);
    const address = (name: CallbackName): bigint => {
      const found = all[name];
      if (found === undefined)
        throw new XlaPluginError(`the thread for "${name}" of the store did not start`);
      return found;
    };
    return { get: address("get"), put: address("put"), tryGet: address("tryGet") };
  }

  /** Gathers one string of every process, in process order. */
  async share(text: string): Promise<string[]> {
    const { index, count, timeoutMs } = this.processes;
    const round = this.numShared++;
    const key = (process: number, number: number) => `share ${number} of process ${process}`;
    await this.ask({ kind: "put", key: key(index, round) }, Buffer.from(text, "utf8"));
    const texts: string[] = [];
    for (const process of range(count)) {
      const { value } = await this.ask({ kind: "get", key: key(process, round), timeoutMs, from: process });
      texts.push(Buffer.from(value).toString("utf8"));
    }
    // A process that has put its value of this round has read all values of the previous one.
    if (round > 0) await this.ask({ kind: "remove", key: key(index, round - 1) });
    return texts;
  }

  private async ask(head: StoreRequest, value?: Uint8Array): Promise<Answered> {
    const id = this.nextId++;
    const request: PortRequest = { id, head, ...(value === undefined ? {} : { value }) };
    const answered = await new Promise<Answered>((resolve) => {
      this.waiting.set(id, resolve);
      this.free.ref();
      this.free.postMessage(request);
    });
    const { index, count } = this.processes;
    if (!answered.head.ok) {
      throw new XlaPluginError(`process ${index} of ${count} waited for the others: ${answered.head.reason}`);
    }
    return answered;
  }

  private startCallbacks(names: readonly CallbackName[], prefix: string): CallbackAddresses {
    const store = this.ends.shift();
    if (store === undefined) {
      throw new XlaPluginError(
        `a process can create at most ${MAX_CLIENTS} plug-in clients that run with other processes`,
      );
    }
    const { waiting, answering } = newPorts();
    const data: CallbackWorkerData = { names, store, parent: answering, prefix };
    start(callbackWorkerCode(), data, [store.port, answering.port]);
    return (waitForMessage(waiting, START_MS) ?? {}) as CallbackAddresses;
  }
}

/**
 * Announces that this process is ending, and blocks until it may: the store ends with process 0, so process 0 waits for
 * those that may still read from it. The thread of the store continues meanwhile.
 */
function leave(end: PortEnd, timeoutMs: number): void {
  const request: PortRequest = { id: 0, head: { kind: "leave", timeoutMs } };
  end.port.postMessage(request);
  waitForMessage(end, timeoutMs);
}

/** Maximum number of multi-process plug-in clients in one process. */
const MAX_CLIENTS = 4;

function start(code: string, data: unknown, transferList: MessagePort[]): void {
  const worker = startWorker(code, { workerData: data, transferList });
  // It serves the plug-in and ends with the process.
  worker.unref();
}
