import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import type { DType } from "../../ir/dtype.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { newLiteral } from "../../ir/program.js";
import { at, range, type Shape, sizeOf } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

/** The tensor 1, 2, 3, … of a shape. */
const counted = (shape: Shape, dtype: DType = "float32"): HostTensor =>
  hostTensor(
    dtype,
    shape,
    range(sizeOf(shape)).map((i) => i + 1),
  );
const scalar = (value: number): HostTensor => hostTensor("int32", [], [value]);

/** The shape and the numbers of an op's only result. */
function result<K extends OpName>(
  op: K,
  operands: Parameters<typeof applyOp>[1],
  params: OpParams[K],
): readonly [Shape, number[]] {
  const y = at(applyOp(op, operands, params), 0);
  return [y.type.shape, numbersOf(y)];
}

describe("iota", () => {
  test("counts along its dim in every numeric type", () => {
    for (const dtype of ["float32", "bfloat16", "float16", "float64", "int32", "uint32"] as const) {
      expect(result("iota", [], { dtype, shape: [2, 3], dim: 1 })).toEqual([
        [2, 3],
        [0, 1, 2, 0, 1, 2],
      ]);
    }
    expect(result("iota", [], { dtype: "int32", shape: [3, 2], dim: 0 })).toEqual([
      [3, 2],
      [0, 0, 1, 1, 2, 2],
    ]);
    expect(result("iota", [], { dtype: "int32", shape: [0, 2], dim: 1 })).toEqual([[0, 2], []]);
  });
});

describe("broadcastInDim", () => {
  test("repeats along new dims and along dims of size 1", () => {
    expect(result("broadcastInDim", [counted([2])], { shape: [3, 2], dims: [1] })).toEqual([
      [3, 2],
      [1, 2, 1, 2, 1, 2],
    ]);
    expect(result("broadcastInDim", [counted([2])], { shape: [2, 3], dims: [0] })).toEqual([
      [2, 3],
      [1, 1, 1, 2, 2, 2],
    ]);
    expect(result("broadcastInDim", [counted([2, 1])], { shape: [2, 2], dims: [0, 1] })).toEqual([
      [2, 2],
      [1, 1, 2, 2],
    ]);
    expect(result("broadcastInDim", [counted([1, 1])], { shape: [1, 1], dims: [0, 1] })).toEqual([
      [1, 1],
      [1],
    ]);
  });

  test("fills a shape with a scalar or a literal", () => {
    expect(result("broadcastInDim", [newLiteral(7, "float32")], { shape: [2, 2], dims: [] })).toEqual([
      [2, 2],
      [7, 7, 7, 7],
    ]);
    expect(result("broadcastInDim", [counted([])], { shape: [0, 3], dims: [] })).toEqual([[0, 3], []]);
    expect(result("broadcastInDim", [counted([])], { shape: [], dims: [] })).toEqual([[], [1]]);
  });
});

describe("reshape, transpose and reverse", () => {
  test("reshape keeps the row-major order", () => {
    expect(result("reshape", [counted([2, 3])], { shape: [3, 2] })).toEqual([
      [3, 2],
      [1, 2, 3, 4, 5, 6],
    ]);
    expect(result("reshape", [counted([1, 1])], { shape: [] })).toEqual([[], [1]]);
    expect(result("reshape", [counted([0, 4])], { shape: [2, 0] })).toEqual([[2, 0], []]);
  });

  test("transpose moves result dim i from operand dim permutation[i]", () => {
    expect(result("transpose", [counted([2, 3])], { permutation: [1, 0] })).toEqual([
      [3, 2],
      [1, 4, 2, 5, 3, 6],
    ]);
    expect(result("transpose", [counted([2, 3, 2])], { permutation: [2, 0, 1] })).toEqual([
      [2, 2, 3],
      [1, 3, 5, 7, 9, 11, 2, 4, 6, 8, 10, 12],
    ]);
    expect(result("transpose", [counted([])], { permutation: [] })).toEqual([[], [1]]);
  });

  test("transpose keeps every bit of every type", () => {
    for (const dtype of ["bfloat16", "float16", "float64", "int32", "uint32"] as const) {
      expect(result("transpose", [counted([2, 2], dtype)], { permutation: [1, 0] })).toEqual([
        [2, 2],
        [1, 3, 2, 4],
      ]);
    }
    const payload = hostTensor("uint32", [1, 2], [0x7fa00001, 0xffc12345]);
    const floats = applyOp("bitcast", [payload], { dtype: "float32" });
    const [bits] = applyOp("bitcast", applyOp("transpose", floats, { permutation: [1, 0] }), {
      dtype: "uint32",
    });
    expect(bits && numbersOf(bits)).toEqual([0x7fa00001, 0xffc12345]);
  });

  test("reverse turns the named dims around", () => {
    expect(result("reverse", [counted([2, 3])], { dims: [1] })).toEqual([
      [2, 3],
      [3, 2, 1, 6, 5, 4],
    ]);
    expect(result("reverse", [counted([2, 3])], { dims: [0, 1] })).toEqual([
      [2, 3],
      [6, 5, 4, 3, 2, 1],
    ]);
    expect(result("reverse", [counted([0, 3])], { dims: [0] })).toEqual([[0, 3], []]);
  });
});

