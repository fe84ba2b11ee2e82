/**
 * The entry point of the thread that holds the connection to the store, and in process 0 the store itself. It never
 * blocks, so that threads which block until a value arrives are answered whatever else the process does.
 */

import type { MessagePort } from "node:worker_threads";
import { workerData } from "node:worker_threads";
import { reasonOf } from "../../../ir/errors.js";
import { isLocalHost } from "../../../platform/localHost.js";
import { type Answered, StoreConnection } from "./connection.js";
import type { StoreRequest } from "./messageFrames.js";
import { answer, type PortEnd } from "./ports.js";
import { StoreServer } from "./server.js";

/** The data that this thread starts with. */
export interface StoreWorkerData {
  readonly host: string;
  readonly port: number;
  readonly process: number;
  readonly count: number;
  /** The name of this machine. */
  readonly hostName: string;
  readonly secret: string;
  readonly timeoutMs: number;
  /** Ports of threads that block while they wait. */
  readonly ends: readonly PortEnd[];
  /** Port of a thread that does not block. */
  readonly free: MessagePort;
}

/** Requests from other threads. */
export interface PortRequest {
  readonly id: number;
  readonly head: StoreRequest;
  readonly value?: Uint8Array;
}

/** Its answers. */
export interface PortAnswer extends Answered {
  readonly id: number;
}

/** The first message to the first port: why there is no store, or undefined, and the machines of all processes. */
export interface StoreOpened {
  readonly reason?: string;
  readonly hosts: readonly string[];
}

async function open(data: StoreWorkerData): Promise<StoreConnection> {
  const { host, port, process, count, hostName, secret, timeoutMs } = data;
  if (process === 0) {
    // Other processes connect from other machines, unless the address is only reachable from this one.
    await new StoreServer(count, secret).listen(port, isLocalHost(host) ? host : undefined);
  }
  const connection = await StoreConnection.open(host, port, timeoutMs);
  const { head } = await connection.join({ process, count, host: hostName }, secret);
  if (!head.ok) throw new Error(head.reason);
  return connection;
}

async function run(data: StoreWorkerData): Promise<void> {
  const [first] = data.ends;
  let connection: StoreConnection;
  let hosts: readonly string[] = [];
  try {
    connection = await open(data);
    const { head } = await connection.ask({ kind: "members", timeoutMs: data.timeoutMs });
    if (!head.ok) throw new Error(head.reason);
    hosts = head.hosts ?? [];
  } catch (error) {
    if (first) answer(first, { reason: reasonOf(error), hosts: [] } satisfies StoreOpened);
    return;
  }
  for (const end of data.ends) {
    end.port.on("message", async ({ id, head, value }: PortRequest) => {
      answer(end, { id, ...(await connection.ask(head, value)) } satisfies PortAnswer);
    });
  }
  data.free.on("message", async ({ id, head, value }: PortRequest) => {
    data.free.postMessage({ id, ...(await connection.ask(head, value)) } satisfies PortAnswer);
  });
  if (first) answer(first, { hosts } satisfies StoreOpened);
}

void run(workerData);
