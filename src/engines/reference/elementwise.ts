import {
  type DType,
  isFloat,
  isInteger,
  limits,
  roundHalfEven,
  roundTo,
  signedOf,
  unsignedOf,
  viewHost,
} from "../../ir/dtype.js";
import { roundToFloat8 } from "../../ir/expansions/float8.js";
import { xlaValues } from "../../ir/expansions/xlaFunctions.js";
import type { ElementwiseOp } from "../../ir/opFacts.js";
import type { CompareDirection, OpName } from "../../ir/ops.js";
import { binaryFunctions, unaryFunctions } from "../../ir/scalarFunctions.js";
import { at, sizeOf, type TensorType } from "../../ir/shape.js";
import {
  integerDivide,
  integerPower,
  integerRemainder,
  shiftLeft,
  shiftRightArithmetic,
  shiftRightLogical,
  threefry,
} from "./elementFunctions.js";
import { decode, encode, type HostTensor } from "./hostTensor.js";
import { type EvalRule, onEveryLane } from "./rule.js";

type Unary = (x: number) => number;
type Binary = (x: number, y: number) => number;
type Ternary = (x: number, y: number, z: number) => number;

/** The distance between the elements an elementwise loop reads: a scalar literal stays in place. */
const stepOf = (values: Float64Array, size: number): number => (values.length === size ? 1 : 0);

function mapOne(ins: readonly HostTensor[], type: TensorType, f: Unary): HostTensor {
  const values = decode(at(ins, 0)).map((x) => f(x));
  return encode(type, values);
}

function mapTwo(ins: readonly HostTensor[], type: TensorType, f: Binary): HostTensor {
  const [x, y] = [decode(at(ins, 0)), decode(at(ins, 1))];
  const size = sizeOf(type.shape);
  const [xStep, yStep] = [stepOf(x, size), stepOf(y, size)];
  const result = new Float64Array(size);
  for (let i = 0; i < size; i++) result[i] = f(x[i * xStep] as number, y[i * yStep] as number);
  return encode(type, result);
}

function mapThree(ins: readonly HostTensor[], type: TensorType, f: Ternary): HostTensor {
  const [x, y, z] = [decode(at(ins, 0)), decode(at(ins, 1)), decode(at(ins, 2))];
  const size = sizeOf(type.shape);
  const [xStep, yStep, zStep] = [stepOf(x, size), stepOf(y, size), stepOf(z, size)];
  const result = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    result[i] = f(x[i * xStep] as number, y[i * yStep] as number, z[i * zStep] as number);
  }
  return encode(type, result);
}

/** The same function for every data type: rounding the result to the type does the rest. */
const unary = (f: Unary): EvalRule<OpName> =>
  onEveryLane((ins, _params, types) => [mapOne(ins, at(types, 0), f)]);

/** A function of two elements, and another one for integers where they differ. */
const binary = (f: Binary, onIntegers: Binary = f): EvalRule<OpName> =>
  onEveryLane((ins, _params, types) => {
    const type = at(types, 0);
    return [mapTwo(ins, type, isInteger(type.dtype) ? onIntegers : f)];
  });

/** A right shift fills with zeros or with the sign, so the bits are read as unsigned or signed. */
const shiftRight = (f: Binary, read: (dtype: DType) => DType): EvalRule<OpName> =>
  onEveryLane((ins, _params, types) => {
    const type = at(types, 0);
    const bits = read(type.dtype);
    return [mapTwo(ins, type, (x, y) => f(roundTo(bits, x), y))];
  });

const ternary = (f: Ternary): EvalRule<OpName> =>
  onEveryLane((ins, _params, types) => [mapThree(ins, at(types, 0), f)]);

const identity: EvalRule<OpName> = (ins) => [...ins];

const comparisons: { readonly [D in CompareDirection]: Binary } = {
  eq: (x, y) => Number(x === y),
  ne: (x, y) => Number(x !== y),
  lt: (x, y) => Number(x < y),
  le: (x, y) => Number(x <= y),
  gt: (x, y) => Number(x > y),
  ge: (x, y) => Number(x >= y),
};

/** The conversion of an element before it is rounded to the new type. */
function conversion(from: DType, to: DType): Unary {
  if (to === "bool") return (x) => Number(x !== 0);
  if (!isFloat(from) || !isInteger(to)) return (x) => x;
  const { min, max } = limits(to);
  return (x) => (Number.isNaN(x) ? 0 : Math.min(Math.max(Math.trunc(x), min), max));
}

