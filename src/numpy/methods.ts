/**
 * The array methods of `Tensor`: the functions of `np` with the tensor as first argument. Importing this
 * module puts them on the class.
 */
import type { Shape } from "../ir/shape.js";
import { Tensor } from "../trace/tensor.js";
import * as shaping from "./arrays/shaping.js";
import * as arithmetic from "./elementwise/arithmetic.js";
import * as complex from "./elementwise/complex.js";
import * as elementwise from "./elementwise/elementwise.js";
import * as logic from "./elementwise/logic.js";
import { IndexUpdate } from "./indexing/at.js";
import { type Index, index, s } from "./indexing/indexing.js";
import { take } from "./indexing/take.js";
import * as contraction from "./linalg/contraction.js";
import * as diagonals from "./linalg/diagonals.js";
import * as reductions from "./reductions/reductions.js";
import * as sorting from "./reductions/sorting.js";
import * as statistics from "./statistics/statistics.js";

/** Sizes or dims, given as one list or as arguments. */
type SizeList = number[] | [Shape];

/** The functions that become methods. */
const methods = {
  /** x + y. */
  add: arithmetic.add,
  /** x − y. */
  sub: arithmetic.subtract,
  /** x · y. */
  mul: arithmetic.multiply,
  /** x / y as a float. */
  div: arithmetic.divide,
  /** The integer below x / y. */
  floorDiv: arithmetic.floorDivide,
  /** The remainder of x / y with the sign of y. */
  mod: arithmetic.mod,
  /** x to the power of y. */
  pow: arithmetic.power,
  /** The larger of both. */
  maximum: arithmetic.maximum,
  /** The smaller of both. */
  minimum: arithmetic.minimum,
  /** −x. */
  neg: elementwise.negative,
  /** The absolute value. */
  abs: elementwise.abs,
  /** −1, 0 or 1. */
  sign: elementwise.sign,
  /** x². */
  square: elementwise.square,
  /** The square root. */
  sqrt: elementwise.sqrt,
  /** 1 / x. */
  reciprocal: elementwise.reciprocal,
  /** e to the power of x. */
  exp: elementwise.exp,
  /** The natural logarithm. */
  log: elementwise.log,
  /** log(1 + x), precise near 0. */
  log1p: elementwise.log1p,
  /** exp(x) − 1, precise near 0. */
  expm1: elementwise.expm1,
  /** The sine. */
  sin: elementwise.sin,
  /** The cosine. */
  cos: elementwise.cos,
  /** The hyperbolic tangent. */
  tanh: elementwise.tanh,
  /** The largest integer that is not above x. */
  floor: elementwise.floor,
  /** The smallest integer that is not below x. */
  ceil: elementwise.ceil,
  /** Rounds to this many digits after the decimal point, ties to even. */
  round: elementwise.round,
  /** Limits each element to low … high; `null` leaves a side open. */
  clip: arithmetic.clip,
  /** Where x = y. */
  eq: logic.equal,
  /** Where x ≠ y. */
  ne: logic.notEqual,
  /** Where x < y. */
  lt: logic.less,
  /** Where x ≤ y. */
  le: logic.lessEqual,
  /** Where x > y. */
  gt: logic.greater,
  /** Where x ≥ y. */
  ge: logic.greaterEqual,
  /** Bitwise for integers, logical for bool. */
  and: logic.bitwiseAnd,
  /** Bitwise for integers, logical for bool. */
  or: logic.bitwiseOr,
  /** Bitwise for integers, logical for bool. */
  xor: logic.bitwiseXor,
  /** Bitwise for integers, logical for bool. */
  not: elementwise.bitwiseNot,
  /** The matrix product; dims before the last two broadcast. */
  matmul: contraction.matmul,
  /** NumPy's dot product. */
  dot: contraction.dot,
  /** The sum over dims, or over all. */
  sum: reductions.sum,
  /** The product over dims, or over all. */
  prod: reductions.prod,
  /** The mean over dims, or over all. */
  mean: reductions.mean,
  /** The mean squared distance from the mean. */
  var: reductions.variance,
  /** The square root of the variance. */
  std: reductions.std,
  /** The largest element. */
  max: reductions.max,
  /** The smallest element. */
  min: reductions.min,
  /** Whether all elements are not 0. */
  all: reductions.all,
  /** Whether one of the elements is not 0. */
  any: reductions.any,
  /** The int32 index of the first largest element. */
  argmax: reductions.argmax,
  /** The int32 index of the first smallest element. */
  argmin: reductions.argmin,
  /** Running sums. */
  cumsum: statistics.cumsum,
  /** Running products. */
  cumprod: statistics.cumprod,
  /** Sorts along a dim. */
  sort: sorting.sort,
  /** The indices that sort along a dim. */
  argsort: sorting.argsort,
  /** The same elements in another shape, as a list or as arguments; one size may be −1. */
  reshape: (x: Tensor, ...shape: SizeList) => shaping.reshape(x, shape.flat()),
  /** Reorders the dims, as a list or as arguments; without any it reverses them. */
  transpose: (x: Tensor, ...dims: SizeList | [undefined?]) =>
    shaping.transpose(x, dims[0] === undefined ? null : (dims as SizeList).flat()),
  /** Swaps two dims. */
  swapaxes: shaping.swapaxes,
  /** Drops dims of size 1. */
  squeeze: shaping.squeeze,
  /** Inserts dims of size 1. */
  expandDims: shaping.expandDims,
  /** The elements in one dim. */
  flatten: shaping.ravel,
  /** The elements in one dim. */
  ravel: shaping.ravel,
  /** Repeats the tensor to a shape. */
  broadcastTo: shaping.broadcastTo,
  /** Repeats each element along a dim. */
  repeat: shaping.repeat,
  /** A diagonal of two dims. */
  diagonal: diagonals.diagonal,
  /** The sum of a diagonal. */
  trace: diagonals.trace,
  /** The same values in another data type. */
  astype: elementwise.astype,
  /** The complex conjugate. */
  conj: complex.conj,
  /**
   * Part of the tensor, as `x[…]` in NumPy; see {@link Index}.
   *
   * ```ts
   * x.get(0, [1, -1]) // x[0, 1:-1]
   * ```
   */
  get: (x: Tensor, ...indices: Index[]) => index(x, ...indices),
  /** The elements from `start` to `stop` along the first dim, by `step`. */
  slice: (x: Tensor, ...range: Parameters<typeof s>) => index(x, s(...range)),
  /** The slices along a dim that the indices name. */
  take,
  /**
   * A part of the tensor that can be replaced.
   *
   * ```ts
   * x.at(0, [1, -1]).set(0)
   * x.at(ids).add(1)
   * ```
   */
  at: (x: Tensor, ...indices: Index[]) => new IndexUpdate(x, indices),
};

