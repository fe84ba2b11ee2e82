import { type HostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { evaluate } from "../../src/engines/reference/interpret.js";
import type { Context, Lanes } from "../../src/engines/reference/rule.js";
import { type DType, limits, roundTo, sumType } from "../../src/ir/dtype.js";
import { rowsBy } from "../../src/ir/opFacts.js";
import type { OpName, OpParams, OpTable } from "../../src/ir/ops.js";
import type { TensorType } from "../../src/ir/shape.js";
import {
  body,
  type ErrorLevel,
  exact,
  multipliesExactly,
  nearest,
  rounded,
  sum,
  ulps,
} from "./errorLevel.js";
import { digitsOf, quantumOf, unitOfLastPlace } from "./floatBits.js";
import { unaryOps } from "./unaryOps.js";

/** Two float64 numbers add without an error when each can be taken off the sum again. */
const addsExactly = (total: number, x: number, y: number): boolean => total - x === y && total - y === x;

const isPowerOfTwo = (x: number): boolean => digitsOf(x) === 1;

/** What every op promises, in the units of its result's type. */
export const errorLevels: OpTable<{ readonly [K in OpName]: ErrorLevel }> = {
  ...rowsBy(["unary"], (op) => unaryOps[op].error),
  isFinite: exact,
  convert: nearest,
  bitcast: exact,
  add: rounded(addsExactly),
  sub: rounded((difference, x, y) => addsExactly(difference, x, -y)),
  mul: rounded((_, x, y) => multipliesExactly(x, y)),
  // Joined divisions by one number are products with its reciprocal.
  div: rounded((_, _x, y) => isPowerOfTwo(y), 2),
  rem: exact,
  pow: ulps(1),
  max: exact,
  min: exact,
  and: exact,
  or: exact,
  xor: exact,
  shl: exact,
  shrLogical: exact,
  shrArithmetic: exact,
  atan2: ulps(4),
  xlaFunction: exact,
  roundFloat8: exact,
  compare: exact,
  select: exact,
  clamp: exact,
  threefry2x32: exact,
  name: exact,
  stopGradient: exact,
  pvary: exact,
  optimizationBarrier: exact,
  iota: nearest,
  broadcastInDim: exact,
  reshape: exact,
  transpose: exact,
  reverse: exact,
  slice: exact,
  pad: exact,
  concatenate: exact,
  dynamicSlice: exact,
  dynamicUpdateSlice: exact,
  gather: exact,
  scatter: sum,
  reduceSum: sum,
  reduceMax: exact,
  reduceMin: exact,
  argmax: exact,
  argmin: exact,
  cumsum: sum,
  sort: exact,
  dotGeneral: sum,
  raggedDot: sum,
  attention: body,
  attentionBackward: body,
  callback: exact,
  scan: body,
  while: body,
  cond: body,
  remat: body,
  customVjp: body,
  psum: sum,
  pmax: exact,
  pmin: exact,
  allGather: exact,
  psumScatter: sum,
  ppermute: exact,
  allToAll: exact,
  raggedAllToAll: exact,
  axisIndex: exact,
  shardMap: body,
  shardingConstraint: exact,
};

const mapLanes = (lanes: Lanes, f: (x: number) => number): HostTensor[] =>
  lanes.map(({ type, data }) =>
    data instanceof Float64Array ? { type, data: data.map(f) } : { type, data },
  );

const smallest = (numbers: readonly number[]): number => numbers.reduce((a, b) => Math.min(a, b), Infinity);

/** One equation being evaluated in float64: what it read and gave, and the type of its first result. */
export interface Evaluation<K extends OpName = OpName> {
  readonly op: K;
  readonly params: OpParams[K];
  readonly ins: readonly Lanes[];
  readonly types: readonly TensorType[];
  readonly context: Context;
  readonly results: Lanes;
  readonly dtype: DType;
  /** Whether no rounding has touched the operands: what the op makes of them is then rounded correctly. */
  readonly isGiven: boolean;
  /** Whether ops may be joined, so that results between them are not rounded for themselves. */
  readonly joinsOps: boolean;
}

/** How far every element of the first result may be off, or nothing where no element may be. */
export function localErrors(evaluation: Evaluation): readonly Float64Array[] | undefined {
  const { op, ins, results, dtype, isGiven, joinsOps } = evaluation;
  const level = errorLevels[op];
  if (level.kind === "sum") return sumErrors(evaluation);
  // Types of 16 bits compute in float32; their own rounding comes after.
  const computed = sumType(dtype);
  const unit = (x: number) => (x === 0 || !Number.isFinite(x) ? 0 : unitOfLastPlace(x, computed));
  if (level.kind === "ulps") {
    const isComposed = joinsOps && dtype !== computed && level.composed > 0;
    const error = (x: number) =>
      isComposed && Number.isFinite(x) ? level.composed * unitOfLastPlace(x, dtype) : level.ulps * unit(x);
    return results.map(({ data }) => Float64Array.from(data, error));
  }
  if (level.kind !== "rounded" || !joinsOps || (isGiven && level.ulps <= 0.5)) return undefined;
  return results.map(({ data }, lane) => {
    const operand = (n: number, i: number): number => {
      const values = ins[n]?.[lane]?.data;
      return values?.[values.length === data.length ? i : 0] ?? 0;
    };
    return Float64Array.from(data, (x, i) => {
      const isExact = roundTo(dtype, x) === x && level.isExact(x, operand(0, i), operand(1, i));
      return isExact ? 0 : level.ulps * unit(x);
    });
  });
}

/**
 * For every element of a sum how far the rounding of its additions may take it: that grows with the sum of the
 * terms' sizes and, as roundings go up and down, with the root of their number. Where every term is a multiple of a
 * number large enough for all partial sums to be exact, it is nothing.
 */
function sumErrors<K extends OpName>(evaluation: Evaluation<K>): Float64Array[] {
  const { op, ins, params, types, context, results, dtype } = evaluation;
  const withTerms = (f: (x: number) => number): Lanes =>
    evaluate(
      op,
      ins.map((lanes) => mapLanes(lanes, f)),
      params,
      types,
      context,
    )[0] ?? [];
  const [sizes, counts] = [withTerms(Math.abs), withTerms(() => 1)];
  const terms = op === "raggedDot" ? ins.slice(0, 2) : ins;
  const quanta = terms.map((lanes) => smallest(lanes.flatMap((x) => numbersOf(x)).map(quantumOf)));
  const quantum =
    op === "dotGeneral" || op === "raggedDot" ? quanta.reduce((a, b) => a * b, 1) : smallest(quanta);
  const { epsilon } = limits(sumType(dtype));
  return results.map(({ data }, lane) =>
    Float64Array.from(data, (total, i) => {
      const [size, count] = [Number(sizes[lane]?.data[i]), Number(counts[lane]?.data[i])];
      return Number.isFinite(total) && size * epsilon >= quantum
        ? (size * epsilon * Math.sqrt(count)) / 2
        : 0;
    }),
  );
}
