import { expect, test } from "vitest";
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
