import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import type { OpParams } from "../../ir/ops.js";
import { at, range, type Shape, sizeOf } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

type Dims = Partial<Omit<OpParams["dotGeneral"], "dtype">>;

function dot(x: HostTensor, y: HostTensor, dims: Dims, dtype = x.type.dtype): readonly [Shape, number[]] {
  const params = { lhsContract: [], rhsContract: [], lhsBatch: [], rhsBatch: [], dtype, ...dims };
  const z = at(applyOp("dotGeneral", [x, y], params), 0);
  expect(z.type.dtype).toBe(dtype);
  return [z.type.shape, numbersOf(z)];
}

const counted = (shape: Shape, start: number): HostTensor =>
  hostTensor(
    "float32",
    shape,
    range(sizeOf(shape)).map((i) => i + start),
  );
const matmul = { lhsContract: [1], rhsContract: [0] };

describe("dotGeneral", () => {
  test("multiplies matrices of any size", () => {
    expect(dot(counted([2, 3], 1), counted([3, 2], 1), matmul)).toEqual([
      [2, 2],
      [22, 28, 49, 64],
    ]);
    for (const columns of range(7)) {
      const [shape, values] = dot(counted([1, 2], 1), counted([2, columns], 0), matmul);
      expect(shape).toEqual([1, columns]);
      expect(values).toEqual(range(columns).map((j) => j + 2 * (columns + j)));
    }
  });

  test("puts batch dims first, then the free dims of both sides", () => {
    const dims = { lhsContract: [2], rhsContract: [0], lhsBatch: [0], rhsBatch: [1] };
    expect(dot(counted([2, 2, 3], -5), counted([3, 2, 4], -11), dims)).toEqual([
      [2, 2, 4],
      [52, 40, 28, 16, 25, 22, 19, 16, 22, 28, 34, 40, 31, 46, 61, 76],
    ]);
  });

  test("contracts several dims in the order they pair up", () => {
    const dims = { lhsContract: [0, 1], rhsContract: [1, 2] };
    expect(dot(counted([2, 3, 2], 0), counted([2, 2, 3], 0), dims)).toEqual([
      [2, 2],
      [110, 290, 125, 341],
    ]);
  });

  test("is an outer product without contracted dims and a dot product without free ones", () => {
    expect(dot(counted([2], 1), counted([3], 1), {})).toEqual([
      [2, 3],
      [1, 2, 3, 2, 4, 6],
    ]);
    expect(dot(counted([3], 1), counted([3], 1), { lhsContract: [0], rhsContract: [0] })).toEqual([[], [14]]);
    expect(dot(counted([], 3), counted([], 4), {})).toEqual([[], [12]]);
  });

  test("gives zeros for an empty contraction and nothing for empty operands", () => {
    expect(dot(counted([2, 0], 0), counted([0, 2], 0), matmul)).toEqual([
      [2, 2],
      [0, 0, 0, 0],
    ]);
    expect(dot(counted([0, 3], 0), counted([3, 2], 0), matmul)).toEqual([[0, 2], []]);
    expect(dot(counted([2, 3], 0), counted([3, 0], 0), matmul)).toEqual([[2, 0], []]);
  });

  test("sums in float64 and rounds once, to the type asked for", () => {
    const x = hostTensor("bfloat16", [1, 3], [256, 1, 1]);
    const ones = hostTensor("bfloat16", [3, 1], [1, 1, 1]);
    expect(dot(x, ones, matmul)).toEqual([[1, 1], [258]]);
    expect(
      dot(
        hostTensor("bfloat16", [1, 2], [256, 1]),
        hostTensor("bfloat16", [2, 1], [1, 1]),
        matmul,
        "float32",
      ),
    ).toEqual([[1, 1], [257]]);
    const large = hostTensor("float32", [1, 3], [2 ** 24, 1, 1]);
    expect(dot(large, hostTensor("float32", [3, 1], [1, 1, 1]), matmul)).toEqual([[1, 1], [2 ** 24 + 2]]);
  });

  test("wraps integers around, and sums them exactly for a float result", () => {
    const x = hostTensor("int32", [1, 2], [65536, 3]);
    const y = hostTensor("int32", [2, 1], [65536, 5]);
    expect(dot(x, y, matmul)).toEqual([[1, 1], [15]]);
    expect(dot(x, y, matmul, "float64")).toEqual([[1, 1], [2 ** 32 + 15]]);
    const u = hostTensor("uint32", [1, 1], [2 ** 32 - 1]);
    expect(dot(u, hostTensor("uint32", [1, 1], [2]), matmul)).toEqual([[1, 1], [2 ** 32 - 2]]);
  });

  test("of integers has batches, rows and columns as that of floats has", () => {
    const dims = { lhsContract: [2], rhsContract: [1], lhsBatch: [0], rhsBatch: [0] };
    const [x, y] = [counted([2, 3, 2], -5), counted([2, 2, 4], -7)];
    const integers = ({ type, data }: HostTensor) =>
      hostTensor("int32", type.shape, Array.from(data, Number));
    expect(dot(integers(x), integers(y), dims)).toEqual(dot(x, y, dims));
  });

  test("passes NaN on, and 0 times infinity makes one", () => {
    const x = hostTensor("float32", [2, 2], [0, 1, Number.NaN, 0]);
    const y = hostTensor("float32", [2, 1], [Number.POSITIVE_INFINITY, 1]);
    expect(dot(x, y, matmul)[1]).toEqual([Number.NaN, Number.NaN]);
  });
});

