/** Comparison, logic, bits, and choosing between tensors. */

import { need } from "../../ir/arguments.js";
import { isComplex, isFloat, isUnsigned } from "../../ir/dtype.js";
import { ValueError } from "../../ir/errors.js";
import type { CompareDirection } from "../../ir/ops.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { range, sameNumbers } from "../../ir/shape.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import {
  align,
  asTensor,
  inexactType,
  numberType,
  pair,
  requireBits,
  spelledOut,
  toBool,
  toType,
} from "../operands.js";
import type { BinaryFunction } from "./arithmetic.js";
import { isnan } from "./specialValues.js";

function comparison(name: string, direction: CompareDirection): BinaryFunction {
  return (x, y) => tracedAsOneCall(() => ops.compare(direction, ...pair(x, y, name)));
}

/**
 * Where x = y.
 *
 * @example
 * ```ts
 * np.equal(np.array([1, 2]), np.array([1, 3])); // [true, false]
 * ```
 */
export const equal = comparison("equal", "eq");
/**
 * Where x ≠ y; NaN differs from everything.
 *
 * @example
 * ```ts
 * np.notEqual(np.array([1, 2]), np.array([1, 3])); // [false, true]
 * ```
 */
export const notEqual = comparison("notEqual", "ne");
/**
 * Where x < y.
 *
 * @example
 * ```ts
 * np.less(np.array([1, 2]), 2); // [true, false]
 * ```
 */
export const less = comparison("less", "lt");
/**
 * Where x ≤ y.
 *
 * @example
 * ```ts
 * np.lessEqual(np.array([1, 2]), 1); // [true, false]
 * ```
 */
export const lessEqual = comparison("lessEqual", "le");
/**
 * Where x > y.
 *
 * @example
 * ```ts
 * np.greater(np.array([1, 2]), 1); // [false, true]
 * ```
 */
export const greater = comparison("greater", "gt");
/**
 * Where x ≥ y.
 *
 * @example
 * ```ts
 * np.greaterEqual(np.array([1, 2]), 2); // [false, true]
 * ```
 */
export const greaterEqual = comparison("greaterEqual", "ge");

function logical(name: string, op: (x: Tensor, y: Tensor) => Tensor): BinaryFunction {
  return (x, y) => op(...align([toBool(x, name), toBool(y, name)] as const, name));
}

/**
 * Where both are not 0.
 *
 * @example
 * ```ts
 * np.logicalAnd(np.array([true, true]), np.array([true, false])); // [true, false]
 * ```
 */
export const logicalAnd = logical("logicalAnd", ops.and);
/**
 * Where one of them is not 0.
 *
 * @example
 * ```ts
 * np.logicalOr(np.array([true, false]), np.array([false, false])); // [true, false]
 * ```
 */
export const logicalOr = logical("logicalOr", ops.or);
/**
 * Where exactly one of them is not 0.
 *
 * @example
 * ```ts
 * np.logicalXor(np.array([true, true]), np.array([true, false])); // [false, true]
 * ```
 */
export const logicalXor = logical("logicalXor", ops.xor);

/**
 * Where x is 0.
 *
 * @example
 * ```ts
 * np.logicalNot(np.array([true, false])); // [false, true]
 * ```
 */
export function logicalNot(x: TensorLike): Tensor {
  return ops.not(toBool(x, "logicalNot"));
}

function bitwise(name: string, op: (x: Tensor, y: Tensor) => Tensor): BinaryFunction {
  return (x, y) => {
    const [a, b] = pair(x, y, name);
    requireBits(a, name);
    return op(a, b);
  };
}

/**
 * The bits that both have.
 *
 * @example
 * ```ts
 * np.bitwiseAnd(np.array([6], "int32"), np.array([3], "int32")); // [2]
 * ```
 */
export const bitwiseAnd = bitwise("bitwiseAnd", ops.and);
/**
 * The bits that one of them has.
 *
 * @example
 * ```ts
 * np.bitwiseOr(np.array([6], "int32"), np.array([3], "int32")); // [7]
 * ```
 */
export const bitwiseOr = bitwise("bitwiseOr", ops.or);
/**
 * The bits that exactly one of them has.
 *
 * @example
 * ```ts
 * np.bitwiseXor(np.array([6], "int32"), np.array([3], "int32")); // [5]
 * ```
 */
export const bitwiseXor = bitwise("bitwiseXor", ops.xor);

function shift(name: string, op: (x: Tensor, y: Tensor) => Tensor): BinaryFunction {
  return (x, y) => {
    const [a, b] = pair(x, y, name, numberType);
    requireBits(a, name);
    return op(a, b);
  };
}

/**
 * The bits of x moved y places to the left.
 *
 * @example
 * ```ts
 * np.leftShift(np.array([1, 3], "int32"), 2); // [4, 12]
 * ```
 */
export const leftShift = shift("leftShift", ops.shl);
/**
 * The bits of x moved y places to the right; int32 keeps its sign.
 *
 * @example
 * ```ts
 * np.rightShift(np.array([8, 12], "int32"), 2); // [2, 3]
 * ```
 */
export const rightShift = shift("rightShift", (x, y) =>
  isUnsigned(x.dtype) ? ops.shrLogical(x, y) : ops.shrArithmetic(x, y),
);

