/** Arithmetic of two operands, which are promoted and broadcast. */
import { type DType, isComplex, isFloat, isUnsigned } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";
import { integerPow } from "../../lax/composed.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import {
  align,
  asNumber,
  cast,
  floatType,
  inexactType,
  like,
  numberType,
  pair,
  refuseComplex,
  spelledOut,
  toType,
  wideType,
} from "../operands.js";
import { isnan, signbit } from "./specialValues.js";

/** A function of two operands. */
export type BinaryFunction = (x: TensorLike, y: TensorLike) => Tensor;

function binary(
  name: string,
  fn: (x: Tensor, y: Tensor) => Tensor,
  kind?: (dtype: DType) => DType,
): BinaryFunction {
  return (x, y) => tracedAsOneCall(() => fn(...pair(x, y, name, kind)));
}

/** For functions that compute with each operand alone before they combine both. */
function spelled(
  name: string,
  fn: (x: Tensor, y: Tensor) => Tensor,
  kind?: (dtype: DType) => DType,
): BinaryFunction {
  return binary(name, (x, y) => fn(spelledOut(x, y), spelledOut(y, x)), kind);
}

/** For functions made of several ops, which lose precision in half-width floats. */
function composed(name: string, fn: (x: Tensor, y: Tensor) => Tensor): BinaryFunction {
  const compose: BinaryFunction = (x, y) => {
    const [a, b] = pair(x, y, name, floatType);
    const wide = wideType(a.dtype);
    return cast(fn(cast(spelledOut(a, b), wide), cast(spelledOut(b, a), wide)), a.dtype);
  };
  return (x, y) => tracedAsOneCall(() => compose(x, y));
}

/**
 * x + y; `or` for bool.
 *
 * @example
 * ```ts
 * np.add(np.array([1, 2]), 10); // [11, 12]
 * ```
 */
export const add = binary("add", (x, y) => (x.dtype === "bool" ? ops.or(x, y) : ops.add(x, y)));

/**
 * x − y.
 *
 * @example
 * ```ts
 * np.subtract(np.array([5, 7]), np.array([1, 2])); // [4, 5]
 * ```
 */
export const subtract = binary("subtract", (x, y) => {
  if (x.dtype === "bool") {
    throw new DTypeError(
      `[subtract] works on numbers, not on bool: use logicalXor, or convert with astype("int32")`,
    );
  }
  return ops.sub(x, y);
});

/**
 * x · y; `and` for bool.
 *
 * @example
 * ```ts
 * np.multiply(np.array([1, 2]), np.array([3, 4])); // [3, 8]
 * ```
 */
export const multiply = binary("multiply", (x, y) => (x.dtype === "bool" ? ops.and(x, y) : ops.mul(x, y)));

/**
 * x / y as a float, also for integers; complex numbers stay complex.
 *
 * @example
 * ```ts
 * np.divide(np.array([1, 2]), 4); // [0.25, 0.5]
 * ```
 */
export const divide = binary("divide", ops.div, inexactType);

/**
 * The integer below x / y; integers stay integers.
 *
 * @example
 * ```ts
 * np.floorDivide(np.array([7, -7]), 2); // [3, -4]
 * ```
 */
export const floorDivide = binary(
  "floorDivide",
  (dividend, y) => {
    const x = spelledOut(dividend, y);
    const rest = ops.rem(x, y);
    if (isFloat(x.dtype)) {
      const quotient = ops.div(ops.sub(x, rest), y);
      const rounded = ops.round(ops.select(isOneBelow(rest, y), ops.sub(quotient, 1), quotient));
      const isByZero =
        y.node.kind === "literal"
          ? Tensor.scalar(y.node.literal.value === 0, "bool")
          : ops.compare("eq", y, 0);
      // Integers have no derivative, and neither have the values that represent them here.
      return ops.select(isByZero, ops.stopGradient(ops.div(x, y)), rounded);
    }
    const quotient = ops.div(x, y);
    if (isUnsigned(x.dtype)) return quotient;
    return ops.select(isOneBelow(rest, y), ops.sub(quotient, 1), quotient);
  },
  numberType,
);

/**
 * Whether a remainder is not zero and differs in sign from the divisor, which is not −0 or NaN. A remainder by the
 * integer 0 counts as such, as in JAX.
 */
function isOneBelow(rest: Tensor, divisor: Tensor): Tensor {
  if (divisor.node.kind === "literal") {
    const { value } = divisor.node.literal;
    return ops.compare(value === 0 ? "ne" : value < 0 ? "gt" : "lt", rest, 0);
  }
  const otherSign = isFloat(divisor.dtype)
    ? ops.compare("ne", ops.compare("lt", rest, 0), ops.compare("lt", divisor, 0))
    : ops.compare("ne", ops.sign(rest), ops.sign(divisor));
  return ops.and(otherSign, ops.compare("ne", rest, 0));
}

