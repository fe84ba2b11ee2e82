import { describe, expect, test } from "vitest";
import { Random } from "../../../test/compiler/randomProgram.js";
import { at, range } from "../../ir/shape.js";
import { Reachability } from "./reachability.js";

/** The same questions, answered by walking along the edges each time. */
class Edges {
  readonly next: Set<number>[] = [];

  /** All units that one waits for. */
  needs(unit: number): ReadonlySet<number> {
    const seen = new Set<number>();
    const visit = (from: number): void => {
      for (const other of at(this.next, from)) {
        if (seen.has(other)) continue;
        seen.add(other);
        visit(other);
      }
    };
    visit(unit);
    return seen;
  }

  merge(unit: number, other: number): void {
    for (const target of at(this.next, other)) at(this.next, unit).add(target);
    for (const targets of this.next) if (targets.delete(other)) targets.add(unit);
    at(this.next, other).clear();
  }
}

/** Units that are added, linked and merged at random, in both forms. */
function grow(seed: number): {
  readonly reach: Reachability;
  readonly edges: Edges;
  readonly live: number[];
} {
  const random = new Random(seed);
  const [reach, edges] = [new Reachability(), new Edges()];
  const live: number[] = [];
  for (const _ of range(20 + random.below(200))) {
    const [a, b] = [random, random].map((r) => live[r.below(Math.max(1, live.length))]);
    if (a === undefined || b === undefined || random.chance(0.5)) {
      const unit = reach.add();
      edges.next.push(new Set());
      live.push(unit);
    } else if (a !== b && random.chance(0.8)) {
      if (edges.needs(b).has(a)) continue;
      reach.depend(a, b);
      at(edges.next, a).add(b);
    } else if (a !== b && reach.areIndependent(a, b)) {
      reach.merge(a, b);
      edges.merge(a, b);
      live.splice(live.indexOf(b), 1);
    }
  }
  return { reach, edges, live };
}

describe("which units wait for which", () => {
  test("three in a row, of which the middle one becomes part of another", () => {
    const reach = new Reachability();
    const [a, b, c, d] = range(4).map(() => reach.add());
    if (a === undefined || b === undefined || c === undefined || d === undefined)
      throw new Error("four units");
    reach.depend(b, a);
    reach.depend(c, b);
    expect(reach.depends(c, a)).toBe(true);
    expect(reach.areIndependent(b, d)).toBe(true);
    reach.merge(d, b);
    expect(reach.current(b)).toBe(d);
    expect([reach.depends(d, a), reach.depends(c, d), reach.depends(a, d)]).toEqual([true, true, false]);
    expect(reach.order([a, c, d])).toEqual([a, d, c]);
  });

  test("is what a walk along the edges says, after any number of links and merges", () => {
    for (const seed of range(40)) {
      const { reach, edges, live } = grow(seed);
      for (const a of live)
        expect(
          live.filter((b) => reach.depends(a, b)),
          `seed ${seed}: what ${a} needs`,
        ).toEqual(live.filter((b) => edges.needs(a).has(b)));
    }
  });

  test("gives an order in which each comes after all it depends on", () => {
    for (const seed of range(40)) {
      const { reach, edges, live } = grow(100 + seed);
      const order = reach.order(live);
      expect([...order].sort((a, b) => a - b)).toEqual([...live].sort((a, b) => a - b));
      const early = order.filter((unit, i) =>
        order.slice(i + 1).some((later) => edges.needs(unit).has(later)),
      );
      expect(early, `seed ${seed}`).toEqual([]);
    }
  });
});
