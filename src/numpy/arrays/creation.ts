/** Making tensors: from JavaScript values, filled, counted, and matrices of a known form. */

import { need, needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { type DType, dtypeKind, encode, isComplex, isFloat, partType } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { range, sizeOf } from "../../ir/shape.js";
import { Complex, partsOfNumber } from "../../trace/complexNumber.js";
import type { ElementValue } from "../../trace/format.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { add, divide, multiply, power, subtract } from "../elementwise/arithmetic.js";
import { exp, log } from "../elementwise/elementwise.js";
import {
  asTensor,
  broadcastShape,
  cast,
  checkLevels,
  type DTypeOption,
  dtypeOf,
  expandTo,
  inexactType,
  type ShapeLike,
  toShape,
  toType,
} from "../operands.js";
import { stack } from "./joining.js";

/** A JavaScript array of numbers with a fixed type. */
export type TypedArray =
  | Float32Array
  | Float64Array
  | Int32Array
  | Uint32Array
  | Int16Array
  | Uint16Array
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray;

/** What {@link array} makes a tensor of; complex numbers may be any objects with `re` and `im`. */
export type ArrayLike = TensorLike | ComplexLike | TypedArray | readonly ArrayLike[];

/** Both parts of a complex number. */
export interface ComplexLike {
  readonly re: number;
  readonly im: number;
}

/** Options of {@link array}. */
export interface ArrayOptions {
  readonly dtype?: DType | undefined;
  /** The shape of the result, for typed arrays. */
  readonly shape?: ShapeLike | undefined;
}

/**
 * Makes a tensor of a number, nested arrays or a typed array. Numbers give float32, booleans bool, complex numbers
 * complex64; typed arrays keep their type. Tensors inside of arrays are stacked.
 *
 * ```ts
 * np.array([[1, 2], [3, 4]])
 * np.array(new Int32Array([1, 2, 3]))
 * ```
 *
 * @example
 * ```ts
 * np.array([[1, 2], [3, 4]]).shape; // [2, 2]
 * ```
 */
export function array(value: ArrayLike, options: ArrayOptions | DType = {}): Tensor {
  const dtype = dtypeOf(options, "array");
  const shape = typeof options === "object" ? options?.shape : undefined;
  if (shape !== undefined) {
    const flat = array(value, { dtype });
    const sizes = toShape(shape, "array");
    if (sizeOf(sizes) !== flat.size) {
      throw new ShapeError(
        `[array] ${flat.size} elements do not fill shape [${sizes}] (${sizeOf(sizes)} elements)`,
      );
    }
    return ops.reshape(flat, sizes);
  }
  if (value instanceof Tensor) return dtype === undefined ? value : cast(value, dtype);
  if (typeof value === "number" || typeof value === "boolean") {
    return Tensor.scalar(
      value,
      dtype ?? operandType(value),
      dtype === undefined && typeof value === "number",
    );
  }
  const number = toComplex(value);
  if (number) return Tensor.scalar(number, dtype ?? "complex64");
  if (ArrayBuffer.isView(value)) return fromTyped(value, dtype);
  if (!Array.isArray(value)) {
    throw new ValueError(
      `[array] makes tensors of numbers, booleans, complex numbers, arrays and typed arrays, got ${describe(value)}`,
    );
  }
  return fromNested(value, dtype);
}

/**
 * {@link array}; a tensor is returned as it is.
 *
 * @example
 * ```ts
 * np.asarray([1, 2, 3]); // [1, 2, 3]
 * ```
 */
export function asarray(value: ArrayLike, options: ArrayOptions | DType = {}): Tensor {
  return array(value, options);
}

function fromTyped(value: TypedArray, dtype: DType | undefined): Tensor {
  const own = typedArrayType(value);
  const wanted = dtype ?? own;
  if (isComplex(wanted)) return cast(fromTyped(value, partType(wanted)), wanted);
  const data = wanted === own && !(value instanceof Uint8ClampedArray) ? value : encode(wanted, value);
  return Tensor.fromHost({ dtype: wanted, shape: [value.length] }, data);
}

function typedArrayType(value: TypedArray): DType {
  const dtype = typedArrayTypes.get(Object.getPrototypeOf(value)?.constructor);
  if (dtype !== undefined) return dtype;
  throw new DTypeError(
    `[array] ${describe(value)} has no data type here: convert it to Int32Array or numbers`,
  );
}

const typedArrayTypes = new Map<unknown, DType>([
  [Float32Array, "float32"],
  [Float64Array, "float64"],
  [Int32Array, "int32"],
  [Int16Array, "int16"],
  [Int8Array, "int8"],
  [Uint32Array, "uint32"],
  [Uint16Array, "uint16"],
  [Uint8Array, "uint8"],
  [Uint8ClampedArray, "uint8"],
]);

function fromNested(value: readonly unknown[], dtype: DType | undefined): Tensor {
  if (holdsTensor(value)) return stack([...value].map((item) => array(item as ArrayLike, { dtype })));
  const shape: number[] = [];
  for (let first: unknown = value; isList(first); first = first[0]) shape.push(first.length);
  const leaves: ElementValue[] = [];
  const visit = (given: unknown, dim: number, path: string): void => {
    const node = toComplex(given) ?? given;
    const length = shape[dim];
    if (isList(node)) {
      if (node.length !== length) {
        const found = length === undefined ? "is an array" : `has length ${node.length}`;
        throw new ShapeError(
          `[array] the nested arrays are ragged: [${path}] ${found}, expected ${length === undefined ? "a number" : `length ${length}`}`,
        );
      }
      for (let i = 0; i < node.length; i++) visit(node[i], dim + 1, path === "" ? `${i}` : `${path}, ${i}`);
    } else if (typeof node !== "number" && typeof node !== "boolean" && !(node instanceof Complex)) {
      throw new ValueError(`[array] the element at [${path}] is ${describe(node)}, not a number`);
    } else if (dim !== shape.length) {
      throw new ShapeError(
        `[array] the nested arrays are ragged: [${path}] is a number, expected an array of length ${length}`,
      );
    } else leaves.push(node);
  };
  visit(value, 0, "");
  const isBool = leaves.length > 0 && leaves.every((leaf) => typeof leaf === "boolean");
  const own = leaves.some((leaf) => leaf instanceof Complex) ? "complex64" : isBool ? "bool" : "float32";
  const type = { dtype: dtype ?? own, shape };
  if (isComplex(type.dtype)) return Tensor.fromHost(type, encode(type.dtype, leaves.flatMap(partsOfNumber)));
  const number = leaves.find((leaf) => leaf instanceof Complex);
  if (number)
    throw new DTypeError(`[array] the element ${number} is not a valid ${type.dtype}: use "complex64"`);
  return Tensor.fromHost(type, encode(type.dtype, leaves.map(Number)));
}

/** A complex number from any object with `re` and `im`; undefined for anything else. */
function toComplex(node: unknown): Complex | undefined {
  if (node instanceof Complex) return node;
  if (typeof node !== "object" || node === null || !("re" in node && "im" in node)) return undefined;
  const { re, im } = node;
  return typeof re === "number" && typeof im === "number" ? new Complex(re, im) : undefined;
}

function isList(node: unknown): node is List {
  return Array.isArray(node) || (ArrayBuffer.isView(node) && !(node instanceof DataView));
}

interface List {
  readonly length: number;
  readonly [index: number]: unknown;
}

function holdsTensor(value: readonly unknown[], level = 1): boolean {
  checkLevels(level, "array");
  return value.some(
    (item) => item instanceof Tensor || (Array.isArray(item) && holdsTensor(item, level + 1)),
  );
}

/**
 * A tensor filled with one value.
 *
 * @example
 * ```ts
 * np.full([2, 2], 7); // [[7, 7], [7, 7]]
 * ```
 */
export function full(shape: ShapeLike, value: TensorLike, dtype?: DTypeOption): Tensor {
  const wanted = dtypeOf(dtype, "full");
  const filled = wanted === undefined ? asTensor(value, "full") : toType(value, wanted, "full");
  const sizes = toShape(shape, "full");
  broadcastShape([filled.shape, sizes], "full");
  return expandTo(filled, sizes);
}

/**
 * Zeros, float32 by default.
 *
 * @example
 * ```ts
 * np.zeros([2]); // [0, 0]
 * ```
 */
export function zeros(shape: ShapeLike, dtype?: DTypeOption): Tensor {
  return ops.full(toShape(shape, "zeros"), 0, dtypeOf(dtype, "zeros") ?? "float32");
}

/**
 * Ones, float32 by default.
 *
 * @example
 * ```ts
 * np.ones([2]); // [1, 1]
 * ```
 */
export function ones(shape: ShapeLike, dtype?: DTypeOption): Tensor {
  return ops.full(toShape(shape, "ones"), 1, dtypeOf(dtype, "ones") ?? "float32");
}

/**
 * A tensor of the shape and type of another, filled with one value.
 *
 * @example
 * ```ts
 * np.fullLike(np.zeros([3]), 7); // [7, 7, 7]
 * ```
 */
export function fullLike(x: TensorLike, value: TensorLike, dtype?: DTypeOption): Tensor {
  const like = asTensor(x, "fullLike");
  const adapts = like.type.weak && typeof value === "number";
  return full(like.shape, value, dtypeOf(dtype, "fullLike") ?? (adapts ? undefined : like.dtype));
}

/**
 * Zeros of the shape and type of another tensor.
 *
 * @example
 * ```ts
 * np.zerosLike(np.array([5, 6])); // [0, 0]
 * ```
 */
export function zerosLike(x: TensorLike, dtype?: DTypeOption): Tensor {
  return fullLike(x, 0, dtype);
}

/**
 * Ones of the shape and type of another tensor.
 *
 * @example
 * ```ts
 * np.onesLike(np.array([5, 6])); // [1, 1]
 * ```
 */
export function onesLike(x: TensorLike, dtype?: DTypeOption): Tensor {
  return fullLike(x, 1, dtype);
}

/**
 * Numbers from `start` up to but without `stop`; with one argument from 0. Integers give int32.
 *
 * ```ts
 * np.arange(4)        // 0 1 2 3
 * np.arange(1, 2, 0.25) // 1 1.25 1.5 1.75
 * ```
 *
 * @example
 * ```ts
 * np.arange(2, 10, 3); // [2, 5, 8]
 * ```
 */
export function arange(stop: number, dtype?: DTypeOption): Tensor;
export function arange(start: number, stop: number, step?: number, dtype?: DTypeOption): Tensor;
export function arange(a: number, b?: number | DTypeOption, step = 1, option?: DTypeOption): Tensor {
  need("number", a, "a", "arange");
  needIfGiven("number", step, "step", "arange");
  const [start, stop] = typeof b === "number" ? [a, b] : [0, a];
  const whole = [start, stop, step].every((n) => Number.isInteger(n));
  const dtype = dtypeOf(typeof b === "number" ? option : b, "arange") ?? (whole ? "int32" : "float32");
  if (![start, stop, step].every(Number.isFinite) || step === 0) {
    throw new ValueError(
      `[arange] from ${start} to ${stop} by ${step} does not end: use finite numbers and a step that is not 0`,
    );
  }
  const n = Math.max(0, Math.ceil((stop - start) / step));
  if (isComplex(dtype)) return cast(arange(start, stop, step, partType(dtype)), dtype);
  if (!whole || dtype === "bool") {
    return Tensor.fromHost(
      { dtype, shape: [n] },
      encode(
        dtype,
        range(n).map((i) => start + i * step),
      ),
    );
  }
  const count = ops.iota(dtype, [n], 0);
  const scaled = step === 1 ? count : ops.mul(count, step);
  return start === 0 ? scaled : ops.add(scaled, start);
}

const linspaceOptions = schema({
  /** Whether the last number is `stop` itself. */
  endpoint: true,
  /** The data type of the result; that of the bounds by default, float32 for integers. */
  dtype: optional(dtypeKind),
});

/** Options of {@link linspace}. */
export interface LinspaceOptions extends OptionsOf<typeof linspaceOptions> {}

/**
 * `num` evenly spaced numbers from `start` to `stop`. Tensors as bounds give a new first dim.
 *
 * @example
 * ```ts
 * np.linspace(0, 1, 5); // [0, 0.25, 0.5, 0.75, 1]
 * ```
 */
export function linspace(start: TensorLike, stop: TensorLike, num = 50, options?: LinspaceOptions): Tensor {
  needIfGiven("number", num, "num", "linspace");
  const { endpoint, dtype } = linspaceOptions.read(options, "linspace");
  const [n] = toShape([num], "linspace");
  const compute = inexactType(dtype ?? operandType(start, stop));
  const [a, b] = [toType(start, compute, "linspace"), toType(stop, compute, "linspace")];
  const bounds = broadcastShape([a.shape, b.shape], "linspace");
  const steps = endpoint ? num - 1 : num;
  const whole = [n ?? 0, ...bounds];
  const count = ops.reshape(ops.iota(compute, [n ?? 0], 0), [n ?? 0, ...bounds.map(() => 1)]);
  const part = expandTo(divide(count, Math.max(steps, 1)), whole);
  const inside = add(multiply(a, subtract(1, part)), multiply(b, part));
  // The last number is `stop` exactly, which the formula may miss by a rounding.
  const result =
    endpoint && num > 1
      ? ops.concatenate([ops.sliceDim(inside, 0, 0, num - 1), expandTo(b, [1, ...bounds])], 0)
      : inside;
  return cast(
    dtype !== undefined && !isFloat(dtype) && !isComplex(dtype) ? ops.floor(result) : result,
    dtype ?? compute,
  );
}

const logspaceOptions = schema({ ...linspaceOptions.fields, base: 10 });

/**
 * `num` numbers whose logarithms are evenly spaced: base^start … base^stop.
 *
 * @example
 * ```ts
 * np.logspace(0, 2, 3); // [1, 10, 100]
 * ```
 */
export function logspace(
  start: TensorLike,
  stop: TensorLike,
  num = 50,
  options?: OptionsOf<typeof logspaceOptions>,
): Tensor {
  needIfGiven("number", num, "num", "logspace");
  const { base, dtype, ...rest } = logspaceOptions.read(options, "logspace");
  const result = power(base, linspace(start, stop, num, rest));
  return dtype === undefined ? result : cast(result, dtype);
}

/**
 * `num` numbers from `start` to `stop` with a constant ratio; both must be positive.
 *
 * @example
 * ```ts
 * np.geomspace(1, 8, 4); // [1, 2, 4, 8]
 * ```
 */
export function geomspace(start: number, stop: number, num = 50, options?: LinspaceOptions): Tensor {
  need("number", start, "start", "geomspace");
  need("number", stop, "stop", "geomspace");
  needIfGiven("number", num, "num", "geomspace");
  if (!(start > 0 && stop > 0)) {
    throw new ValueError(`[geomspace] bounds ${start} and ${stop} must be positive`);
  }
  const { dtype, ...rest } = linspaceOptions.read(options, "geomspace");
  const result = exp(linspace(log(start), log(stop), num, rest));
  return dtype === undefined ? result : cast(result, dtype);
}
