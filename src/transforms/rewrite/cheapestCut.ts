/**
 * Which values to keep so that others can be computed from them: a cut of least cost through the equations between, found
 * as a maximum flow (Ford and Fulkerson, along shortest paths). Of several cuts of the same cost it is the one after
 * which least is computed again.
 */
import { getOrInsert } from "../../ir/collections.js";
import type { Eqn, Var } from "../../ir/program.js";
import { at } from "../../ir/shape.js";

/** What decides which values are kept. */
export interface CutOptions {
  /** The equation that computes a value again, undefined if it must not be. */
  readonly again: (value: Var) => Eqn | undefined;
  /** What keeping a value costs, at least 0; finite for values that must not be computed again. */
  readonly cost: (value: Var) => number;
}

/** The values to keep, by id, from which all wanted ones can be computed. */
export function cheapestCut(wanted: readonly Var[], options: CutOptions): ReadonlySet<number> {
  const network = new Network();
  const numbers = new Map<number, number>();
  const values: Var[] = [];
  const numberOf = (value: Var): number => getOrInsert(numbers, value.id, () => values.push(value) - 1);
  // Flow enters a value where others need it, and leaves it towards what it is computed from.
  const entry = (number: number) => 2 + 2 * number;
  const exit = (number: number) => 3 + 2 * number;
  for (const value of wanted) numberOf(value);
  const numWanted = values.length;
  for (let i = 0; i < values.length; i++) {
    const value = at(values, i);
    const cost = options.cost(value);
    const eqn = cost > 0 ? options.again(value) : undefined;
    network.connect(entry(i), exit(i), cost);
    if (i < numWanted) network.connect(SOURCE, entry(i), Number.POSITIVE_INFINITY);
    if (!eqn) network.connect(exit(i), SINK, Number.POSITIVE_INFINITY);
    for (const input of new Set(eqn?.ins)) {
      if (input.kind === "var") network.connect(exit(i), entry(numberOf(input)), Number.POSITIVE_INFINITY);
    }
  }
  const reached = network.fill();
  return new Set(values.filter((_, i) => reached(entry(i)) && !reached(exit(i))).map(({ id }) => id));
}

const SOURCE = 0;
const SINK = 1;

/** Nodes by number, with pipes between them, through which as much as possible flows from the source to the sink. */
class Network {
  /** The pipes that leave each node; pipe i ^ 1 is pipe i in the other direction. */
  private readonly leaving: number[][] = [];
  private readonly targets: number[] = [];
  private readonly free: number[] = [];

  connect(from: number, to: number, capacity: number): void {
    this.add(from, to, capacity);
    this.add(to, from, 0);
  }

  private add(from: number, to: number, capacity: number): void {
    const pipe = this.targets.push(to) - 1;
    this.free.push(capacity);
    this.leaving[from] ??= [];
    this.leaving[from].push(pipe);
  }

  /** Lets flow what can; tells which nodes more could reach. */
  fill(): (node: number) => boolean {
    for (;;) {
      const through = this.search();
      if (!through.has(SINK)) return (node) => through.has(node);
      const path: number[] = [];
      for (let node = SINK; node !== SOURCE; node = at(this.targets, at(path, path.length - 1) ^ 1)) {
        path.push(through.get(node) ?? 0);
      }
      const amount = path.reduce(
        (least, pipe) => Math.min(least, at(this.free, pipe)),
        Number.POSITIVE_INFINITY,
      );
      for (const pipe of path) {
        this.free[pipe] = at(this.free, pipe) - amount;
        this.free[pipe ^ 1] = at(this.free, pipe ^ 1) + amount;
      }
    }
  }

  /** The nodes that more could reach on shortest paths, by the pipe through which each is entered; ends at the sink. */
  private search(): ReadonlyMap<number, number> {
    const through = new Map([[SOURCE, -1]]);
    for (const node of through.keys()) {
      for (const pipe of this.leaving[node] ?? []) {
        const target = at(this.targets, pipe);
        if (at(this.free, pipe) <= 0 || through.has(target)) continue;
        through.set(target, pipe);
        if (target === SINK) return through;
      }
    }
    return through;
  }
}
