import { expect, test } from "vitest";
import { runKernel } from "../../../test/support/kernelRuns.js";
import { range } from "../../ir/shape.js";
import { canonical } from "./canonical.js";
import { divide } from "./divide.js";
import type { KernelNode, KernelSpec, KernelStore } from "./spec.js";

const load = (arg: number, ...strides: number[]): KernelNode => ({
  kind: "load",
  dtype: "float32",
  access: { arg, strides },
});
const op = (name: "exp" | "mul" | "sub" | "tanh", ...args: number[]): KernelNode => ({
  kind: "op",
  dtype: "float32",
  call: { op: name, from: "float32", to: "float32" },
  args,
  result: 0,
});
const store = (node: number, arg: number, ...strides: number[]): KernelStore => ({
  node,
  access: { arg, strides },
});

/** Values along one long loop. */
const long: KernelSpec = {
  dims: [21 * 1024],
  numRows: 0,
  args: ["float32", "float32"],
  nodes: [load(0, 1), op("tanh", 0), op("mul", 1, 0)],
  stores: [store(2, 1, 1)],
  fills: [],
};

/** Rows whose elements need the sum of the row, so that an expensive value is kept from one run to the next. */
const rows: KernelSpec = {
  dims: [37, 601],
  numRows: 1,
  args: ["float32", "float32"],
  nodes: [
    load(0, 601, 1),
    op("exp", 0),
    op("tanh", 1),
    { kind: "reduce", dtype: "float32", combine: "sum", arg: 2 },
    op("mul", 2, 3),
  ],
  stores: [store(4, 1, 601, 1)],
  fills: [],
};

/** Few rows, long lines, and an operand that runs across. */
const across: KernelSpec = {
  dims: [3, 8192],
  numRows: 0,
  args: ["float32", "float32"],
  nodes: [load(0, 1, 3), op("exp", 0)],
  stores: [store(1, 1, 8192, 1)],
  fills: [],
};

/** Sums over rows, of a few matrices with a row of factors for each; `sums(1)` has one matrix. */
const sums = (matrices: number): KernelSpec => ({
  dims: [matrices, 100, 330],
  numRows: 0,
  args: ["float32", "float32"],
  nodes: [load(0, 33_000, 330, 1), op("exp", 0)],
  stores: [{ ...store(1, 1, 330, 0, 1), combine: "sum" }],
  fills: [{ arg: 1, count: 330 * matrices, value: 0 }],
});

test.each([
  ["one long loop", long],
  ["rows with sums", rows],
  ["long lines", across],
  ["sums over rows", sums(1)],
  ["sums over the rows of several matrices", sums(6)],
])("kernels of %s give the same bits in parts that run in any order", (_, spec) => {
  const count = spec.dims.reduce((n, d) => n * d, 1);
  const values = range(count).map((i) => Math.fround(Math.sin(i) * 3));
  const memory = [values, values.map(() => 0)].map((list) => ({
    dtype: "float32" as const,
    values: list,
    origin: 0,
  }));
  const whole = runKernel(spec, memory);
  expect(runKernel(spec, memory, 5)).toEqual(whole);
  const numStored = spec.fills[0]?.count ?? count;
  expect(new Set(whole[1]?.values.slice(0, numStored)).size).toBeGreaterThan(numStored / 2);
});

test("cuts the longest loop of values where the outermost is too short for all threads", () => {
  expect(divide(canonical(long), 4)).toMatchObject({ dims: [16, 1344], numRows: 1 });
  expect(divide(canonical(across), 4)).toMatchObject({ dims: [16, 3, 512], numRows: 2 });
  expect(divide(canonical(rows), 4)).toMatchObject({ dims: [37, 601], numRows: 1 });
});

test("divides sums over rows by columns or by matrices, into no more pieces than threads need", () => {
  expect(divide(canonical(sums(1)), 3)).toMatchObject({ dims: [3, 100, 110], numRows: 2 });
  expect(divide(canonical(sums(1)), 4)?.dims).toEqual([5, 100, 66]);
  expect(divide(canonical(sums(1)), 6)).toBeUndefined();
  expect(divide(canonical(sums(6)), 6)?.dims).toEqual([6, 100, 330]);
  expect(divide(canonical(sums(6)), 7)).toBeUndefined();
});

