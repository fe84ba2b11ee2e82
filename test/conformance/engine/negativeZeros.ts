/** Sums of negative zeros: a sum begins with 0 on every engine, so that it is 0, also if it has one term or none. */
import { type HostTensor, hostTensor } from "../../../src/engines/reference/hostTensor.js";
import type { DType } from "../../../src/ir/dtype.js";
import { newLiteral } from "../../../src/ir/program.js";
import { range, type Shape, sizeOf } from "../../../src/ir/shape.js";
import { type EngineCase, opCase } from "./cases.js";

function filled(dtype: DType, shape: Shape, value: number): HostTensor {
  return hostTensor(
    dtype,
    shape,
    range(sizeOf(shape)).map(() => value),
  );
}

type Dims = readonly number[];

/** Products whose terms are all −0: the operands' shapes, what is contracted, and batch dims. */
const products: readonly (readonly [Shape, Shape, readonly [Dims, Dims], readonly [Dims, Dims]])[] = [
  [[], [], [[], []], [[], []]],
  [[], [3], [[], []], [[], []]],
  [[3], [4], [[], []], [[], []]],
  [[3], [3], [[], []], [[0], [0]]],
  [[2, 3], [2], [[], []], [[0], [0]]],
  [
    [2, 3],
    [2, 4],
    [[], []],
    [[0], [0]],
  ],
  [[1], [1], [[0], [0]], [[], []]],
  [
    [3, 1],
    [1, 4],
    [[1], [0]],
    [[], []],
  ],
  [
    [2, 1],
    [2, 1],
    [[1], [1]],
    [[0], [0]],
  ],
  [
    [2, 3, 1],
    [2, 1, 4],
    [[2], [1]],
    [[0], [0]],
  ],
  [[5], [5], [[0], [0]], [[], []]],
  [[5, 5], [5], [[1], [0]], [[], []]],
  [
    [3, 2],
    [2, 4],
    [[1], [0]],
    [[], []],
  ],
];

const dotGeneral = (dtype: DType): EngineCase[] =>
  products.map(([x, y, [lhsContract, rhsContract], [lhsBatch, rhsBatch]]) =>
    opCase("dotGeneral", [filled(dtype, x, -1), filled(dtype, y, 0)], {
      lhsContract,
      rhsContract,
      lhsBatch,
      rhsBatch,
      dtype,
    }),
  );

const raggedDot = (dtype: DType): EngineCase[] =>
  (["rows", "sums"] as const).map((ragged) => {
    const y = filled(dtype, ragged === "rows" ? [2, 1, 4] : [3, 4], 0);
    return opCase("raggedDot", [filled(dtype, [3, 1], -1), y, hostTensor("int32", [2], [1, 1])], {
      ragged,
      dtype,
    });
  });

const reduceSum = (dtype: DType): EngineCase[] =>
  (
    [
      [[1], [0]],
      [[3, 1], [1]],
      [[3, 4], [1]],
      [
        [3, 4],
        [0, 1],
      ],
      [[3, 4], []],
    ] as const
  ).map(([shape, dims]) => opCase("reduceSum", [filled(dtype, shape, -0)], { dims }));

const cumsum = (dtype: DType): EngineCase[] =>
  [1, 5].flatMap((length) =>
    [false, true].map((reverse) => opCase("cumsum", [filled(dtype, [3, length], -0)], { dim: 1, reverse })),
  );

const add = (dtype: DType): EngineCase[] => {
  const x = filled(dtype, [5], -0);
  const [zero, negative] = [newLiteral(0, dtype), newLiteral(-0, dtype)];
  return [opCase("add", [x, zero], {}), opCase("add", [zero, x], {}), opCase("add", [x, negative], {})];
};

const sub = (dtype: DType): EngineCase[] =>
  [0, -0].map((value) => opCase("sub", [filled(dtype, [5], -0), newLiteral(value, dtype)], {}));

const scatter = (dtype: DType): EngineCase[] => {
  const [indices, updates] = [hostTensor("int32", [2], [1, 2]), filled(dtype, [2], -0)];
  return [0, -0].map((value) =>
    opCase("scatter", [filled(dtype, [4], value), indices, updates], {
      dim: 0,
      batchDims: 0,
      combine: "add",
    }),
  );
};

/** Cases by op. @param dtypes types that have two zeros */
export function negativeZeros(dtypes: readonly DType[]) {
  const each = (make: (dtype: DType) => EngineCase[]) => dtypes.flatMap(make);
  return {
    add: each(add),
    sub: each(sub),
    scatter: each(scatter),
    reduceSum: each(reduceSum),
    cumsum: each(cumsum),
    dotGeneral: each(dotGeneral),
    raggedDot: each(raggedDot),
  };
}
