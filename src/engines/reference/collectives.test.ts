import { describe, expect, test } from "vitest";
import { applyOpSpmd, buildProgram } from "../../../test/support/interpreting.js";
import type { DType } from "../../ir/dtype.js";
import { AxisError, ValueError } from "../../ir/errors.js";
import { axesSize, deviceGroups, type MeshAxis, type MeshShape } from "../../ir/mesh.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import { newLiteral } from "../../ir/program.js";
import { at, range, type Shape, sizeOf, tensorType } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";
import { interpretSpmd } from "./interpret.js";

const pair: MeshShape = { axes: [{ name: "x", size: 2 }] };
const four: MeshShape = { axes: [{ name: "x", size: 4 }] };
const grid: MeshShape = {
  axes: [
    { name: "a", size: 2 },
    { name: "b", size: 3 },
  ],
};

const axesOf = (mesh: MeshShape, names: readonly string[]): MeshAxis[] =>
  names.map((name) => ({ name, size: mesh.axes.find((axis) => axis.name === name)?.size ?? 0 }));

/** Device d holds 10 d, 10 d + 1, 10 d + 2, … */
const blocks = (mesh: MeshShape, shape: Shape, dtype: DType = "float32"): HostTensor[] =>
  range(axesSize(mesh.axes)).map((device) =>
    hostTensor(
      dtype,
      shape,
      range(sizeOf(shape)).map((i) => 10 * device + i),
    ),
  );

/** What every device holds after a collective on {@link blocks}. */
function outcome<K extends CollectiveOp>(
  op: K,
  mesh: MeshShape,
  shape: Shape,
  params: OpParams[K],
): readonly [Shape, number[][]] {
  const results = at(applyOpSpmd(op, mesh, [blocks(mesh, shape)], params), 0);
  return [at(results, 0).type.shape, results.map(numbersOf)];
}

interface Case {
  readonly mesh: MeshShape;
  readonly names: readonly string[];
  readonly psum: readonly number[][];
  readonly pmax: readonly number[][];
  readonly pmin: readonly number[][];
  /** Blocks `[1, 2]` along dim 0. */
  readonly gathered: readonly number[][];
  /** Blocks `[2, 1]` along dim 1. */
  readonly gatheredInside: readonly number[][];
  /** Blocks `[1, n]` along dim 1. */
  readonly scattered: readonly number[][];
  /** Blocks `[1]` to the next position; the last one's goes nowhere. */
  readonly shifted: readonly number[][];
  /** Blocks `[2, n]`, split along dim 1 and concatenated along dim 0. */
  readonly exchanged: readonly number[][];
  readonly index: readonly number[];
}

const repeat = (n: number, block: number[]): number[][] => range(n).map(() => block);
const twice = (rows: number[][]): number[][] => [...rows, ...rows];
const thrice = (first: number[], second: number[]): number[][] => [...repeat(3, first), ...repeat(3, second)];

