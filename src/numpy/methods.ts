/**
 * The array methods of `Tensor`: the functions of `np` with the tensor as first argument. Importing this
 * module puts them on the class.
 */
import type { DType } from "../ir/dtype.js";
import type { Shape } from "../ir/shape.js";
import type { TensorLike } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import * as arithmetic from "./arithmetic.js";
import { IndexUpdate } from "./at.js";
import * as complex from "./complex.js";
import * as contraction from "./contraction.js";
import * as diagonals from "./diagonals.js";
import * as elementwise from "./elementwise.js";
import { type Index, index, s } from "./indexing.js";
import * as logic from "./logic.js";
import type { Dims } from "./operands.js";
import * as reductions from "./reductions.js";
import * as shaping from "./shaping.js";
import * as sorting from "./sorting.js";
import * as statistics from "./statistics.js";
import { type TakeOptions, take } from "./take.js";

declare module "../trace/tensor.js" {
  interface Tensor {
    /** x + y. */
    add(y: TensorLike): Tensor;
    /** x − y. */
    sub(y: TensorLike): Tensor;
    /** x · y. */
    mul(y: TensorLike): Tensor;
    /** x / y as a float. */
    div(y: TensorLike): Tensor;
    /** The integer below x / y. */
    floorDiv(y: TensorLike): Tensor;
    /** The remainder of x / y with the sign of y. */
    mod(y: TensorLike): Tensor;
    /** x to the power of y. */
    pow(y: TensorLike): Tensor;
    /** The larger of both. */
    maximum(y: TensorLike): Tensor;
    /** The smaller of both. */
    minimum(y: TensorLike): Tensor;
    /** −x. */
    neg(): Tensor;
    /** The absolute value. */
    abs(): Tensor;
    /** −1, 0 or 1. */
    sign(): Tensor;
    /** x². */
    square(): Tensor;
    /** The square root. */
    sqrt(): Tensor;
    /** 1 / x. */
    reciprocal(): Tensor;
    /** e to the power of x. */
    exp(): Tensor;
    /** The natural logarithm. */
    log(): Tensor;
    /** log(1 + x), precise near 0. */
    log1p(): Tensor;
    /** exp(x) − 1, precise near 0. */
    expm1(): Tensor;
    /** The sine. */
    sin(): Tensor;
    /** The cosine. */
    cos(): Tensor;
    /** The hyperbolic tangent. */
    tanh(): Tensor;
    /** The largest integer that is not above x. */
    floor(): Tensor;
    /** The smallest integer that is not below x. */
    ceil(): Tensor;
    /** Rounds to this many digits after the decimal point, ties to even. */
    round(decimals?: number): Tensor;
    /** Limits each element to low … high; `null` leaves a side open. */
    clip(low?: TensorLike | null, high?: TensorLike | null): Tensor;

    /** Where x = y. */
    eq(y: TensorLike): Tensor;
    /** Where x ≠ y. */
    ne(y: TensorLike): Tensor;
    /** Where x < y. */
    lt(y: TensorLike): Tensor;
    /** Where x ≤ y. */
    le(y: TensorLike): Tensor;
    /** Where x > y. */
    gt(y: TensorLike): Tensor;
    /** Where x ≥ y. */
    ge(y: TensorLike): Tensor;
    /** Bitwise for integers, logical for bool. */
    and(y: TensorLike): Tensor;
    /** Bitwise for integers, logical for bool. */
    or(y: TensorLike): Tensor;
    /** Bitwise for integers, logical for bool. */
    xor(y: TensorLike): Tensor;
    /** Bitwise for integers, logical for bool. */
    not(): Tensor;

