import { type HostTensor, hostTensor } from "../../../src/engines/reference/hostTensor.js";
import { type DType, isFloat, sumType } from "../../../src/ir/dtype.js";
import { isInDomain } from "../../../src/ir/infer/inferChecks.js";
import type { MeshAxis, MeshShape } from "../../../src/ir/mesh.js";
import { axesSize, positionAlong } from "../../../src/ir/mesh.js";
import { type CollectiveOp, opFacts, rowsBy, type UnaryOp } from "../../../src/ir/opFacts.js";
import {
  float8Types,
  type OpName,
  type OpParams,
  type OpTable,
  type RaggedDim,
} from "../../../src/ir/ops.js";
import { newLiteral } from "../../../src/ir/program.js";
import { range, type Shape, tensorType } from "../../../src/ir/shape.js";
import { twiceParams } from "../../support/hostFunctions.js";
import { buildProgram } from "../../support/interpreting.js";
import { unaryOps } from "../../support/unaryOps.js";
import { type EngineCase, type Fill, opCase, sample, spmdCase } from "./cases.js";
import { negativeZeros } from "./negativeZeros.js";

/** Shapes that exercise vectors and their tails, and the empty and the scalar tensor. */
const shapes: readonly Shape[] = [[], [0], [3], [4, 5], [2, 3, 33]];
const floats: readonly DType[] = ["float32", "float64", "bfloat16", "float16"];
const signed: readonly DType[] = ["int32", "int8", "int16"];
const integers: readonly DType[] = [...signed, "uint32", "uint8", "uint16"];
const numbers: readonly DType[] = [...floats, ...integers];
const all: readonly DType[] = [...numbers, "bool"];
const zeros = negativeZeros(floats);

/** Values at the ends of the types' ranges, signed zeros, and what is no number. */
const specials = [
  0,
  -0,
  1,
  -1,
  0.5,
  -0.5,
  1e-40,
  3e38,
  -3e38,
  Infinity,
  -Infinity,
  Number.NaN,
  88,
  -104,
  1e-8,
  6e4,
  -6e4,
  2.5,
  1e20,
];

/** Every pair of special values. */
function specialPairs(op: Binary, dtype: DType): EngineCase {
  const shape = [specials.length ** 2];
  const left = specials.flatMap((x) => specials.map(() => x));
  const right = specials.flatMap(() => specials);
  return opCase(op, [hostTensor(dtype, shape, left), hostTensor(dtype, shape, right)], {});
}

/** An elementwise op of one operand: every type and shape, and for floats the special values. */
function unary(op: UnaryOp): EngineCase[] {
  const dtypes = all.filter((dtype) => isInDomain(dtype, opFacts[op].on));
  const fill = unaryOps[op].operands;
  const ordinary = dtypes.flatMap((dtype) =>
    shapes.map((shape, i) => opCase(op, [sample(dtype, shape, fill, i + 1)], {})),
  );
  const special = dtypes
    .filter(isFloat)
    .map((dtype) => opCase(op, [hostTensor(dtype, [specials.length], specials)], {}));
  return [...ordinary, ...special];
}

type Binary = "add" | "sub" | "mul" | "div" | "rem" | "pow" | "max" | "min" | "and" | "or" | "xor" | "atan2";

function binary(op: Binary, dtypes: readonly DType[], fills: readonly [Fill, Fill]): EngineCase[] {
  return dtypes.flatMap((dtype) => [
    ...shapes.map((shape, i) =>
      opCase(op, [sample(dtype, shape, fills[0], i + 1), sample(dtype, shape, fills[1], i + 50)], {}),
    ),
    opCase(op, [sample(dtype, [37], fills[0], 7), newLiteral(dtype === "bool" ? 1 : 3, dtype)], {}),
    ...(isFloat(dtype) ? [specialPairs(op, dtype)] : []),
  ]);
}

const shifts = (op: "shl" | "shrLogical" | "shrArithmetic"): EngineCase[] =>
  integers.map((dtype) =>
    opCase(op, [sample(dtype, [40], "bits", 1), hostTensor(dtype, [40], range(40))], {}),
  );

