/** Elementwise ops: shapes and types must agree, and numbers take the type of the other operand. */

import { describe } from "../ir/describe.js";
import { complexType, type DType } from "../ir/dtype.js";
import { DTypeError, ValueError } from "../ir/errors.js";
import type { CompareDirection } from "../ir/ops.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import { type Parts, Tensor } from "../trace/tensor.js";
import { expandScalars, operand, operandsOf } from "./operands.js";

/** A function of one operand. */
export type Unary = (x: TensorLike) => Tensor;

/** A function of two operands. */
export type Binary = (x: TensorLike, y: TensorLike) => Tensor;

const unary =
  (name: string, op: (x: Tensor) => Tensor): Unary =>
  (x) =>
    op(operand(x, name));

const binary =
  (name: string, op: (x: Tensor, y: Tensor) => Tensor): Binary =>
  (x, y) =>
    op(...operandsOf([x, y] as const, name));

const comparison = (name: string, direction: CompareDirection) =>
  binary(name, (x, y) => {
    if (x.parts && direction !== "eq" && direction !== "ne") {
      throw new DTypeError(`[lax.${name}] complex numbers have no order: compare np.real(x) or np.abs(x)`);
    }
    return ops.compare(direction, x, y);
  });

/**
 * −x.
 *
 * @example
 * ```ts
 * lax.neg(np.array([1, -2])); // [-1, 2]
 * ```
 */
export const neg = unary("neg", ops.neg);
/**
 * e to the power of x.
 *
 * @example
 * ```ts
 * lax.exp(np.array([0, 1])); // [1, 2.718]
 * ```
 */
export const exp = unary("exp", ops.exp);
/**
 * exp(x) − 1, precise near 0.
 *
 * @example
 * ```ts
 * lax.expm1(np.array([0, 1])); // [0, 1.718]
 * ```
 */
export const expm1 = unary("expm1", ops.expm1);
/**
 * The natural logarithm.
 *
 * @example
 * ```ts
 * lax.log(np.array([1, Math.E])); // [0, 1]
 * ```
 */
export const log = unary("log", ops.log);
/**
 * log(1 + x), precise near 0.
 *
 * @example
 * ```ts
 * lax.log1p(np.array([0, 1])); // [0, 0.6931]
 * ```
 */
export const log1p = unary("log1p", ops.log1p);
/**
 * The hyperbolic tangent.
 *
 * @example
 * ```ts
 * lax.tanh(np.array([0, 1])); // [0, 0.7616]
 * ```
 */
export const tanh = unary("tanh", ops.tanh);
/**
 * The sine of an angle in radians.
 *
 * @example
 * ```ts
 * lax.sin(np.array([0, 1])); // [0, 0.8415]
 * ```
 */
export const sin = unary("sin", ops.sin);
/**
 * The cosine of an angle in radians.
 *
 * @example
 * ```ts
 * lax.cos(np.array([0, 1])); // [1, 0.5403]
 * ```
 */
export const cos = unary("cos", ops.cos);
/**
 * The square root.
 *
 * @example
 * ```ts
 * lax.sqrt(np.array([4, 9])); // [2, 3]
 * ```
 */
export const sqrt = unary("sqrt", ops.sqrt);
/**
 * 1 / √x.
 *
 * @example
 * ```ts
 * lax.rsqrt(np.array([4, 16])); // [0.5, 0.25]
 * ```
 */
export const rsqrt = unary("rsqrt", ops.rsqrt);
/**
 * The cube root.
 *
 * @example
 * ```ts
 * lax.cbrt(np.array([8, 27])); // [2, 3]
 * ```
 */
export const cbrt = unary("cbrt", ops.cbrt);
/**
 * The absolute value.
 *
 * @example
 * ```ts
 * lax.abs(np.array([-1, 2])); // [1, 2]
 * ```
 */
export const abs = unary("abs", ops.abs);
/**
 * −1, 0 or 1, as the sign of x.
 *
 * @example
 * ```ts
 * lax.sign(np.array([-3, 0, 2])); // [-1, 0, 1]
 * ```
 */
