/** Channels between the threads of a simulated process. */
import { type Callable, current, invoke } from "../../runtime.js";
import type { EventLoop } from "../eventLoop.js";
import type { ClusterMachine } from "../machine.js";

export class SimulatedPort {
  other: SimulatedPort | undefined;
  private readonly messages: unknown[] = [];
  private listener: { readonly loop: EventLoop; readonly listener: Callable } | undefined;

  postMessage(message: unknown): void {
    const copy = structuredClone(message);
    this.other?.put(copy);
  }

  on(_event: "message", listener: Callable): this {
    this.listener = { loop: (current.machine as ClusterMachine).loop, listener };
    for (const message of this.messages.splice(0)) this.put(message);
    return this;
  }

  take(): unknown {
    return this.messages.shift();
  }

  get isEmpty(): boolean {
    return this.messages.length === 0;
  }

  ref(): void {}
  unref(): void {}

  private put(message: unknown): void {
    if (this.listener === undefined) this.messages.push(message);
    else {
      const { loop, listener } = this.listener;
      loop.queue(() => invoke(listener, undefined, [message]));
    }
  }
}
