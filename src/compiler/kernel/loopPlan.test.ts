import { describe, expect, test } from "vitest";
import { printKernel, text } from "../../../test/support/compilerText.js";
import { interpretKernel, randomMemory } from "../../../test/support/kernelReference.js";
import { randomKernels, randomRowKernel, runKernel } from "../../../test/support/kernelRuns.js";
import type { DType } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import type { Combine } from "../identities.js";
import { chooseUnroll } from "../wasm/emitInterleaved.js";
import { BASELINE_FEATURES } from "../wasm/features.js";
import { planLoops, type VectorTarget } from "./loopPlan.js";
import { planKernel } from "./phases.js";
import type { KernelSpec } from "./spec.js";

/** Three times each element of rows of the given length; read and written at the given distances. */
function triple(length: number, [from, to]: readonly [number, number], dtype: DType = "float32"): KernelSpec {
  return {
    dims: [3, length],
    numRows: 1,
    args: [dtype, dtype],
    nodes: [
      { kind: "load", dtype, access: { arg: 0, strides: [Math.abs(from) * length, from] } },
      { kind: "literal", dtype, value: 3 },
      { kind: "op", dtype, call: { op: "mul", from: dtype, to: dtype }, args: [0, 1], result: 0 },
    ],
    stores: [{ node: 2, access: { arg: 1, strides: [Math.abs(to) * length, to] } }],
    fills: [],
  };
}

const narrow: VectorTarget = { widths: [4], copies: (program) => chooseUnroll(program) };
const wide: VectorTarget = { widths: [16, 8, 4], copies: () => 2 };

/** The stages of the first run through a row: turns × vectors × elements of each. */
function stagesOf(spec: KernelSpec, target: VectorTarget): string {
  const { sections } = planLoops(planKernel(spec, BASELINE_FEATURES), false, target);
  const { stages } = at(
    sections.filter(({ isRow }) => !isRow),
    0,
  );
  return stages
    .map(({ count, copies, lanes, isSingle }) => (isSingle ? `${count}` : `${count}×${copies}×${lanes}`))
    .join(" + ");
}

/** The largest of each row of {@link triple}. */
function largest(length: number, combine: Combine = "max"): KernelSpec {
  const spec = triple(length, [1, 1]);
  return {
    ...spec,
    nodes: [...spec.nodes, { kind: "reduce", dtype: "float32", combine, arg: 2 }],
    stores: [{ node: 3, access: { arg: 1, strides: [1, 0] } }],
  };
}

describe("the loops of one run", () => {
  test("unrolled vectors, then single vectors, then single elements", () => {
    const spec = triple(75, [1, 1]);
    expect(printKernel(spec)).toBe(text`
      loops [3 | 75]
      v0 = f32 a[75 1]
      v1 = f32 3
      v2 = f32 mul v0 v1
      b[75 1] = v2`);
    expect(stagesOf(spec, narrow)).toBe("2×8×4 + 2×1×4 + 3");
    expect(stagesOf(spec, wide)).toBe("2×2×16 + 2×1×4 + 3");
    expect(stagesOf(triple(91, [1, 1]), wide)).toBe("2×2×16 + 1×1×16 + 2×1×4 + 3");
  });

  test("a row shorter than a vector has single elements alone", () => {
    for (const target of [narrow, wide]) expect(stagesOf(triple(3, [0, 1]), target)).toBe("3");
  });

  test("reductions have as many partial results with wide vectors as with narrow ones", () => {
    expect(stagesOf(largest(75), narrow)).toBe("2×8×4 + 2×1×4 + 3");
    expect(stagesOf(largest(75), wide)).toBe("2×2×16 + 2×1×4 + 3");
    for (const length of range(200).slice(1)) {
      const [one, other] = [narrow, wide].map((target) => {
        const { sections } = planLoops(planKernel(largest(length), BASELINE_FEATURES), false, target);
        return sections.map(({ numPartials }) => numPartials);
      });
      expect(one, `${length} elements`).toEqual(other);
    }
  });

  test("elements that an index may send to the same place are stored one by one", () => {
    const spec = triple(75, [1, 1]);
    const store = (inner: number, perElement: number): KernelSpec => ({
      ...spec,
      args: [...spec.args, "int32"],
      stores: [
        {
          node: 2,
          access: { arg: 1, strides: [75, inner] },
          index: { access: { arg: 2, strides: [1, perElement] }, stride: 1, limit: 2 },
        },
      ],
    });
    expect(stagesOf(store(1, 1), narrow)).toBe("75");
    expect(stagesOf(store(0, 0), narrow)).toBe("75");
    expect(stagesOf(store(1, 0), narrow)).toBe("2×8×4 + 2×1×4 + 3");
  });
});

