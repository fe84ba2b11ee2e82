import type { DType } from "../../src/ir/dtype.js";
import { isInDomain } from "../../src/ir/infer/inferChecks.js";
import { opFacts, rowsBy, type UnaryOp } from "../../src/ir/opFacts.js";
import type { None, OpName, OpParams } from "../../src/ir/ops.js";
import type { Program } from "../../src/ir/program.js";
import { at, type Shape, type TensorType, tensorType } from "../../src/ir/shape.js";
import { bind, traceFlat } from "../../src/trace/builder.js";
import * as ops from "../../src/trace/ops.js";
import { Tensor } from "../../src/trace/tensor.js";
import type { Fill } from "../conformance/engine/cases.js";
import { twiceParams } from "./hostFunctions.js";
import { unaryOps } from "./unaryOps.js";

/** An operand that the cases of an op give random values from `low` up to `high`. */
export interface TensorOperand {
  readonly kind: "tensor";
  readonly type: TensorType;
  readonly low: number;
  readonly high: number;
}

/** An operand that is a scalar constant of the program. */
export interface LiteralOperand {
  readonly kind: "literal";
  readonly value: number;
  readonly dtype: DType;
}

export type Operand = TensorOperand | LiteralOperand;

/** One application of an op to operands of given types. */
export interface OpCase<K extends OpName> {
  readonly ins: readonly Operand[];
  readonly params: OpParams[K];
}

const tensor = (dtype: DType, shape: Shape, low: number, high: number): TensorOperand => ({
  kind: "tensor",
  type: tensorType(dtype, shape),
  low,
  high,
});

export const f32 = (shape: Shape, low = -2, high = 2): TensorOperand => tensor("float32", shape, low, high);
export const i32 = (shape: Shape, low = -3, high = 4): TensorOperand => tensor("int32", shape, low, high);
export const u32 = (shape: Shape, low = 0, high = 2 ** 32): TensorOperand =>
  tensor("uint32", shape, low, high);
export const bool = (shape: Shape): TensorOperand => tensor("bool", shape, 0, 2);
export const literal = (value: number, dtype: DType = "float32"): LiteralOperand => ({
  kind: "literal",
  value,
  dtype,
});

/** The mesh axis that the collectives of the cases talk over. */
export const deviceAxis = { name: "d", size: 2 };

/** A case of an op without parameters. */
interface PlainCase {
  readonly ins: readonly Operand[];
  readonly params: None;
}

const none = {};
const unary = (x: TensorOperand): PlainCase[] => [{ ins: [x], params: none }];
const anyFloat = unary(f32([2, 3]));
const withLiteral = (x: TensorOperand, value = 2): PlainCase[] => [
  { ins: [x, x], params: none },
  { ins: [x, literal(value, x.type.dtype)], params: none },
  { ins: [literal(value, x.type.dtype), x], params: none },
];
const floats = withLiteral(f32([2, 3]), 1.5);
const bits = withLiteral(u32([5]), 3);

const program = (types: readonly Operand[], fn: (...args: Tensor[]) => readonly Tensor[]): Program =>
  traceFlat(
    (args) => fn(...args),
    types.flatMap((operand) => (operand.kind === "tensor" ? [operand.type] : [])),
  ).program;

const scalar = f32([]);
const vector = f32([3]);
const along = { axes: [deviceAxis] };
/** A table of blocks without rows. */
const exchange = i32([deviceAxis.size, 3], 0, 1);
const heads = f32([2, 2, 4, 1]);
const keys = f32([2, 3, 2, 1]);

/** Newton's steps towards a square root, until the square is close enough: `(tolerance, target, count, guess)`. */
const newton: OpParams["while"] = {
  condition: program([scalar, i32([]), scalar], (tolerance, count, guess) => [
    ops.and(
      ops.compare("lt", count, 20),
      ops.compare("gt", ops.abs(ops.sub(ops.mul(guess, guess), 2)), tolerance),
    ),
  ]),
  body: program([scalar, i32([]), scalar], (target, count, guess) => [
    ops.add(count, 1),
    ops.mul(ops.add(guess, ops.div(target, guess)), 0.5),
  ]),
  numConditionConsts: 1,
  numBodyConsts: 1,
};