const converts: EngineCase[] = all.flatMap((from) =>
  all.map((to) => {
    const values = from === "bool" ? [0, 1, 1] : from === "uint32" ? [0, 7, 4e9] : [0, -3, 70000];
    const wild = [1.5, -2.5, 3e9, -3e9, Number.NaN, Infinity];
    const input = hostTensor(
      from,
      [from.includes("float") ? 9 : 3],
      from.includes("float") ? [...values, ...wild] : values,
    );
    return opCase("convert", [input], { dtype: to });
  }),
);

function reduction(op: "reduceSum" | "reduceMax" | "reduceMin", dtypes: readonly DType[]): EngineCase[] {
  return dtypes.flatMap((dtype) => [
    opCase(op, [sample(dtype, [3, 4, 33], "any", 1)], { dims: [2] }),
    opCase(op, [sample(dtype, [3, 4, 33], "any", 2)], { dims: [0] }),
    opCase(op, [sample(dtype, [3, 4, 5], "any", 3)], { dims: [0, 2] }),
    opCase(op, [sample(dtype, [7], "any", 4)], { dims: [0] }),
    opCase(op, [sample(dtype, [2, 0], "any", 5)], { dims: [1] }),
    opCase(op, [sample(dtype, [2, 3], "any", 6)], { dims: [] }),
  ]);
}

const i32 = (...values: readonly number[]): HostTensor => hostTensor("int32", [values.length], values);
const index = (value: number): HostTensor => hostTensor("int32", [], [value]);
const f32 = (shape: Shape, seed: number, fill: Fill = "any"): HostTensor =>
  sample("float32", shape, fill, seed);

function dot(
  x: Shape,
  y: Shape,
  contract: readonly [readonly number[], readonly number[]],
  batch: readonly [readonly number[], readonly number[]] = [[], []],
  dtype: DType = "float32",
): EngineCase {
  const [lhsContract, rhsContract] = contract;
  const [lhsBatch, rhsBatch] = batch;
  const operands = [sample(dtype, x, "small", 1), sample(dtype, y, "small", 2)];
  return opCase("dotGeneral", operands, { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype });
}

/** Seven rows of five elements in groups of these sizes. */
function raggedDot(ragged: RaggedDim, sizes: readonly number[], dtype: DType = "float32"): EngineCase {
  const y: Shape = ragged === "rows" ? [sizes.length, 5, 3] : [7, 3];
  const operands = [sample(dtype, [7, 5], "small", 1), sample(dtype, y, "small", 2), i32(...sizes)];
  return opCase("raggedDot", operands, { ragged, dtype });
}

/** Attention of queries to five keys, the heads of an odd size. */
interface AttentionCase {
  readonly length: number;
  readonly heads: number;
  readonly keyHeads: number;
  readonly causal: boolean;
}

function attentionOperands(dtype: DType, { length, heads, keyHeads }: AttentionCase): HostTensor[] {
  const keys: Shape = [2, 5, keyHeads, 3];
  const query = sample(dtype, [2, length, heads, 3], "small", 1);
  return [query, sample(dtype, keys, "small", 2), sample(dtype, keys, "small", 3)];
}

const attention = (dtype: DType, of: AttentionCase): EngineCase =>
  opCase("attention", attentionOperands(dtype, of), { scale: 0.5, causal: of.causal });

function attentionBackward(dtype: DType, of: AttentionCase): EngineCase {
  const { length, heads, causal } = of;
  const sums = sample(sumType(dtype), [2, heads, length], "positive", 4);
  const likeQuery = (seed: number) => sample(dtype, [2, length, heads, 3], "small", seed);
  const operands = [...attentionOperands(dtype, of), sums, likeQuery(5), likeQuery(6)];
  return opCase("attentionBackward", operands, { scale: 0.5, causal });
}