describe("raggedDot", () => {
  const [rows, inputs, columns] = [6, 3, 5];
  const sizes = [
    [2, 0, 3],
    [1, 9, 1],
  ];
  const run = (x: HostTensor, y: HostTensor, ragged: OpParams["raggedDot"]["ragged"]): number[] => {
    const groups = hostTensor("int32", [2, 3], sizes.flat());
    return numbersOf(at(applyOp("raggedDot", [x, y, groups], { ragged, dtype: x.type.dtype }), 0));
  };
  const integers = ({ type, data }: HostTensor) => hostTensor("int32", type.shape, Array.from(data, Number));
  /** The group of a row; undefined behind the last one. */
  const groupOf = (batch: number, row: number): number | undefined => {
    const rows = at(sizes, batch).flatMap((size, group) => Array<number>(size).fill(group));
    return rows[row];
  };
  const dims = (...counts: number[]): number[][] =>
    counts.reduce<number[][]>((all, n) => all.flatMap((one) => range(n).map((i) => [...one, i])), [[]]);

  test("multiplies the rows of each group with its own matrix, and rows of none with 0", () => {
    const [x, y] = [counted([2, rows, inputs], -7), counted([2, 3, inputs, columns], -31)];
    const [xs, ys] = [numbersOf(x), numbersOf(y)];
    const expected = dims(2, rows, columns).map(([b = 0, i = 0, j = 0]) => {
      const group = groupOf(b, i);
      if (group === undefined) return 0;
      const product = (k: number) =>
        at(xs, (b * rows + i) * inputs + k) * at(ys, ((b * 3 + group) * inputs + k) * columns + j);
      return range(inputs).reduce((sum, k) => sum + product(k), 0);
    });
    expect(run(x, y, "rows")).toEqual(expected);
    expect(run(integers(x), integers(y), "rows")).toEqual(expected);
  });

  test("sums over the rows of each group", () => {
    const [x, y] = [counted([2, rows, inputs], -7), counted([2, rows, columns], -31)];
    const [xs, ys] = [numbersOf(x), numbersOf(y)];
    const expected = dims(2, 3, inputs, columns).map(([b = 0, group = 0, k = 0, j = 0]) =>
      range(rows)
        .filter((i) => groupOf(b, i) === group)
        .reduce(
          (sum, i) => sum + at(xs, (b * rows + i) * inputs + k) * at(ys, (b * rows + i) * columns + j),
          0,
        ),
    );
    expect(run(x, y, "sums")).toEqual(expected);
    expect(run(integers(x), integers(y), "sums")).toEqual(expected);
  });
});
