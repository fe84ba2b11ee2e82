import { instanceOf, type Kind, need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import {
  byteSize,
  complexType,
  type DType,
  isComplex,
  isDType,
  isFloat,
  isInteger,
  isUnsigned,
  needDType,
} from "../ir/dtype.js";
import { ValueError } from "../ir/errors.js";
import { Complex } from "./complexNumber.js";
import { Tensor } from "./tensor.js";

/** What the array API accepts as an operand: a tensor, or a JavaScript number, boolean or complex number. */
export type TensorLike = Tensor | number | boolean | Complex;

/**
 * The data type that two tensors are promoted to, as in JAX: bool to integers, integers to floats, floats to complex
 * numbers, a narrower type to a wider one. Signed and unsigned integers are promoted to the narrowest signed type that
 * holds both, or to int32 if there is none; bfloat16 and float16 to float32.
 *
 * @example
 * ```ts
 * np.promoteTypes("int32", "float32"); // "float32"
 * ```
 */
export function promoteTypes(a: DType, b: DType): DType {
  needDType(a, "promoteTypes");
  needDType(b, "promoteTypes");
  if (a === b) return a;
  const [low, high] = rank[a] <= rank[b] ? [a, b] : [b, a];
  if (low === "bfloat16" && high === "float16") return "float32";
  if (isComplex(high)) return low === "float64" ? "complex128" : high;
  if (!isInteger(low) || !isInteger(high) || isUnsigned(low) === isUnsigned(high)) return high;
  const [signed, unsigned] = isUnsigned(low) ? [high, low] : [low, high];
  if (byteSize(signed) > byteSize(unsigned)) return signed;
  return unsigned === "uint8" ? "int16" : "int32";
}

const rank: { readonly [D in DType]: number } = {
  bool: 0,
  int8: 1,
  uint8: 2,
  int16: 3,
  uint16: 4,
  int32: 5,
  uint32: 6,
  bfloat16: 7,
  float16: 8,
  float32: 9,
  float64: 10,
  complex64: 11,
  complex128: 12,
};

/**
 * The data type of a result whose operands may be data types, or JavaScript numbers and tensors computed from such
 * numbers alone, which adapt to the other operands.
 *
 * @example
 * ```ts
 * np.resultType(np.array([1], "int32"), np.array([1], "float16")); // "float16"
 * ```
 */
export function resultType(...operands: readonly (TensorLike | DType)[]): DType {
  for (const operand of operands) if (typeof operand === "string") needDType(operand, "resultType");
  return operandType(...operands);
}

/** {@link resultType} for operands that have yet to be checked: what is none of them is passed over. */
export function operandType(...operands: readonly (TensorLike | DType)[]): DType {
  const tensors = operands.filter((operand) => operand instanceof Tensor);
  const numbers = operands.filter((operand) => typeof operand === "number");
  const named = operands.filter(isDType);
  const typesOf = (some: readonly Tensor[]) => some.map(({ dtype }) => dtype);
  const strong = promoted([...typesOf(tensors.filter(({ type }) => !type.weak)), ...named]);
  const weak = promoted(typesOf(tensors.filter(({ type }) => type.weak)));
  const typed = weak === undefined || (strong && (isFloat(strong) || isComplex(strong))) ? strong : weak;
  const dtype = numbers.reduce<DType | undefined>(adapt, typed);
  if (operands.some((operand) => operand instanceof Complex)) return complexType(dtype ?? "float32");
  return dtype ?? (operands.some((operand) => typeof operand === "boolean") ? "bool" : "float32");
}

function promoted([first, ...rest]: readonly DType[]): DType | undefined {
  return first && rest.reduce((dtype, other) => promoteTypes(dtype, other), first);
}

function adapt(dtype: DType | undefined, value: number): DType {
  if (dtype === undefined) return "float32";
  if (isFloat(dtype) || isComplex(dtype)) return dtype;
  if (!Number.isInteger(value)) return "float32";
  return dtype === "bool" ? "int32" : dtype;
}

/** An operand as a tensor of the given type. */
export function toTensor(value: TensorLike, dtype: DType, caller: string): Tensor {
  if (value instanceof Tensor) return value;
  if (isScalar(value)) return Tensor.scalar(value, dtype);
  throw new ValueError(
    `[${caller}] expects tensors or numbers, got ${describe(value)}: convert it with np.array(…)`,
  );
}

const isScalar = (value: unknown): value is Exclude<TensorLike, Tensor> =>
  typeof value === "number" || typeof value === "boolean" || value instanceof Complex;

/** The kind of arguments that are a {@link TensorLike}. */
export const tensorLikeKind: Kind<TensorLike> = {
  says: "a tensor or a number",
  is: (value) => value instanceof Tensor || isScalar(value),
  advice: "convert it with np.array(…)",
};

/** The kind of arguments that are tensors. */
export const tensorKind: Kind<Tensor> = instanceOf(Tensor, "a tensor", "make one with np.array(…)");

/** Throws unless an argument is a tensor. */
export function needTensor(value: unknown, what: string, caller: string): asserts value is Tensor {
  need(tensorKind, value, what, caller);
}

/** Throws unless an argument is an array of tensors. */
export function needTensors(
  value: unknown,
  what: string,
  caller: string,
): asserts value is readonly Tensor[] {
  need("list", value, what, caller);
  for (const one of value) if (!(one instanceof Tensor)) needTensor(one, `each of ${what}`, caller);
}
