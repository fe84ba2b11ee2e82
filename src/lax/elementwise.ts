/** Ops on each element: shapes and types must agree, and numbers adapt to the tensor beside them. */

import { describe } from "../ir/describe.js";
import { complexType, type DType } from "../ir/dtype.js";
import { DTypeError, ValueError } from "../ir/errors.js";
import type { CompareDirection } from "../ir/ops.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import { needTensor } from "../trace/promote.js";
import { type Parts, Tensor } from "../trace/tensor.js";
import { expandScalars, operand, operandsOf } from "./operands.js";

/** A function of one operand. */
export type Unary = (x: TensorLike) => Tensor;

/** A function of two operands. */
export type Binary = (x: TensorLike, y: TensorLike) => Tensor;

const unary =
  (op: (x: Tensor) => Tensor): Unary =>
  (x) =>
    op(operand(x));

const binary =
  (name: string, op: (x: Tensor, y: Tensor) => Tensor): Binary =>
  (x, y) =>
    op(...operandsOf([x, y] as const, name));

const comparison = (name: string, direction: CompareDirection) =>
  binary(name, (x, y) => ops.compare(direction, x, y));

export const neg = unary(ops.neg);
export const exp = unary(ops.exp);
/**
 * exp(x) − 1, precise near 0.
 *
 * @example
 * ```ts
 * lax.expm1(np.array([0, 1])); // [0, 1.718]
 * ```
 */
export const expm1 = unary(ops.expm1);
export const log = unary(ops.log);
/**
 * log(1 + x), precise near 0.
 *
 * @example
 * ```ts
 * lax.log1p(np.array([0, 1])); // [0, 0.6931]
 * ```
 */
export const log1p = unary(ops.log1p);
export const tanh = unary(ops.tanh);
export const sin = unary(ops.sin);
export const cos = unary(ops.cos);
export const sqrt = unary(ops.sqrt);
/**
 * 1 / √x.
 *
 * @example
 * ```ts
 * lax.rsqrt(np.array([4, 16])); // [0.5, 0.25]
 * ```
 */
export const rsqrt = unary(ops.rsqrt);
export const cbrt = unary(ops.cbrt);
export const abs = unary(ops.abs);
export const sign = unary(ops.sign);
export const floor = unary(ops.floor);
export const ceil = unary(ops.ceil);

/** Where halves go when they are rounded. */
export type RoundingMethod = "awayFromZero" | "toNearestEven";

/**
 * To the nearest integer; halves go away from zero, unless it says to the even one.
 *
 * @example
 * ```ts
 * lax.round(np.array([0.5, 1.5, -0.5])); // [1, 2, -1]
 * ```
 */
export function round(x: TensorLike, method: RoundingMethod = "awayFromZero"): Tensor {
  if (method !== "awayFromZero" && method !== "toNearestEven") {
    throw new ValueError(
      `[lax.round] unknown method ${describe(method)}: use "awayFromZero" or "toNearestEven"`,
    );
  }
  const value = operand(x, "round");
  const nearest = ops.round(value);
  if (method === "toNearestEven") return nearest;
  const isHalf = ops.compare("eq", ops.abs(ops.sub(value, nearest)), 0.5);
  return ops.select(isHalf, ops.mul(ops.sign(value), ops.ceil(ops.abs(value))), nearest);
}

export const erf = unary(ops.erf);
export const erfInv = unary(ops.erfInv);
/**
 * 1 / (1 + exp(−x)).
 *
 * @example
 * ```ts
 * lax.logistic(np.array([0, 2])); // [0.5, 0.8808]
 * ```
 */
export const logistic = unary(ops.logistic);
export const bitwiseNot = unary(ops.not);
/**
 * Whether each element is neither infinite nor NaN.
 *
 * @example
 * ```ts
 * lax.isFinite(np.array([1, Infinity])); // [true, false]
 * ```
 */
export const finite = unary(ops.finite);

export const add = binary("add", ops.add);
export const sub = binary("sub", ops.sub);
export const mul = binary("mul", ops.mul);
/**
 * x / y; integers are truncated toward zero.
 *
 * @example
 * ```ts
 * lax.div(np.array([7, -7], "int32"), np.array([2, 2], "int32")); // [3, -3]
 * ```
 */
export const div = binary("div", ops.div);
/**
 * The remainder with the sign of the dividend.
 *
 * @example
 * ```ts
 * lax.rem(np.array([7, -7]), np.array([3, 3])); // [1, -1]
 * ```
 */
