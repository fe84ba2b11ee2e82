/** Stands in for the threads of Node and the channels between them. */
import { SimulatedPort } from "../ports.js";

export type MessagePort = SimulatedPort;

export class MessageChannel {
  readonly port1 = new SimulatedPort();
  readonly port2 = new SimulatedPort();

  constructor() {
    this.port1.other = this.port2;
    this.port2.other = this.port1;
  }
}

export function receiveMessageOnPort(port: SimulatedPort): { readonly message: unknown } | undefined {
  return port.isEmpty ? undefined : { message: port.take() };
}

/** What a thread starts with is handed over by `startWorker`. */
export const workerData = undefined;
