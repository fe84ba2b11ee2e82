/** Messages from one thread of a simulated page to another: each arrives some time after it was sent, in order. */
import { type Callable, current, invoke } from "../../runtime.js";
import type { EventLoop } from "../eventLoop.js";
import type { ClusterMachine } from "../machine.js";
import { conditions } from "./conditions.js";

export class Channel {
  private readonly underWay: unknown[] = [];
  private readonly early: unknown[] = [];
  private listener: { readonly loop: EventLoop; readonly listener: Callable } | undefined;
  private isClosed = false;
  private last = 0;

  /** Sends a copy of a message; buffers that are given away are empty afterwards. */
  send(message: unknown, given: readonly ArrayBuffer[] = []): void {
    this.underWay.push(structuredClone(message, { transfer: [...given] }));
    const machine = current.machine as ClusterMachine;
    this.last = Math.max(this.last, machine.time + conditions().delay());
    machine.after(this.last - machine.time, () => this.arrive(this.underWay.shift()));
  }

  /** Calls back on the event loop of the thread that runs. */
  listen(listener: unknown): void {
    this.listener = { loop: (current.machine as ClusterMachine).loop, listener: listener as Callable };
    for (const message of this.early.splice(0)) this.arrive(message);
  }

  close(): void {
    this.isClosed = true;
  }

  private arrive(message: unknown): void {
    if (this.isClosed) return;
    if (this.listener === undefined) this.early.push(message);
    else {
      const { loop, listener } = this.listener;
      loop.queue(() => invoke(listener, undefined, [message]));
    }
  }
}