const exact = (spec: KernelSpec, seed: number) => {
  const memory = randomMemory(spec, seed);
  expect(runKernel(spec, memory), printKernel(spec)).toEqual(interpretKernel(spec, memory));
};

describe("every point is computed once, and nothing beside", () => {
  const lengths = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 70];
  const distances: readonly (readonly [number, number])[] = [
    [1, 1],
    [2, 1],
    [1, 3],
    [0, 1],
    [-1, 1],
    [1, -2],
  ];

  test.each(["float32", "int32", "float64"] as const)("%s at all lengths and distances", (dtype) => {
    for (const length of lengths) for (const pair of distances) exact(triple(length, pair, dtype), length);
  });

  test("a counter at each place is raised by one", () => {
    for (const length of lengths) {
      const spec: KernelSpec = {
        ...triple(length, [1, 1]),
        stores: [{ node: 1, access: { arg: 1, strides: [length, 1] }, combine: "sum" }],
      };
      const memory = randomMemory(spec, 1).map((arg) => ({ ...arg, values: arg.values.map(() => 0) }));
      expect(new Set(at(runKernel(spec, memory), 1).values), `${length} elements`).toEqual(new Set([3]));
    }
  });

  test.each(["sum", "max", "min"] as const)("%s over rows of all lengths", (combine) => {
    for (const length of lengths) {
      exact(largest(length, combine), length);
    }
  });

  test("a choice that all of a row must agree to takes every bit of what is chosen", () => {
    for (const length of lengths) {
      const load = (dtype: DType, arg: number) =>
        ({ kind: "load", dtype, access: { arg, strides: [length, 1] } }) as const;
      const spec: KernelSpec = {
        dims: [3, length],
        numRows: 1,
        args: ["bool", "int32", "int32", "int32"],
        nodes: [
          load("bool", 0),
          { kind: "reduce", dtype: "bool", combine: "min", arg: 0 },
          load("int32", 1),
          load("int32", 2),
          {
            kind: "op",
            dtype: "int32",
            call: { op: "select", from: "int32", to: "int32" },
            args: [1, 2, 3],
            result: 0,
          },
        ],
        stores: [{ node: 4, access: { arg: 3, strides: [length, 1] } }],
        fills: [],
      };
      const [flags, ...others] = randomMemory(spec, length);
      if (!flags) throw new Error("a kernel without arguments");
      const memory = [{ ...flags, values: flags.values.map((_, i) => (i === length ? 0 : 1)) }, ...others];
      expect(runKernel(spec, memory), `${length} elements`).toEqual(interpretKernel(spec, memory));
    }
  });

  test("a choice that is known takes every bit of what is chosen", () => {
    const load = (arg: number) => ({ kind: "load", dtype: "int32", access: { arg, strides: [1] } }) as const;
    for (const value of [0, 1]) {
      const call = { op: "select", from: "int32", to: "int32" } as const;
      const spec: KernelSpec = {
        dims: [11],
        numRows: 0,
        args: ["int32", "int32", "int32"],
        nodes: [
          { kind: "literal", dtype: "bool", value },
          load(0),
          load(1),
          { kind: "op", dtype: "int32", call, args: [0, 1, 2], result: 0 },
        ],
        stores: [{ node: 3, access: { arg: 2, strides: [1] } }],
        fills: [],
      };
      const memory = randomMemory(spec, 11);
      expect(runKernel(spec, memory)).toEqual(interpretKernel(spec, memory));
    }
  });

  test("what an index chooses for a whole row is chosen by the index of that row", () => {
    // As a bias that is looked up for every row and added to its elements.
    const [rows, columns, chosen] = [4, 5, [2, 0, 3, 2]];
    const spec: KernelSpec = {
      dims: [rows, columns],
      numRows: 1,
      args: ["float32", "int32", "float32", "float32"],
      nodes: [
        {
          kind: "load",
          dtype: "float32",
          access: { arg: 0, strides: [0, 0] },
          index: { access: { arg: 1, strides: [1, 0] }, stride: 3, limit: rows },
        },
        { kind: "load", dtype: "float32", access: { arg: 2, strides: [columns, 1] } },
        {
          kind: "op",
          dtype: "float32",
          call: { op: "add", from: "float32", to: "float32" },
          args: [0, 1],
          result: 0,
        },
        { kind: "reduce", dtype: "float32", combine: "max", arg: 2 },
      ],
      stores: [{ node: 3, access: { arg: 3, strides: [1, 0] } }],
      fills: [],
    };
    const memory = randomMemory(spec, 3).map((arg, i) => (i === 1 ? { ...arg, values: chosen } : arg));
    expect(runKernel(spec, memory)).toEqual(interpretKernel(spec, memory));
  });

  test("what an index chooses for every element is counted from a place that moves along with it", () => {
    const [length, stride, limit] = [21, 3, 4];
    const spec: KernelSpec = {
      dims: [2, length],
      numRows: 1,
      args: ["float32", "int32", "float32"],
      nodes: [
        {
          kind: "load",
          dtype: "float32",
          access: { arg: 0, strides: [0, stride] },
          index: { access: { arg: 1, strides: [length, 1] }, stride: 70, limit },
        },
      ],
      stores: [{ node: 0, access: { arg: 2, strides: [length, 1] } }],
      fills: [],
    };
    const memory = randomMemory(spec, 5).map((arg, i) =>
      i === 1 ? { ...arg, values: arg.values.map((_, k) => (k * 7) % limit) } : arg,
    );
    expect(runKernel(spec, memory)).toEqual(interpretKernel(spec, memory));
  });

  test("kernels of random programs, and random ones over rows, agree with the reference engine", () => {
    const is16Bit = (dtype: DType) => dtype === "bfloat16" || dtype === "float16";
    const specs = randomKernels(40, 4000).filter(
      (spec) => spec.dims.every((n) => n > 0) && !spec.args.some(is16Bit),
    );
    for (const [i, spec] of [...specs, ...range(75).map(randomRowKernel)].entries()) {
      const memory = randomMemory(spec, i);
      const [got, want] = [runKernel(spec, memory), interpretKernel(spec, memory)];
      want.forEach(({ values, dtype }, arg) => {
        const actual = at(got, arg).values;
        const bad = values.findIndex((x, k) => !isClose(x, at(actual, k), dtype));
        if (bad < 0) return;
        expect.fail(
          `argument ${arg}, element ${bad}: ${actual[bad]} instead of ${values[bad]}\n${printKernel(spec)}`,
        );
      });
    }
  });
});

/** Whether a float32 is right up to the order in which a row is added; all else is exact. */
function isClose(x: number, y: number, dtype: DType): boolean {
  if (x === y || (Number.isNaN(x) && Number.isNaN(y))) return true;
  return dtype === "float32" && Math.abs(x - y) <= 1e-4 * Math.max(1, Math.abs(x));
}