const counted: OpParams["while"] = {
  condition: program([i32([]), i32([]), vector], (limit, count) => [ops.compare("lt", count, limit)]),
  body: program([vector, i32([]), vector], (step, count, x) => [ops.add(count, 1), ops.add(x, step)]),
  numConditionConsts: 1,
  numBodyConsts: 1,
};

const decay = program([vector, scalar, vector, vector], (weight, total, state, x) => {
  const next = ops.add(ops.mul(state, weight), x);
  return [ops.add(total, ops.reduceSum(x, [0])), next, ops.sin(next)];
});

/** A sine whose own derivative is three times as large; the factor is a capture. */
export const tripled: OpParams["customVjp"] = {
  body: program([scalar, vector, vector], (_factor, x, w) => [ops.mul(ops.sin(x), w), ops.exp(w)]),
  forward: program([scalar, vector, vector], (_factor, x, w) => [ops.mul(ops.sin(x), w), ops.exp(w), x, w]),
  backward: program([scalar, vector, vector, vector, vector], (factor, x, w, ct, ctExp) => {
    const scale = ops.broadcastInDim(factor, [3], []);
    return [
      ops.mul(scale, ops.mul(ct, ops.mul(ops.cos(x), w))),
      ops.add(ops.mul(ct, ops.sin(x)), ops.mul(ctExp, ops.exp(w))),
    ];
  }),
  numCaptures: 1,
  numResiduals: 2,
};

const mesh = { axes: [{ name: "m", size: 2 }] };

/** From where to where the operands of an op of one operand are taken. */
const ranges: { readonly [F in Fill]: readonly [low: number, high: number] } = {
  any: [-2, 2],
  small: [-2, 2],
  positive: [0.1, 3],
  unit: [-0.9, 0.9],
  index: [0, 4],
  bits: [-2, 2],
};

/** An op of one operand on a float, an int32 and a bool, as far as it is defined for them. */
function casesOf(op: UnaryOp): PlainCase[] {
  const types = [f32([2, 3], ...ranges[unaryOps[op].operands]), i32([4]), bool([4])];
  return types.filter(({ type }) => isInDomain(type.dtype, opFacts[op].on)).flatMap(unary);
}

