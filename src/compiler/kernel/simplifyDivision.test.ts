import { describe, expect, test } from "vitest";
import { Random } from "../../../test/compiler/randomProgram.js";
import { printKernel, text } from "../../../test/support/compilerText.js";
import { interpretKernel } from "../../../test/support/kernelReference.js";
import { ulpDistance } from "../../../test/support/vectorKernels.js";
import { at, range } from "../../ir/shape.js";
import { innerNodes } from "./phases.js";
import { simplifyDivision } from "./simplifyDivision.js";
import type { KernelNode, KernelSpec } from "./spec.js";

const [ROWS, COLUMNS] = [40, 6];

/** `a / b` over rows; `stride` 1 makes the divisor change along the row. */
function division(divisor: KernelNode, rest: readonly KernelNode[] = []): KernelSpec {
  return {
    dims: [ROWS, COLUMNS],
    numRows: 1,
    args: ["float32", "float32", "float32"],
    nodes: [
      { kind: "load", dtype: "float32", access: { arg: 0, strides: [COLUMNS, 1] } },
      divisor,
      ...rest,
      {
        kind: "op",
        dtype: "float32",
        call: { op: "div", from: "float32", to: "float32" },
        args: [0, 1 + rest.length],
        result: 0,
      },
    ],
    stores: [{ node: 2 + rest.length, access: { arg: 2, strides: [COLUMNS, 1] } }],
    fills: [],
  };
}

const load = (...strides: number[]): KernelNode => ({
  kind: "load",
  dtype: "float32",
  access: { arg: 1, strides },
});
const perRow = division(load(1, 0));

describe("what is divided otherwise", () => {
  test("by a number: a product with its reciprocal", () => {
    const spec = division({ kind: "literal", dtype: "float32", value: 8 });
    expect(printKernel(simplifyDivision(spec))).toBe(text`
      loops [40 | 6]
      v0 = f32 a[6 1]
      v1 = f32 8
      v2 = f32 0.125
      v3 = f32 mul v0 v2
      c[6 1] = v3`);
  });

  test.each([2 ** -100, -(2 ** -100), 2 ** 100, 0])("by %d, as by a value of the row", (value) => {
    const spec = simplifyDivision(division({ kind: "literal", dtype: "float32", value }));
    expect(printKernel(spec).split("\n").slice(3)).toEqual(
      printKernel(simplifyDivision(perRow)).split("\n").slice(3),
    );
  });

  test("by a value of the row: a product with its reciprocal, scaled where that would overflow", () => {
    expect(printKernel(perRow)).toBe(text`
      loops [40 | 6]
      v0 = f32 a[6 1]
      v1 = f32 b[1 0]
      v2 = f32 div v0 v1
      c[6 1] = v2`);
    expect(printKernel(simplifyDivision(perRow))).toBe(text`
      loops [40 | 6]
      v0 = f32 a[6 1]
      v1 = f32 b[1 0]
      v2 = f32 abs v1
      v3 = f32 1.2676506002282294e+30
      v4 = bool compare.gt v2 v3
      v5 = f32 5.421010862427522e-20
      v6 = f32 1
      v7 = f32 select v4 v5 v6
      v8 = f32 7.888609052210118e-31
      v9 = bool compare.lt v2 v8
      v10 = f32 18446744073709552000
      v11 = f32 select v9 v10 v7
      v12 = f32 1
      v13 = f32 mul v1 v11
      v14 = f32 div v12 v13
      v15 = f32 mul v0 v11
      v16 = f32 mul v15 v14
      c[6 1] = v16`);
  });

  test("by a value that changes along the row: as before", () => {
    const spec = division(load(COLUMNS, 1));
    expect(simplifyDivision(spec)).toBe(spec);
  });

  test("no division by a value of the row is left along it", () => {
    const { nodes } = simplifyDivision(perRow);
    const inner = innerNodes({ ...perRow, nodes });
    const slow = nodes.filter((node, i) => node.kind === "op" && node.call.op === "div" && at(inner, i));
    expect(slow).toEqual([]);
  });
});

test("quotients of all sizes differ by two units in the last place at most, and none is lost", () => {
  const random = new Random(4);
  const number = (low: number, high: number) =>
    Math.fround((random.chance(0.5) ? 1 : -1) * (1 + random.next()) * 2 ** (low + random.below(high - low)));
  for (const _ of range(50)) {
    const memory = [ROWS * COLUMNS, ROWS, ROWS * COLUMNS].map((length) => ({
      dtype: "float32" as const,
      origin: 0,
      values: range(length).map(() => number(-125, 127)),
    }));
    const [want, got] = [perRow, simplifyDivision(perRow)].map(
      (spec) => at(interpretKernel(spec, memory), 2).values,
    );
    want?.forEach((x, i) => {
      const y = at(got ?? [], i);
      // Below the smallest normal number a unit in the last place is a fixed distance.
      const isTiny = Math.abs(x) < 2 ** -125;
      const isSame = isTiny ? Math.abs(x - y) <= 2 * 2 ** -149 : ulpDistance(y, x) <= 2;
      expect(isSame || (!Number.isFinite(x) && x === y), `${y} instead of ${x}`).toBe(true);
    });
  }
});
