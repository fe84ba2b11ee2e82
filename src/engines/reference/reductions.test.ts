import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import type { DType } from "../../ir/dtype.js";
import { at, range, type Shape, sizeOf } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

type Reduce = "reduceSum" | "reduceMax" | "reduceMin";
const reduce = (op: Reduce, x: HostTensor, dims: readonly number[]): readonly [Shape, number[]] => {
  const y = at(applyOp(op, [x], { dims }), 0);
  expect(y.type.dtype).toBe(x.type.dtype);
  return [y.type.shape, numbersOf(y)];
};
const vector = (dtype: DType, values: readonly number[]): HostTensor =>
  hostTensor(dtype, [values.length], values);

describe("reductions", () => {
  const x = hostTensor("float32", [2, 3], [1, -2, 3, 4, 5, -6]);

  test("take whole dims away", () => {
    expect(reduce("reduceSum", x, [0])).toEqual([[3], [5, 3, -3]]);
    expect(reduce("reduceSum", x, [1])).toEqual([[2], [2, 3]]);
    expect(reduce("reduceSum", x, [1, 0])).toEqual([[], [5]]);
    expect(reduce("reduceSum", x, [])).toEqual([
      [2, 3],
      [1, -2, 3, 4, 5, -6],
    ]);
    expect(reduce("reduceMax", x, [0])).toEqual([[3], [4, 5, 3]]);
    expect(reduce("reduceMin", x, [1])).toEqual([[2], [-2, -6]]);
    const cube = hostTensor("int32", [2, 2, 2], range(8));
    expect(reduce("reduceSum", cube, [0, 2])).toEqual([[2], [10, 18]]);
    expect(reduce("reduceSum", cube, [1])).toEqual([
      [2, 2],
      [2, 4, 10, 12],
    ]);
    expect(reduce("reduceSum", hostTensor("float32", [], [7]), [])).toEqual([[], [7]]);
    expect(reduce("reduceSum", hostTensor("float32", [1], [-0]), [])).toEqual([[1], [-0]]);
  });

  test("add in row-major order, however the dims are listed", () => {
    const y = hostTensor("float64", [2, 2], [1e16, 1, -1e16, 1]);
    for (const dims of [
      [0, 1],
      [1, 0],
    ])
      expect(reduce("reduceSum", y, dims)).toEqual([[], [1]]);
  });

  test("of nothing give the neutral element of the type", () => {
    const neutral = (op: Reduce, dtype: DType) => reduce(op, hostTensor(dtype, [2, 0], []), [1])[1];
    expect(neutral("reduceSum", "float32")).toEqual([0, 0]);
    expect(neutral("reduceMax", "float32")).toEqual([-inf, -inf]);
    expect(neutral("reduceMin", "bfloat16")).toEqual([inf, inf]);
    expect(neutral("reduceMax", "int32")).toEqual([-(2 ** 31), -(2 ** 31)]);
    expect(neutral("reduceMin", "int32")).toEqual([2 ** 31 - 1, 2 ** 31 - 1]);
    expect(neutral("reduceMax", "uint32")).toEqual([0, 0]);
    expect(neutral("reduceMin", "uint32")).toEqual([2 ** 32 - 1, 2 ** 32 - 1]);
    expect(neutral("reduceMax", "bool")).toEqual([0, 0]);
    expect(neutral("reduceMin", "bool")).toEqual([1, 1]);
    expect(reduce("reduceSum", hostTensor("float32", [0, 2], []), [1])).toEqual([[0], []]);
  });

  test("pass NaN on, and infinities of both signs make one", () => {
    const special = hostTensor("float32", [3, 2], [1, nan, inf, -inf, -0, -0]);
    expect(reduce("reduceSum", special, [1])[1]).toEqual([nan, nan, 0]);
    expect(reduce("reduceMax", special, [1])[1]).toEqual([nan, inf, -0]);
    expect(reduce("reduceMin", special, [1])[1]).toEqual([nan, -inf, -0]);
  });

  test("mean any and all for bool", () => {
    const flags = hostTensor("bool", [3, 2], [0, 0, 0, 1, 1, 1]);
    expect(reduce("reduceMax", flags, [1])[1]).toEqual([0, 1, 1]);
    expect(reduce("reduceMin", flags, [1])[1]).toEqual([0, 0, 1]);
  });

  test("sum floats in float64 and round once", () => {
    expect(reduce("reduceSum", vector("float32", [2 ** 24, 1, 1]), [0])[1]).toEqual([2 ** 24 + 2]);
    expect(reduce("reduceSum", vector("bfloat16", [256, 1, 1]), [0])[1]).toEqual([258]);
    expect(reduce("reduceSum", vector("float16", [60000, 60000, -60000]), [0])[1]).toEqual([60000]);
  });

  test("sum integers around", () => {
    expect(reduce("reduceSum", vector("int32", [2 ** 31 - 1, 1, 5]), [0])[1]).toEqual([-(2 ** 31) + 5]);
    expect(reduce("reduceSum", vector("uint32", [2 ** 32 - 1, 2]), [0])[1]).toEqual([1]);
  });
});

