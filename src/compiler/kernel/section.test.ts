import { expect, test } from "vitest";
import { at } from "../../ir/shape.js";
import { planKernel } from "./phases.js";
import type { KernelNode, KernelSpec } from "./spec.js";

/** The arithmetic of a kernel on a host with fused products: of `a`, `b` and `c`, their product, and one op more. */
function arithmetic(op: "add" | "sub", args: readonly [number, number]): string[] {
  const dtype = "float32";
  const binary = (name: "add" | "sub" | "mul", ...of: number[]): KernelNode => ({
    kind: "op",
    dtype,
    call: { op: name, from: dtype, to: dtype },
    args: of,
    result: 0,
  });
  const load = (arg: number): KernelNode => ({ kind: "load", dtype, access: { arg, strides: [1] } });
  const spec: KernelSpec = {
    dims: [8],
    numRows: 0,
    args: [dtype, dtype, dtype, dtype],
    nodes: [load(0), load(1), load(2), binary("mul", 0, 1), binary(op, ...args)],
    stores: [{ node: 4, access: { arg: 3, strides: [1] } }],
    fills: [],
  };
  const { instructions } = at(planKernel(spec, { fma: true }).phases, 0).inner.program;
  return instructions.flatMap((instruction) => ("op" in instruction ? [String(instruction.op)] : []));
}

const [C, PRODUCT] = [2, 3];

test("a product of the program is rounded before anything is added to it or subtracted", () => {
  expect(arithmetic("add", [PRODUCT, C])).toEqual(["f32x4.mul", "f32x4.add"]);
  expect(arithmetic("add", [C, PRODUCT])).toEqual(["f32x4.mul", "f32x4.add"]);
  expect(arithmetic("sub", [C, PRODUCT])).toEqual(["f32x4.mul", "f32x4.sub"]);
  expect(arithmetic("sub", [PRODUCT, C])).toEqual(["f32x4.mul", "f32x4.sub"]);
});
