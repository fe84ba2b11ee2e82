/** What the families of array functions share: promotion, broadcasting and checks of arguments. */

import { either, integerFrom, type Kind, need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { type DType, isComplex, isDType, isFloat, isNarrowInteger, isUnsigned, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError, TracerError, ValueError } from "../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../ir/schema.js";
import { formatType, range, type Shape, sameNumbers } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { operandType, type TensorLike, tensorLikeKind, toTensor } from "../trace/promote.js";
import { type Parts, Tensor } from "../trace/tensor.js";

/** Which dims a function works on; `null` or undefined means all of them. Negative dims count from the end. */
export type Dims = number | readonly number[] | null;

/** The kind of options that are {@link Dims}. */
export const dimsKind: Kind<Dims> = either("integerOrIntegers", "null");

/** The sizes of a new tensor; a number stands for one dim. */
export type ShapeLike = number | Shape;

/** The data type of a new tensor, by itself or as an option. */
export type DTypeOption = DType | { readonly dtype?: DType | undefined };

const sizeKind: Kind<number> = {
  says: "an integer from 0, since the number of results depends on the data, but shapes are fixed: pass { size }",
  is: integerFrom(0).is,
};

/** The schema of {@link SizedOptions}. */
export const sizedOptions = schema({
  /** The number of results. */
  size: required(sizeKind),
  /** What the results are filled up with. */
  fillValue: optional(tensorLikeKind),
});

/** The number of results, and the value that pads them. */
export interface SizedOptions extends OptionsOf<typeof sizedOptions> {}

/** The data type that an optional argument names. */
export function dtypeOf(option: DTypeOption | undefined, caller: string): DType | undefined {
  const dtype = typeof option === "object" ? option?.dtype : option;
  if (dtype !== undefined && !isDType(dtype)) {
    throw new DTypeError(
      `[${caller}] ${describe(dtype)} is not a data type: use "float32", "int32", "bool", …`,
    );
  }
  return dtype;
}

/** Checks the sizes of a new tensor. */
export function toShape(shape: ShapeLike, caller: string): number[] {
  // Holes of a sparse array become undefined, which throws.
  const list: readonly unknown[] = Array.isArray(shape) ? [...shape] : [shape];
  return list.map((n) => {
    if (n instanceof Tensor) {
      throw new TracerError(
        "traced-value",
        `[${caller}] a shape holds ${n}, but sizes must be known when a function is traced: pass a JavaScript number, for example x.shape[0]`,
      );
    }
    if (typeof n !== "number" || !Number.isSafeInteger(n) || n < 0) {
      throw new ShapeError(
        `[${caller}] shape [${list.map(describe).join(", ")}] holds ${describe(n)}: sizes are integers from 0 to 2^53 - 1`,
      );
    }
    // The sum makes 0 of −0.
    return n + 0;
  });
}

/** More levels than any tensor has dims. */
const maxLevels = 64;

/** Throws if nested lists have more levels than a tensor may have dims: most likely a list contains itself. */
export function checkLevels(level: number, caller: string): void {
  if (level <= maxLevels) return;
  throw new ValueError(
    `[${caller}] the nested lists have more than ${maxLevels} levels: does one of them contain itself?`,
  );
}

/** The data type that functions of real numbers compute in: floats stay, integers and bool become float32. */
export function floatType(dtype: DType): DType {
  if (isComplex(dtype)) {
    throw new DTypeError(`${dtype} has no order and no real value: use x.real, x.imag or np.abs(x)`);
  }
  return isFloat(dtype) ? dtype : "float32";
}

/** The data type that functions of complex numbers too compute in: integers and bool become float32. */
export function inexactType(dtype: DType): DType {
  return isComplex(dtype) ? dtype : floatType(dtype);
}

/** The data type that sums are accumulated in: float32 for the half-width floats. */
export function wideType(dtype: DType): DType {
  return dtype === "bfloat16" || dtype === "float16" ? "float32" : dtype;
}

/** The data type of a sum or product as JAX has it: bool and integers narrower than 32 bits are counted in 32. */
export function totalType(dtype: DType): DType {
  if (!isNarrowInteger(dtype)) return numberType(dtype);
  return isUnsigned(dtype) ? "uint32" : "int32";
}

/** Converts; a scalar constant is converted at once. */
export function cast(x: Tensor, dtype: DType): Tensor {
  if (x.dtype === dtype || x.node.kind !== "literal") return ops.convert(x, dtype);
  const { value } = x.node.literal;
  if (dtype === "bool") return Tensor.scalar(value !== 0 || Number.isNaN(value), dtype);
  if (isFloat(dtype) || isComplex(dtype)) return Tensor.scalar(value, dtype);
  const { min, max } = limits(dtype);
  const whole = Number.isNaN(value) ? 0 : Math.trunc(value);
  // Integers wrap around, floats saturate.
  return Tensor.scalar(isFloat(x.dtype) ? Math.min(Math.max(whole, min), max) : whole, dtype);
}

/** An operand as a tensor of the given type. */
export function toType(value: TensorLike, dtype: DType, caller: string): Tensor {
  if (typeof value === "number" && !isFloat(dtype) && !isComplex(dtype) && dtype !== "bool") {
    const { min, max } = limits(dtype);
    const low = isUnsigned(dtype) ? -max : min;
    if (!(value >= low && value <= max)) {
      throw new ValueError(
        `[${caller}] ${value} does not fit into ${dtype} (${min} … ${max}): convert the tensor with astype first`,
      );
    }
  }
  return cast(toTensor(value, dtype, caller), dtype);
}

/** An operand as a tensor of its own type. */
export function asTensor(value: TensorLike, caller: string): Tensor {
  return value instanceof Tensor ? value : scalarOf(value, operandType(value), caller);
}

/** An operand of its own type or one that it is lifted to: a number stays weakly typed. */
function scalarOf(value: TensorLike, dtype: DType, caller: string): Tensor {
  return typeof value === "number" && isFloat(dtype)
    ? Tensor.scalar(value, dtype, true)
    : toType(value, dtype, caller);
}

/** An operand as a tensor of floats. */
export function asFloat(value: TensorLike, caller: string): Tensor {
  return scalarOf(value, floatType(refuseComplex(value, caller)), caller);
}

/** An operand as a tensor of floats or complex numbers. */
export function asInexact(value: TensorLike, caller: string): Tensor {
  return scalarOf(value, inexactType(operandType(value)), caller);
}

/** The data type of an operand, which may not be complex. */
export function refuseComplex(value: TensorLike, caller: string): DType {
  const dtype = operandType(value);
  if (!isComplex(dtype)) return dtype;
  throw new DTypeError(
    `[${caller}] computes with real numbers, got ${value}: use x.real, x.imag or np.abs(x)`,
  );
}

/** An operand as a tensor of numbers: bool becomes int32. */
export function asNumber(value: TensorLike, caller: string): Tensor {
  return scalarOf(value, numberType(operandType(value)), caller);
}

/** bool becomes int32, numbers stay. */
export function numberType(dtype: DType): DType {
  return dtype === "bool" ? "int32" : dtype;
}

/** The shape that tensors are broadcast to: aligned at the last dim, sizes equal or 1. */
export function broadcastShape(shapes: readonly Shape[], caller: string): readonly number[] {
  for (const shape of shapes) need("integers", shape, "a shape", caller);
  const [first] = shapes;
  if (first && shapes.every((shape) => sameNumbers(shape, first))) return first;
  const rank = Math.max(0, ...shapes.map((shape) => shape.length));
  return range(rank).map((d) => {
    const sizes = shapes.map((shape) => shape[d - rank + shape.length] ?? 1);
    const size = sizes.find((n) => n !== 1) ?? 1;
    const other = sizes.find((n) => n !== 1 && n !== size);
    if (other !== undefined) {
      const all = shapes.map((shape) => `[${shape}]`).join(" and ");
      throw new ShapeError(
        `[${caller}] shapes ${all} do not broadcast: dim ${d - rank} has sizes ${size} and ${other}, which must be equal or 1`,
      );
    }
    return size;
  });
}

/** Repeats a tensor to a shape; it is aligned at the last dim. */
export function expandTo(x: Tensor, shape: Shape): Tensor {
  if (sameNumbers(x.shape, shape)) return x;
  return ops.broadcastInDim(
    x,
    shape,
    range(x.ndim).map((d) => d + shape.length - x.ndim),
  );
}

/**
 * Brings tensors to one shape for an elementwise op. Scalar constants stay what they are, because they fit
 * any shape there.
 */
export function align<T extends readonly Tensor[]>(tensors: T, caller: string): T {
  const shape = broadcastShape(
    tensors.map((x) => x.shape),
    caller,
  );
  const aligned = tensors.map((x) => (x.node.kind === "literal" ? x : expandTo(x, shape)));
  return aligned as readonly Tensor[] as T;
}

/** Two operands promoted and broadcast; `kind` lifts their common type first. */
export function pair(
  x: TensorLike,
  y: TensorLike,
  caller: string,
  kind: (dtype: DType) => DType = (dtype) => dtype,
): readonly [Tensor, Tensor] {
  const dtype = kind(operandType(x, y));
  const operands = [operandOf(x, y, dtype, caller), operandOf(y, x, dtype, caller)] as const;
  return align(operands, caller);
}

/** One of two operands: numbers among themselves stay weakly typed, and a constant with a type of its own ends that. */
function operandOf(value: TensorLike, other: TensorLike, dtype: DType, caller: string): Tensor {
  const isOther = other instanceof Tensor;
  if (typeof value === "number" && (isOther ? other.type.weak : typeof other === "number")) {
    return scalarOf(value, dtype, caller);
  }
  const x = toType(value, dtype, caller);
  const endsWeakness = isOther && other.node.kind === "literal" && !other.type.weak && isFloat(other.dtype);
  return endsWeakness ? ops.strong(x) : x;
}

/**
 * Repeats a scalar constant to the shape of the other operand, for functions that compute with it alone
 * before they combine both.
 */
export function spelledOut(x: Tensor, beside: Tensor): Tensor {
  return x.node.kind === "literal" ? expandTo(x, beside.shape) : x;
}

/** A JavaScript number as constant of a tensor's type. */
export function like(x: Tensor, value: number): Tensor {
  return Tensor.scalar(value, x.dtype);
}

/** Computes in float32 what would lose too much precision in a half-width float. */
export function widened(fn: (x: Tensor) => Tensor): (x: Tensor) => Tensor {
  return (x) => cast(fn(cast(x, wideType(x.dtype))), x.dtype);
}

/** Throws unless the tensor holds integers or bool. */
export function requireBits(x: Tensor, caller: string): void {
  if (isFloat(x.dtype) || isComplex(x.dtype)) {
    throw new DTypeError(
      `[${caller}] works on integers and bool, not on ${formatType(x.type)}: convert with astype("int32")`,
    );
  }
}

/** Throws unless the tensor has at least this many dims. */
export function requireRank(x: Tensor, rank: number, caller: string): void {
  if (x.ndim < rank) {
    throw new ShapeError(
      `[${caller}] needs a tensor of at least ${rank} dim${rank === 1 ? "" : "s"}, got ${formatType(x.type)}: add dims with expandDims`,
    );
  }
}

/** A tensor as bool: where it is not 0. */
export function toBool(x: TensorLike, caller: string): Tensor {
  return cast(asTensor(x, caller), "bool");
}

/** Puts dims of size 1 in front until there are `rank` of them. */
export function atLeastRank(x: Tensor, rank: number): Tensor {
  return ops.reshape(x, [...new Array<number>(Math.max(0, rank - x.ndim)).fill(1), ...x.shape]);
}

/** Both parts of an operand as floats; real numbers have no imaginary part. */
export function partsOf(value: TensorLike, caller: string): Parts | readonly [real: Tensor, imag: undefined] {
  return asTensor(value, caller).parts ?? [asFloat(value, caller), undefined];
}

/** A function of floats applied to both parts of complex numbers. */
export function onParts(x: Tensor, fn: (part: Tensor) => Tensor): Tensor {
  return x.parts ? Tensor.complex(fn(x.parts[0]), fn(x.parts[1])) : fn(x);
}

/** |x|², without the root in between; that of a bool is an int32. */
export function squaredSize(x: Tensor): Tensor {
  if (x.dtype === "bool") return cast(x, "int32");
  if (!x.parts) return ops.mul(x, x);
  const [re, im] = x.parts;
  return ops.add(ops.mul(re, re), ops.mul(im, im));
}
