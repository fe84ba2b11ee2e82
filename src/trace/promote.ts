import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { type DType, isFloat, needDType } from "../ir/dtype.js";
import { ValueError } from "../ir/errors.js";
import { Tensor } from "./tensor.js";

/** What the array API accepts as an operand: a tensor, or a JavaScript number or boolean. */
export type TensorLike = Tensor | number | boolean;

/**
 * The data type two tensors are brought to, as in JAX: bool gives way to integers, integers to floats,
 * a narrower float to a wider one, and bfloat16 with float16 meets in float32.
 */
export function promoteTypes(a: DType, b: DType): DType {
  needDType(a, "promoteTypes");
  needDType(b, "promoteTypes");
  if (a === b) return a;
  const [low, high] = rank[a] <= rank[b] ? [a, b] : [b, a];
  if (low === "bfloat16" && high === "float16") return "float32";
  if (low === "int32" && high === "uint32") return "int32";
  return high;
}

const rank: { readonly [D in DType]: number } = {
  bool: 0,
  int32: 1,
  uint32: 2,
  bfloat16: 3,
  float16: 4,
  float32: 5,
  float64: 6,
};

/** The data type of a result whose operands may be JavaScript numbers, which adapt to the tensors beside them. */
export function resultType(...operands: readonly TensorLike[]): DType {
  const tensors = operands.filter((operand) => operand instanceof Tensor);
  const numbers = operands.filter((operand) => typeof operand === "number");
  const [first, ...rest] = tensors;
  const strong = first && rest.reduce((dtype, tensor) => promoteTypes(dtype, tensor.dtype), first.dtype);
  const dtype = numbers.reduce<DType | undefined>(adapt, strong);
  return dtype ?? (operands.some((operand) => typeof operand === "boolean") ? "bool" : "float32");
}

function adapt(dtype: DType | undefined, value: number): DType {
  if (dtype === undefined) return "float32";
  if (isFloat(dtype)) return dtype;
  if (!Number.isInteger(value)) return "float32";
  return dtype === "bool" ? "int32" : dtype;
}

/** An operand as a tensor of the given type. */
export function toTensor(value: TensorLike, dtype: DType, caller: string): Tensor {
  if (typeof value === "number" || typeof value === "boolean") return Tensor.scalar(value, dtype);
  if (value instanceof Tensor) return value;
  throw new ValueError(
    `[${caller}] expects tensors or numbers, got ${describe(value)}: make a tensor of it with np.array(…)`,
  );
}

/** Throws unless an argument is a tensor. */
export function needTensor(value: unknown, what: string, caller: string): asserts value is Tensor {
  if (value instanceof Tensor) return;
  throw new ValueError(
    `[${caller}] ${what} must be a tensor, got ${describe(value)}: make one with np.array(…)`,
  );
}

/** Throws unless an argument is a list of tensors. */
export function needTensors(
  value: unknown,
  what: string,
  caller: string,
): asserts value is readonly Tensor[] {
  need("list", value, what, caller);
  for (const one of value) if (!(one instanceof Tensor)) needTensor(one, `each of ${what}`, caller);
}
