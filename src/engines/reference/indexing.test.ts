import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import { at, type Shape } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

const table = hostTensor("float32", [3, 2], [0, 1, 10, 11, 20, 21]);
const indices = (shape: Shape, values: readonly number[]): HostTensor => hostTensor("int32", shape, values);
const values = (tensors: readonly HostTensor[]): readonly [Shape, number[]] => {
  const y = at(tensors, 0);
  return [y.type.shape, numbersOf(y)];
};

describe("gather", () => {
  test("looks rows up, as an embedding does, and clamps indices", () => {
    const rows = applyOp("gather", [table, indices([2, 2], [2, 0, -5, 9])], { dim: 0, batchDims: 0 });
    expect(values(rows)).toEqual([
      [2, 2, 2],
      [20, 21, 0, 1, 0, 1, 20, 21],
    ]);
  });

  test("puts the index dims where the looked-up dim was", () => {
    const columns = applyOp("gather", [table, indices([3], [1, 1, 0])], { dim: 1, batchDims: 0 });
    expect(values(columns)).toEqual([
      [3, 3],
      [1, 1, 0, 11, 11, 10, 21, 21, 20],
    ]);
    expect(values(applyOp("gather", [table, indices([], [1])], { dim: 0, batchDims: 0 }))).toEqual([
      [2],
      [10, 11],
    ]);
  });

  test("looks up rows of the last dim along the dim before it, in every row of the dims before", () => {
    const x = hostTensor("float32", [2, 2, 3], [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]);
    expect(values(applyOp("gather", [x, indices([1], [1])], { dim: 1, batchDims: 0 }))).toEqual([
      [2, 1, 3],
      [10, 11, 12, 30, 31, 32],
    ]);
  });

  test("pairs batch dims, as taking along a dim does", () => {
    const taken = applyOp("gather", [table, indices([3, 1], [1, 0, 1])], { dim: 1, batchDims: 1 });
    expect(values(taken)).toEqual([
      [3, 1],
      [1, 10, 21],
    ]);
    const pairs = applyOp("gather", [table, indices([3, 2], [1, 0, 1, 1, 0, 0])], { dim: 1, batchDims: 1 });
    expect(values(pairs)).toEqual([
      [3, 2],
      [1, 0, 11, 11, 20, 20],
    ]);
    const x = hostTensor("float32", [2, 2, 2], [0, 1, 2, 3, 4, 5, 6, 7]);
    const inner = applyOp("gather", [x, indices([2], [1, 0])], { dim: 2, batchDims: 1 });
    expect(values(inner)).toEqual([
      [2, 2],
      [1, 3, 4, 6],
    ]);
  });

  test("takes nothing for no indices and keeps 16-bit floats and bools", () => {
    expect(values(applyOp("gather", [table, indices([0], [])], { dim: 0, batchDims: 0 }))).toEqual([
      [0, 2],
      [],
    ]);
    for (const dtype of ["bfloat16", "float16", "bool"] as const) {
      const x = hostTensor(dtype, [3], [0, 1, 1]);
      expect(values(applyOp("gather", [x, indices([2], [2, 0])], { dim: 0, batchDims: 0 }))).toEqual([
        [2],
        [1, 0],
      ]);
    }
  });
});

describe("scatter", () => {
  test("adds all updates of an index and drops those outside", () => {
    const updates = hostTensor("float32", [4, 2], [1, 1, 2, 2, 4, 4, 8, 8]);
    const params = { dim: 0, batchDims: 0, combine: "add" } as const;
    const sums = applyOp("scatter", [table, indices([4], [1, 1, 3, -1]), updates], params);
    expect(values(sums)).toEqual([
      [3, 2],
      [0, 1, 13, 14, 20, 21],
    ]);
    expect(numbersOf(table)).toEqual([0, 1, 10, 11, 20, 21]);
  });

  test("writes over, the last update of an index wins", () => {
    const updates = hostTensor("float32", [3, 2], [1, 2, 3, 4, 5, 6]);
    const params = { dim: 0, batchDims: 0, combine: "set" } as const;
    expect(values(applyOp("scatter", [table, indices([3], [2, 2, 7]), updates], params))).toEqual([
      [3, 2],
      [0, 1, 10, 11, 3, 4],
    ]);
  });

  test("undoes gather on batch dims and later dims", () => {
    const x = hostTensor("int32", [2, 2, 3], new Array(12).fill(0));
    const updates = hostTensor("int32", [2, 2, 1], [1, 2, 3, 4]);
    const params = { dim: 2, batchDims: 1, combine: "add" } as const;
    expect(values(applyOp("scatter", [x, indices([2, 1], [2, 0]), updates], params))).toEqual([
      [2, 2, 3],
      [0, 0, 1, 0, 0, 2, 3, 0, 0, 4, 0, 0],
    ]);
  });

  test("integers wrap around", () => {
    const params = { dim: 0, batchDims: 0, combine: "add" } as const;
    const x = hostTensor("int32", [1], [2 ** 31 - 1]);
    const updates = hostTensor("int32", [2], [1, 1]);
    expect(values(applyOp("scatter", [x, indices([2], [0, 0]), updates], params))[1]).toEqual([
      -(2 ** 31) + 1,
    ]);
  });

  test("rounds the sum of all updates once", () => {
    const params = { dim: 0, batchDims: 0, combine: "add" } as const;
    const x = hostTensor("bfloat16", [1], [256]);
    const updates = hostTensor("bfloat16", [2], [1, 1]);
    expect(values(applyOp("scatter", [x, indices([2], [0, 0]), updates], params))[1]).toEqual([258]);
  });
});

test("a scatter drops an update whose index is the size of the dim, and leaves the next row alone", () => {
  const updates = hostTensor("float32", [3, 1], [5, 6, 7]);
  const result = applyOp("scatter", [table, indices([3, 1], [2, 1, -1]), updates], {
    dim: 1,
    batchDims: 1,
    combine: "add",
  });
  expect(values(result)).toEqual([
    [3, 2],
    [0, 1, 10, 17, 20, 21],
  ]);
});