// biome-ignore format: one line per collective, as JAX computes them
const cases: readonly Case[] = [
  {
    mesh: pair,
    names: ["x"],
    psum: repeat(2, [10, 12]),
    pmax: repeat(2, [10, 11]),
    pmin: repeat(2, [0, 1]),
    gathered: repeat(2, [0, 1, 10, 11]),
    gatheredInside: repeat(2, [0, 10, 1, 11]),
    scattered: [[10], [12]],
    shifted: [[0], [0]],
    exchanged: [[0, 2, 10, 12], [1, 3, 11, 13]],
    index: [0, 1],
  },
  {
    mesh: four,
    names: ["x"],
    psum: repeat(4, [60, 64]),
    pmax: repeat(4, [30, 31]),
    pmin: repeat(4, [0, 1]),
    gathered: repeat(4, [0, 1, 10, 11, 20, 21, 30, 31]),
    gatheredInside: repeat(4, [0, 10, 20, 30, 1, 11, 21, 31]),
    scattered: [[60], [64], [68], [72]],
    shifted: [[0], [0], [10], [20]],
    exchanged: [[0, 4, 10, 14, 20, 24, 30, 34], [1, 5, 11, 15, 21, 25, 31, 35], [2, 6, 12, 16, 22, 26, 32, 36], [3, 7, 13, 17, 23, 27, 33, 37]],
    index: [0, 1, 2, 3],
  },
  {
    mesh: grid,
    names: ["a"],
    psum: twice([[30, 32], [50, 52], [70, 72]]),
    pmax: twice([[30, 31], [40, 41], [50, 51]]),
    pmin: twice([[0, 1], [10, 11], [20, 21]]),
    gathered: twice([[0, 1, 30, 31], [10, 11, 40, 41], [20, 21, 50, 51]]),
    gatheredInside: twice([[0, 30, 1, 31], [10, 40, 11, 41], [20, 50, 21, 51]]),
    scattered: [[30], [50], [70], [32], [52], [72]],
    shifted: [[0], [0], [0], [0], [10], [20]],
    exchanged: [[0, 2, 30, 32], [10, 12, 40, 42], [20, 22, 50, 52], [1, 3, 31, 33], [11, 13, 41, 43], [21, 23, 51, 53]],
    index: [0, 0, 0, 1, 1, 1],
  },
  {
    mesh: grid,
    names: ["b"],
    psum: thrice([30, 33], [120, 123]),
    pmax: thrice([20, 21], [50, 51]),
    pmin: thrice([0, 1], [30, 31]),
    gathered: thrice([0, 1, 10, 11, 20, 21], [30, 31, 40, 41, 50, 51]),
    gatheredInside: thrice([0, 10, 20, 1, 11, 21], [30, 40, 50, 31, 41, 51]),
    scattered: [[30], [33], [36], [120], [123], [126]],
    shifted: [[0], [0], [10], [0], [30], [40]],
    exchanged: [[0, 3, 10, 13, 20, 23], [1, 4, 11, 14, 21, 24], [2, 5, 12, 15, 22, 25], [30, 33, 40, 43, 50, 53], [31, 34, 41, 44, 51, 54], [32, 35, 42, 45, 52, 55]],
    index: [0, 1, 2, 0, 1, 2],
  },
  {
    mesh: grid,
    names: ["a", "b"],
    psum: repeat(6, [150, 156]),
    pmax: repeat(6, [50, 51]),
    pmin: repeat(6, [0, 1]),
    gathered: repeat(6, [0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51]),
    gatheredInside: repeat(6, [0, 10, 20, 30, 40, 50, 1, 11, 21, 31, 41, 51]),
    scattered: [[150], [156], [162], [168], [174], [180]],
    shifted: [[0], [0], [10], [20], [30], [40]],
    exchanged: range(6).map((d) => range(6).flatMap((sender) => [10 * sender + d, 10 * sender + 6 + d])),
    index: [0, 1, 2, 3, 4, 5],
  },
  {
    mesh: grid,
    names: ["b", "a"],
    psum: repeat(6, [150, 156]),
    pmax: repeat(6, [50, 51]),
    pmin: repeat(6, [0, 1]),
    gathered: repeat(6, [0, 1, 30, 31, 10, 11, 40, 41, 20, 21, 50, 51]),
    gatheredInside: repeat(6, [0, 30, 10, 40, 20, 50, 1, 31, 11, 41, 21, 51]),
    scattered: [[150], [162], [174], [156], [168], [180]],
    shifted: [[0], [30], [40], [0], [10], [20]],
    exchanged: [0, 2, 4, 1, 3, 5].map((d) => [0, 3, 1, 4, 2, 5].flatMap((sender) => [10 * sender + d, 10 * sender + 6 + d])),
    index: [0, 2, 4, 1, 3, 5],
  },
];

