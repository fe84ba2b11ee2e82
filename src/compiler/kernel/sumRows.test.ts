import { expect, test } from "vitest";
import { printKernel, text } from "../../../test/support/compilerText.js";
import { interpretKernel, randomMemory } from "../../../test/support/kernelReference.js";
import { runKernel } from "../../../test/support/kernelRuns.js";
import { at } from "../../ir/shape.js";
import { canonical } from "./canonical.js";
import type { KernelNode, KernelSpec, KernelStore } from "./spec.js";
import { sumRows } from "./sumRows.js";

const load = (arg: number, ...strides: number[]): KernelNode => ({
  kind: "load",
  dtype: "float32",
  access: { arg, strides },
});
const op = (name: "exp" | "mul" | "add", ...args: number[]): KernelNode => ({
  kind: "op",
  dtype: "float32",
  call: { op: name, from: "float32", to: "float32" },
  args,
  result: 0,
});

/** The sum of the rows of two matrices, each times an element of a row and all of them times an element of another. */
function products(rows: number, columns: number): KernelSpec {
  return {
    ...{ dims: [2, rows, columns], numRows: 2, args: ["float32", "float32", "float32", "float32"] },
    nodes: [
      load(0, rows, 1, 0),
      load(1, rows * columns, columns, 1),
      op("mul", 0, 1),
      load(2, 0, 0, 1),
      op("mul", 2, 3),
    ],
    stores: [{ node: 4, access: { arg: 3, strides: [columns, 0, 1] }, combine: "sum" }],
    fills: [{ arg: 3, count: 2 * columns, value: 0 }],
  };
}

test("adds several rows in one iteration, one after the other", () => {
  expect(printKernel(sumRows(products(6, 70)))).toBe(text`
    loops [2 3 | 70]
    fill d: 140 × 0
    v0 = f32 d[70 0 1]
    v1 = f32 a[6 2 0]
    v2 = f32 b[420 140 1]
    v3 = f32 mul v1 v2
    v4 = f32 c[0 0 1]
    v5 = f32 mul v3 v4
    v6 = f32 add v0 v5
    v7 = f32 a+1[6 2 0]
    v8 = f32 b+70[420 140 1]
    v9 = f32 mul v7 v8
    v10 = f32 mul v9 v4
    v11 = f32 add v6 v10
    d[70 0 1] = v11`);
});

test("keeps every bit of the sums", () => {
  for (const rows of [1, 2, 3, 4, 6, 8, 12, 16, 24, 40]) {
    for (const columns of [3, 16, 33, 64, 130]) {
      const spec = products(rows, columns);
      // Numbers that are rounded when they are added, so that the order can be seen.
      const memory = randomMemory(spec, rows + columns).map((arg) => ({
        ...arg,
        values: arg.values.map((x, i) => Math.fround(Math.sin(i + x) * 3)),
      }));
      const expected = interpretKernel(spec, memory);
      // Compiled kernels add several rows at a time.
      expect(runKernel(spec, memory), `${rows} × ${columns}`).toEqual(expected);
      if (rows * columns * 2 >= 1 << 14) expect(runKernel(spec, memory, 2)).toEqual(expected);
    }
  }
});

test("adds as many rows as there are registers to point to them", () => {
  const rowsAtATime = (spec: KernelSpec) => at(spec.dims, 1) / at(sumRows(spec).dims, 1);
  const two = products(16, 64);
  const one: KernelSpec = { ...two, nodes: two.nodes.slice(0, 3), stores: two.stores.map(of(2)) };
  expect(rowsAtATime(one)).toBe(8);
  const three: KernelSpec = {
    ...two,
    nodes: [...two.nodes.slice(0, 4), load(2, 64, 64, 1), op("mul", 2, 4)],
  };
  expect(rowsAtATime({ ...three, stores: two.stores.map(of(5)) })).toBe(4);
  expect(rowsAtATime(products(7, 64))).toBe(1);
});

const of =
  (node: number) =>
  (store: KernelStore): KernelStore => ({ ...store, node });

test("leaves other kernels alone", () => {
  const spec = products(8, 64);
  const [store] = spec.stores;
  const change = (changed: Partial<KernelStore>) => ({
    ...spec,
    stores: spec.stores.map((one) => ({ ...one, ...changed })),
  });
  const index = { access: { arg: 0, strides: [0, 1, 0] }, stride: 64, limit: 2 };
  for (const other of [
    change({ combine: "max" }),
    change({ index }),
    change({ access: { arg: 3, strides: [64, 1, 1] } }),
    change({ access: { arg: 3, strides: [64, 0, 0] } }),
    { ...spec, stores: [...spec.stores, ...(store ? [{ ...store, combine: "max" as const }] : [])] },
    { ...spec, nodes: [...spec.nodes.slice(0, 4), op("exp", 2)] },
    { ...spec, nodes: [...spec.nodes.slice(0, 4), load(3, 64, 0, 1)] },
  ]) {
    expect(sumRows(other)).toBe(other);
  }
  const flat = canonical({ ...spec, dims: [1, 1, 64] });
  expect(sumRows(flat)).toBe(flat);
});