export const sign = unary("sign", ops.sign);
/**
 * The next integer below.
 *
 * @example
 * ```ts
 * lax.floor(np.array([1.7, -1.2])); // [1, -2]
 * ```
 */
export const floor = unary("floor", ops.floor);
/**
 * The next integer above.
 *
 * @example
 * ```ts
 * lax.ceil(np.array([1.2, -1.2])); // [2, -1]
 * ```
 */
export const ceil = unary("ceil", ops.ceil);

/** How halves are rounded. */
export type RoundingMethod = "awayFromZero" | "toNearestEven";

/**
 * Rounds to the nearest integer; halves go away from zero by default, or to the even one.
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

/**
 * The error function.
 *
 * @example
 * ```ts
 * lax.erf(np.array([0, 1])); // [0, 0.8427]
 * ```
 */
export const erf = unary("erf", ops.erf);
/**
 * The inverse of the error function.
 *
 * @example
 * ```ts
 * lax.erfInv(np.array([0, 0.5])); // [0, 0.4769]
 * ```
 */
export const erfInv = unary("erfInv", ops.erfInv);
/**
 * 1 / (1 + exp(−x)).
 *
 * @example
 * ```ts
 * lax.logistic(np.array([0, 2])); // [0.5, 0.8808]
 * ```
 */
export const logistic = unary("logistic", ops.logistic);
/**
 * All bits inverted; of booleans, the negation.
 *
 * @example
 * ```ts
 * lax.bitwiseNot(np.array([0, 5], "int32")); // [-1, -6]
 * ```
 */
export const bitwiseNot = unary("bitwiseNot", ops.not);
/**
 * Whether each element is neither infinite nor NaN.
 *
 * @example
 * ```ts
 * lax.isFinite(np.array([1, Infinity])); // [true, false]
 * ```
 */
export const finite = unary("isFinite", ops.finite);

/**
 * x + y.
 *
 * @example
 * ```ts
 * lax.add(np.array([1, 2]), np.array([3, 4])); // [4, 6]
 * ```
 */
export const add = binary("add", ops.add);
/**
 * x − y.
 *
 * @example
 * ```ts
 * lax.sub(np.array([5, 7]), np.array([1, 2])); // [4, 5]
 * ```
 */
export const sub = binary("sub", ops.sub);
/**
 * x · y.
 *
 * @example
 * ```ts
 * lax.mul(np.array([1, 2]), np.array([3, 4])); // [3, 8]
 * ```
 */
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
/**
 * x to the power of y.
 *
 * @example
 * ```ts
 * lax.pow(np.array([2, 3]), np.array([3, 2])); // [8, 9]
 * ```
 */
export const pow = binary("pow", ops.pow);
/**
 * The larger of two elements; NaN if one is.
 *
 * @example
 * ```ts
 * lax.max(np.array([1, 5]), np.array([4, 2])); // [4, 5]
 * ```
 */
export const max = binary("max", ops.max);
/**
 * The smaller of two elements; NaN if one is.
 *
 * @example
 * ```ts
 * lax.min(np.array([1, 5]), np.array([4, 2])); // [1, 2]
 * ```
 */
export const min = binary("min", ops.min);
/**
 * The angle of the point (y, x) in radians, from −π to π.
 *
 * @example
 * ```ts
 * lax.atan2(np.array([1, -1]), np.array([1, 0])); // [0.7854, -1.571]
 * ```
 */
export const atan2 = binary("atan2", ops.atan2);
/**
 * Bits that both have.
 *
 * @example
 * ```ts
 * lax.bitwiseAnd(np.array([6], "int32"), np.array([3], "int32")); // [2]
 * ```
 */
export const bitwiseAnd = binary("bitwiseAnd", ops.and);
/**
 * Bits that one of them has.
 *
 * @example
 * ```ts
 * lax.bitwiseOr(np.array([6], "int32"), np.array([3], "int32")); // [7]
 * ```
 */