describe.each(cases)("over $names of $mesh.axes", (expected) => {
  const { mesh } = expected;
  const axes = axesOf(mesh, expected.names);
  const n = axesSize(axes);

  test("psum, pmax and pmin leave the same on every member", () => {
    expect(outcome("psum", mesh, [2], { axes })).toEqual([[2], expected.psum]);
    expect(outcome("pmax", mesh, [2], { axes })).toEqual([[2], expected.pmax]);
    expect(outcome("pmin", mesh, [2], { axes })).toEqual([[2], expected.pmin]);
  });

  test("allGather concatenates in the order of the positions", () => {
    expect(outcome("allGather", mesh, [1, 2], { axes, dim: 0 })).toEqual([[n, 2], expected.gathered]);
    expect(outcome("allGather", mesh, [2, 1], { axes, dim: 1 })).toEqual([[2, n], expected.gatheredInside]);
  });

  test("psumScatter keeps the block of the own position", () => {
    expect(outcome("psumScatter", mesh, [1, n], { axes, dim: 1 })).toEqual([[1, 1], expected.scattered]);
  });

  test("ppermute sends to the target and leaves zeros where nothing arrives", () => {
    const permutation = range(n - 1).map((i) => [i, i + 1] as const);
    expect(outcome("ppermute", mesh, [1], { axes, permutation })).toEqual([[1], expected.shifted]);
  });

  test("ppermute leaves values that must not be read where nothing arrives and its result is unset", () => {
    const permutation = range(n - 1).map((i) => [i, i + 1] as const);
    const first = new Set(deviceGroups(mesh, expected.names).map(([device]) => device));
    const shifted = expected.shifted.map((values, device) => (first.has(device) ? [Number.NaN] : values));
    expect(outcome("ppermute", mesh, [1], { axes, permutation, unset: true })).toEqual([[1], shifted]);
  });

  test("allToAll exchanges blocks", () => {
    const params = { axes, splitDim: 1, concatDim: 0 };
    expect(outcome("allToAll", mesh, [2, n], params)).toEqual([[2 * n, 1], expected.exchanged]);
  });

  test("axisIndex is the row-major position", () => {
    const program = buildProgram([], (emit) => emit("axisIndex", [], { axes }));
    expect(interpretSpmd(program, mesh, []).map((lanes) => lanes.flatMap(numbersOf))).toEqual([
      expected.index,
    ]);
  });
});

describe("collectives", () => {
  const axes = axesOf(four, ["x"]);
  const lanes = (dtype: DType, values: readonly number[]): HostTensor[] =>
    values.map((value) => hostTensor(dtype, [], [value]));
  const combined = (op: "psum" | "pmax" | "pmin", operands: HostTensor[]) =>
    numbersOf(at(at(applyOpSpmd(op, four, [operands], { axes }), 0), 3));

  test("sum floats in float64 and round once, integers wrap around", () => {
    expect(combined("psum", lanes("float32", [2 ** 24, 1, 1, 0]))).toEqual([2 ** 24 + 2]);
    expect(combined("psum", lanes("bfloat16", [256, 1, 1, 0]))).toEqual([258]);
    expect(combined("psum", lanes("int32", [2 ** 31 - 1, 1, 0, 0]))).toEqual([-(2 ** 31)]);
    expect(combined("psum", lanes("uint32", [2 ** 32 - 1, 2, 0, 0]))).toEqual([1]);
  });

  test("pass NaN on", () => {
    const special = lanes("float32", [1, Number.NaN, Number.POSITIVE_INFINITY, -0]);
    expect(combined("pmax", special)).toEqual([Number.NaN]);
    expect(combined("pmin", special)).toEqual([Number.NaN]);
    expect(combined("pmax", lanes("bool", [0, 0, 1, 0]))).toEqual([1]);
    expect(combined("pmin", lanes("bool", [1, 0, 1, 1]))).toEqual([0]);
  });

  test("work on empty blocks and over no axes", () => {
    expect(outcome("psum", pair, [0], { axes: axesOf(pair, ["x"]) })).toEqual([[0], [[], []]]);
    expect(outcome("allGather", pair, [0, 2], { axes: axesOf(pair, ["x"]), dim: 0 })).toEqual([
      [0, 2],
      [[], []],
    ]);
    expect(outcome("psum", pair, [1], { axes: [] })).toEqual([[1], [[0], [10]]]);
  });

  test("name an axis that the mesh does not have, or of another size", () => {
    const x = blocks(pair, [1]);
    expect(() => applyOpSpmd("psum", pair, [x], { axes: [{ name: "y", size: 2 }] })).toThrow(AxisError);
    expect(() => applyOpSpmd("psum", pair, [x], { axes: [{ name: "y", size: 2 }] })).toThrow(/"y".*\{x: 2\}/);
    expect(() => applyOpSpmd("psum", pair, [x], { axes: [{ name: "x", size: 4 }] })).toThrow(
      /size 2.*expects 4/,
    );
  });
});

