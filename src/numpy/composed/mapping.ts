/** Functions applied along dims, by conditions and by indices. */
import { need, needIfGiven } from "../../ir/arguments.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { at, formatType, normalizeDim, normalizeDims, range } from "../../ir/shape.js";
import { sort as sortAll } from "../../lax/sorting.js";
import * as ops from "../../trace/ops.js";
import { needTensor, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { vmap } from "../../transforms/batching/vmap.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { moveaxis, reshape } from "../arrays/shaping.js";
import { conj } from "../elementwise/complex.js";
import { abs } from "../elementwise/elementwise.js";
import { select, where } from "../elementwise/logic.js";
import {
  asFloat,
  asTensor,
  broadcastShape,
  cast,
  floatType,
  pair,
  refuseComplex,
  requireBits,
  spelledOut,
  wideType,
} from "../operands.js";
import { argsort, sort } from "../reductions/sorting.js";

/**
 * Applies a function of vectors to every vector along a dim.
 *
 * @example
 * ```ts
 * np.applyAlongAxis((row) => np.sum(row), 1, np.array([[1, 2], [3, 4]])); // [3, 7]
 * ```
 */
export function applyAlongAxis(fn: (vector: Tensor) => Tensor, dim: number, value: TensorLike): Tensor {
  need("function", fn, "fn", "applyAlongAxis");
  const x = asTensor(value, "applyAlongAxis");
  const d = normalizeDim(dim, x.ndim, "applyAlongAxis");
  const last = moveaxis(x, d, -1);
  const outer = last.shape.slice(0, -1);
  const rows = reshape(last, [-1, at(last.shape, last.ndim - 1)]);
  const mapped = vmap(fn)(rows);
  needTensor(mapped, "what fn returns", "applyAlongAxis");
  const inner = mapped.shape.slice(1);
  const result = reshape(mapped, [...outer, ...inner]);
  // What the function made of a vector stands where the vector stood.
  const from = inner.map((_, i) => outer.length + i);
  return moveaxis(
    result,
    from,
    inner.map((_, i) => d + i),
  );
}

/**
 * Applies a function of a tensor and a dim to one dim after the other. A dim that the function drops comes back with
 * size 1.
 *
 * @example
 * ```ts
 * np.applyOverAxes((x, dim) => np.sum(x, dim), np.array([[1, 2], [3, 4]]), [0, 1]); // [[10]]
 * ```
 */
export function applyOverAxes(
  fn: (x: Tensor, dim: number) => Tensor,
  value: TensorLike,
  dims: number | readonly number[],
): Tensor {
  need("function", fn, "fn", "applyOverAxes");
  const x = asTensor(value, "applyOverAxes");
  return normalizeDims(dims, x.ndim, "applyOverAxes").reduce((before, d) => {
    const result = fn(before, d);
    needTensor(result, "what fn returns", "applyOverAxes");
    if (result.ndim === before.ndim) return result;
    if (result.ndim === before.ndim - 1) return result.expandDims(d);
    throw new ShapeError(
      `[applyOverAxes] fn must keep the ${before.ndim} dims of its operand or drop one, it gave ${formatType(result.type)}`,
    );
  }, x);
}

/**
 * A function of scalars as one of tensors that broadcast.
 *
 * @example
 * ```ts
 * const smaller = np.vectorize((a, b) => np.where(np.less(a, b), a, b));
 * smaller(np.array([1, 5]), np.array([3, 2])); // [1, 2]
 * ```
 */
export function vectorize(fn: (...scalars: Tensor[]) => Tensor): (...tensors: TensorLike[]) => Tensor {
  need("function", fn, "fn", "vectorize");
  return (...values) => {
    const tensors = values.map((value) => asTensor(value, "vectorize"));
    const shape = broadcastShape(
      tensors.map((x) => x.shape),
      "vectorize",
    );
    const flat = tensors.map((x) => {
      const dims = range(x.ndim).map((d) => d + shape.length - x.ndim);
      return reshape(ops.broadcastInDim(x, shape, dims), [-1]);
    });
    return reshape(vmap((...scalars: Tensor[]) => fn(...scalars))(...flat), shape);
  };
}

/**
 * Takes each element from the function of the last condition that holds, as NumPy's `piecewise`; the result has the type of
 * `value`.
 *
 * @example
 * ```ts
 * const x = np.array([-2, 0, 3]);
 * np.piecewise(x, [np.less(x, 0), np.greaterEqual(x, 0)], [(y) => y.neg(), (y) => y.mul(10)]); // [2, 0, 30]
 * ```
 */
export function piecewise(
  value: TensorLike,
  conditions: readonly TensorLike[],
  functions: readonly (TensorLike | ((x: Tensor) => Tensor))[],
): Tensor {
  need("list", conditions, "conditions", "piecewise");
  need("list", functions, "functions", "piecewise");
  const x = asTensor(value, "piecewise");
  const extra = functions.length - conditions.length;
  if (extra !== 0 && extra !== 1) {
    throw new ValueError(
      `[piecewise] ${conditions.length} conditions take ${conditions.length} functions, or one more for the rest, got ${functions.length}`,
    );
  }
  const results = functions.map((fn) =>
    asTensor(typeof fn === "function" ? fn(x) : fn, "piecewise").astype(x.dtype),
  );
  const rest = results[conditions.length] ?? Tensor.scalar(0, x.dtype);
  return select([...conditions].reverse(), results.slice(0, conditions.length).reverse(), rest);
}

/**
 * The element of the choice whose number stands at each place.
 *
 * @example
 * ```ts
 * np.choose(np.array([0, 1, 0], "int32"), [np.array([1, 2, 3]), np.array([10, 20, 30])]); // [1, 20, 3]
 * ```
 */
export function choose(indices: TensorLike, choices: readonly TensorLike[]): Tensor {
  need("list", choices, "choices", "choose");
  const places = asTensor(indices, "choose");
  return select(
    choices.map((_, i) => ops.compare("eq", places, i)),
    choices,
    choices.at(-1) ?? 0,
  );
}

/**
 * A tensor sorted so far that the k-th element along a dim stands at its place.
 *
 * @example
 * ```ts
 * np.partition(np.array([4, 2, 3, 1]), 1).get(1); // 2
 * ```
 */
export function partition(x: TensorLike, k: number, dim = -1): Tensor {
  need("number", k, "k", "partition");
  needIfGiven("number", dim, "dim", "partition");
  checkPlace(asTensor(x, "partition"), k, dim, "partition");
  return sort(x, dim);
}

/**
 * The indices that {@link partition} would take.
 *
 * @example
 * ```ts
 * np.argpartition(np.array([3, 1, 2]), 0).get(0); // 1
 * ```
 */
export function argpartition(x: TensorLike, k: number, dim = -1): Tensor {
  checkPlace(asTensor(x, "argpartition"), k, dim, "argpartition");
  return argsort(x, dim);
}

function checkPlace(x: Tensor, k: number, dim: number, caller: string): void {
  const n = at(x.shape, normalizeDim(dim, x.ndim, caller));
  need("integer", k, "k", caller);
  if (k >= -n && k < n) return;
  throw new ValueError(`[${caller}] place ${k} is out of range for a dim of ${n} elements`);
}

/**
 * The indices that sort by several keys along the last dim, the last key first.
 *
 * @example
 * ```ts
 * np.lexsort([np.array([2, 1, 0]), np.array([1, 0, 1])]); // [1, 2, 0]
 * ```
 */
export function lexsort(keys: readonly TensorLike[]): Tensor {
  need("list", keys, "keys", "lexsort");
  const tensors = keys.map((key) => asTensor(key, "lexsort")).reverse();
  const [first] = tensors;
  if (!first || first.ndim === 0 || tensors.some((key) => key.shape.join() !== first.shape.join())) {
    throw new ShapeError("[lexsort] takes keys of the same shape with at least one dim");
  }
  const places = ops.iota("int32", first.shape, first.ndim - 1);
  return at(sortAll([...tensors, places], -1, tensors.length), tensors.length);
}

/**
 * The tensor with values at the places along a dim that indices of the same rank name.
 *
 * @example
 * ```ts
 * np.putAlongAxis(np.zeros([2, 3]), np.array([[2], [0]], "int32"), 9, 1); // [[0, 0, 9], [9, 0, 0]]
 * ```
 */
export function putAlongAxis(
  value: TensorLike,
  indices: TensorLike,
  values: TensorLike,
  dim: number,
): Tensor {
  const x = asTensor(value, "putAlongAxis");
  const d = normalizeDim(dim, x.ndim, "putAlongAxis");
  const places = asTensor(indices, "putAlongAxis");
  if (places.ndim !== x.ndim) {
    throw new ShapeError(
      `[putAlongAxis] indices ${formatType(places.type)} need as many dims as ${formatType(x.type)}`,
    );
  }
  const grid = places.shape.map((_, i) => (i === d ? places : ops.iota("int32", places.shape, i)));
  return x.at(...grid).set(values);
}

/** Two operands promoted and broadcast, scalars included, because each is computed with alone. */
function wholePair(...args: Parameters<typeof pair>): readonly [Tensor, Tensor] {
  const [a, b] = pair(...args);
  return [spelledOut(a, b), spelledOut(b, a)];
}

/**
 * The greatest common divisor of integers.
 *
 * @example
 * ```ts
 * np.gcd(np.array([12, 7], "int32"), np.array([18, 21], "int32")); // [6, 7]
 * ```
 */
export function gcd(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = wholePair(x, y, "gcd");
  requireBits(a, "gcd");
  const [larger] = whileLoop<readonly [Tensor, Tensor]>(
    ([, rest]) => ops.reduceMax(ops.compare("ne", rest, 0), range(rest.ndim)),
    ([whole, rest]) => {
      const done = ops.compare("eq", rest, 0);
      const next = ops.rem(whole, where(done, 1, rest));
      return [where(done, whole, rest), where(done, rest, next)];
    },
    [abs(a), abs(b)],
  );
  return larger;
}

/**
 * The least common multiple of integers.
 *
 * @example
 * ```ts
 * np.lcm(np.array([4, 7], "int32"), np.array([6, 21], "int32")); // [12, 21]
 * ```
 */
export function lcm(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = wholePair(x, y, "lcm");
  const divisor = gcd(a, b);
  const none = ops.compare("eq", divisor, 0);
  return where(none, 0, abs(ops.mul(a, ops.div(b, where(none, 1, divisor)))));
}

/**
 * The rest and the whole part of numbers, as floats with their sign.
 *
 * @example
 * ```ts
 * np.modf(np.array([1.5, -2.25])); // [[0.5, -0.25], [1, -2]]
 * ```
 */
export function modf(value: TensorLike): [fraction: Tensor, whole: Tensor] {
  const x = asFloat(value, "modf");
  const whole = where(ops.compare("lt", x, 0), ops.ceil(x), ops.floor(x));
  const rest = where(ops.finite(x), ops.sub(x, whole), 0);
  return [where(ops.compare("ne", x, x), x, rest), whole];
}

/**
 * x · 2^exponent, in the type of x.
 *
 * @example
 * ```ts
 * np.ldexp(np.array([1, 3]), np.array([2, -1], "int32")); // [4, 1.5]
 * ```
 */
export function ldexp(x: TensorLike, exponent: TensorLike): Tensor {
  const dtype = floatType(refuseComplex(x, "ldexp"));
  const [a, b] = wholePair(x, exponent, "ldexp", () => wideType(dtype));
  const scaled = ops.mul(a, ops.pow(ops.broadcastInDim(ops.full([], 2, a.dtype), b.shape, []), b));
  return cast(scaled, dtype);
}

/**
 * Products of matrices with vectors in the last dims.
 *
 * @example
 * ```ts
 * np.matvec(np.array([[1, 2], [3, 4]]), np.array([1, 1])); // [3, 7]
 * ```
 */
export function matvec(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = [asTensor(x, "matvec"), asTensor(y, "matvec")];
  return a.matmul(b.expandDims(-1)).squeeze(-1);
}

/**
 * Products of conjugated vectors with matrices in the last dims.
 *
 * @example
 * ```ts
 * np.vecmat(np.array([1, 1]), np.array([[1, 2], [3, 4]])); // [4, 6]
 * ```
 */
export function vecmat(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = [asTensor(x, "vecmat"), asTensor(y, "vecmat")];
  return conj(a).expandDims(-2).matmul(b).squeeze(-2);
}