    /** The matrix product; dims before the last two broadcast. */
    matmul(y: TensorLike, options?: contraction.ProductOptions): Tensor;
    /** NumPy's dot product. */
    dot(y: TensorLike, options?: contraction.ProductOptions): Tensor;
    /** The sum over dims, or over all. */
    sum(dim?: Dims, options?: reductions.SumOptions): Tensor;
    /** The product over dims, or over all. */
    prod(dim?: Dims, options?: reductions.SumOptions): Tensor;
    /** The mean over dims, or over all. */
    mean(dim?: Dims, options?: reductions.MeanOptions): Tensor;
    /** The mean squared distance from the mean. */
    var(dim?: Dims, options?: reductions.VarianceOptions): Tensor;
    /** The square root of the variance. */
    std(dim?: Dims, options?: reductions.VarianceOptions): Tensor;
    /** The largest element. */
    max(dim?: Dims, options?: reductions.ExtremeOptions): Tensor;
    /** The smallest element. */
    min(dim?: Dims, options?: reductions.ExtremeOptions): Tensor;
    /** Whether all elements are not 0. */
    all(dim?: Dims, options?: reductions.MaskedOptions): Tensor;
    /** Whether one of the elements is not 0. */
    any(dim?: Dims, options?: reductions.MaskedOptions): Tensor;
    /** The int32 index of the first largest element. */
    argmax(dim?: number | null, options?: reductions.KeepdimsOptions): Tensor;
    /** The int32 index of the first smallest element. */
    argmin(dim?: number | null, options?: reductions.KeepdimsOptions): Tensor;
    /** Running sums. */
    cumsum(dim?: number | null): Tensor;
    /** Running products. */
    cumprod(dim?: number | null): Tensor;
    /** Sorts along a dim. */
    sort(dim?: number | null, options?: sorting.SortOptions): Tensor;
    /** The indices that sort along a dim. */
    argsort(dim?: number | null, options?: sorting.SortOptions): Tensor;

    /** The real part; real numbers are unchanged. */
    readonly real: Tensor;
    /** The imaginary part; zeros for real numbers. */
    readonly imag: Tensor;
    /** The complex conjugate. */
    conj(): Tensor;
    /** The dims in reverse order. */
    readonly T: Tensor;
    /** The last two dims swapped. */
    readonly mT: Tensor;
    /** The same elements in another shape, as a list or as arguments; one size may be −1. */
    reshape(shape: Shape): Tensor;
    reshape(...shape: number[]): Tensor;
    /** Reorders the dims, as a list or as arguments; without any it reverses them. */
    transpose(dims?: Shape): Tensor;
    transpose(...dims: number[]): Tensor;
    /** Swaps two dims. */
    swapaxes(dim1: number, dim2: number): Tensor;
    /** Drops dims of size 1. */
    squeeze(dim?: Dims): Tensor;
    /** Inserts dims of size 1. */
    expandDims(dim: number | readonly number[]): Tensor;
    /** The elements in one dim. */
    flatten(): Tensor;
    /** The elements in one dim. */
    ravel(): Tensor;
    /** Repeats the tensor to a shape. */
    broadcastTo(shape: Shape): Tensor;
    /** Repeats each element along a dim. */
    repeat(repeats: number | readonly number[], dim?: number | null): Tensor;
    /** A diagonal of two dims. */
    diagonal(options?: diagonals.DiagonalOptions): Tensor;
    /** The sum of a diagonal. */
    trace(options?: diagonals.DiagonalOptions): Tensor;
    /** The same values in another data type. */
    astype(dtype: DType): Tensor;

    /**
     * Part of the tensor, as `x[…]` in NumPy; see {@link Index}.
     *
     * ```ts
     * x.get(0, [1, -1]) // x[0, 1:-1]
     * ```
     */
    get(...indices: Index[]): Tensor;
    /** The elements from `start` to `stop` along the first dim, by `step`. */
    slice(start?: number | null, stop?: number | null, step?: number | null): Tensor;
    /** The slices along a dim that the indices name. */
    take(indices: TensorLike | readonly number[], dim?: number | null, options?: TakeOptions): Tensor;
    /**
     * A part of the tensor that can be replaced.
     *
     * ```ts
     * x.at(0, [1, -1]).set(0)
     * x.at(ids).add(1)
     * ```
     */
    at(...indices: Index[]): IndexUpdate;
  }
}

