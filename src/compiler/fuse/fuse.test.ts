import { makeProgram, np, simplify, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { printFused, text } from "../../../test/support/compilerText.js";
import type { Atom, Eqn } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { isView } from "../lowering.js";
import { normalise } from "../normalise/normalise.js";
import { expand } from "./dims.js";
import { type FusedProgram, fuse } from "./fuse.js";
import type { FusionGroup } from "./group.js";

const fused = (fn: (...args: Tensor[]) => unknown, ...args: Tensor[]) =>
  fuse(normalise(simplify(makeProgram(fn)(...args))));

describe("what fuse puts together", () => {
  test("a softmax is one group of rows, with what it reduces along as inner loop", () => {
    const softmax = (x: Tensor) => {
      const weights = np.exp(x.sub(np.max(x, -1, { keepdims: true })));
      return weights.div(np.sum(weights, -1, { keepdims: true }));
    };
    const result = fused((x) => softmax(x as Tensor), np.zeros([6, 40]));
    expect(printFused(result)).toBe(text`
      group [6 | 40], reads %0
        %1:f32[6] = reduceMax %0 {dims: [1]}
        %4:f32[6,40] = sub %0 %3
        %5:f32[6,40] = exp %4
        %6:f32[6] = reduceSum %5 {dims: [1]}
        %9:f32[6,40] = div %5 %8`);
  });

  test("a matrix product is a step of its own between two groups; a mask is part of whoever reads it", () => {
    const result = fused(
      (x, w) => {
        const mask = np.greaterEqual(np.expandDims(np.arange(4), 1), np.expandDims(np.arange(4), 0));
        return np.where(mask, np.matmul((x as Tensor).mul(2), w as Tensor), 0);
      },
      np.zeros([4, 3]),
      np.zeros([3, 4]),
    );
    expect(printFused(result)).toBe(text`
      group [4 3], reads %0
        %8:f32[4,3] = mul %0 2.0
      step
        %9:f32[4,4] = dotGeneral %8 %1 {contract: [1]x[0]}
      group [4 4], reads %9
        %10:f32[4,4] = select %7 %9 0.0`);
    expect(result.materialised.size).toBe(0);
  });

  test("a sum over rows is complete only after the group, so what reads it is another one", () => {
    const result = fused(
      (x) => {
        const y = np.tanh(x as Tensor);
        return [y, y.sub(np.sum(y, 0))];
      },
      np.zeros([50, 8]),
    );
    expect(printFused(result)).toBe(text`
      group [50 8], reads %0, complete after it: %2
        %1:f32[50,8] = tanh %0
        %2:f32[8] = reduceSum %1 {dims: [0]}
      group [50 8], reads %1 %3
        %4:f32[50,8] = sub %1 %3`);
  });

  test("groups never wait for each other in a circle", () => {
    const result = fused(
      (x, w) => {
        const y = np.exp(x as Tensor);
        return y.add(np.matmul(y, w as Tensor));
      },
      np.zeros([4, 4]),
      np.zeros([4, 4]),
    );
    expect(result.units.map((unit) => unit.kind)).toEqual(["group", "eqn", "group"]);
  });
});

/** Checks that units can run one after the other; gives what is wrong. */
class UnitCheck {
  readonly problems: string[] = [];
  /** Values in memory: inputs, and results of units that have run. */
  private readonly ready: Set<number>;

  constructor(private readonly fused: FusedProgram) {
    this.ready = new Set(fused.program.inputs.map((v) => v.id));
  }

  run(): string[] {
    const order = new Map(this.fused.program.eqns.map((eqn, i) => [eqn, i]));
    for (const unit of this.fused.units) {
      if (unit.kind === "eqn") {
        this.need(unit.eqn, unit.eqn.ins, undefined, new Set());
        this.finish(unit.eqn);
        continue;
      }
      const { group } = unit;
      const inside = new Set<number>();
      for (const eqn of [...group.members].sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0))) {
        this.need(eqn, eqn.ins, group, inside);
        for (const out of eqn.outs) if (!group.late.has(out.id)) inside.add(out.id);
      }
      for (const eqn of group.members) this.finish(eqn);
      for (const value of group.materialised) this.ready.add(value.id);
    }
    for (const output of this.fused.program.outputs) {
      if (!this.isAtHand(output, undefined, new Set())) this.problems.push("an output is not computed");
    }
    return this.problems;
  }

  private need(
    eqn: Eqn,
    ins: readonly Atom[],
    group: FusionGroup | undefined,
    inside: ReadonlySet<number>,
  ): void {
    for (const atom of ins) {
      if (!this.isAtHand(atom, group, inside)) this.problems.push(`${eqn.op} reads what is not ready`);
    }
  }

  private finish(eqn: Eqn): void {
    for (const out of eqn.outs) this.ready.add(out.id);
  }

  /** Whether a value lies in memory, or can be computed or looked at on the spot. */
  private isAtHand(atom: Atom, group: FusionGroup | undefined, inside: ReadonlySet<number>): boolean {
    if (atom.kind === "literal" || inside.has(atom.id)) return true;
    const eqn = this.fused.definitions.get(atom.id);
    const operands = () => eqn?.ins.every((operand) => this.isAtHand(operand, group, inside)) ?? false;
    if (group?.inlined.has(atom.id)) return operands();
    if (this.ready.has(atom.id)) return true;
    return eqn !== undefined && (isView(eqn) || this.fused.free.has(atom.id)) && operands();
  }
}