/** Cases for every op; on two devices, so that collectives have somebody to talk to. */
export const opCases: { readonly [K in OpName]: readonly OpCase<K>[] } = {
  ...rowsBy(["unary"], casesOf),
  isFinite: anyFloat,
  convert: [
    { ins: [f32([2, 3])], params: { dtype: "int32" } },
    { ins: [f32([2, 3])], params: { dtype: "float64" } },
    { ins: [i32([4])], params: { dtype: "float32" } },
  ],
  bitcast: [{ ins: [f32([2, 3])], params: { dtype: "uint32" } }],
  add: [...floats, ...withLiteral(i32([4]))],
  sub: floats,
  mul: floats,
  div: floats,
  rem: floats,
  pow: withLiteral(f32([2, 3], 0.1, 2)),
  max: floats,
  min: floats,
  and: bits,
  or: bits,
  xor: bits,
  shl: withLiteral(u32([5], 0, 40), 3),
  shrLogical: withLiteral(u32([5], 0, 40), 3),
  shrArithmetic: withLiteral(i32([5], 0, 40), 3),
  atan2: floats,
  xlaFunction: [
    { ins: [f32([3, 4], -4, 4)], params: { fn: "erf" } },
    { ins: [f32([3, 4], -0.99, 0.99)], params: { fn: "erfInv" } },
    { ins: [f32([5], 0, 0.99)], params: { fn: "exponentialQuantile" } },
  ],
  roundFloat8: [
    { ins: [f32([3, 4], -500, 500)], params: { format: "e4m3fn" } },
    { ins: [f32([5], -1, 1)], params: { format: "e5m2" } },
  ],
  compare: [
    { ins: [i32([5]), i32([5])], params: { direction: "le" } },
    { ins: [literal(0.5), f32([5])], params: { direction: "gt" } },
  ],
  select: [
    { ins: [bool([4]), f32([4]), f32([4])], params: none },
    { ins: [bool([]), literal(1), f32([])], params: none },
  ],
  clamp: [
    { ins: [f32([4], -2, 0), f32([4]), f32([4], 0, 2)], params: none },
    { ins: [literal(-1), f32([4]), literal(1)], params: none },
    { ins: [f32([4], -2, 0.5), literal(0), f32([4], 0.5, 2)], params: none },
  ],
  threefry2x32: [{ ins: [u32([3]), u32([3]), u32([3]), u32([3])], params: none }],
  name: [{ ins: [vector], params: { name: "kept" } }],
  stopGradient: anyFloat,
  pvary: [{ ins: [vector], params: { over: [] } }],
  optimizationBarrier: [{ ins: [vector, i32([])], params: none }],

  iota: [{ ins: [], params: { dtype: "int32", shape: [2, 3], dim: 1 } }],
  broadcastInDim: [
    { ins: [f32([3, 1])], params: { shape: [2, 3, 4], dims: [1, 2] } },
    { ins: [f32([])], params: { shape: [2], dims: [] } },
  ],
  reshape: [{ ins: [f32([2, 6])], params: { shape: [3, 4] } }],
  transpose: [{ ins: [f32([2, 3, 4])], params: { permutation: [2, 0, 1] } }],
  reverse: [{ ins: [f32([2, 3, 4])], params: { dims: [0, 2] } }],
  slice: [
    { ins: [f32([5, 4])], params: { starts: [1, 0], limits: [5, 3], strides: [2, 1] } },
    { ins: [f32([5, 4])], params: { starts: [1, 0], limits: [3, 4], strides: [3, 2] } },
  ],
  pad: [
    { ins: [f32([2, 3]), f32([])], params: { low: [1, -1], high: [0, 2], interior: [1, 0] } },
    { ins: [f32([2]), literal(7)], params: { low: [1], high: [1], interior: [0] } },
    { ins: [f32([2, 3]), literal(7)], params: { low: [0, 0], high: [0, 0], interior: [1, 0] } },
  ],
  concatenate: [{ ins: [f32([2, 3]), f32([2, 1]), f32([2, 2])], params: { dim: 1 } }],
  dynamicSlice: [
    { ins: [f32([5, 4]), i32([], -2, 7), i32([], -2, 7)], params: { sizes: [2, 3] } },
    { ins: [f32([5, 4]), i32([], -2, 7), literal(0, "int32")], params: { sizes: [1, 4] } },
    { ins: [f32([5, 4]), i32([], -2, 7), i32([], -2, 7)], params: { sizes: [5, 4] } },
    { ins: [f32([5, 4]), i32([], -2, 7), i32([], -2, 7)], params: { sizes: [5, 2] } },
  ],
  dynamicUpdateSlice: [
    { ins: [f32([5, 4]), f32([2, 3]), i32([], -2, 7), i32([], -2, 7)], params: none },
    { ins: [f32([5, 4]), f32([1, 4]), i32([], -2, 7), literal(0, "int32")], params: none },
    { ins: [f32([5]), f32([5]), i32([], -2, 7)], params: none },
  ],
  gather: [
    { ins: [f32([2, 5, 3]), i32([4], -1, 7)], params: { dim: 1, batchDims: 0 } },
    { ins: [f32([2, 3, 5]), i32([2, 4, 2], -1, 7)], params: { dim: 2, batchDims: 1 } },
    { ins: [f32([5]), i32([], -1, 7)], params: { dim: 0, batchDims: 0 } },
  ],
  scatter: [
    {
      ins: [f32([2, 5, 3]), i32([4], -1, 6), f32([2, 4, 3])],
      params: { dim: 1, batchDims: 0, combine: "add" },
    },
    {
      ins: [f32([2, 3, 5]), i32([2, 4], -1, 6), f32([2, 3, 4])],
      params: { dim: 2, batchDims: 1, combine: "set" },
    },
    { ins: [f32([3, 5]), i32([], -1, 6), f32([3])], params: { dim: 1, batchDims: 0, combine: "set" } },
  ],
  reduceSum: [{ ins: [f32([2, 3, 4])], params: { dims: [0, 2] } }],
  reduceMax: [{ ins: [f32([2, 3, 4])], params: { dims: [1] } }],
  reduceMin: [
    { ins: [bool([2, 3])], params: { dims: [0, 1] } },
    { ins: [f32([2, 3, 4])], params: { dims: [0, 2] } },
  ],
  argmax: [{ ins: [f32([3, 4])], params: { dim: 0 } }],
  argmin: [{ ins: [f32([3, 4])], params: { dim: 1 } }],
  cumsum: [{ ins: [f32([3, 4])], params: { dim: 1, reverse: true } }],
  sort: [{ ins: [i32([3, 4]), f32([3, 4])], params: { dim: 1, numKeys: 1 } }],
  dotGeneral: [
    {
      ins: [f32([2, 3]), f32([3, 4])],
      params: { lhsContract: [1], rhsContract: [0], lhsBatch: [], rhsBatch: [], dtype: "float32" },
    },
    {
      ins: [f32([3, 2, 5, 4]), f32([4, 2, 6])],
      params: { lhsContract: [3], rhsContract: [0], lhsBatch: [1], rhsBatch: [1], dtype: "float32" },
    },
    {
      ins: [f32([3]), f32([3])],
      params: {
        lhsContract: [0],
        rhsContract: [0],
        lhsBatch: [],
        rhsBatch: [],
        dtype: "float32",
        precision: "high",
      },
    },
  ],
  raggedDot: [
    {
      ins: [f32([5, 3]), f32([3, 3, 2]), i32([3], 0, 3)],
      params: { ragged: "rows", dtype: "float32" },
    },
    {
      ins: [f32([2, 5, 3]), f32([2, 5, 2]), i32([2, 3], 0, 3)],
      params: { ragged: "sums", dtype: "float32", precision: "highest" },
    },
  ],
  attention: [
    { ins: [heads, keys, keys], params: { scale: 0.7, causal: true } },
    { ins: [f32([1, 2, 2, 2]), f32([1, 3, 2, 2]), f32([1, 3, 2, 2])], params: { scale: 0.5, causal: false } },
    {
      // Sinks keep the log-sums finite.
      ins: [heads, keys, keys, f32([1, 4, 2, 1]), bool([2, 1, 1, 3]), f32([1, 4])],
      params: { scale: 0.7, causal: true, softcap: 1.5, extras: ["bias", "mask", "sinks"] },
    },
    {
      ins: [heads, keys, keys, i32([2, 2], 0, 2), i32([2, 3], 0, 2), f32([2, 4])],
      params: {
        scale: 0.7,
        causal: true,
        window: [1, -1],
        extras: ["querySegments", "keySegments", "sinks"],
      },
    },
    {
      ins: [heads, keys, keys, i32([2, 2], 0, 4), i32([2, 3], 0, 4), f32([1, 4])],
      params: { scale: 0.7, causal: true, extras: ["queryPositions", "keyPositions", "sinks"] },
    },
    {
      ins: [heads, keys, keys, f32([2, 4, 1, 3]), u32([2, 4, 2])],
      params: { scale: 0.5, causal: false, dropoutRate: 0.25, extras: ["bias", "dropoutKeys"] },
    },
  ],
  attentionBackward: [
    {
      ins: [heads, keys, keys, f32([2, 4, 2], 1, 3), heads, heads],
      params: { scale: 0.7, causal: true },
    },
    {
      ins: [heads, keys, keys, f32([2, 4, 2], 1, 3), heads, heads, f32([1, 4, 2, 1]), f32([2, 4, 2])],
      params: {
        scale: 0.7,
        causal: true,
        softcap: 1.5,
        extras: ["bias", "logSumsCotangent"],
        wants: ["bias"],
      },
    },
    {
      ins: [heads, keys, keys, f32([2, 4, 2], 1, 3), heads, heads, f32([1, 4])],
      params: { scale: 0.7, causal: false, window: [0, 1], extras: ["sinks"], wants: ["sinks"] },
    },
  ],

  callback: [{ ins: [f32([2, 3])], params: twiceParams }],

  scan: [
    {
      ins: [f32([3], -1, 1), scalar, vector, f32([4, 3])],
      params: { body: decay, length: 4, reverse: false, numConsts: 1, numCarry: 2 },
    },
    {
      ins: [f32([3], -1, 1), literal(0), vector, f32([4, 3])],
      params: { body: decay, length: 4, reverse: true, numConsts: 1, numCarry: 2 },
    },
  ],
  while: [
    {
      ins: [f32([], 0.001, 0.1), f32([], 1.9, 2.1), literal(0, "int32"), f32([], 0.5, 3)],
      params: newton,
    },
    { ins: [i32([], 0, 5), vector, i32([], 0, 3), vector], params: counted },
  ],
  cond: [
    {
      ins: [i32([], -1, 4), vector, scalar],
      params: {
        branches: [
          program([vector, scalar], (x, y) => [ops.sin(x), y]),
          program([vector, scalar], (x) => [x, ops.reduceSum(x, [0])]),
          program([vector, scalar], () => [ops.full([3], 2, "float32"), Tensor.scalar(1, "float32")]),
        ],
      },
    },
  ],
  remat: [
    {
      ins: [vector, vector],
      params: {
        body: program([vector, vector], (x, y) => [ops.mul(ops.sin(x), y), ops.cos(y)]),
        policy: { kind: "dots" },
      },
    },
  ],
  customVjp: [{ ins: [scalar, vector, vector], params: tripled }],

  psum: [{ ins: [vector], params: along }],
  pmax: [{ ins: [vector], params: along }],
  pmin: [{ ins: [vector], params: along }],
  allGather: [{ ins: [f32([2, 3])], params: { ...along, dim: 1 } }],
  psumScatter: [{ ins: [f32([3, 4])], params: { ...along, dim: 1 } }],
  ppermute: [{ ins: [vector], params: { ...along, permutation: [[0, 1]] } }],
  allToAll: [{ ins: [f32([4, 3])], params: { ...along, splitDim: 0, concatDim: 1 } }],
  raggedAllToAll: [{ ins: [f32([5, 3]), f32([6, 3]), exchange, exchange], params: along }],
  axisIndex: [{ ins: [], params: along }],

  shardMap: [
    {
      ins: [f32([4, 3]), f32([3, 2])],
      params: {
        mesh,
        manual: ["m"],
        inSpecs: [
          [["m"], []],
          [[], []],
        ],
        outSpecs: [[["m"], []], [[]]],
        checked: false,
        body: program([f32([2, 3]), f32([3, 2])], (x, w) => [
          ops.dotGeneral(x, w, { lhsContract: [1], rhsContract: [0] }),
          ops.psum(ops.reduceSum(x, [0]), mesh.axes),
        ]),
      },
    },
  ],
  shardingConstraint: [{ ins: [f32([4, 3])], params: { mesh, spec: [["m"], "unconstrained"] } }],
};

/** The program that applies the op of a case to the case's tensors. */
export function caseProgram<K extends OpName>(op: K, { ins, params }: OpCase<K>): Program {
  const tensors = ins.filter((operand) => operand.kind === "tensor");
  const traced = traceFlat(
    (args) => {
      let next = 0;
      const operands = ins.map((operand) =>
        operand.kind === "tensor" ? at(args, next++) : Tensor.scalar(operand.value, operand.dtype),
      );
      return bind(op, operands, params);
    },
    tensors.map(({ type }) => type),
  );
  return traced.program;
}