/** The rounding of a float result to integers saturates, unlike that of integer arithmetic. */
export function convert(x: HostTensor, type: TensorType): HostTensor {
  return mapOne([x], type, conversion(x.type.dtype, type.dtype));
}

function bitcast({ data }: HostTensor, type: TensorType): HostTensor {
  const bytes = data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength);
  return { type, data: viewHost(type.dtype, bytes) };
}

function threefryBits(ins: readonly HostTensor[], types: readonly TensorType[]): HostTensor[] {
  const size = sizeOf(at(types, 0).shape);
  const [key0, key1] = [decode(at(ins, 0)), decode(at(ins, 1))];
  const [counter0, counter1] = [decode(at(ins, 2)), decode(at(ins, 3))];
  const [step0, step1] = [stepOf(key0, size), stepOf(key1, size)];
  const [step2, step3] = [stepOf(counter0, size), stepOf(counter1, size)];
  const [result0, result1] = [new Float64Array(size), new Float64Array(size)];
  const bits = new Int32Array(2);
  for (let i = 0; i < size; i++) {
    const [k0, k1] = [key0[i * step0] as number, key1[i * step1] as number];
    threefry(k0, k1, counter0[i * step2] as number, counter1[i * step3] as number, bits);
    result0[i] = bits[0] as number;
    result1[i] = bits[1] as number;
  }
  return [result0, result1].map((result, i) => encode(at(types, i), result));
}

type UnaryFunctions = typeof unaryFunctions;

const ofFunctions = Object.fromEntries(Object.entries(unaryFunctions).map(([op, f]) => [op, unary(f)])) as {
  readonly [K in keyof UnaryFunctions]: EvalRule<K>;
};

/**
 * Reference rules of the elementwise ops: every element is computed in float64 and rounded once to the result's
 * type, so a float32 result is the correctly rounded one wherever the float64 function is exact enough.
 */
export const elementwiseRules: { readonly [K in ElementwiseOp | "optimizationBarrier"]: EvalRule<K> } = {
  ...ofFunctions,
  neg: unary((x) => -x),
  sqrt: unary(Math.sqrt),
  rsqrt: unary((x) => 1 / Math.sqrt(x)),
  abs: unary(Math.abs),
  sign: unary(Math.sign),
  floor: unary(Math.floor),
  ceil: unary(Math.ceil),
  round: unary(roundHalfEven),
  not: onEveryLane((ins, _params, types) => {
    const type = at(types, 0);
    return [mapOne(ins, type, type.dtype === "bool" ? (x) => 1 - x : (x) => ~x)];
  }),
  isFinite: unary((x) => Number(Number.isFinite(x))),
  convert: onEveryLane((ins, _params, types) => [convert(at(ins, 0), at(types, 0))]),
  bitcast: onEveryLane((ins, _params, types) => [bitcast(at(ins, 0), at(types, 0))]),
  xlaFunction: onEveryLane((ins, { fn }, types) => {
    const [x, type] = [at(ins, 0), at(types, 0)];
    return [encode(type, xlaValues(fn, type.dtype, decode(x)))];
  }),
  roundFloat8: onEveryLane((ins, { format }, types) => [
    mapOne(ins, at(types, 0), (x) => roundToFloat8(x, format)),
  ]),

  add: binary((x, y) => x + y),
  sub: binary((x, y) => x - y),
  mul: binary((x, y) => x * y, Math.imul),
  div: binary((x, y) => x / y, integerDivide),
  rem: binary(binaryFunctions.rem, integerRemainder),
  pow: binary(binaryFunctions.pow, integerPower),
  max: binary(Math.max),
  min: binary(Math.min),
  and: binary((x, y) => x & y),
  or: binary((x, y) => x | y),
  xor: binary((x, y) => x ^ y),
  shl: binary(shiftLeft),
  shrLogical: shiftRight(shiftRightLogical, unsignedOf),
  shrArithmetic: shiftRight(shiftRightArithmetic, signedOf),
  atan2: binary(binaryFunctions.atan2),
  compare: onEveryLane((ins, { direction }, types) => [mapTwo(ins, at(types, 0), comparisons[direction])]),

  select: ternary((predicate, onTrue, onFalse) => (predicate ? onTrue : onFalse)),
  clamp: ternary((low, x, high) => Math.min(Math.max(x, low), high)),
  threefry2x32: onEveryLane((ins, _params, types) => threefryBits(ins, types)),

  name: identity,
  stopGradient: identity,
  pvary: identity,
  optimizationBarrier: identity,
};
