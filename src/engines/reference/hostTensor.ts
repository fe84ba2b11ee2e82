import { need } from "../../ir/arguments.js";
import {
  allocateHost,
  type DType,
  decode as decodeHost,
  encode as encodeHost,
  type HostData,
  isFloat,
  partType,
} from "../../ir/dtype.js";
import { ShapeError } from "../../ir/errors.js";
import { formatType, type Shape, sizeOf, type TensorType, tensorType } from "../../ir/shape.js";

/** A tensor in the host's memory, row-major; nothing writes to its data once it is made. */
export interface HostTensor {
  readonly type: TensorType;
  readonly data: HostData;
}

/**
 * A tensor made of plain numbers, each rounded to the data type.
 *
 * @example
 * ```ts
 * engines.numbersOf(engines.hostTensor("float32", [2], [1, 2])); // [1, 2]
 * ```
 */
export function hostTensor(
  dtype: DType,
  shape: Shape,
  values: ArrayLike<number> | Iterable<number>,
): HostTensor {
  need("integers", shape, "shape", "hostTensor");
  const type = tensorType(dtype, shape);
  const list = isIterator(values) ? [...values] : values;
  need("numbers", list, "the values", "hostTensor");
  const numbers = Float64Array.from(list);
  if (numbers.length !== sizeOf(shape)) {
    throw new ShapeError(`[hostTensor] ${numbers.length} numbers do not fill ${formatType(type)}`);
  }
  return encode(type, numbers);
}

/** Whether values are iterable but neither an array nor a typed array. */
const isIterator = (values: unknown): values is Iterable<number> =>
  typeof values === "object" &&
  values !== null &&
  Symbol.iterator in values &&
  !Array.isArray(values) &&
  !ArrayBuffer.isView(values);

/**
 * The elements as plain numbers, row-major.
 *
 * @example
 * ```ts
 * engines.numbersOf(engines.hostTensor("int32", [2, 2], [1, 2, 3, 4])); // [1, 2, 3, 4]
 * ```
 */
export function numbersOf(tensor: HostTensor): number[] {
  need("object", tensor, "tensor", "numbersOf");
  need("object", tensor.type, "the type of the tensor", "numbersOf");
  need("bytes", tensor.data, "the data of the tensor", "numbersOf");
  return Array.from(decode(tensor));
}

/** A tensor of zeros. */
export function zeros(type: TensorType): HostTensor {
  return { type, data: allocateHost(type.dtype, sizeOf(type.shape)) };
}

/** Values that must not be read: NaN if the type has one, so that reading them becomes visible. */
export function unsetValues(type: TensorType): HostTensor {
  return isFloat(type.dtype)
    ? encode(type, new Float64Array(sizeOf(type.shape)).fill(Number.NaN))
    : zeros(type);
}

/** The only element of a tensor of one element. */
export function scalarOf(tensor: HostTensor): number {
  return decode(tensor)[0] as number;
}

/**
 * The elements as float64 numbers, which hold every value of every data type. All rules compute on these, so
 * that their loops see one kind of array; the result may be the tensor's own data and must not be written to.
 */
export function decode({ type, data }: HostTensor): Float64Array {
  if (data instanceof Float64Array) return data;
  return new Float64Array(decodeHost(type.dtype, data));
}

/**
 * The tensor whose elements are the values rounded to its data type: floats to the nearest, ties to even
 * (bfloat16 and float16 through float32), integers modulo 2 to the number of their bits, bools to `x ≠ 0`. Takes the array over.
 */
export function encode(type: TensorType, values: Float64Array): HostTensor {
  need("object", type, "type", "encode");
  need("numbers", values, "values", "encode");
  return { type, data: partType(type.dtype) === "float64" ? values : encodeHost(type.dtype, values) };
}
