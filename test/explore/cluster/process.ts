/** A process of a simulated cluster: what it ends with, what it does then, and the time it believes in. */
import { Failure, type Twin } from "../machine.js";
import { type Callable, invoke } from "../runtime.js";
import { ClusterPromise, EventLoop, outcomeOf } from "./eventLoop.js";
import type { ClusterMachine } from "./machine.js";

/** How a process ended. */
export type Ending =
  | { readonly how: "finished"; readonly value: unknown }
  | { readonly how: "failed"; readonly error: unknown }
  | { readonly how: "killed" };

export class SimulatedProcess {
  ending: Ending | undefined;
  /** Until when the system gives it no time (`SIGSTOP`). */
  stoppedUntil = 0;
  /** How many calls of MPI it has made. */
  numCalls = 0;
  /** Of the monotonic clock, which can jump forward when a machine sleeps. */
  clockAhead = 0;
  readonly loop: EventLoop;
  private readonly listeners = new Map<string, Callable[]>();

  constructor(
    readonly machine: ClusterMachine,
    readonly rank: number,
    readonly size: number,
  ) {
    this.loop = new EventLoop(() => this.now());
  }

  now(): number {
    return this.machine.time + this.clockAhead;
  }

  /** Runs the main thread, and what the process does when it exits. */
  start(main: Callable): void {
    this.machine.start(`process ${this.rank}`, this.run(main), false, this);
  }

  private *run(main: Callable): Twin {
    let ending: Ending;
    try {
      const promise = yield* invoke(main, undefined, []);
      const value = promise instanceof ClusterPromise ? yield* outcomeOf(this.loop, promise) : promise;
      ending = { how: "finished", value };
    } catch (error) {
      if (error instanceof Failure) throw error;
      ending = { how: "failed", error };
    }
    const code = ending.how === "finished" ? 0 : 1;
    for (const listener of this.listeners.get("exit") ?? []) yield* invoke(listener, undefined, [code]);
    this.end(ending);
    return undefined;
  }

  kill(): void {
    this.end({ how: "killed" });
  }

  private end(ending: Ending): void {
    this.ending ??= ending;
    this.machine.endThreads(this);
  }

  /** What code sees as `process`. */
  readonly global = {
    env: { SHARDWISE_FLIGHT: "" },
    arch: "simulated",
    pid: 1,
    stderr: { write: () => true },
    versions: { node: "24.0.0" },
    on: (event: string, listener: Callable) => void this.listenersOf(event).push(listener),
    once: (event: string, listener: Callable) => void this.listenersOf(event).push(listener),
    prependListener: (event: string, listener: Callable) => void this.listenersOf(event).unshift(listener),
    off: (event: string, listener: Callable) => {
      const list = this.listenersOf(event);
      const place = list.indexOf(listener);
      if (place >= 0) list.splice(place, 1);
    },
    listenerCount: (event: string) => this.listenersOf(event).length,
    emitWarning: () => {},
  };

  private listenersOf(event: string): Callable[] {
    const list = this.listeners.get(event) ?? [];
    this.listeners.set(event, list);
    return list;
  }
}