export const rem = binary("rem", ops.rem);
export const pow = binary("pow", ops.pow);
export const max = binary("max", ops.max);
export const min = binary("min", ops.min);
export const atan2 = binary("atan2", ops.atan2);
export const bitwiseAnd = binary("bitwiseAnd", ops.and);
export const bitwiseOr = binary("bitwiseOr", ops.or);
export const bitwiseXor = binary("bitwiseXor", ops.xor);
export const shiftLeft = binary("shiftLeft", ops.shl);
export const shiftRightLogical = binary("shiftRightLogical", ops.shrLogical);
export const shiftRightArithmetic = binary("shiftRightArithmetic", ops.shrArithmetic);
export const eq = comparison("eq", "eq");
export const ne = comparison("ne", "ne");
export const lt = comparison("lt", "lt");
export const le = comparison("le", "le");
export const gt = comparison("gt", "gt");
export const ge = comparison("ge", "ge");

/**
 * Takes each element from `onTrue` or `onFalse`; a scalar predicate chooses between the whole tensors.
 *
 * @example
 * ```ts
 * lax.select(np.array([true, false]), np.array([1, 2]), np.array([3, 4])); // [1, 4]
 * ```
 */
export function select(predicate: Tensor, onTrue: TensorLike, onFalse: TensorLike): Tensor {
  needTensor(predicate, "predicate", "lax.select");
  const [x, y] = operandsOf([onTrue, onFalse] as const, "select");
  const [p] = expandScalars([predicate], [x, y]);
  return ops.select(p ?? predicate, x, y);
}

/** Takes each element from the case that `which` says: two cases by a bool, or any number by an integer. */
export function selectN(which: Tensor, ...cases: readonly TensorLike[]): Tensor {
  needTensor(which, "which", "lax.selectN");
  const xs = operandsOf(cases, "selectN");
  const [first, second] = xs;
  if (first === undefined) throw new ValueError("[lax.selectN] needs at least one case");
  if (which.dtype === "bool") {
    if (second === undefined || xs.length > 2) {
      throw new ValueError(
        `[lax.selectN] a bool chooses between 2 cases, got ${xs.length}: use an int32 for more`,
      );
    }
    return select(which, second, first);
  }
  return xs.slice(1).reduce((chosen, x, i) => select(ge(which, i + 1), x, chosen), first);
}

/**
 * Limits each element to low … high, which may be scalars.
 *
 * @example
 * ```ts
 * lax.clamp(0, np.array([-1, 0.5, 2]), 1); // [0, 0.5, 1]
 * ```
 */
export function clamp(low: TensorLike, x: TensorLike, high: TensorLike): Tensor {
  const [middle, bottom, top] = operandsOf([x, low, high] as const, "clamp");
  const [from, to] = expandScalars([bottom, top], [middle]);
  return ops.clamp(from ?? bottom, middle, to ?? top);
}

/** Complex numbers of their real and imaginary parts, of float32 or float64. */
export function complex(real: TensorLike, imag: TensorLike): Tensor {
  const parts = operandsOf([real, imag] as const, "complex");
  const [re, im] = expandScalars(parts, parts);
  const shape = (parts.find((x) => x.ndim > 0) ?? parts[0]).shape;
  return Tensor.complex(
    ops.broadcastInDim(re ?? parts[0], shape, []),
    ops.broadcastInDim(im ?? parts[1], shape, []),
  );
}

/** The real part of complex numbers. */
export const real = unary((x) => partsOf(x, "real")[0]);
/** The imaginary part of complex numbers. */
export const imag = unary((x) => partsOf(x, "imag")[1]);
/** The same numbers with the other sign of their imaginary part; real ones become complex. */
export const conj = unary((x) => {
  const [re, im] = ops.convert(x, complexType(x.dtype)).parts ?? [x, x];
  return Tensor.complex(re, ops.neg(im));
});

function partsOf(x: Tensor, caller: string): Parts {
  if (x.parts) return x.parts;
  throw new DTypeError(`[lax.${caller}] takes complex numbers, got ${x}: use np.${caller}`);
}

/**
 * The same values in another data type: floats are truncated toward zero and saturate in integers.
 *
 * @example
 * ```ts
 * lax.convertElementType(np.array([1.5, 2.5]), "int32"); // [1, 2]
 * ```
 */
export function convertElementType(x: TensorLike, dtype: DType): Tensor {
  return ops.convert(operand(x), dtype);
}
