/** Promises, timers and tasks of the threads of a simulated cluster; each thread has an event loop of its own. */
import { Failure, type Operation, type Twin } from "../machine.js";
import { type Callable, invoke } from "../runtime.js";

interface Timer {
  due: number;
  readonly action: Callable;
  readonly args: readonly unknown[];
  readonly every: number | undefined;
  unref(): Timer;
}

/** What a thread does between its waits. */
export class EventLoop {
  private readonly tasks: (() => Twin)[] = [];
  private readonly timers = new Set<Timer>();
  /** Promises that have failed before anyone reacted to them. */
  private readonly unheard = new Set<ClusterPromise>();

  /** @param now the clock of the thread's process */
  constructor(private readonly now: () => number) {}

  queue(task: () => Twin): void {
    this.tasks.push(task);
  }

  setTimer(action: Callable, milliseconds: number, args: readonly unknown[], repeats: boolean): Timer {
    const timer: Timer = {
      due: this.now() + milliseconds,
      action,
      args,
      every: repeats ? milliseconds : undefined,
      unref: () => timer,
    };
    this.timers.add(timer);
    return timer;
  }

  clearTimer(timer: Timer | undefined): void {
    if (timer) this.timers.delete(timer);
  }

  /** Notes that a promise has failed, or that somebody reacts to its failure. */
  noteFailure(promise: ClusterPromise, isHeard: boolean): void {
    if (isHeard) this.unheard.delete(promise);
    else this.unheard.add(promise);
  }

  /** Throws if nobody has reacted to a failure by the end of a turn, which ends a process of Node. */
  private checkFailures(): void {
    for (const { outcome } of this.unheard) {
      const error = outcome?.isFine === false ? outcome.error : undefined;
      const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
      throw new Failure("exception", `nobody handles a rejection: ${text}`);
    }
  }

  /** Runs tasks until something holds. */
  *runUntil(isOver: () => boolean): Twin {
    while (!isOver()) {
      const task = this.tasks.shift() ?? this.endTurn();
      if (task) {
        yield* task();
        continue;
      }
      const next = Math.min(...[...this.timers].map(({ due }) => due));
      yield parkOperation(() => this.tasks.length > 0 || isOver(), Math.max(0, next - this.now()));
    }
    return undefined;
  }

  private endTurn(): (() => Twin) | undefined {
    this.checkFailures();
    return this.dueTimer();
  }

  private dueTimer(): (() => Twin) | undefined {
    let first: Timer | undefined;
    for (const timer of this.timers) if (first === undefined || timer.due < first.due) first = timer;
    if (first === undefined || first.due > this.now()) return undefined;
    const timer = first;
    if (timer.every === undefined) this.timers.delete(timer);
    else timer.due = this.now() + timer.every;
    return () => invoke(timer.action, undefined, timer.args);
  }
}

function parkOperation(isDue: () => boolean, milliseconds: number): Operation {
  return { kind: "park", site: -1, array: new Int32Array(1), index: 0, value: 0, other: milliseconds, isDue };
}

type Outcome =
  | { readonly isFine: true; readonly value: unknown }
  | { readonly isFine: false; readonly error: unknown };

/** What a coroutine yields when it awaits a promise. */
class Await {
  constructor(readonly promise: ClusterPromise) {}
}

/** The event loop of the thread that runs. */
export const currentLoop: { get: () => EventLoop } = {
  get: () => {
    throw new Error("no thread is running");
  },
};

/** A promise; what reacts to it runs on the event loop where that was asked for. */
export class ClusterPromise {
  outcome: Outcome | undefined;
  private isFollowing = false;
  private readonly reactions: (() => void)[] = [];
  /** Where nobody has reacted to its failure yet. */
  private loop: EventLoop | undefined;

  constructor(executor: (resolve: (value?: unknown) => void, reject: (error: unknown) => void) => void) {
    executor(
      (value) => this.resolve(value),
      (error) => this.settle({ isFine: false, error }),
    );
  }

  static resolve(value?: unknown): ClusterPromise {
    // Nobody would wait for it.
    if (value instanceof Promise)
      throw new Failure("exception", "a promise of code that is not simulated is awaited");
    return value instanceof ClusterPromise ? value : new ClusterPromise((resolve) => resolve(value));
  }

  static reject(error: unknown): ClusterPromise {
    return new ClusterPromise((_, reject) => reject(error));
  }

  static all(list: Iterable<unknown>): ClusterPromise {
    return new ClusterPromise((resolve, reject) => {
      const values: unknown[] = [];
      const promises = [...list].map((one) => ClusterPromise.resolve(one));
      let missing = promises.length;
      if (missing === 0) resolve(values);
      promises.forEach((promise, i) => {
        promise.react((outcome) => {
          if (!outcome.isFine) return reject(outcome.error);
          values[i] = outcome.value;
          if (--missing === 0) resolve(values);
        });
      });
    });
  }

