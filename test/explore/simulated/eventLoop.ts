/** The event loop of the simulated main thread: tasks, timers and promises. Other threads queue tasks for it. */
import { current, park } from "../runtime.js";

interface Timer {
  readonly due: number;
  readonly action: () => void;
}

const tasks: (() => void)[] = [];
const timers = new Set<Timer>();

/** Forgets what an earlier run left. */
export function resetEventLoop(): void {
  tasks.length = 0;
  timers.clear();
}

export function queueMicrotask(task: () => void): void {
  tasks.push(task);
}

export function setTimeout(action: () => void, milliseconds: number): Timer {
  const timer = { due: current.machine.time + milliseconds, action };
  timers.add(timer);
  return timer;
}

export function clearTimeout(timer: Timer | undefined): void {
  if (timer) timers.delete(timer);
}

type Settled =
  | { readonly isFine: true; readonly value: unknown }
  | { readonly isFine: false; readonly error: unknown };

/** A promise whose reactions are tasks of the simulated event loop. */
export class SimulatedPromise {
  outcome: Settled | undefined;
  private readonly reactions: (() => void)[] = [];

  constructor(executor: (resolve: (value?: unknown) => void, reject: (error: unknown) => void) => void) {
    executor(
      (value) => this.settle({ isFine: true, value }),
      (error) => this.settle({ isFine: false, error }),
    );
  }

  static resolve(value: unknown): SimulatedPromise {
    return value instanceof SimulatedPromise ? value : new SimulatedPromise((resolve) => resolve(value));
  }

  static reject(error: unknown): SimulatedPromise {
    return new SimulatedPromise((_, reject) => reject(error));
  }

  static all(list: readonly unknown[]): SimulatedPromise {
    return new SimulatedPromise((resolve, reject) => {
      let missing = list.length;
      if (missing === 0) resolve([]);
      for (const one of list) {
        SimulatedPromise.resolve(one).react(({ outcome }) => {
          if (outcome?.isFine === false) reject(outcome.error);
          else if (--missing === 0) resolve([]);
        });
      }
    });
  }

  static race(list: readonly unknown[]): SimulatedPromise {
    return new SimulatedPromise((resolve, reject) => {
      for (const one of list) {
        SimulatedPromise.resolve(one).react(({ outcome }) => {
          if (outcome?.isFine) resolve(outcome.value);
          else reject(outcome?.error);
        });
      }
    });
  }

  // biome-ignore lint/suspicious/noThenProperty: it stands in for Promise
  then(action: (value: unknown) => void): SimulatedPromise {
    this.react(({ outcome }) => {
      if (outcome?.isFine) queueMicrotask(() => action(outcome.value));
    });
    return this;
  }

  finally(action: () => void): SimulatedPromise {
    this.react(() => queueMicrotask(action));
    return this;
  }

  /** Calls back when the promise is settled, at once if it is. */
  private react(reaction: (own: SimulatedPromise) => void): void {
    if (this.outcome) reaction(this);
    else this.reactions.push(() => reaction(this));
  }

  private settle(outcome: Settled): void {
    if (this.outcome) return;
    this.outcome = outcome;
    for (const reaction of this.reactions) reaction();
  }
}

/** What `await` does: runs tasks until the promise is settled. */
export function settled(value: unknown): unknown {
  if (!(value instanceof SimulatedPromise)) return value;
  while (value.outcome === undefined) runTask();
  if (value.outcome.isFine) return value.outcome.value;
  throw value.outcome.error;
}

/** Runs the tasks that are queued. */
export function runTasks(): void {
  while (tasks.length > 0) runTask();
}

function runTask(): void {
  const next = Math.min(...[...timers].map(({ due }) => due));
  park(() => tasks.length > 0, next - current.machine.time);
  for (const timer of [...timers].sort((a, b) => a.due - b.due)) {
    if (timer.due > current.machine.time) continue;
    timers.delete(timer);
    tasks.push(timer.action);
  }
  const task = tasks.shift();
  if (task) task();
}