/** The functions that become properties. */
const getters = {
  /** The real part; real numbers are unchanged. */
  real: complex.real,
  /** The imaginary part; zeros for real numbers. */
  imag: complex.imag,
  /** The dims in reverse order. */
  T: (x: Tensor) => shaping.transpose(x),
  /** The last two dims swapped. */
  mT: shaping.matrixTranspose,
};

type Methods = {
  [K in keyof typeof methods]: (typeof methods)[K] extends (x: Tensor, ...args: infer A) => infer R
    ? (...args: A) => R
    : never;
};
type Getters = { readonly [K in keyof typeof getters]: Tensor };

declare module "../trace/tensor.js" {
  interface Tensor extends Methods, Getters {}
}

/** A method that calls a function with the tensor as its first argument; stack traces show it by its name. */
function method<A extends unknown[], R>(
  name: string,
  fn: (x: Tensor, ...args: A) => R,
): (this: Tensor, ...args: A) => R {
  const call = function (this: Tensor, ...args: A) {
    return fn(this, ...args);
  };
  return Object.defineProperty(call, "name", { value: name });
}

const prototype: object = Tensor.prototype;
for (const [name, fn] of Object.entries<(x: Tensor, ...args: never[]) => unknown>(methods)) {
  Object.defineProperty(prototype, name, { value: method(name, fn), writable: true, configurable: true });
}
for (const [name, getter] of Object.entries(getters)) {
  Object.defineProperty(prototype, name, { get: method(name, getter) });
}