describe("argmax and argmin", () => {
  const index = (op: "argmax" | "argmin", x: HostTensor, dim: number) => {
    const y = at(applyOp(op, [x], { dim }), 0);
    expect(y.type.dtype).toBe("int32");
    return [y.type.shape, numbersOf(y)];
  };

  test("find the first extreme along their dim", () => {
    const x = hostTensor("float32", [2, 3], [1, 5, 5, -2, -7, -7]);
    expect(index("argmax", x, 1)).toEqual([[2], [1, 0]]);
    expect(index("argmin", x, 1)).toEqual([[2], [0, 1]]);
    expect(index("argmax", x, 0)).toEqual([[3], [0, 0, 0]]);
    expect(index("argmin", x, 0)).toEqual([[3], [1, 1, 1]]);
  });

  test("take the first NaN for both the largest and the smallest", () => {
    const x = vector("float32", [3, nan, inf, -inf, nan]);
    expect(index("argmax", x, 0)).toEqual([[], [1]]);
    expect(index("argmin", x, 0)).toEqual([[], [1]]);
  });

  test("treat -0 as 0 and work on integers, bools and no rows", () => {
    expect(index("argmax", vector("float32", [-0, 0]), 0)).toEqual([[], [0]]);
    expect(index("argmin", vector("float32", [0, -0]), 0)).toEqual([[], [0]]);
    expect(index("argmax", vector("uint32", [1, 2 ** 32 - 1]), 0)).toEqual([[], [1]]);
    expect(index("argmax", vector("bool", [0, 1, 1]), 0)).toEqual([[], [1]]);
    expect(index("argmax", hostTensor("int32", [0, 2], []), 1)).toEqual([[0], []]);
  });
});

describe("cumsum", () => {
  const cumsum = (x: HostTensor, dim: number, reverse = false) =>
    numbersOf(at(applyOp("cumsum", [x], { dim, reverse }), 0));

  test("adds up along its dim from either end", () => {
    const x = hostTensor("float32", [2, 3], [1, 2, 3, 4, 5, 6]);
    expect(cumsum(x, 0)).toEqual([1, 2, 3, 5, 7, 9]);
    expect(cumsum(x, 1)).toEqual([1, 3, 6, 4, 9, 15]);
    expect(cumsum(x, 1, true)).toEqual([6, 5, 3, 15, 11, 6]);
    expect(cumsum(x, 0, true)).toEqual([5, 7, 9, 4, 5, 6]);
  });

  test("carries NaN on, wraps integers around and rounds every sum once", () => {
    expect(cumsum(vector("float32", [1, nan, 2]), 0)).toEqual([1, nan, nan]);
    expect(cumsum(vector("int32", [2 ** 31 - 1, 1]), 0)).toEqual([2 ** 31 - 1, -(2 ** 31)]);
    expect(cumsum(vector("bfloat16", [256, 1, 1]), 0)).toEqual([256, 256, 258]);
    expect(cumsum(hostTensor("float32", [0, 2], []), 0)).toEqual([]);
    expect(cumsum(hostTensor("float32", [2, 0], []), 1)).toEqual([]);
  });

  test("works on any dim of a larger tensor", () => {
    const x = hostTensor("int32", [2, 2, 2], range(sizeOf([2, 2, 2])));
    expect(cumsum(x, 1)).toEqual([0, 1, 2, 4, 4, 5, 10, 12]);
  });
});
