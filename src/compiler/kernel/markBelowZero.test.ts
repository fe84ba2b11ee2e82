import { describe, expect, test } from "vitest";
import { printKernel, text } from "../../../test/support/compilerText.js";
import { randomKernels } from "../../../test/support/kernelRuns.js";
import { markBelowZero } from "./markBelowZero.js";
import type { KernelNode, KernelSpec } from "./spec.js";

const op = (name: "sub" | "exp", ...args: number[]): KernelNode => {
  return {
    kind: "op",
    dtype: "float32",
    call: { op: name, from: "float32", to: "float32" },
    args,
    result: 0,
  };
};

/** `exp(x - r)` along rows, where r is the row's maximum or something else. */
const exponentials = (combine: "max" | "min" | "sum", ...args: [number, number]): KernelSpec => ({
  dims: [2, 8],
  numRows: 1,
  args: ["float32", "float32"],
  nodes: [
    { kind: "load", dtype: "float32", access: { arg: 0, strides: [8, 1] } },
    { kind: "reduce", dtype: "float32", combine, arg: 0 },
    op("sub", ...args),
    op("exp", 2),
  ],
  stores: [{ node: 3, access: { arg: 1, strides: [8, 1] } }],
  fills: [],
});

describe("what is marked", () => {
  test("the exponential of a value less the maximum of its row", () => {
    const spec = exponentials("max", 0, 1);
    expect(printKernel(spec)).toContain("v3 = f32 exp v2");
    expect(printKernel(markBelowZero(spec))).toBe(text`
      loops [2 | 8]
      v0 = f32 a[8 1]
      v1 = f32 max of v0 over the row
      v2 = f32 sub v0 v1
      v3 = f32 exp.below0 v2
      b[8 1] = v3`);
  });

  test.each([
    ["less the minimum", exponentials("min", 0, 1)],
    ["less the sum", exponentials("sum", 0, 1)],
    ["the maximum less the value", exponentials("max", 1, 0)],
    ["the value less itself", exponentials("max", 0, 0)],
  ])("not %s", (_, spec) => {
    expect(printKernel(markBelowZero(spec))).toBe(printKernel(spec));
  });

  test("nothing but marks changes in kernels of random programs", () => {
    for (const spec of randomKernels(40, 900))
      expect(printKernel(markBelowZero(spec)).replaceAll(".below0", "")).toBe(printKernel(spec));
  });
});