/**
 * Takes each element from `onTrue` where the condition is not 0, and from `onFalse` elsewhere.
 *
 * The gradient flows through both branches, so guard an argument that would make the other branch NaN.
 *
 * @example
 * ```ts
 * np.where(np.array([true, false]), 1, 2); // [1, 2]
 * ```
 */
export function where(condition: TensorLike, onTrue: TensorLike, onFalse: TensorLike): Tensor {
  return tracedAsOneCall(() => {
    const dtype = operandType(onTrue, onFalse);
    const [p, x, y] = align(
      [toBool(condition, "where"), toType(onTrue, dtype, "where"), toType(onFalse, dtype, "where")] as const,
      "where",
    );
    return ops.select(p, x, y);
  });
}

/**
 * Takes each element from the choice of the first condition that holds.
 *
 * @example
 * ```ts
 * const x = np.array([-2, 0, 3]);
 * np.select([np.less(x, 0), np.greater(x, 0)], [x.neg(), x.mul(10)]); // [2, 0, 30]
 * ```
 */
export function select(
  conditions: readonly TensorLike[],
  choices: readonly TensorLike[],
  otherwise: TensorLike = 0,
): Tensor {
  need("list", conditions, "conditions", "select");
  need("list", choices, "choices", "select");
  if (conditions.length !== choices.length || conditions.length === 0) {
    throw new ValueError(
      `[select] got ${conditions.length} conditions and ${choices.length} choices: pass one choice for each condition`,
    );
  }
  const dtype = operandType(otherwise, ...choices);
  return range(conditions.length).reduceRight<Tensor>(
    (rest, i) => where(conditions[i] ?? false, toType(choices[i] ?? 0, dtype, "select"), rest),
    toType(otherwise, dtype, "select"),
  );
}

const toleranceOptions = schema({
  /** The tolerance relative to the size of `y`; 1e-5 by default. */
  rtol: 1e-5,
  /** The absolute tolerance; 1e-8 by default. */
  atol: 1e-8,
  /** Whether NaN is close to NaN. */
  equalNan: false,
});

/** How far apart two numbers may be: `|x − y| ≤ atol + rtol · |y|`. */
export interface ToleranceOptions extends OptionsOf<typeof toleranceOptions> {}

/**
 * Where two tensors are equal up to a tolerance.
 *
 * @example
 * ```ts
 * np.isclose(np.array([1, 2]), np.array([1, 2.1])); // [true, false]
 * ```
 */
export function isclose(x: TensorLike, y: TensorLike, options?: ToleranceOptions): Tensor {
  const { rtol, atol, equalNan } = toleranceOptions.read(options, "isclose");
  const [left, right] = pair(x, y, "isclose", inexactType);
  const [a, b] = [spelledOut(left, right), spelledOut(right, left)];
  const limit = ops.add(ops.mul(ops.abs(b), rtol), atol);
  const near = ops.compare("le", ops.abs(ops.sub(a, b)), limit);
  // Infinities are close only to themselves; their difference or the limit is not finite.
  const bothFinite = ops.and(ops.finite(a), ops.finite(b));
  const close = ops.or(ops.and(near, bothFinite), ops.compare("eq", a, b));
  return equalNan ? logicalOr(close, logicalAnd(isnan(a), isnan(b))) : close;
}

/**
 * Whether all elements are equal up to a tolerance, as a bool scalar.
 *
 * @example
 * ```ts
 * np.allclose(np.array([1, 2]), np.array([1, 2.0000001])); // true
 * ```
 */
export function allclose(x: TensorLike, y: TensorLike, options?: ToleranceOptions): Tensor {
  return allTrue(isclose(x, y, options));
}

/**
 * Whether two tensors have the same elements once they are broadcast, as a bool scalar; false where they cannot be.
 *
 * @example
 * ```ts
 * np.arrayEquiv(np.array([1, 1]), np.array([[1, 1], [1, 1]])); // true
 * ```
 */
export function arrayEquiv(x: TensorLike, y: TensorLike): Tensor {
  const [a, b] = [asTensor(x, "arrayEquiv"), asTensor(y, "arrayEquiv")];
  const fits = a.shape.every((n, d) => {
    const m = b.shape[d - a.ndim + b.ndim] ?? 1;
    return n === m || n === 1 || m === 1;
  });
  return fits ? allTrue(equal(a, b)) : Tensor.scalar(false, "bool");
}

const arrayEqualOptions = schema({ equalNan: false });

/**
 * Whether two tensors have the same shape and elements, as a bool scalar.
 *
 * @example
 * ```ts
 * np.arrayEqual(np.array([1, 2]), np.array([1, 2])); // true
 * ```
 */
export function arrayEqual(
  x: TensorLike,
  y: TensorLike,
  options?: OptionsOf<typeof arrayEqualOptions>,
): Tensor {
  const { equalNan } = arrayEqualOptions.read(options, "arrayEqual");
  const [a, b] = [asTensor(x, "arrayEqual"), asTensor(y, "arrayEqual")];
  if (!sameNumbers(a.shape, b.shape)) return Tensor.scalar(false, "bool");
  const same = equal(a, b);
  const hasNan = ({ dtype }: Tensor) => isFloat(dtype) || isComplex(dtype);
  const nans = equalNan && hasNan(a) && hasNan(b);
  return allTrue(nans ? logicalOr(same, logicalAnd(isnan(a), isnan(b))) : same);
}

function allTrue(x: Tensor): Tensor {
  return ops.reduceMin(x, range(x.ndim));
}
