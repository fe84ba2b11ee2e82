import { expect, test } from "vitest";
import { runKernel } from "../../../test/support/kernelRuns.js";
import type { DType } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import type { KernelSpec } from "./spec.js";

const memory = (dtype: DType, values: number[]) => ({ dtype, values, origin: 0 });
const zeros = (count: number) => range(count).map(() => 0);

test("indices that are apart from each other point to the elements of a vector", () => {
  const indices = range(27).map((i) => (i * 7) % 5);
  const spec: KernelSpec = {
    dims: [9],
    numRows: 0,
    args: ["float32", "int32", "float32"],
    nodes: [
      {
        kind: "load",
        dtype: "float32",
        access: { arg: 0, strides: [0] },
        index: { access: { arg: 1, strides: [3] }, stride: 2, limit: 5 },
      },
    ],
    stores: [{ node: 0, access: { arg: 2, strides: [1] } }],
    fills: [],
  };
  const table = range(10).map((i) => i + 0.5);
  const run = runKernel(spec, [
    memory("float32", table),
    memory("int32", indices),
    memory("float32", zeros(9)),
  ]);
  expect(at(run, 2).values).toEqual(range(9).map((i) => table[2 * at(indices, 3 * i)]));
});

test("elements that go to the same place are added one by one, also beside others that do not", () => {
  const indices = [0, 3, 3, 3, 1, 0, 3, 1, 1];
  const load = (arg: number, dtype: DType) =>
    ({ kind: "load", dtype, access: { arg, strides: [1] } }) as const;
  const spec: KernelSpec = {
    dims: [9],
    numRows: 0,
    args: ["float32", "int32", "float32", "float32"],
    nodes: [load(0, "float32")],
    stores: [
      { node: 0, access: { arg: 2, strides: [1] } },
      {
        node: 0,
        access: { arg: 3, strides: [0] },
        index: { access: { arg: 1, strides: [1] }, stride: 1, limit: 4 },
        combine: "sum",
      },
    ],
    fills: [],
  };
  const values = range(9).map((i) => 2 ** i);
  const run = runKernel(spec, [
    memory("float32", values),
    memory("int32", indices),
    memory("float32", zeros(9)),
    memory("float32", zeros(4)),
  ]);
  expect(at(run, 2).values).toEqual(values);
  const sums = range(4).map((place) => values.reduce((sum, x, i) => sum + (indices[i] === place ? x : 0), 0));
  expect(at(run, 3).values).toEqual(sums);
});

test.each(["int32", "float32"] as const)("rows of %s are reduced beside rows of float64", (dtype) => {
  const load = (arg: number, type: DType) =>
    ({ kind: "load", dtype: type, access: { arg, strides: [7, 1] } }) as const;
  const most = (arg: number, type: DType) => ({ kind: "reduce", dtype: type, combine: "max", arg }) as const;
  const store = (node: number, arg: number) => ({ node, access: { arg, strides: [1, 0] } });
  const spec: KernelSpec = {
    dims: [3, 7],
    numRows: 1,
    args: ["float64", dtype, "float64", dtype],
    nodes: [load(0, "float64"), load(1, dtype), most(0, "float64"), most(1, dtype)],
    stores: [store(2, 2), store(3, 3)],
    fills: [],
  };
  const values = range(21).map((i) => ((i * 8) % 21) - 30);
  const others = values.map((x) => -60 - x);
  const run = runKernel(spec, [
    ...[memory("float64", values), memory(dtype, others)],
    ...[memory("float64", zeros(3)), memory(dtype, zeros(3))],
  ]);
  const rows = (list: readonly number[]) =>
    range(3).map((row) => Math.max(...list.slice(7 * row, 7 * row + 7)));
  expect([at(run, 2).values, at(run, 3).values]).toEqual([rows(values), rows(others)]);
});

test("counts in steps of more than one, in vectors and in what is left of them", () => {
  const spec: KernelSpec = {
    dims: [3, 11],
    numRows: 1,
    args: ["int32"],
    nodes: [{ kind: "iota", dtype: "int32", coefficients: [100, 7] }],
    stores: [{ node: 0, access: { arg: 0, strides: [11, 1] } }],
    fills: [],
  };
  const [run] = runKernel(spec, [memory("int32", zeros(33))]);
  expect(run?.values).toEqual(range(33).map((i) => 100 * Math.floor(i / 11) + 7 * (i % 11)));
});