describe("slice, pad and concatenate", () => {
  test("slice takes every stride-th element up to the limit", () => {
    const x = counted([3, 4]);
    expect(result("slice", [x], { starts: [1, 0], limits: [3, 4], strides: [1, 3] })).toEqual([
      [2, 2],
      [5, 8, 9, 12],
    ]);
    expect(result("slice", [x], { starts: [0, 2], limits: [3, 2], strides: [2, 1] })).toEqual([[2, 0], []]);
    expect(result("slice", [counted([])], { starts: [], limits: [], strides: [] })).toEqual([[], [1]]);
  });

  test("pad puts values around and between, and crops where negative", () => {
    const x = counted([2, 3]);
    const zero = newLiteral(0, "float32");
    expect(result("pad", [x, zero], { low: [1, -1], high: [0, 2], interior: [0, 1] })).toEqual([
      [3, 6],
      [0, 0, 0, 0, 0, 0, 0, 2, 0, 3, 0, 0, 0, 5, 0, 6, 0, 0],
    ]);
    const nine = hostTensor("float32", [], [9]);
    expect(result("pad", [x, nine], { low: [-1, -2], high: [0, -1], interior: [2, 1] })).toEqual([
      [3, 2],
      [9, 9, 9, 9, 5, 9],
    ]);
    expect(result("pad", [counted([3]), nine], { low: [-3], high: [4], interior: [1] })).toEqual([
      [6],
      [9, 3, 9, 9, 9, 9],
    ]);
    expect(result("pad", [x, nine], { low: [0, 0], high: [0, -2], interior: [0, 1] })).toEqual([
      [2, 3],
      [1, 9, 2, 4, 9, 5],
    ]);
    expect(result("pad", [counted([0]), nine], { low: [1], high: [1], interior: [5] })).toEqual([
      [2],
      [9, 9],
    ]);
    expect(result("pad", [counted([2]), nine], { low: [-5], high: [4], interior: [0] })).toEqual([[1], [9]]);
  });

  test("pad keeps NaN and infinite padding in every float type", () => {
    for (const dtype of ["float32", "bfloat16", "float16", "float64"] as const) {
      const padding = { low: [1], high: [0], interior: [0] };
      expect(result("pad", [counted([1], dtype), newLiteral(-inf, dtype)], padding)).toEqual([
        [2],
        [-inf, 1],
      ]);
      expect(result("pad", [counted([1], dtype), newLiteral(nan, dtype)], padding)).toEqual([[2], [nan, 1]]);
    }
  });

  test("concatenate joins along its dim", () => {
    expect(result("concatenate", [counted([2, 1]), counted([2, 2])], { dim: 1 })).toEqual([
      [2, 3],
      [1, 1, 2, 2, 3, 4],
    ]);
    expect(result("concatenate", [counted([1, 2]), counted([0, 2]), counted([2, 2])], { dim: 0 })).toEqual([
      [3, 2],
      [1, 2, 1, 2, 3, 4],
    ]);
    expect(result("concatenate", [counted([2], "bool")], { dim: 0 })).toEqual([[2], [1, 1]]);
  });
});

describe("dynamic slices", () => {
  test("dynamicSlice moves its start so that the slice fits", () => {
    const x = counted([3, 3]);
    const slice = (i: number, j: number) =>
      result("dynamicSlice", [x, scalar(i), scalar(j)], { sizes: [2, 1] })[1];
    expect(slice(1, 2)).toEqual([6, 9]);
    expect(slice(2, 3)).toEqual([6, 9]);
    expect(slice(-1, -7)).toEqual([1, 4]);
    expect(result("dynamicSlice", [counted([])], { sizes: [] })).toEqual([[], [1]]);
    expect(result("dynamicSlice", [counted([2]), newLiteral(5, "int32")], { sizes: [0] })).toEqual([[0], []]);
  });

  test("dynamicUpdateSlice overwrites a block and leaves its operand alone", () => {
    const x = counted([2, 3]);
    const update = hostTensor("float32", [1, 2], [-1, -2]);
    const updated = (i: number, j: number) =>
      result("dynamicUpdateSlice", [x, update, scalar(i), scalar(j)], {})[1];
    expect(updated(1, 1)).toEqual([1, 2, 3, 4, -1, -2]);
    expect(updated(9, 9)).toEqual([1, 2, 3, 4, -1, -2]);
    expect(updated(-9, -9)).toEqual([-1, -2, 3, 4, 5, 6]);
    expect(numbersOf(x)).toEqual([1, 2, 3, 4, 5, 6]);
    expect(result("dynamicUpdateSlice", [counted([]), hostTensor("float32", [], [5])], {})).toEqual([
      [],
      [5],
    ]);
  });
});
