import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import { at, range } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
const sort = (operands: readonly HostTensor[], dim: number, numKeys = 1): number[][] =>
  applyOp("sort", operands, { dim, numKeys }).map(numbersOf);
const count = (length: number): HostTensor => hostTensor("int32", [length], range(length));

describe("sort", () => {
  test("orders infinities at the ends, NaN last, and keeps -0 and 0 as they come", () => {
    const x = hostTensor("float32", [9], [3, nan, -inf, 0, -0, inf, -1, nan, 3]);
    expect(sort([x, count(9)], 0)).toEqual([
      [-inf, -1, 0, -0, 3, 3, inf, nan, nan],
      [2, 6, 3, 4, 0, 8, 5, 1, 7],
    ]);
  });

  test("works along any dim", () => {
    const x = hostTensor("int32", [2, 3], [3, 1, 2, -1, 5, -5]);
    expect(sort([x], 1)).toEqual([[1, 2, 3, -5, -1, 5]]);
    expect(sort([x], 0)).toEqual([[-1, 1, -5, 3, 5, 2]]);
  });

  test("compares by several keys, in order, and is stable", () => {
    const first = hostTensor("bool", [5], [1, 0, 1, 0, 1]);
    const second = hostTensor("float32", [5], [2, 9, 1, 9, 2]);
    expect(sort([first, second, count(5)], 0, 2)).toEqual([
      [0, 0, 1, 1, 1],
      [9, 9, 1, 2, 2],
      [1, 3, 2, 0, 4],
    ]);
    expect(at(sort([first, second, count(5)], 0, 1), 2)).toEqual([1, 3, 0, 2, 4]);
  });

  test("keeps unsigned order, 16-bit floats and empty tensors", () => {
    expect(sort([hostTensor("uint32", [3], [2 ** 32 - 1, 0, 2 ** 31])], 0)).toEqual([
      [0, 2 ** 31, 2 ** 32 - 1],
    ]);
    expect(sort([hostTensor("bfloat16", [3], [1, -1, 0.5])], 0)).toEqual([[-1, 0.5, 1]]);
    expect(sort([hostTensor("float32", [0, 3], [])], 0)).toEqual([[]]);
    expect(sort([hostTensor("float32", [3, 0], [])], 1)).toEqual([[]]);
  });
});