  static allSettled(list: Iterable<unknown>): ClusterPromise {
    const settledOf = (promise: ClusterPromise) =>
      new ClusterPromise((resolve) => {
        promise.react((outcome) =>
          resolve(
            outcome.isFine
              ? { status: "fulfilled", value: outcome.value }
              : { status: "rejected", reason: outcome.error },
          ),
        );
      });
    return ClusterPromise.all([...list].map((one) => settledOf(ClusterPromise.resolve(one))));
  }

  static race(list: Iterable<unknown>): ClusterPromise {
    return new ClusterPromise((resolve, reject) => {
      for (const one of list) {
        ClusterPromise.resolve(one).react((outcome) => {
          if (outcome.isFine) resolve(outcome.value);
          else reject(outcome.error);
        });
      }
    });
  }

  // biome-ignore lint/suspicious/noThenProperty: it stands in for Promise
  then(fine?: Callable, failed?: Callable): ClusterPromise {
    const result = new ClusterPromise(() => {});
    const loop = currentLoop.get();
    this.react((outcome) => {
      loop.queue(function* (): Twin {
        const handler = outcome.isFine ? fine : failed;
        if (handler === undefined) return void result.follow(outcome);
        try {
          const given = outcome.isFine ? outcome.value : outcome.error;
          result.resolve(yield* invoke(handler, undefined, [given]));
        } catch (error) {
          if (error instanceof Failure) throw error;
          result.settle({ isFine: false, error });
        }
        return undefined;
      });
    });
    return result;
  }

  catch(failed: Callable): ClusterPromise {
    return this.then(undefined, failed);
  }

  finally(action: Callable): ClusterPromise {
    const pass = Object.assign(() => {}, {
      *$twin(): Twin {
        yield* invoke(action, undefined, []);
        return undefined;
      },
    }) as Callable;
    const done = this.then(pass, pass);
    const result = new ClusterPromise(() => {});
    done.react((outcome) => {
      if (!outcome.isFine) result.settle(outcome);
      else if (this.outcome) result.follow(this.outcome);
    });
    return result;
  }

  /** Calls back when the promise is settled, at once if it is. */
  react(reaction: (outcome: Outcome) => void): void {
    this.loop?.noteFailure(this, true);
    if (this.outcome) reaction(this.outcome);
    else this.reactions.push(() => this.outcome && reaction(this.outcome));
  }

  resolve(value: unknown): void {
    if (this.outcome || this.isFollowing) return;
    if (!(value instanceof ClusterPromise)) {
      this.settle({ isFine: true, value });
      return;
    }
    this.isFollowing = true;
    value.react((outcome) => this.follow(outcome));
  }

  private follow(outcome: Outcome): void {
    if (this.outcome) return;
    this.outcome = outcome;
    if (!outcome.isFine && this.reactions.length === 0) {
      this.loop = currentLoop.get();
      this.loop.noteFailure(this, false);
    }
    for (const reaction of this.reactions.splice(0)) reaction();
  }

  private settle(outcome: Outcome): void {
    if (!this.isFollowing) this.follow(outcome);
  }
}

/** Runs an event loop until a promise is settled. */
export function* outcomeOf(loop: EventLoop, promise: ClusterPromise): Twin {
  promise.react(() => {});
  yield* loop.runUntil(() => promise.outcome !== undefined);
  const { outcome } = promise;
  if (outcome?.isFine) return outcome.value;
  throw outcome?.error;
}

/** `await`. */
export function* settled(value: unknown): Twin {
  return yield new Await(ClusterPromise.resolve(value)) as unknown as Operation;
}

/** Runs an asynchronous function up to its first `await`, and gives the promise of its outcome. */
export function* startAsync(body: () => Twin): Twin {
  const promise = new ClusterPromise(() => {});
  yield* proceed(body(), promise, { isFine: true, value: undefined });
  return promise;
}

function* proceed(code: Twin, promise: ClusterPromise, sent: Outcome): Twin {
  let given = sent;
  for (;;) {
    let step: IteratorResult<unknown, unknown>;
    try {
      step = given.isFine ? code.next(given.value) : code.throw(given.error);
    } catch (error) {
      if (error instanceof Failure) throw error;
      promise.resolve(ClusterPromise.reject(error));
      return undefined;
    }
    const { done, value } = step;
    if (done) {
      promise.resolve(value);
      return undefined;
    }
    if (value instanceof Await) {
      const loop = currentLoop.get();
      value.promise.react((outcome) => loop.queue(() => proceed(code, promise, outcome)));
      return undefined;
    }
    given = { isFine: true, value: yield value as Operation };
  }
}