/** A divisor of integers with 1 in place of 0, so that the remainder is 0 as in JAX. */
function withoutZero(divisor: Tensor): Tensor {
  if (isFloat(divisor.dtype)) return divisor;
  if (divisor.node.kind === "literal") return divisor.node.literal.value === 0 ? like(divisor, 1) : divisor;
  return ops.select(ops.compare("eq", divisor, 0), like(divisor, 1), divisor);
}

/**
 * The remainder with the sign of the divisor: `mod(-5, 3)` is 1.
 *
 * @example
 * ```ts
 * np.mod(np.array([7, -7]), 3); // [1, 2]
 * ```
 */
export const mod = binary(
  "mod",
  (dividend, divisor) => {
    const [x, y] = [spelledOut(dividend, divisor), withoutZero(divisor)];
    const rest = ops.rem(x, y);
    return isUnsigned(x.dtype) ? rest : ops.select(isOneBelow(rest, y), ops.add(rest, y), rest);
  },
  numberType,
);

/**
 * The remainder with the sign of the dividend: `fmod(-5, 3)` is −2.
 *
 * @example
 * ```ts
 * np.fmod(np.array([7, -7]), 3); // [1, -1]
 * ```
 */
export const fmod = binary("fmod", (x, y) => ops.rem(x, withoutZero(y)), numberType);

/**
 * {@link floorDivide} and {@link mod}.
 *
 * @example
 * ```ts
 * np.divmod(np.array([7, -7]), 3); // [[2, -3], [1, 2]]
 * ```
 */
export function divmod(x: TensorLike, y: TensorLike): [Tensor, Tensor] {
  return [floorDivide(x, y), mod(x, y)];
}

/** The largest exponent that is written as multiplications. */
const unrolledPower = 1024;

/**
 * x to the power of y. A whole JavaScript number as exponent is computed by multiplication.
 *
 * @example
 * ```ts
 * np.power(np.array([2, 3]), 2); // [4, 9]
 * ```
 */
export function power(x: TensorLike, y: TensorLike): Tensor {
  if (typeof y === "number" && Number.isInteger(y) && Math.abs(y) <= unrolledPower) {
    const base = asNumber(x, "power");
    if (y < 0 && !isFloat(base.dtype) && !isComplex(base.dtype)) {
      throw new DTypeError(
        `[power] ${base.dtype} cannot be raised to the negative power ${y}: convert with astype("float32")`,
      );
    }
    return integerPow(base, y);
  }
  return ops.pow(...pair(x, y, "power", numberType));
}

/**
 * x to the power of y as a float.
 *
 * @example
 * ```ts
 * np.floatPower(np.array([2, 3]), 2); // [4, 9]
 * ```
 */
export const floatPower = binary("floatPower", ops.pow, inexactType);

/**
 * The larger of both; NaN if either is NaN.
 *
 * @example
 * ```ts
 * np.maximum(np.array([1, 5]), np.array([4, 2])); // [4, 5]
 * ```
 */
export const maximum = binary("maximum", ops.max);
/**
 * The smaller of both; NaN if either is NaN.
 *
 * @example
 * ```ts
 * np.minimum(np.array([1, 5]), np.array([4, 2])); // [1, 2]
 * ```
 */
export const minimum = binary("minimum", ops.min);
/**
 * The larger of both; a NaN counts as missing. Of equal ones the second is taken, and gets the gradient.
 *
 * @example
 * ```ts
 * np.fmax(np.array([1, NaN]), np.array([0, 2])); // [1, 2]
 * ```
 */
export const fmax = spelled("fmax", (x, y) => unlessNan(x, y, "gt"));
/**
 * The smaller of both; a NaN counts as missing. Of equal ones the second is taken, and gets the gradient.
 *
 * @example
 * ```ts
 * np.fmin(np.array([1, NaN]), np.array([0, 2])); // [0, 2]
 * ```
 */
export const fmin = spelled("fmin", (x, y) => unlessNan(x, y, "lt"));

function unlessNan(x: Tensor, y: Tensor, wins: "gt" | "lt"): Tensor {
  const isFirst = ops.compare(wins, x, y);
  return ops.select(isFloat(x.dtype) ? ops.or(isFirst, isnan(y)) : isFirst, x, y);
}

/**
 * The angle of the point (y, x), in −π … π.
 *
 * @example
 * ```ts
 * np.atan2(np.array([1, -1]), np.array([1, 0])); // [0.7854, -1.571]
 * ```
 */
export const atan2 = binary("atan2", ops.atan2, inexactType);

/**
 * Both operands, the one where `isFirst` holds before the other. They are selected rather than found by `max` and
 * `min`, whose derivatives share out what is equal, so that a smooth function of both is differentiated right there too.
 */
