import { MessageChannel, type MessagePort, receiveMessageOnPort } from "node:worker_threads";

/** One end of a channel on which a thread can block without returning to its event loop. */
export interface PortEnd {
  readonly port: MessagePort;
  /** Counts the messages sent to the end that blocks. */
  readonly sent: Int32Array<SharedArrayBuffer>;
}

/** A channel: one end blocks, the other answers. */
export function newPorts(): { readonly waiting: PortEnd; readonly answering: PortEnd } {
  const { port1, port2 } = new MessageChannel();
  const sent = new Int32Array(new SharedArrayBuffer(4));
  return { waiting: { port: port1, sent }, answering: { port: port2, sent } };
}

/** Sends to the end that blocks. */
export function answer({ port, sent }: PortEnd, message: unknown): void {
  port.postMessage(message);
  Atomics.add(sent, 0, 1);
  Atomics.notify(sent, 0);
}

/** Blocks until the next message; undefined on timeout. */
export function waitForMessage({ port, sent }: PortEnd, timeoutMs: number): unknown {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const seen = Atomics.load(sent, 0);
    const received = receiveMessageOnPort(port);
    if (received !== undefined) return received.message;
    const left = end - performance.now();
    if (left <= 0) return undefined;
    Atomics.wait(sent, 0, seen, left);
  }
}