describe("raggedAllToAll", () => {
  const axes = axesOf(pair, ["x"]);
  type Table = readonly (readonly [start: number, size: number, other: number])[];
  const tables = (list: readonly Table[]): HostTensor[] =>
    list.map((rows) => hostTensor("int32", [rows.length, 3], rows.flat()));
  const exchange = (sends: readonly Table[], receives: readonly Table[]) => {
    const into = range(2).map((device) => hostTensor("float32", [4, 2], Array(8).fill(-1 - device)));
    const ins = [blocks(pair, [5, 2]), into, tables(sends), tables(receives)];
    return at(applyOpSpmd("raggedAllToAll", pair, ins, { axes }), 0).map(numbersOf);
  };

  // Two blocks for each device, of 0 to 2 rows: device 0 keeps row 4 and sends rows 1 and 2, and row 3.
  // biome-ignore format: one line for each device
  const sends: Table[] = [
    [[4, 1, 3], [0, 0, 0], [1, 2, 0], [3, 1, 3]],
    [[2, 1, 0], [0, 1, 1], [4, 1, 2], [0, 0, 0]],
  ];
  // biome-ignore format: one line for each device
  const receives: Table[] = [
    [[3, 1, 4], [0, 0, 0], [0, 1, 2], [1, 1, 0]],
    [[0, 2, 1], [3, 1, 3], [2, 1, 4], [0, 0, 0]],
  ];

  test("moves blocks of rows, and keeps rows that none arrives for", () => {
    expect(exchange(sends, receives)).toEqual([
      [14, 15, 10, 11, -1, -1, 8, 9],
      [2, 3, 4, 5, 18, 19, 6, 7],
    ]);
  });

  test.each([0, 1, 2])("refuses tables that disagree in column %i", (column) => {
    const wrong = receives.map((table, device) =>
      table.map((row, i) => {
        const [start, size, other] = row.map((n, c) => (device === 1 && i === 1 && c === column ? n - 1 : n));
        return [start ?? 0, size ?? 0, other ?? 0] as const;
      }),
    );
    expect(() => exchange(sends, wrong)).toThrow(/sends rows 3 to 4 for row 3, the other expects rows/);
  });
});

describe("collectives under control flow", () => {
  const scalar = tensorType("float32", []);
  const index = tensorType("int32", []);
  const branch = (mesh: MeshShape, names: readonly string[]) =>
    buildProgram([scalar], (emit, x) => emit("psum", [x], { axes: axesOf(mesh, names) }));
  const other = buildProgram([scalar], (emit, x) => emit("neg", [x], {}));
  const values = (mesh: MeshShape) => blocks(mesh, []);
  const indices = (list: readonly number[]) => list.map((i) => hostTensor("int32", [], [i]));

  test("run where all devices agree", () => {
    const program = buildProgram([index, scalar], (emit, i, x) =>
      emit("cond", [i, x], { branches: [other, branch(pair, ["x"])] }),
    );
    const [y] = interpretSpmd(program, pair, [indices([1, 1]), values(pair)]);
    expect(y?.map(numbersOf)).toEqual([[10], [10]]);
  });

  test("run where only the members of a group agree", () => {
    const program = buildProgram([index, scalar], (emit, i, x) =>
      emit("cond", [i, x], { branches: [other, branch(grid, ["b"])] }),
    );
    const [y] = interpretSpmd(program, grid, [indices([0, 0, 0, 1, 1, 1]), values(grid)]);
    expect(y?.map(numbersOf)).toEqual([[-0], [-10], [-20], [120], [120], [120]]);
  });

  test("say that they would deadlock where the members of a group disagree", () => {
    const program = buildProgram([index, scalar], (emit, i, x) =>
      emit("cond", [i, x], { branches: [other, branch(pair, ["x"])] }),
    );
    const run = () => interpretSpmd(program, pair, [indices([0, 1]), values(pair)]);
    expect(run).toThrow(ValueError);
    expect(run).toThrow(/\[psum\] devices 1 wait over axis x for devices 0.*would deadlock/);
  });

  test("say that they would deadlock where a device leaves a loop early", () => {
    const limit = newLiteral(15, "float32");
    const condition = buildProgram([scalar], (emit, x) => emit("compare", [x, limit], { direction: "lt" }));
    const body = buildProgram([scalar], (emit, x) => {
      const [sum = x] = emit("psum", [x], { axes: axesOf(pair, ["x"]) });
      return emit("add", [sum, newLiteral(1, "float32")], {});
    });
    const program = buildProgram([scalar], (emit, x) =>
      emit("while", [x], { condition, body, numConditionConsts: 0, numBodyConsts: 0 }),
    );
    const start = (list: readonly number[]) => [list.map((value) => hostTensor("float32", [], [value]))];
    expect(interpretSpmd(program, pair, start([1, 2])).map((x) => x.map(numbersOf))).toEqual([[[19], [19]]]);
    expect(() => interpretSpmd(program, pair, start([1, 20]))).toThrow(/left the loop.*would deadlock/);
  });
});