function ordered(isFirst: Tensor, x: Tensor, y: Tensor): [Tensor, Tensor] {
  return [ops.select(isFirst, x, y), ops.select(isFirst, y, x)];
}

/**
 * √(x² + y²) without overflow; infinite where one of them is, whatever the other.
 *
 * @example
 * ```ts
 * np.hypot(np.array([3, 5]), np.array([4, 12])); // [5, 13]
 * ```
 */
export const hypot = composed("hypot", (x, y) => {
  const [a, b] = [ops.abs(x), ops.abs(y)];
  const [large, small] = ordered(ops.compare("ge", a, b), x, y);
  const isZero = ops.compare("eq", large, 0);
  const ratio = ops.div(small, ops.select(isZero, like(large, 1), large));
  const length = ops.mul(ops.abs(large), ops.sqrt(ops.add(ops.mul(ratio, ratio), 1)));
  const infinite = like(large, Number.POSITIVE_INFINITY);
  const isInfinite = ops.or(ops.compare("eq", a, infinite), ops.compare("eq", b, infinite));
  return ops.select(isInfinite, infinite, ops.select(isZero, ops.max(a, b), length));
});

const logaddexpOf = (x: Tensor, y: Tensor): Tensor => {
  const [large, small] = ordered(ops.compare("ge", x, y), x, y);
  const difference = ops.sub(small, large);
  // Two equal infinities differ by NaN; their mean is the answer.
  const value = ops.add(large, ops.log1p(ops.exp(difference)));
  return ops.select(isnan(difference), ops.mul(ops.add(x, y), 0.5), value);
};

/** exp(x − sum), the share that x has of a sum; all of it where both are infinite. */
function shareOf(x: Tensor, sum: Tensor): Tensor {
  const finite = (t: Tensor) => ops.select(ops.compare("eq", t, Number.POSITIVE_INFINITY), like(t, 0), t);
  return ops.exp(ops.sub(finite(x), finite(sum)));
}

/**
 * log(exp(x) + exp(y)) without overflow.
 *
 * @example
 * ```ts
 * np.logaddexp(np.array([0, 1]), np.array([0, 1])); // [0.6931, 1.693]
 * ```
 */
export const logaddexp = composed(
  "logaddexp",
  libraryVjp(logaddexpOf, {
    forward: (x, y) => {
      const sum = logaddexpOf(x, y);
      return [sum, [x, y, sum] as const];
    },
    backward: ([x, y, sum], ct) => [ops.mul(ct, shareOf(x, sum)), ops.mul(ct, shareOf(y, sum))],
  }),
);

/**
 * log₂(2ˣ + 2ʸ) without overflow.
 *
 * @example
 * ```ts
 * np.logaddexp2(np.array([0, 1]), np.array([0, 1])); // [1, 2]
 * ```
 */
export const logaddexp2 = composed("logaddexp2", (x, y) =>
  ops.div(logaddexp(ops.mul(x, Math.LN2), ops.mul(y, Math.LN2)), Math.LN2),
);

/**
 * The size of x with the sign of y.
 *
 * @example
 * ```ts
 * np.copysign(np.array([1, 2]), np.array([-1, 1])); // [-1, 2]
 * ```
 */
export const copysign = spelled(
  "copysign",
  (x, y) => ops.select(signbit(y), ops.neg(ops.abs(x)), ops.abs(x)),
  floatType,
);

/**
 * 0 for negative x, 1 for positive x, y where x is 0.
 *
 * @example
 * ```ts
 * np.heaviside(np.array([-1, 0, 2]), 0.5); // [0, 0.5, 1]
 * ```
 */
export const heaviside = spelled(
  "heaviside",
  (x, y) => {
    const step = cast(ops.compare("gt", x, 0), x.dtype);
    return ops.select(ops.compare("eq", x, 0), y, ops.select(isnan(x), x, step));
  },
  floatType,
);

/**
 * Limits each element to low … high; `null` leaves a side open.
 *
 * ```ts
 * np.clip(x, 0, null)
 * ```
 *
 * @example
 * ```ts
 * np.clip(np.array([-2, 0.5, 3]), 0, 1); // [0, 0.5, 1]
 * ```
 */
export function clip(x: TensorLike, low?: TensorLike | null, high?: TensorLike | null): Tensor {
  const bounds = [low, high].filter((bound) => bound !== null && bound !== undefined);
  const dtype = operandType(x, ...bounds);
  for (const operand of [x, ...bounds]) refuseComplex(operand, "clip");
  const bound = (limit: TensorLike | null | undefined, apply: typeof ops.max, value: Tensor) =>
    limit === null || limit === undefined
      ? value
      : apply(...align([value, toType(limit, dtype, "clip")] as const, "clip"));
  return bound(high, ops.min, bound(low, ops.max, toType(x, dtype, "clip")));
}
