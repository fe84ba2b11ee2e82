/**
 * Reads folders of reference values: for every area `AREA.json` with the cases and `AREA.safetensors` with
 * the tensors that they name.
 */
import { type DType, decode, encode, type HostData, isDType } from "../../../src/ir/dtype.js";
import { ValueError } from "../../../src/ir/errors.js";
import { type Shape, sizeOf } from "../../../src/ir/shape.js";
import { Tensor } from "../../../src/trace/tensor.js";
import { isObject } from "../../../src/train/files/disk/json.js";
import { parseSafetensors, type StoredArray } from "../../../src/train/files/safetensors/safetensorsBytes.js";

/** An array on the host. It is a leaf of trees; bfloat16 and float16 are kept as their bits. */
export class HostArray {
  constructor(
    readonly dtype: DType,
    readonly shape: Shape,
    readonly data: HostData,
  ) {}

  /** Numbers as an array of the given type. */
  static of(dtype: DType, shape: Shape, values: ArrayLike<number>): HostArray {
    return new HostArray(dtype, shape, encode(dtype, values));
  }

  /** The elements as numbers. */
  get values(): ArrayLike<number> {
    return decode(this.dtype, this.data);
  }

  /** The same elements as a tensor on the host engine. */
  toTensor(): Tensor {
    return Tensor.fromHost({ dtype: this.dtype, shape: this.shape }, this.data);
  }

  /** The slice `index` along the first dim, such as the row of one device. */
  row(index: number): HostArray {
    const shape = this.shape.slice(1);
    const size = sizeOf(shape);
    return new HostArray(this.dtype, shape, this.data.slice(index * size, (index + 1) * size));
  }
}

/** A value inside a case, with the names of tensors replaced by the arrays. */
export type GoldenValue =
  | null
  | boolean
  | number
  | string
  | HostArray
  | readonly GoldenValue[]
  | { readonly [key: string]: GoldenValue };

/** A tree of tensors as plain arrays and objects. */
export type TensorTree = Tensor | readonly TensorTree[] | { readonly [key: string]: TensorTree };

/** One case of an area; its parts are named by the keys that lead to them. */
export class GoldenCase {
  constructor(
    readonly name: string,
    readonly area: string,
    readonly root: GoldenValue,
  ) {}

  /** Whether there is a value, other than null, at the end of the keys. */
  has(...keys: readonly string[]): boolean {
    const value = this.find(keys);
    return value !== undefined && value !== null;
  }

  /** The value at the end of the keys, whatever it is. */
  value(...keys: readonly string[]): GoldenValue {
    const value = this.find(keys);
    if (value === undefined) throw this.error(keys, "is missing");
    return value;
  }

  /** The array at the end of the keys. */
  host(...keys: readonly string[]): HostArray {
    const value = this.value(...keys);
    if (!(value instanceof HostArray)) throw this.error(keys, "is no array");
    return value;
  }

  /** The array at the end of the keys as a tensor. */
  tensor(...keys: readonly string[]): Tensor {
    return this.host(...keys).toTensor();
  }

  /** The tree of arrays at the end of the keys as a tree of tensors. */
  tree(...keys: readonly string[]): TensorTree {
    return mapArrays(this.value(...keys), (array) => array.toTensor());
  }

  number(...keys: readonly string[]): number {
    const value = this.value(...keys);
    if (typeof value !== "number") throw this.error(keys, "is no number");
    return value;
  }

  string(...keys: readonly string[]): string {
    const value = this.value(...keys);
    if (typeof value !== "string") throw this.error(keys, "is no string");
    return value;
  }

  boolean(...keys: readonly string[]): boolean {
    const value = this.value(...keys);
    if (typeof value !== "boolean") throw this.error(keys, "is not a boolean");
    return value;
  }

  /** The list of integers at the end of the keys, such as a shape. */
  numbers(...keys: readonly string[]): number[] {
    const value = this.value(...keys);
    const list = Array.isArray(value) ? value.filter((item): item is number => typeof item === "number") : [];
    if (!Array.isArray(value) || list.length !== value.length)
      throw this.error(keys, "is no list of numbers");
    return list;
  }

  /** The axes of the mesh and their sizes, in order. */
  get mesh(): readonly (readonly [axis: string, size: number])[] {
    const mesh = this.value("mesh");
    return isRecord(mesh) ? Object.keys(mesh).map((axis) => [axis, this.number("mesh", axis)]) : [];
  }

  private find(keys: readonly string[]): GoldenValue | undefined {
    let value: GoldenValue | undefined = this.root;
    for (const key of keys) {
      if (Array.isArray(value)) value = value[Number(key)];
      else value = isRecord(value) && Object.hasOwn(value, key) ? value[key] : undefined;
    }
    return value;
  }

  private error(keys: readonly string[], what: string): ValueError {
    return new ValueError(`golden ${this.area}/${this.name}: ${keys.join(" > ")} ${what}`);
  }
}

/** The cases of an area from the contents of its two files. */
export function parseCases(area: string, json: string, bytes: Uint8Array): GoldenCase[] {
  const { tensors } = parseSafetensors(bytes, `${area}.safetensors`);
  const parsed: unknown = JSON.parse(json);
  if (!isObject(parsed) || !Array.isArray(parsed.cases)) {
    throw new ValueError(`${area}.json has no list "cases"`);
  }
  return parsed.cases.map((raw: unknown, i) => {
    if (!isObject(raw) || typeof raw.name !== "string") {
      throw new ValueError(`case ${i} of ${area} has no name`);
    }
    const { name, ...rest } = raw;
    return new GoldenCase(name, area, resolve(rest, tensors));
  });
}

/** Replaces the arrays of a tree; other leaves are not expected in it. */
export function mapArrays(value: GoldenValue, fn: (array: HostArray) => Tensor): TensorTree {
  if (value instanceof HostArray) return fn(value);
  if (Array.isArray(value)) return value.map((item: GoldenValue) => mapArrays(item, fn));
  if (isRecord(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapArrays(item, fn)]));
  }
  throw new ValueError(`expected a tree of arrays, found ${JSON.stringify(value)}`);
}

/** Whether a value has parts with names. */
export function isRecord(value: GoldenValue | undefined): value is { readonly [key: string]: GoldenValue } {
  return isObject(value) && !(value instanceof HostArray);
}

function resolve(raw: unknown, tensors: ReadonlyMap<string, StoredArray>): GoldenValue {
  if (typeof raw === "string") {
    const stored = tensors.get(raw);
    return stored ? hostArray(stored) : raw;
  }
  if (raw === null || typeof raw === "number" || typeof raw === "boolean") return raw;
  if (Array.isArray(raw)) return raw.map((item: unknown) => resolve(item, tensors));
  if (!isObject(raw)) throw new ValueError(`unexpected ${typeof raw} in a golden case`);
  if (typeof raw.tensor === "string" && isDType(raw.dtype)) {
    const stored = tensors.get(raw.tensor);
    if (!stored) throw new ValueError(`there is no tensor ${raw.tensor}`);
    return HostArray.of(raw.dtype, stored.shape, hostArray(stored).values);
  }
  return Object.fromEntries(Object.entries(raw).map(([key, item]) => [key, resolve(item, tensors)]));
}

/** Booleans are stored as bytes. */
function hostArray({ dtype, shape, data }: StoredArray): HostArray {
  return new HostArray(dtype === "uint8" ? "bool" : dtype, shape, data);
}