/** Attention with all further operands; the last query of the second batch element sees no key. */
function fullAttention(dtype: DType, isBackward: boolean): EngineCase {
  const of = { length: 3, heads: 4, keyHeads: 2, causal: true };
  const operands = attentionOperands(dtype, of);
  const likeQuery = (seed: number) => sample(dtype, [2, 3, 4, 3], "small", seed);
  const sums = sample(sumType(dtype), [2, 4, 3], "positive", 4);
  const extras = [
    sample(dtype, [1, 4, 3, 5], "small", 7),
    hostTensor("bool", [2, 1, 1, 5], [1, 0, 1, 1, 1, 1, 1, 1, 0, 1]),
    hostTensor("int32", [2, 3], [0, 0, 1, 2, 2, 5]),
    hostTensor("int32", [2, 5], [0, 0, 0, 1, 1, 2, 2, 2, 3, 3]),
    hostTensor("int32", [2, 3], [0, 3, 4, 1, 2, 3]),
    hostTensor("int32", [2, 5], [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]),
    sample("uint32", [2, 4, 2], "any", 8),
  ];
  const params: OpParams["attention"] = {
    scale: 0.5,
    causal: true,
    window: [3, -1],
    softcap: 2,
    dropoutRate: 0.25,
    extras: ["bias", "mask", "querySegments", "keySegments", "queryPositions", "keyPositions", "dropoutKeys"],
  };
  if (!isBackward) return opCase("attention", [...operands, ...extras], params);
  const all = [...operands, sums, likeQuery(5), likeQuery(6), ...extras];
  return opCase("attentionBackward", all, { ...params, wants: ["bias"] });
}

const meshes: readonly (readonly [MeshShape, readonly string[]])[] = [
  [{ axes: [{ name: "x", size: 2 }] }, ["x"]],
  [
    {
      axes: [
        { name: "x", size: 2 },
        { name: "y", size: 2 },
      ],
    },
    ["x"],
  ],
  [
    {
      axes: [
        { name: "x", size: 2 },
        { name: "y", size: 2 },
      ],
    },
    ["y", "x"],
  ],
];

/** A collective over several meshes; `operand` has the dims it needs for groups of up to four. */
function collective(
  op: Exclude<CollectiveOp, "ppermute" | "allToAll" | "raggedAllToAll" | "allGather" | "psumScatter">,
  dtypes: readonly DType[],
): EngineCase[] {
  return onMeshes((mesh, names) => {
    const axes = mesh.axes.filter(({ name }) => names.includes(name));
    const ofShape = (dtype: DType, shape: Shape) =>
      spmdCase(op, mesh, [blocks(mesh, dtype, shape)], { axes });
    const [first, ...others] = dtypes.map((dtype) => ofShape(dtype, [3, 5]));
    return [...(first ? [first] : []), ofShape("float32", [3, 0]), ...others];
  });
}

function onMeshes(make: (mesh: MeshShape, names: readonly string[]) => readonly EngineCase[]): EngineCase[] {
  return meshes.flatMap(([mesh, names]) => make(mesh, names));
}

const axesOf = (mesh: MeshShape, names: readonly string[]) =>
  names.flatMap((name) => mesh.axes.filter((axis) => axis.name === name));

const blocks = (mesh: MeshShape, dtype: DType, shape: Shape): HostTensor[] =>
  range(axesSize(mesh.axes)).map((device) => sample(dtype, shape, "any", device + 1));

/**
 * Member i sends (i + 2 j) mod 3 rows to member j in two blocks, the first of one row, and rows lie in the results in the
 * order of the senders.
 */