/** A method that calls a function with the tensor as its first argument. */
function method<A extends unknown[], R>(fn: (x: Tensor, ...args: A) => R): (this: Tensor, ...args: A) => R {
  return function (...args) {
    return fn(this, ...args);
  };
}

/** Sizes or dims given as one list or as arguments. */
function listOf(args: readonly (number | Shape | undefined)[]): number[] {
  return args.flatMap((arg) => (arg === undefined ? [] : arg));
}

const methods = {
  add: method(arithmetic.add),
  sub: method(arithmetic.subtract),
  mul: method(arithmetic.multiply),
  div: method(arithmetic.divide),
  floorDiv: method(arithmetic.floorDivide),
  mod: method(arithmetic.mod),
  pow: method(arithmetic.power),
  maximum: method(arithmetic.maximum),
  minimum: method(arithmetic.minimum),
  neg: method(elementwise.negative),
  abs: method(elementwise.abs),
  sign: method(elementwise.sign),
  square: method(elementwise.square),
  sqrt: method(elementwise.sqrt),
  reciprocal: method(elementwise.reciprocal),
  exp: method(elementwise.exp),
  log: method(elementwise.log),
  log1p: method(elementwise.log1p),
  expm1: method(elementwise.expm1),
  sin: method(elementwise.sin),
  cos: method(elementwise.cos),
  tanh: method(elementwise.tanh),
  floor: method(elementwise.floor),
  ceil: method(elementwise.ceil),
  round: method(elementwise.round),
  clip: method(arithmetic.clip),
  eq: method(logic.equal),
  ne: method(logic.notEqual),
  lt: method(logic.less),
  le: method(logic.lessEqual),
  gt: method(logic.greater),
  ge: method(logic.greaterEqual),
  and: method(logic.bitwiseAnd),
  or: method(logic.bitwiseOr),
  xor: method(logic.bitwiseXor),
  not: method(elementwise.bitwiseNot),
  matmul: method(contraction.matmul),
  dot: method(contraction.dot),
  sum: method(reductions.sum),
  prod: method(reductions.prod),
  mean: method(reductions.mean),
  var: method(reductions.variance),
  std: method(reductions.std),
  max: method(reductions.max),
  min: method(reductions.min),
  all: method(reductions.all),
  any: method(reductions.any),
  argmax: method(reductions.argmax),
  argmin: method(reductions.argmin),
  cumsum: method(statistics.cumsum),
  cumprod: method(statistics.cumprod),
  sort: method(sorting.sort),
  argsort: method(sorting.argsort),
  reshape: method((x, ...shape: (number | Shape)[]) => shaping.reshape(x, listOf(shape))),
  transpose: method((x, ...dims: (number | Shape | undefined)[]) =>
    shaping.transpose(x, dims.length === 0 || dims[0] === undefined ? null : listOf(dims)),
  ),
  swapaxes: method(shaping.swapaxes),
  squeeze: method(shaping.squeeze),
  expandDims: method(shaping.expandDims),
  flatten: method(shaping.ravel),
  ravel: method(shaping.ravel),
  broadcastTo: method(shaping.broadcastTo),
  repeat: method(shaping.repeat),
  diagonal: method(diagonals.diagonal),
  trace: method(diagonals.trace),
  astype: method(elementwise.astype),
  conj: method(complex.conj),
  get: method((x, ...indices: Index[]) => index(x, ...indices)),
  slice: method((x, start: number | null = null, stop: number | null = null, step: number | null = null) =>
    index(x, s(start, stop, step)),
  ),
  take: method(take),
  at: method((x, ...indices: Index[]) => new IndexUpdate(x, indices)),
} satisfies Partial<Tensor>;

const getters = {
  real: complex.real,
  imag: complex.imag,
  T: (x: Tensor) => shaping.transpose(x),
  mT: shaping.matrixTranspose,
};

const prototype: object = Tensor.prototype;
for (const [name, value] of Object.entries(methods)) {
  Object.defineProperty(prototype, name, { value, writable: true, configurable: true });
}
for (const [name, getter] of Object.entries(getters))
  Object.defineProperty(prototype, name, { get: method(getter) });