export const bitwiseOr = binary("bitwiseOr", ops.or);
/**
 * Bits that exactly one of them has.
 *
 * @example
 * ```ts
 * lax.bitwiseXor(np.array([6], "int32"), np.array([3], "int32")); // [5]
 * ```
 */
export const bitwiseXor = binary("bitwiseXor", ops.xor);
/**
 * Bits moved up by y places.
 *
 * @example
 * ```ts
 * lax.shiftLeft(np.array([1, 3], "int32"), np.array([2, 2], "int32")); // [4, 12]
 * ```
 */
export const shiftLeft = binary("shiftLeft", ops.shl);
/**
 * Bits moved down by y places, filled with zeros.
 *
 * @example
 * ```ts
 * lax.shiftRightLogical(np.array([8], "int32"), np.array([2], "int32")); // [2]
 * ```
 */
export const shiftRightLogical = binary("shiftRightLogical", ops.shrLogical);
/**
 * Bits moved down by y places, filled with copies of the sign.
 *
 * @example
 * ```ts
 * lax.shiftRightArithmetic(np.array([-8], "int32"), np.array([2], "int32")); // [-2]
 * ```
 */
export const shiftRightArithmetic = binary("shiftRightArithmetic", ops.shrArithmetic);
/**
 * Whether x equals y.
 *
 * @example
 * ```ts
 * lax.eq(np.array([1, 2]), np.array([1, 3])); // [true, false]
 * ```
 */
export const eq = comparison("eq", "eq");
/**
 * Whether x differs from y.
 *
 * @example
 * ```ts
 * lax.ne(np.array([1, 2]), np.array([1, 3])); // [false, true]
 * ```
 */
export const ne = comparison("ne", "ne");
/**
 * Whether x is less than y.
 *
 * @example
 * ```ts
 * lax.lt(np.array([1, 2]), np.array([2, 2])); // [true, false]
 * ```
 */
export const lt = comparison("lt", "lt");
/**
 * Whether x is at most y.
 *
 * @example
 * ```ts
 * lax.le(np.array([1, 3]), np.array([2, 2])); // [true, false]
 * ```
 */
export const le = comparison("le", "le");
/**
 * Whether x is greater than y.
 *
 * @example
 * ```ts
 * lax.gt(np.array([1, 3]), np.array([2, 2])); // [false, true]
 * ```
 */
export const gt = comparison("gt", "gt");
/**
 * Whether x is at least y.
 *
 * @example
 * ```ts
 * lax.ge(np.array([1, 2]), np.array([2, 2])); // [false, true]
 * ```
 */
export const ge = comparison("ge", "ge");

/**
 * Complex numbers of their real and imaginary parts, of float32 or float64.
 *
 * @example
 * ```ts
 * lax.imag(lax.complex(np.array([1]), np.array([2]))); // [2]
 * ```
 */
export function complex(real: TensorLike, imag: TensorLike): Tensor {
  const parts = operandsOf([real, imag] as const, "complex");
  const [re, im] = expandScalars(parts, parts);
  const shape = (parts.find((x) => x.ndim > 0) ?? parts[0]).shape;
  return Tensor.complex(
    ops.broadcastInDim(re ?? parts[0], shape, []),
    ops.broadcastInDim(im ?? parts[1], shape, []),
  );
}

/**
 * The real part of complex numbers.
 *
 * @example
 * ```ts
 * lax.real(lax.complex(np.array([1]), np.array([2]))); // [1]
 * ```
 */
export const real = unary("real", (x) => partsOf(x, "real")[0]);
/**
 * The imaginary part of complex numbers.
 *
 * @example
 * ```ts
 * lax.imag(lax.complex(np.array([1]), np.array([2]))); // [2]
 * ```
 */
export const imag = unary("imag", (x) => partsOf(x, "imag")[1]);
/**
 * The same numbers with the other sign of their imaginary part; real ones become complex.
 *
 * @example
 * ```ts
 * lax.imag(lax.conj(lax.complex(np.array([1]), np.array([2])))); // [-2]
 * ```
 */
export const conj = unary("conj", (x) => {
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
  return ops.strong(ops.convert(operand(x), dtype));
}