test("leaves alone sums whose places lie among those of others, and largest values", () => {
  expect(divide(canonical(sums(2)), 3)).toBeUndefined();
  const largest = { ...sums(1), stores: [{ ...store(1, 1, 330, 0, 1), combine: "max" as const }] };
  const filled = { ...largest, fills: [{ arg: 1, count: 330, value: -Infinity }] };
  expect(divide(canonical(filled), 3)).toBeUndefined();
});

test("divides rows of which every thread gets one", () => {
  expect(divide(canonical(rows), 37)?.dims).toEqual([37, 601]);
});

test("takes the smallest kernels that pay, and pieces of the shortest length that does", () => {
  expect(divide(canonical({ ...long, dims: [1 << 14] }), 4)?.dims).toEqual([16, 1024]);
  expect(divide(canonical({ ...long, dims: [(1 << 14) - 16] }), 4)).toBeUndefined();
  const strides = { nodes: [load(0, 1, 3), op("exp", 0)], stores: [store(1, 1, 23 * 256, 1)] };
  expect(divide(canonical({ ...across, ...strides, dims: [3, 23 * 256] }), 5)?.dims).toEqual([23, 3, 256]);
});

test("takes smaller kernels that read many arrays", () => {
  const numRead = 16;
  const products = (length: number): KernelSpec => ({
    ...{ dims: [length], numRows: 0, args: range(numRead + 1).map(() => "float32" as const), fills: [] },
    nodes: [
      ...range(numRead).map((arg) => load(arg, 1)),
      ...range(numRead - 1).map((i) => op("mul", i === 0 ? 0 : numRead + i - 1, i + 1)),
    ],
    stores: [store(2 * numRead - 2, numRead, 1)],
  });
  expect(divide(canonical(products(3072)), 2)?.dims).toEqual([8, 384]);
  expect(divide(canonical(products(2048)), 2)).toBeUndefined();
});

test("leaves alone a loop whose length has no pieces, and one whose iterations write the same element", () => {
  expect(divide(canonical({ ...long, dims: [16411] }), 4)).toBeUndefined();
  expect(divide(canonical({ ...across, stores: [store(1, 1, 1, 0)] }), 4)).toBeUndefined();
});

test("leaves alone a loop of which one store writes the same element, whatever another one writes", () => {
  const both = {
    ...{ ...across, args: ["float32", "float32", "float32"] as const },
    stores: [store(1, 1, 8192, 1), store(1, 2, 1, 0)],
  };
  expect(divide(canonical(both), 4)).toBeUndefined();
  expect(divide(canonical({ ...both, stores: [...both.stores].reverse() }), 4)).toBeUndefined();
});

test("leaves alone what is small, what is added up across rows, and rows that are too few", () => {
  expect(divide(canonical({ ...long, dims: [1024] }), 4)).toBeUndefined();
  const summed = { ...rows, stores: [{ ...store(4, 1, 0, 1), combine: "sum" as const }] };
  expect(divide(canonical(summed), 4)).toBeUndefined();
  const repeated = { ...rows, stores: [store(4, 1, 0, 1)] };
  expect(divide(canonical(repeated), 4)).toBeUndefined();
  expect(divide(canonical(rows), 38)).toBeUndefined();
  const lines = { nodes: [load(0, 8192, 1), ...rows.nodes.slice(1)], stores: [store(4, 1, 8192, 1)] };
  expect(divide(canonical({ ...rows, ...lines, dims: [3, 8192] }), 4)).toBeUndefined();
});

test("leaves alone what fills memory first or has a store at indices, also beside stores that have none", () => {
  const twoStores = { ...long, args: ["float32", "float32", "float32"] as const };
  expect(divide(canonical({ ...twoStores, stores: [store(2, 1, 1), store(1, 2, 1)] }), 4)).toBeDefined();
  const summed = { ...store(1, 2, 1), combine: "sum" as const };
  expect(divide({ ...twoStores, stores: [store(2, 1, 1), summed] }, 4)).toBeUndefined();
  expect(divide({ ...long, fills: [{ arg: 1, count: 21 * 1024, value: 0 }] }, 4)).toBeUndefined();
});
