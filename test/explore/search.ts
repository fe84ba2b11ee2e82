/** Ways through the schedules of a scenario: all of them, random ones, or a given one. */
import {
  Failure,
  locationOf,
  type Machine,
  type Operation,
  Pruned,
  type Scheduler,
  type SimulatedThread,
} from "./machine.js";

/** A generator of numbers in [0, 1) that a seed determines. */
export function randomFrom(seed: number): () => number {
  let state = (seed * 0x9e3779b1) | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The decisions of a run, in order: numbers of threads, and which value a racing read returned. */
export type Decisions = readonly number[];

/** Takes a thread at random at every step, or seldom changes threads. */
export class RandomScheduler implements Scheduler {
  readonly stopsAtPlain = true;
  readonly decisions: number[] = [];
  private readonly random: () => number;
  /** How likely a change of threads is. */
  private readonly changes: number;
  private last: SimulatedThread | undefined;

  constructor(seed: number) {
    this.random = randomFrom(seed);
    this.changes = [1, 0.3, 0.1, 0.03][Math.floor(this.random() * 4)] ?? 1;
  }

  next(enabled: readonly SimulatedThread[]): SimulatedThread {
    const { last } = this;
    const stays = last !== undefined && enabled.includes(last) && this.random() >= this.changes;
    const chosen = stays ? last : pick(enabled, this.random);
    this.last = chosen;
    this.decisions.push(chosen.id);
    return chosen;
  }

  choose(count: number): number {
    const choice = this.random() < 0.5 ? 0 : Math.floor(this.random() * count);
    this.decisions.push(choice);
    return choice;
  }
}

/**
 * PCT (probabilistic concurrency testing): threads have random priorities, and at a few random steps the one that runs
 * falls behind all others. It finds a bug that needs d such changes with a probability of at least 1 / (n k^(d-1)).
 */
export class PriorityScheduler implements Scheduler {
  readonly stopsAtPlain = true;
  readonly decisions: number[] = [];
  private readonly random: () => number;
  private readonly priorities = new Map<SimulatedThread, number>();
  private readonly changes: ReadonlySet<number>;
  private numSteps = 0;
  private inRow = 0;
  private lowest = 0;
  private last: SimulatedThread | undefined;

  constructor(seed: number, length: number, depth = 3) {
    this.random = randomFrom(seed);
    const at = Array.from({ length: depth }, () => Math.floor(this.random() * length));
    this.changes = new Set(at);
  }

  next(enabled: readonly SimulatedThread[]): SimulatedThread {
    for (const thread of enabled) {
      if (!this.priorities.has(thread)) this.priorities.set(thread, this.random());
    }
    const priority = (thread: SimulatedThread) => this.priorities.get(thread) ?? 0;
    const best = () => enabled.reduce((a, b) => (priority(b) > priority(a) ? b : a));
    let chosen = best();
    this.inRow = chosen === this.last ? this.inRow + 1 : 0;
    // A thread that spins must not keep the others from running.
    if (this.changes.has(this.numSteps++) || this.inRow > 500) {
      this.priorities.set(chosen, --this.lowest);
      chosen = best();
    }
    this.last = chosen;
    this.decisions.push(chosen.id);
    return chosen;
  }

  choose(count: number): number {
    const choice = this.random() < 0.5 ? 0 : Math.floor(this.random() * count);
    this.decisions.push(choice);
    return choice;
  }
}

function pick<T>(list: readonly T[], random: () => number): T {
  const one = list[Math.floor(random() * list.length)];
  if (one === undefined) throw new Error("nothing to choose from");
  return one;
}

/** Continues with the same thread where nothing else is decided. */
export class GivenScheduler implements Scheduler {
  readonly stopsAtPlain: boolean;
  readonly decisions: number[] = [];
  private last: SimulatedThread | undefined;

  /** @param given the decisions, by their numbers */
  constructor(
    private readonly given: ReadonlyMap<number, number>,
    stopsAtPlain: boolean,
  ) {
    this.stopsAtPlain = stopsAtPlain;
  }

  next(enabled: readonly SimulatedThread[]): SimulatedThread {
    const wanted = this.given.get(this.decisions.length);
    const chosen =
      enabled.find(({ id }) => id === wanted) ?? enabled.find((thread) => thread === this.last) ?? enabled[0];
    if (chosen === undefined) throw new Error("nothing to choose from");
    this.last = chosen;
    this.decisions.push(chosen.id);
    return chosen;
  }

  choose(count: number): number {
    const choice = Math.min(this.given.get(this.decisions.length) ?? 0, count - 1);
    this.decisions.push(choice);
    return choice;
  }
}

/** What an operation accesses: locations of words and of the lists of their sleepers, and whether it changes them. */
type Accesses = readonly (readonly [location: number, changes: boolean])[];

function accessesOf(operation: Operation | undefined): Accesses {
  if (operation === undefined) return [];
  const { kind, array, index } = operation;
  if (kind === "park") throw new Error("this scenario has an event loop and cannot be explored exhaustively");
  const [word, sleepers] = [2 * locationOf(array, index), 2 * locationOf(array, index) + 1];
  switch (kind) {
    case "read":
    case "load":
      return [[word, false]];
    case "wait":
      return [
        [word, false],
        [sleepers, true],
      ];
    case "notify":
      return [[sleepers, true]];
    default:
      return [[word, true]];
  }
}

function depend(a: Accesses, b: Accesses): boolean {
  return a.some(([x, xChanges]) => b.some(([y, yChanges]) => x === y && (xChanges || yChanges)));
}

/** A point where the search chose a thread. */
interface ThreadNode {
  readonly kind: "thread";
  readonly enabled: readonly number[];
  readonly pending: ReadonlyMap<number, Accesses>;
  chosen: number;
  readonly backtrack: Set<number>;
  readonly done: Set<number>;
  /** Threads whose next step has been explored from here in an equivalent order. */
  readonly sleep: Map<number, Accesses>;
}

/** A point where the search chose the value of a racing read. */
interface ValueNode {
  readonly kind: "value";
  chosen: number;
  readonly count: number;
}

/** The last accesses of a location in the run so far: depths of nodes, and clocks of what they depend on. */
interface LastAccesses {
  change: { readonly depth: number; readonly thread: number; readonly clock: Int32Array } | undefined;
  reads: Map<number, { readonly depth: number; readonly clock: Int32Array }>;
}

const MAX_DEPTH = 5000;

/**
 * Goes through all schedules that differ in the order of dependent operations (dynamic partial-order reduction after
 * Flanagan and Godefroid, with sleep sets). Create one, run the scenario with it, call {@link advance}, and so on
 * until that returns false.
 */
export class ExhaustiveScheduler implements Scheduler {
  readonly stopsAtPlain = false;
  numStates = 0;
  private readonly stack: (ThreadNode | ValueNode)[] = [];
  private depth = 0;
  private locations = new Map<number, LastAccesses>();
  private clocks = new Map<number, Int32Array>();
  private sleep = new Map<number, Accesses>();

  get decisions(): Decisions {
    return this.stack.slice(0, this.depth).map(({ chosen }) => chosen);
  }

  /** Moves on to the next schedule; returns whether there is one. */
  advance(): boolean {
    // What was not reached in the last run lies behind a failure.
    this.stack.length = this.depth;
    this.depth = 0;
    this.locations = new Map();
    this.clocks = new Map();
    this.sleep = new Map();
    for (let node = this.stack.at(-1); node !== undefined; node = this.stack.at(-1)) {
      if (node.kind === "value") {
        if (++node.chosen < node.count) return true;
      } else {
        node.done.add(node.chosen);
        node.sleep.set(node.chosen, node.pending.get(node.chosen) ?? []);
        const { done, sleep } = node;
        const next = [...node.backtrack].find((id) => !done.has(id) && !sleep.has(id));
        if (next !== undefined) {
          node.chosen = next;
          return true;
        }
      }
      this.stack.pop();
    }
    return false;
  }

  next(enabled: readonly SimulatedThread[], machine: Machine): SimulatedThread {
    if (this.depth >= MAX_DEPTH) throw new Failure("no end", `no end: ${machine.whereabouts()}`);
    const node = this.nodeHere(enabled);
    const thread = enabled.find(({ id }) => id === node.chosen);
    if (thread === undefined) throw new Error("the scenario does not repeat itself");
    const accesses = node.pending.get(thread.id) ?? [];
    this.findRaces(thread.id, accesses);
    this.sleep = new Map(
      [...node.sleep].filter(([id, other]) => id !== thread.id && !depend(accesses, other)),
    );
    this.depth++;
    return thread;
  }

  private nodeHere(enabled: readonly SimulatedThread[]): ThreadNode {
    const known = this.stack[this.depth];
    if (known?.kind === "thread") return known;
    const chosen = enabled.find(({ id }) => !this.sleep.has(id));
    if (chosen === undefined) throw new Pruned();
    const node: ThreadNode = {
      kind: "thread",
      enabled: enabled.map(({ id }) => id),
      pending: new Map(enabled.map(({ id, pending }) => [id, accessesOf(pending)])),
      chosen: chosen.id,
      backtrack: new Set([chosen.id]),
      done: new Set(),
      sleep: new Map(this.sleep),
    };
    this.stack.push(node);
    this.numStates++;
    return node;
  }

  choose(count: number): number {
    let node = this.stack[this.depth];
    if (node === undefined) {
      node = { kind: "value", chosen: 0, count };
      this.stack.push(node);
    }
    this.depth++;
    return node.chosen;
  }

  woke(thread: SimulatedThread, by: SimulatedThread): void {
    join(this.clockOf(thread.id), this.clockOf(by.id));
  }

  /** Finds earlier steps that could have come after this one, and remembers to try that. */
  private findRaces(thread: number, accesses: Accesses): void {
    const clock = this.clockOf(thread);
    const { depth } = this;
    const before = clock.slice();
    const consider = (other: number, at: number) => {
      if (other === thread || at < (before[other] ?? 0)) return;
      const node = this.stack[at];
      if (node?.kind !== "thread") return;
      if (node.enabled.includes(thread)) node.backtrack.add(thread);
      else for (const id of node.enabled) node.backtrack.add(id);
    };
    for (const [location, changes] of accesses) {
      const last = this.lastOf(location);
      if (last.change) {
        consider(last.change.thread, last.change.depth);
        join(clock, last.change.clock);
      }
      if (changes) {
        for (const [other, read] of last.reads) {
          consider(other, read.depth);
          join(clock, read.clock);
        }
      }
    }
    // A clock counts, for each thread, the depth after its last step that comes before.
    clock[thread] = depth + 1;
    for (const [location, changes] of accesses) {
      const last = this.lastOf(location);
      if (changes) {
        last.change = { depth, thread, clock: clock.slice() };
        last.reads = new Map();
      } else {
        last.reads.set(thread, { depth, clock: clock.slice() });
      }
    }
  }

  private lastOf(location: number): LastAccesses {
    const found = this.locations.get(location);
    if (found) return found;
    const made: LastAccesses = { change: undefined, reads: new Map() };
    this.locations.set(location, made);
    return made;
  }

  private clockOf(thread: number): Int32Array {
    const found = this.clocks.get(thread);
    if (found) return found;
    const made = new Int32Array(16);
    this.clocks.set(thread, made);
    return made;
  }
}

function join(into: Int32Array, from: Int32Array): void {
  for (let i = 0; i < into.length; i++) into[i] = Math.max(into[i] ?? 0, from[i] ?? 0);
}
