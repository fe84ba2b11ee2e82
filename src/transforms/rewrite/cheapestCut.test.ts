import { expect, test } from "vitest";
import { randomSource } from "../../../test/support/randomKernel.js";
import { type Eqn, makeEqn, newVar, type Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { cheapestCut } from "./cheapestCut.js";

const type = tensorType("float32", []);

/** Values, each of which some equation may compute from earlier ones, with costs; the last ones are wanted. */
function randomGraph(random: () => number) {
  const below = (n: number) => Math.floor(random() * n);
  const values: Var[] = [];
  const eqns = new Map<number, Eqn>();
  const costs = new Map<number, number>();
  for (let i = 0; i < 9; i++) {
    const value = newVar(type);
    if (i > 1 && random() < 0.7) {
      eqns.set(value.id, makeEqn("add", [at(values, below(i)), at(values, below(i))], [value], {}));
    }
    costs.set(value.id, below(5));
    values.push(value);
  }
  const wanted = range(3).map(() => at(values, 3 + below(6)));
  return { values, wanted, again: ({ id }: Var) => eqns.get(id), cost: ({ id }: Var) => costs.get(id) ?? 0 };
}

type Graph = ReturnType<typeof randomGraph>;

function isEnough({ wanted, again }: Graph, kept: ReadonlySet<number>): boolean {
  const isKnown = (value: Var): boolean => {
    const eqn = again(value);
    return kept.has(value.id) || (eqn?.ins.every((x) => x.kind === "literal" || isKnown(x)) ?? false);
  };
  return wanted.every(isKnown);
}

const costOf = ({ values, cost }: Graph, kept: ReadonlySet<number>) =>
  values.reduce((sum, value) => sum + (kept.has(value.id) ? cost(value) : 0), 0);

test("no other set of values is cheaper and enough", () => {
  const random = randomSource(1);
  for (let round = 0; round < 60; round++) {
    const graph = randomGraph(random);
    const kept = cheapestCut(graph.wanted, graph);
    expect(isEnough(graph, kept)).toBe(true);
    const subsets = range(2 ** graph.values.length).map(
      (bits) => new Set(graph.values.filter((_, i) => (bits >> i) & 1).map(({ id }) => id)),
    );
    const best = Math.min(...subsets.filter((one) => isEnough(graph, one)).map((one) => costOf(graph, one)));
    expect(costOf(graph, kept)).toBe(best);
  }
});

test("of cuts that cost the same, the one after which least is computed again", () => {
  const [x, y, z] = [newVar(type), newVar(type), newVar(type)];
  const eqns = new Map([
    [y.id, makeEqn("sin", [x], [y], {})],
    [z.id, makeEqn("sin", [y], [z], {})],
  ]);
  expect(cheapestCut([z], { again: ({ id }) => eqns.get(id), cost: () => 4 })).toEqual(new Set([z.id]));
});