function raggedAllToAll(mesh: MeshShape, axes: readonly MeshAxis[], dtype: DType): EngineCase {
  const size = axesSize(axes);
  const names = axes.map(({ name }) => name);
  const count = (from: number, to: number) => (from + 2 * to) % 3;
  const sum = (end: number, of: (i: number) => number) => range(end).reduce((total, i) => total + of(i), 0);
  const sentAt = (from: number, to: number) => sum(to, (j) => count(from, j));
  const keptAt = (from: number, to: number) => 1 + sum(from, (i) => count(i, to));
  const tables = (of: (me: number, other: number) => readonly number[]) =>
    range(axesSize(mesh.axes)).map((device) => {
      const me = positionAlong(mesh, device, names);
      return hostTensor(
        "int32",
        [2 * size, 3],
        range(size).flatMap((other) => {
          const [here = 0, rows = 0, there = 0] = of(me, other);
          const first = Math.min(rows, 1);
          return [here, first, there, here + first, rows - first, there + first];
        }),
      );
    });
  const sends = tables((me, to) => [sentAt(me, to), count(me, to), keptAt(me, to)]);
  const receives = tables((me, from) => [keptAt(from, me), count(from, me), sentAt(from, me)]);
  const operands = [blocks(mesh, dtype, [9, 5]), blocks(mesh, dtype, [10, 5]), sends, receives];
  return spmdCase("raggedAllToAll", mesh, operands, { axes });
}

const scalar = tensorType("float32", []);
const vector = tensorType("float32", [5]);

/** `carry ← carry · const + x`, emitting the carry before; a whole loop with all three kinds of operands. */
const scanBody = buildProgram([vector, vector, vector], (emit, constant, carry, x) => {
  const [product] = emit("mul", [constant, carry], {});
  const next = product === undefined ? [] : emit("add", [product, x], {});
  return [...next, carry];
});

const doubleBody = buildProgram([vector], (emit, x) => emit("add", [x, x], {}));
const negateBody = buildProgram([vector], (emit, x) => emit("neg", [x], {}));
const belowHundred = buildProgram([scalar], (emit, x) =>
  emit("compare", [x, newLiteral(100, "float32")], { direction: "lt" }),
);
const twice = buildProgram([scalar], (emit, x) => emit("mul", [x, newLiteral(2, "float32")], {}));

/** Ties, the smallest and largest values of the float8 types, and what is beyond them, with both signs. */
const float8Edges = [
  ...[
    0,
    2 ** -17,
    1.5 * 2 ** -17,
    2 ** -16,
    2 ** -10,
    1.5 * 2 ** -10,
    3 * 2 ** -10,
    2 ** -9,
    2 ** -6,
    2 ** -140,
  ],
  ...[1.0625, 1.125, 1.1875, 17, 19, 440, 448, 464, 464.1, 480, 57_344, 61_439, 61_440, 1e30, Infinity, NaN],
].flatMap((x) => [x, -x]);

