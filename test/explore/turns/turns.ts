/** A scheduler of asynchronous code: whatever it waits for comes in an order that a seed decides. */
import { Failure } from "../machine.js";

/** So many moments are more than any plan has. */
const MAX_MOMENTS = 20_000;

export class Turns {
  private readonly waiting: (() => void)[] = [];
  /** How many moments have come. */
  numCome = 0;

  constructor(private readonly random: () => number) {}

  /** Something that comes later: before or after anything else that is waited for. */
  moment(): Promise<void> {
    return new Promise((resolve) => {
      this.waiting.push(resolve);
    });
  }

  /** Calls back at some moment, unless the result is called before. */
  later(action: () => void): () => void {
    let isStopped = false;
    this.moment().then(() => {
      if (!isStopped) action();
    });
    return () => {
      isStopped = true;
    };
  }

  /** Lets one moment after the other come until some work is done; fails if nothing is left to wait for before. */
  async until(work: Promise<unknown>, what: string): Promise<void> {
    let isDone = false;
    const done = work.finally(() => {
      isDone = true;
    });
    // It is awaited below.
    done.catch(() => {});
    for (;;) {
      await everythingElse();
      if (isDone) break;
      const [next] = this.waiting.splice(Math.floor(this.random() * this.waiting.length), 1);
      if (next === undefined) throw new Failure("deadlock", `${what} waits for what never comes`);
      if (++this.numCome > MAX_MOMENTS) throw new Failure("no end", `${what} does not end`);
      next();
    }
    await done;
  }

  /** Lets everything come that is still waited for. */
  async rest(): Promise<void> {
    for (await everythingElse(); this.waiting.length > 0; await everythingElse())
      this.waiting.splice(Math.floor(this.random() * this.waiting.length), 1)[0]?.();
  }
}

/** Returns when nothing goes on by itself any more. */
const everythingElse = () =>
  new Promise<void>((resolve) => {
    setImmediate(resolve);
  });

const state: { current: unknown } = { current: undefined };

/** What a run of a scenario is, for the code that stands in for others. */
export function enterRun(run: object): void {
  state.current = run;
}

export function currentRun<T>(): T {
  return state.current as T;
}

/** What a seed led to. */
export interface TurnsResult<Plan> {
  readonly plan: Plan;
  readonly numMoments: number;
  readonly failure: Failure | undefined;
}

/** Waits for the work of a run; what is wrong is the error that ends it, or the first problem that it noted. */
export async function turnsResult<Plan>(
  turns: Turns,
  run: { readonly plan: Plan; readonly problems: readonly string[] },
  work: Promise<void>,
): Promise<TurnsResult<Plan>> {
  const failure = await work.then(
    () => (run.problems[0] === undefined ? undefined : new Failure("wrong result", run.problems[0])),
    (error: unknown) => (error instanceof Failure ? error : new Failure("exception", String(error))),
  );
  return { plan: run.plan, numMoments: turns.numCome, failure };
}
