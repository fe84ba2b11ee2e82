import { type DType, decode, encode, type HostData } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { formatType, type Shape, sameNumbers, sizeOf, type TensorType } from "../ir/shape.js";
import { formatElements, type Nested, nestElements } from "./format.js";
import { Tensor, type TensorData } from "./tensor.js";

/** The values of a tensor in host memory, which can be read synchronously: the arguments of host callbacks. */
export class HostArray {
  /** The elements in row-major order; bfloat16 and float16 are widened. */
  readonly data: TensorData;

  /** @internal */
  constructor(
    readonly type: TensorType,
    data: HostData,
  ) {
    this.data = decode(type.dtype, data);
  }

  /** The sizes of the dimensions. */
  get shape(): Shape {
    return this.type.shape;
  }

  /** The type of the elements. */
  get dtype(): DType {
    return this.type.dtype;
  }

  /** The number of dimensions. */
  get ndim(): number {
    return this.type.shape.length;
  }

  /** The number of elements. */
  get size(): number {
    return this.data.length;
  }

  /** The value of an array of one element as a number. */
  item(): number {
    if (this.size === 1) return this.data[0] ?? 0;
    throw new ShapeError(
      `[HostArray.item] ${formatType(this.type)} has ${this.size} elements: use data or js()`,
    );
  }

  /** The elements as nested arrays of numbers (booleans for bool). */
  js(): Nested {
    return nestElements(this.shape, this.element);
  }

  /** The elements as NumPy prints them. */
  toString(): string {
    return formatElements(this.shape, this.element);
  }

  /** @internal The element at a row-major index, as it is shown. */
  readonly element = (index: number): number | boolean => {
    const value = this.data[index] ?? 0;
    return this.dtype === "bool" ? value !== 0 : value;
  };
}

/** A tree whose tensors and numbers are replaced by host arrays. */
export type OnHost<T> = T extends Tensor | number
  ? HostArray
  : T extends (...args: never[]) => unknown
    ? T
    : T extends object
      ? { [K in keyof T]: OnHost<T[K]> }
      : T;

/** What a host callback may return for a tensor: a host array, a number, or nested or typed arrays. */
export type HostLike = HostArray | Tensor | Nested | ArrayLike<number>;

/** A tree whose tensors may be given as host values. */
export type FromHost<T> = T extends Tensor
  ? HostLike
  : T extends object
    ? { [K in keyof T]: FromHost<T[K]> }
    : T;

/** What a host callback returned for a tensor, as elements of its type. */
export function elementsOf(value: unknown, type: TensorType, caller: string, what: string): HostData {
  const { shape, values } = readHost(value, caller, what);
  const fits = shape ? sameNumbers(shape, type.shape) : values.length === sizeOf(type.shape);
  if (fits) return encode(type.dtype, values);
  const given = shape ? `shape [${shape}]` : `${values.length} elements`;
  throw new ShapeError(`[${caller}] ${what} has ${given}, but ${formatType(type)} was declared`);
}

function readHost(
  value: unknown,
  caller: string,
  what: string,
): { readonly values: ArrayLike<number>; readonly shape?: Shape } {
  if (value instanceof HostArray) return { values: value.data, shape: value.shape };
  if (typeof value === "number" || typeof value === "boolean") return { values: [Number(value)] };
  if (Array.isArray(value)) return { values: value.flat(Number.POSITIVE_INFINITY).map(Number) };
  if (ArrayBuffer.isView(value) && "length" in value) return { values: Array.from(value as never, Number) };
  if (value instanceof Tensor) {
    const data = value.storage(caller).peek(caller);
    if (data) return { values: decode(value.dtype, data), shape: value.shape };
  }
  const given = value instanceof Tensor ? `${value}, whose values are not here yet` : typeof value;
  throw new ShapeError(
    `[${caller}] ${what} is ${given}: return numbers, nested arrays, typed arrays or a HostArray, not a promise`,
  );
}