/** At least one case for every op, so that a new op does not come without one. */
export const opCases: OpTable<{ readonly [K in OpName]: readonly EngineCase[] }> = {
  ...rowsBy(["unary"], unary),
  isFinite: floats.map((dtype) => opCase("isFinite", [hostTensor(dtype, [specials.length], specials)], {})),
  convert: converts,
  bitcast: [
    opCase("bitcast", [f32([9], 1)], { dtype: "int32" }),
    opCase("bitcast", [sample("uint32", [9], "positive", 1)], { dtype: "float32" }),
    opCase("bitcast", [sample("bfloat16", [9], "any", 1)], { dtype: "float16" }),
    opCase("bitcast", [sample("bfloat16", [9], "any", 1)], { dtype: "int16" }),
    opCase("bitcast", [sample("float16", [9], "any", 1)], { dtype: "uint16" }),
    opCase("bitcast", [sample("int16", [9], "bits", 1)], { dtype: "bfloat16" }),
    opCase("bitcast", [sample("int8", [9], "bits", 1)], { dtype: "uint8" }),
    opCase("bitcast", [sample("uint16", [9], "bits", 1)], { dtype: "int16" }),
  ],

  xlaFunction: [
    ...floats.map((dtype) => opCase("xlaFunction", [sample(dtype, [4, 50], "unit", 2)], { fn: "erfInv" })),
    opCase("xlaFunction", [hostTensor("float32", [4], [-1, 1, 0, Number.NaN])], { fn: "erfInv" }),
    opCase("xlaFunction", [newLiteral(0.25, "float32")], { fn: "erfInv" }),
    ...floats.map((dtype) => opCase("xlaFunction", [sample(dtype, [40], "any", 1)], { fn: "erf" })),
    opCase("xlaFunction", [hostTensor("float32", [5], [0, 1e-6, 0.3, 0.5, 0.999999])], {
      fn: "exponentialQuantile",
    }),
  ],
  roundFloat8: float8Types.flatMap((format) => [
    ...floats.map((dtype) => opCase("roundFloat8", [sample(dtype, [4, 50], "any", 2)], { format })),
    opCase("roundFloat8", [hostTensor("float32", [float8Edges.length], float8Edges)], { format }),
    opCase("roundFloat8", [newLiteral(0.3, "float32")], { format }),
  ]),

  add: [...zeros.add, ...binary("add", numbers, ["any", "any"])],
  sub: [...zeros.sub, ...binary("sub", numbers, ["any", "any"])],
  mul: binary("mul", numbers, ["any", "any"]),
  div: [
    ...binary("div", floats, ["any", "positive"]),
    ...binary("div", integers, ["bits", "any"]),
    opCase("div", [i32(7, -7, -(2 ** 31)), i32(0, 2, -1)], {}),
  ],
  rem: [
    ...binary("rem", floats, ["any", "positive"]),
    ...binary("rem", integers, ["bits", "any"]),
    opCase("rem", [i32(7, -7, -(2 ** 31)), i32(0, 2, -1)], {}),
  ],
  pow: [
    ...binary("pow", floats, ["positive", "small"]),
    ...binary("pow", ["int32", "int8", "uint16"], ["index", "index"]),
    opCase("pow", [i32(3, -3, 7, -1, 2, 1), i32(64, 1001, 2 ** 31 - 1, -(2 ** 31), -3, 4096)], {}),
    opCase(
      "pow",
      [hostTensor("uint8", [4], [253, 3, 2, 0]), hostTensor("uint8", [4], [253, 254, 200, 0])],
      {},
    ),
    opCase(
      "pow",
      [hostTensor("uint32", [3], [3, 1, 5]), hostTensor("uint32", [3], [2 ** 32 - 5, 2 ** 31, 2 ** 31 + 1])],
      {},
    ),
  ],
  max: binary("max", all, ["any", "any"]),
  min: binary("min", all, ["any", "any"]),
  and: binary("and", [...integers, "bool"], ["bits", "bits"]),
  or: binary("or", [...integers, "bool"], ["bits", "bits"]),
  xor: binary("xor", [...integers, "bool"], ["bits", "bits"]),
  shl: shifts("shl"),
  shrLogical: shifts("shrLogical"),
  shrArithmetic: shifts("shrArithmetic"),
  atan2: binary("atan2", floats, ["any", "any"]),
  compare: all.flatMap((dtype) =>
    (["eq", "ne", "lt", "le", "gt", "ge"] as const).map((direction) =>
      opCase("compare", [sample(dtype, [21], "index", 1), sample(dtype, [21], "index", 2)], { direction }),
    ),
  ),
  select: all.map((dtype) =>
    opCase(
      "select",
      [sample("bool", [3, 7], "any", 1), sample(dtype, [3, 7], "any", 2), sample(dtype, [3, 7], "any", 3)],
      {},
    ),
  ),
  clamp: numbers.map((dtype) =>
    opCase("clamp", [newLiteral(1, dtype), sample(dtype, [3, 7], "any", 2), newLiteral(4, dtype)], {}),
  ),
  threefry2x32: [
    opCase(
      "threefry2x32",
      range(4).map((i) => sample("uint32", [11], "bits", i + 1)),
      {},
    ),
  ],
  name: [opCase("name", [f32([3], 1)], { name: "kept" })],
  stopGradient: [opCase("stopGradient", [f32([3], 1)], {})],
  pvary: [],
  optimizationBarrier: [opCase("optimizationBarrier", [f32([3], 1), i32(1, 2)], {})],

  iota: numbers.flatMap((dtype) => [
    opCase("iota", [], { dtype, shape: [3, 9], dim: 1 }),
    opCase("iota", [], { dtype, shape: [3, 9], dim: 0 }),
  ]),
  broadcastInDim: all.flatMap((dtype) => [
    opCase("broadcastInDim", [sample(dtype, [5], "any", 1)], { shape: [3, 5], dims: [1] }),
    opCase("broadcastInDim", [sample(dtype, [3, 1], "any", 1)], { shape: [3, 9], dims: [0, 1] }),
    opCase("broadcastInDim", [sample(dtype, [], "any", 1)], { shape: [2, 0, 3], dims: [] }),
    opCase("broadcastInDim", [sample(dtype, [], "any", 1)], { shape: [17], dims: [] }),
  ]),
  reshape: [
    opCase("reshape", [f32([3, 4], 1)], { shape: [2, 6] }),
    opCase("reshape", [f32([1], 1)], { shape: [] }),
  ],
  transpose: all.flatMap((dtype) => [
    opCase("transpose", [sample(dtype, [7, 9], "any", 1)], { permutation: [1, 0] }),
    opCase("transpose", [sample(dtype, [2, 3, 5], "any", 1)], { permutation: [2, 0, 1] }),
  ]),
  reverse: all.map((dtype) => opCase("reverse", [sample(dtype, [3, 9], "any", 1)], { dims: [0, 1] })),
  slice: all.map((dtype) =>
    opCase("slice", [sample(dtype, [5, 9], "any", 1)], { starts: [1, 2], limits: [5, 9], strides: [2, 3] }),
  ),
  pad: all.flatMap((dtype) => [
    opCase("pad", [sample(dtype, [3, 4], "any", 1), sample(dtype, [], "any", 2)], {
      low: [1, -1],
      high: [0, 2],
      interior: [0, 1],
    }),
    opCase("pad", [sample(dtype, [3], "any", 1), newLiteral(1, dtype)], {
      low: [2],
      high: [-1],
      interior: [2],
    }),
  ]),
  concatenate: all.map((dtype) =>
    opCase(
      "concatenate",
      [sample(dtype, [2, 3], "any", 1), sample(dtype, [2, 0], "any", 1), sample(dtype, [2, 5], "any", 2)],
      { dim: 1 },
    ),
  ),
  dynamicSlice: [0, 2, 9, -5].map((start) =>
    opCase("dynamicSlice", [f32([5, 6], 1), index(start), index(1)], { sizes: [2, 4] }),
  ),
  dynamicUpdateSlice: [0, 2, 9, -5].map((start) =>
    opCase("dynamicUpdateSlice", [f32([5, 6], 1), f32([2, 4], 2), index(start), index(1)], {}),
  ),
  gather: [
    opCase("gather", [f32([4, 7], 1), i32(0, 3, 1, 9, -2)], { dim: 0, batchDims: 0 }),
    opCase("gather", [f32([3, 4], 1), sample("int32", [3, 2], "index", 2)], { dim: 1, batchDims: 1 }),
    opCase("gather", [sample("bool", [4, 5], "any", 1), i32(2, 2)], { dim: 1, batchDims: 0 }),
  ],
  scatter: [
    ...zeros.scatter,
    ...(["add", "set"] as const).flatMap((combine) => [
      opCase("scatter", [f32([4, 7], 1), i32(0, 3, 3, 9, -2), f32([5, 7], 2)], {
        dim: 0,
        batchDims: 0,
        combine,
      }),
      opCase("scatter", [f32([3, 4], 1), sample("int32", [3, 2], "index", 2), f32([3, 2], 3)], {
        dim: 1,
        batchDims: 1,
        combine,
      }),
      opCase("scatter", [sample("int32", [4], "any", 1), i32(1, 1), i32(5, 6)], {
        dim: 0,
        batchDims: 0,
        combine,
      }),
    ]),
  ],

  reduceSum: [...zeros.reduceSum, ...reduction("reduceSum", numbers)],
  reduceMax: reduction("reduceMax", all),
  reduceMin: reduction("reduceMin", all),
  argmax: [0, 1].flatMap((dim) =>
    all.map((dtype) => opCase("argmax", [sample(dtype, [5, 9], "index", 1)], { dim })),
  ),
  argmin: [0, 1].flatMap((dim) =>
    all.map((dtype) => opCase("argmin", [sample(dtype, [5, 9], "index", 1)], { dim })),
  ),
  cumsum: [
    ...zeros.cumsum,
    ...[0, 1].flatMap((dim) =>
      numbers.flatMap((dtype) =>
        [true, false].map((reverse) =>
          opCase("cumsum", [sample(dtype, [5, 9], "small", 1)], { dim, reverse }),
        ),
      ),
    ),
  ],
  sort: [
    opCase("sort", [f32([5, 9], 1)], { dim: 1, numKeys: 1 }),
    opCase("sort", [sample("int32", [9, 2], "index", 1), f32([9, 2], 2)], { dim: 0, numKeys: 1 }),
    opCase(
      "sort",
      [hostTensor("float32", [specials.length], specials), sample("int32", [specials.length], "index", 1)],
      { dim: 0, numKeys: 2 },
    ),
  ],
  dotGeneral: [
    ...zeros.dotGeneral,
    dot([5, 7], [7, 3], [[1], [0]]),
    dot([7, 5], [3, 7], [[0], [1]]),
    dot([33, 40], [40, 35], [[1], [0]]),
    dot([2, 3, 5], [2, 5, 4], [[2], [1]], [[0], [0]]),
    dot([3, 2, 5], [5, 2, 4], [[2], [0]], [[1], [1]]),
    dot([6], [6], [[0], [0]]),
    dot([3], [4], [[], []]),
    dot(
      [2, 3, 4],
      [3, 4, 5],
      [
        [1, 2],
        [0, 1],
      ],
    ),
    dot([3, 0], [0, 4], [[1], [0]]),
    ...(["float64", "bfloat16", "float16", "int32", "int8", "uint8", "int16", "uint16"] as const).map(
      (dtype) => dot([5, 9], [9, 6], [[1], [0]], [[], []], dtype),
    ),
  ],
  raggedDot: [
    ...zeros.raggedDot,
    ...(
      [
        [0, 3, 0, 4],
        [7, 0, 0, 0],
        [0, 0, 0, 0],
        [1, 1, -1, 2],
        [5, 9, 1, 1],
      ] as const
    ).flatMap((sizes) => [raggedDot("rows", sizes), raggedDot("sums", sizes)]),
    ...(["float64", "bfloat16", "float16", "int32", "int8"] as const).flatMap((dtype) => [
      raggedDot("rows", [2, 1, 0, 3], dtype),
      raggedDot("sums", [2, 1, 0, 3], dtype),
    ]),
    opCase(
      "raggedDot",
      [f32([2, 3, 5], 1), f32([2, 2, 5, 4], 2), hostTensor("int32", [2, 2], [1, 2, 2, 0])],
      {
        ragged: "rows",
        dtype: "float32",
      },
    ),
    opCase("raggedDot", [f32([2, 3, 5], 1), f32([2, 3, 4], 2), hostTensor("int32", [2, 2], [1, 2, 2, 0])], {
      ragged: "sums",
      dtype: "float32",
    }),
    opCase("raggedDot", [f32([70, 40], 1), f32([2, 40, 35], 2), i32(33, 36)], {
      ragged: "rows",
      dtype: "float32",
    }),
    opCase("raggedDot", [f32([70, 40], 1), f32([70, 35], 2), i32(33, 36)], {
      ragged: "sums",
      dtype: "float32",
    }),
    opCase("raggedDot", [f32([1, 1], 1), f32([1, 1, 1], 2), i32(1)], { ragged: "rows", dtype: "float32" }),
    opCase("raggedDot", [f32([0, 3], 1), f32([0, 2], 2), i32(1, 0)], { ragged: "sums", dtype: "float32" }),
  ],
  attention: (["float32", "float64", "bfloat16", "float16"] as const).flatMap((dtype) => [
    attention(dtype, { length: 5, heads: 4, keyHeads: 2, causal: true }),
    attention(dtype, { length: 3, heads: 2, keyHeads: 2, causal: false }),
    fullAttention(dtype, false),
  ]),
  attentionBackward: (["float32", "float64", "bfloat16", "float16"] as const).flatMap((dtype) => [
    attentionBackward(dtype, { length: 5, heads: 4, keyHeads: 2, causal: true }),
    attentionBackward(dtype, { length: 3, heads: 2, keyHeads: 2, causal: false }),
    fullAttention(dtype, true),
  ]),
  callback: [opCase("callback", [f32([2, 3], 1)], twiceParams)],

  scan: [false, true].flatMap((reverse) =>
    [0, 1, 7].map((length) =>
      opCase("scan", [f32([5], 1, "unit"), f32([5], 2), f32([length, 5], 3)], {
        body: scanBody,
        length,
        reverse,
        numConsts: 1,
        numCarry: 1,
      }),
    ),
  ),
  while: [
    opCase("while", [hostTensor("float32", [], [1.5])], {
      condition: belowHundred,
      body: twice,
      numConditionConsts: 0,
      numBodyConsts: 0,
    }),
  ],
  cond: [-1, 0, 1, 5].map((branch) =>
    opCase("cond", [index(branch), f32([5], 1)], { branches: [doubleBody, negateBody] }),
  ),
  // Calls are gone before an engine sees a program; the contract has that they are refused.
  remat: [],
  customVjp: [],

  psum: [
    ...collective("psum", numbers),
    // Sums begin with 0, so those of negative zeros are 0.
    ...onMeshes((mesh, names) =>
      numbers.filter(isFloat).map((dtype) => {
        const zeros = range(axesSize(mesh.axes)).map(() =>
          hostTensor(
            dtype,
            [67],
            range(67).map(() => -0),
          ),
        );
        return spmdCase("psum", mesh, [zeros], { axes: axesOf(mesh, names) });
      }),
    ),
  ],
  pmax: collective("pmax", all),
  pmin: collective("pmin", all),
  allGather: onMeshes((mesh, names) =>
    [0, 1].flatMap((dim) => {
      const ofShape = (dtype: DType, shape: Shape) =>
        spmdCase("allGather", mesh, [blocks(mesh, dtype, shape)], { axes: axesOf(mesh, names), dim });
      return [ofShape("float32", [3, 5]), ofShape("float32", [3, 0]), ofShape("bool", [3, 5])];
    }),
  ),
  psumScatter: onMeshes((mesh, names) =>
    [
      [0, 8],
      [1, 0],
      [1, 8],
    ].map(([dim = 0, size = 0]) =>
      spmdCase("psumScatter", mesh, [blocks(mesh, "float32", [4, size])], { axes: axesOf(mesh, names), dim }),
    ),
  ),
  ppermute: onMeshes((mesh, names) =>
    [
      [[0, 1]],
      [
        [0, 1],
        [1, 0],
      ],
      [[1, 1]],
    ].map((permutation) =>
      spmdCase("ppermute", mesh, [blocks(mesh, "float32", [3, 5])], {
        axes: axesOf(mesh, names),
        permutation: permutation.map(([from = 0, to = 0]) => [from, to] as const),
      }),
    ),
  ),
  allToAll: onMeshes((mesh, names) =>
    [
      [0, 1, 3],
      [1, 0, 3],
      [1, 1, 0],
      [1, 1, 3],
    ].map(([splitDim = 0, concatDim = 0, size = 0]) =>
      spmdCase("allToAll", mesh, [blocks(mesh, "float32", [4, 8, size])], {
        axes: axesOf(mesh, names),
        splitDim,
        concatDim,
      }),
    ),
  ),
  raggedAllToAll: onMeshes((mesh, names) =>
    (["float32", "bfloat16", "int8"] as const).map((dtype) =>
      raggedAllToAll(mesh, axesOf(mesh, names), dtype),
    ),
  ),
  axisIndex: onMeshes((mesh, names) => [spmdCase("axisIndex", mesh, [], { axes: axesOf(mesh, names) })]),

  // Gone from per-device programs, which are all an engine sees.
  shardMap: [],
  shardingConstraint: [],
};

/** The cases of engines to which a program goes as text: they cannot call functions of this process. */
export const writtenCases: typeof opCases = { ...opCases, callback: [] };
