import { describe, expect, test } from "vitest";
import { printKernel, text } from "../../../test/support/compilerText.js";
import { interpretKernel, randomMemory } from "../../../test/support/kernelReference.js";
import { randomKernels } from "../../../test/support/kernelRuns.js";
import { at } from "../../ir/shape.js";
import { canonical } from "./canonical.js";
import type { KernelSpec } from "./spec.js";

const negation: KernelSpec = {
  dims: [2, 1, 3, 4],
  numRows: 0,
  args: ["float32", "float32"],
  nodes: [
    { kind: "load", dtype: "float32", access: { arg: 0, strides: [24, 0, 4, 1] } },
    {
      kind: "op",
      dtype: "float32",
      call: { op: "neg", from: "float32", to: "float32" },
      args: [0],
      result: 0,
    },
  ],
  stores: [{ node: 1, access: { arg: 1, strides: [12, 12, 4, 1] } }],
  fills: [],
};

describe("what canonical merges", () => {
  test("loops of one iteration go, and neighbours that run through memory as one are one", () => {
    expect(printKernel(negation)).toBe(text`
      loops [| 2 1 3 4]
      v0 = f32 a[24 0 4 1]
      v1 = f32 neg v0
      b[12 12 4 1] = v1`);
    expect(printKernel(canonical(negation))).toBe(text`
      loops [2 | 12]
      v0 = f32 a[24 1]
      v1 = f32 neg v0
      b[12 1] = v1`);
  });

  test("rows are never merged with what is reduced along", () => {
    const sum: KernelSpec = {
      ...negation,
      dims: [3, 4],
      numRows: 1,
      nodes: [
        { kind: "load", dtype: "float32", access: { arg: 0, strides: [4, 1] } },
        { kind: "reduce", dtype: "float32", combine: "sum", arg: 0 },
      ],
      stores: [{ node: 1, access: { arg: 1, strides: [1, 0] } }],
    };
    expect(printKernel(canonical(sum))).toBe(printKernel(sum));
  });

  test("what is reduced along is one loop, and rows are one, each for itself", () => {
    const sum: KernelSpec = {
      ...negation,
      dims: [2, 5, 3, 4],
      numRows: 2,
      nodes: [
        { kind: "load", dtype: "float32", access: { arg: 0, strides: [60, 12, 4, 1] } },
        { kind: "reduce", dtype: "float32", combine: "sum", arg: 0 },
      ],
      stores: [{ node: 1, access: { arg: 1, strides: [5, 1, 0, 0] } }],
    };
    expect(printKernel(canonical(sum))).toBe(text`
      loops [10 | 12]
      v0 = f32 a[12 1]
      v1 = f32 sum of v0 over the row
      b[1 0] = v1`);
  });
});

describe("kernels of random programs, made canonical", () => {
  const specs = randomKernels(60, 500).filter((spec) => spec.dims.every((n) => n > 0));

  test("compute the same at the same places", () => {
    expect(specs.length).toBeGreaterThan(100);
    for (const [i, spec] of specs.entries()) {
      const memory = randomMemory(spec, i);
      expect(interpretKernel(canonical(spec), memory), printKernel(spec)).toEqual(
        interpretKernel(spec, memory),
      );
    }
  });

  test("have no loop of one iteration but an inner one that must be there, and stay as they are the second time", () => {
    for (const spec of specs) {
      const once = canonical(spec);
      const rows = once.dims.slice(0, once.numRows);
      expect(
        rows.filter((n) => n === 1),
        printKernel(spec),
      ).toEqual([]);
      expect(at(once.dims, once.dims.length - 1) > 1 || once.dims.length - once.numRows === 1).toBe(true);
      expect(printKernel(canonical(once))).toBe(printKernel(once));
    }
  });
});
