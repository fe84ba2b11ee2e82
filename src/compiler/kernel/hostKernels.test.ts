import { expect, test } from "vitest";
import { at, range } from "../../ir/shape.js";
import type { HostKernel } from "../steps.js";
import { runHostStep } from "./hostKernels.js";

/** The result of a kernel with one operand at the start of a memory and its result behind it. */
function run<T extends Float32Array | Int32Array>(kernel: HostKernel, operand: T, result: T): T {
  const memory = operand.buffer;
  const places = [operand, result].map(({ byteOffset }) => ({ slot: 0, offset: byteOffset }));
  runHostStep({ op: "host", kernel, places, info: 0 }, Uint32Array.of(0), memory);
  return result;
}

test("a sort puts NaN last and keeps the order of equal elements", () => {
  const memory = new Float32Array(14);
  const operand = memory.subarray(0, 7);
  operand.set([Number.NaN, 2, -0, Number.NaN, 0, -1, 2]);
  const kernel: HostKernel = { kind: "sort", dtypes: ["float32"], numKeys: 1, outer: 1, n: 7, inner: 1 };
  expect([...run(kernel, operand, memory.subarray(7))]).toEqual([-1, -0, 0, 2, 2, Number.NaN, Number.NaN]);
});

/** What a kernel makes of float32 operands that lie one behind the other, followed by its results. */
function runFloats(kernel: HostKernel, operands: readonly (readonly number[])[], numResults: number) {
  const size = operands[0]?.length ?? 0;
  const memory = new Float32Array(size * (operands.length + numResults));
  operands.forEach((values, i) => {
    memory.set(values, i * size);
  });
  const places = range(operands.length + numResults).map((i) => ({ slot: 1, offset: 4 * i * size - 64 }));
  runHostStep({ op: "host", kernel, places, info: 0 }, Uint32Array.of(0, 64), memory.buffer);
  return memory.subarray(size * operands.length);
}

/** Two matrices of three rows and four columns, sorted or summed along the rows. */
const columns = { outer: 2, n: 3, inner: 4 };
const place = (o: number, k: number, i: number) => (o * 3 + k) * 4 + i;

test("lines that are not contiguous are sorted by all keys, and what lies beside them moves along", () => {
  const first = range(24).map((i) => (i >> 2) % 2);
  const second = range(24).map((i) => 24 - i);
  const beside = range(24).map((i) => i + 0.5);
  const kernel: HostKernel = {
    kind: "sort",
    dtypes: ["float32", "float32", "float32"],
    numKeys: 2,
    ...columns,
  };
  const sorted = runFloats(kernel, [first, second, beside], 3);
  for (const o of range(2)) {
    for (const i of range(4)) {
      const line = range(3).map((k) => place(o, k, i));
      const order = line.toSorted((a, b) => at(first, a) - at(first, b) || at(second, a) - at(second, b));
      expect(line.map((p) => sorted[48 + p])).toEqual(order.map((p) => beside[p]));
      expect(line.map((p) => sorted[p])).toEqual(order.map((p) => first[p]));
      expect(line.map((p) => sorted[24 + p])).toEqual(order.map((p) => second[p]));
    }
  }
});

test("extremes and running sums of lines that are not contiguous are those of each line", () => {
  const x = range(24).map((i) => (i * 7) % 11);
  const lines = range(2).flatMap((o) => range(4).map((i) => range(3).map((k) => place(o, k, i))));
  for (const kind of ["argmax", "argmin"] as const) {
    const found = runFloats({ kind, dtype: "float32", ...columns }, [x], 1);
    const indices = new Int32Array(found.buffer, found.byteOffset, 8);
    const want = lines.map((line) => {
      const values = line.map((p) => at(x, p));
      return values.indexOf((kind === "argmax" ? Math.max : Math.min)(...values));
    });
    expect([...indices]).toEqual(want);
  }
  const sums = runFloats({ kind: "cumsum", dtype: "float32", ...columns }, [x], 1);
  const backwards = runFloats({ kind: "cumsumReverse", dtype: "float32", ...columns }, [x], 1);
  for (const line of lines) {
    const [a, b, c] = line.map((p) => at(x, p)) as [number, number, number];
    expect(line.map((p) => sums[p])).toEqual([a, a + b, a + b + c]);
    expect(line.map((p) => backwards[p])).toEqual([a + b + c, b + c, c]);
  }
});

test("the first of equal extremes is taken, and NaN before all others", () => {
  const kernel = { dtype: "float32", outer: 1, n: 6, inner: 1 } as const;
  const indexIn = (kind: "argmax" | "argmin", values: readonly number[]) => {
    const found = runFloats({ kind, ...kernel }, [values], 1);
    return new Int32Array(found.buffer, found.byteOffset, 1)[0];
  };
  expect(indexIn("argmax", [1, 3, 2, 3, 0, 0])).toBe(1);
  expect(indexIn("argmin", [1, 3, 2, 3, 0, 0])).toBe(4);
  expect(indexIn("argmax", [1, 3, Number.NaN, 9, Number.NaN, 0])).toBe(2);
  expect(indexIn("argmin", [Number.NaN, 3, Number.NaN, 9, 4, -1])).toBe(0);
});

test("running sums of integers wrap around however long they are", () => {
  // Behind four million of the largest integers a float64 has lost the last bit.
  const n = 2 ** 22 + 16;
  const memory = new Int32Array(2 * n);
  const operand = memory.subarray(0, n).fill(2 ** 31 - 1);
  const kernel: HostKernel = { kind: "cumsum", dtype: "int32", outer: 1, n, inner: 1 };
  const result = run(kernel, operand, memory.subarray(n));
  const wrong = result.findIndex((sum, k) => sum !== Math.imul(k + 1, 2 ** 31 - 1));
  expect(wrong).toBe(-1);
});