describe("random programs, fused", () => {
  const cases = range(300).map((seed) => {
    const types = seed % 2 === 0 ? (["float32", "int32", "bool"] as const) : undefined;
    const program = normalise(
      randomProgram({ seed: 8000 + seed, numEqns: 6 + (seed % 40), ...(types && { types }) }),
    );
    return { name: `seed ${seed}`, program, before: printProgram(program), result: fuse(program) };
  });

  /** Compares what is wrong with each program with nothing, and prints the first that is. */
  const expectNone = (problems: (result: FusedProgram) => readonly string[]) => {
    for (const { name, result } of cases) {
      const found = problems(result);
      if (found.length > 0) expect.fail(`${name}: ${found.join(", ")}\n${printFused(result)}`);
    }
  };

  test("have every equation in exactly one unit, apart from views and free values, which have none", () => {
    expectNone(({ program, units, free }) => {
      const counts = new Map<Eqn, number>();
      for (const unit of units) {
        for (const eqn of unit.kind === "eqn" ? [unit.eqn] : unit.group.members)
          counts.set(eqn, (counts.get(eqn) ?? 0) + 1);
      }
      return program.eqns.flatMap((eqn) => {
        const wanted = isView(eqn) || free.has(at(eqn.outs, 0).id) ? 0 : 1;
        const count = counts.get(eqn) ?? 0;
        return count === wanted ? [] : [`${eqn.op} is in ${count} units instead of ${wanted}`];
      });
    });
  });

  test("are divided, not changed", () => {
    for (const { program, before, result } of cases) {
      expect(result.program).toBe(program);
      expect(printProgram(program)).toBe(before);
    }
  });

  test("have units that need only what lies before them, so no group waits for itself", () => {
    expectNone((result) => new UnitCheck(result).run());
  });

  test("have groups that compute nothing that they read, along no loops but their own", () => {
    expectNone(({ units }) =>
      units.flatMap((unit) => {
        if (unit.kind === "eqn") return [];
        const { group } = unit;
        const own = new Set([...group.maps.keys(), ...group.late.keys()]);
        const loops = new Set(group.loops());
        const dims = [...group.maps.values(), ...group.late.values()].flatMap((map) => map.flatMap(expand));
        return [
          ...[...group.reads.keys()].filter((id) => own.has(id)).map(() => "a group reads its own value"),
          ...dims.filter((dim) => !loops.has(dim)).map(() => "a value runs along a loop outside its group"),
        ];
      }),
    );
  });

  test("often have groups of several equations", () => {
    const members = cases.flatMap(({ result }) =>
      result.units.flatMap((unit) => (unit.kind === "group" ? [unit.group.members.length] : [])),
    );
    expect(members.filter((count) => count > 1).length).toBeGreaterThan(300);
  });
});
