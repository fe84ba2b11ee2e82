/**
 * Reads the reference values of `test/goldens` (its README says what they are) and compares results with them.
 *
 * ```ts
 * for (const golden of goldens("modules")) {
 *   test(golden.name, async () => {
 *     const y = apply(golden.tree("variables"), golden.tensor("x"));
 *     await expectClose(y, golden.host("y"));
 *   });
 * }
 * ```
 */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { type DType, decode, encode, type HostData, isDType, isFloat, limits } from "../../src/ir/dtype.js";
import { type Shape, sameNumbers, sizeOf } from "../../src/ir/shape.js";
import { Tensor } from "../../src/trace/tensor.js";
import { flattenWithPath } from "../../src/trace/tree.js";
import { parseSafetensors, type StoredArray } from "../../src/train/safetensors.js";

/** The areas that have reference values. */
export type GoldenArea =
  | "random"
  | "modules"
  | "collectives"
  | "data_parallel"
  | "tensor_parallel"
  | "pipeline_parallel"
  | "circular_pipeline";

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
    if (typeof value !== "boolean") throw this.error(keys, "is no boolean");
    return value;
  }

  /** The list of whole numbers at the end of the keys, such as a shape. */
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

  private error(keys: readonly string[], what: string): Error {
    return new Error(`golden ${this.area}/${this.name}: ${keys.join(" > ")} ${what}`);
  }
}

/** All cases of an area. */
export function goldens(area: GoldenArea): GoldenCase[] {
  const path = (ending: string) => fileURLToPath(new URL(`../goldens/${area}.${ending}`, import.meta.url));
  const { tensors } = parseSafetensors(readFileSync(path("safetensors")), `${area}.safetensors`);
  const json: unknown = JSON.parse(readFileSync(path("json"), "utf8"));
  const cases = isObject(json) && Array.isArray(json.cases) ? json.cases : [];
  return cases.map((raw: unknown, i) => {
    if (!isObject(raw) || typeof raw.name !== "string") throw new Error(`case ${i} of ${area} has no name`);
    const { name, ...rest } = raw;
    return new GoldenCase(name, area, resolve(rest, tensors));
  });
}

/** The case with the given name. */
export function golden(area: GoldenArea, name: string): GoldenCase {
  const found = goldens(area).find((candidate) => candidate.name === name);
  if (!found) throw new Error(`there is no golden ${area}/${name}`);
  return found;
}

/** Replaces the arrays of a tree; other leaves are not expected in it. */
export function mapArrays(value: GoldenValue, fn: (array: HostArray) => Tensor): TensorTree {
  if (value instanceof HostArray) return fn(value);
  if (Array.isArray(value)) return value.map((item: GoldenValue) => mapArrays(item, fn));
  if (isRecord(value)) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapArrays(item, fn)]));
  }
  throw new Error(`expected a tree of arrays, found ${JSON.stringify(value)}`);
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isRecord(value: GoldenValue | undefined): value is { readonly [key: string]: GoldenValue } {
  return isObject(value) && !(value instanceof HostArray);
}

function resolve(raw: unknown, tensors: ReadonlyMap<string, StoredArray>): GoldenValue {
  if (typeof raw === "string") {
    const stored = tensors.get(raw);
    return stored ? hostArray(stored) : raw;
  }
  if (raw === null || typeof raw === "number" || typeof raw === "boolean") return raw;
  if (Array.isArray(raw)) return raw.map((item: unknown) => resolve(item, tensors));
  if (!isObject(raw)) throw new Error(`unexpected ${typeof raw} in a golden case`);
  if (typeof raw.tensor === "string" && isDType(raw.dtype)) {
    const stored = tensors.get(raw.tensor);
    if (!stored) throw new Error(`there is no tensor ${raw.tensor}`);
    return HostArray.of(raw.dtype, stored.shape, hostArray(stored).values);
  }
  return Object.fromEntries(Object.entries(raw).map(([key, item]) => [key, resolve(item, tensors)]));
}

/** Booleans are stored as bytes. */
function hostArray({ dtype, shape, data }: StoredArray): HostArray {
  return new HostArray(dtype === "uint8" ? "bool" : dtype, shape, data);
}

/** How far a result may be off: an element passes when any of the bounds holds. */
export interface Tolerance {
  /** Relative to the expected value. */
  readonly rtol?: number;
  readonly atol?: number;
  /** In units of the last place of the expected value, in the expected data type. */
  readonly ulps?: number;
}

/** The agreement expected with the reference values. */
export const agreement = {
  exact: {},
  /** Values in float32. */
  value: { rtol: 1e-5, atol: 1e-6 },
  /** Gradients in float32. */
  gradient: { rtol: 1e-4, atol: 1e-5 },
  /** Anything in bfloat16 or float16. */
  half: { ulps: 1 },
} as const satisfies Record<string, Tolerance>;

/** What comparisons accept as an array. */
export type Comparable = Tensor | HostArray | number | readonly number[];

/**
 * Fails unless the arrays agree in shape, data type and values; the message shows where they differ most.
 * Plain numbers are compared by their values only.
 *
 * @param tolerance integers and booleans agree exactly, bfloat16 and float16 within a unit of the last place,
 * other floats like {@link agreement}.value, unless it says otherwise
 */
export async function expectClose(
  actual: Comparable,
  expected: Comparable,
  tolerance?: Tolerance,
  what = "the result",
): Promise<void> {
  const [got, want] = [await download(actual), await download(expected)];
  if (got.array && want.array) {
    if (!sameNumbers(got.array.shape, want.array.shape)) {
      throw new Error(`${what} has shape [${got.array.shape}], expected [${want.array.shape}]`);
    }
    if (got.array.dtype !== want.array.dtype) {
      throw new Error(`${what} is ${got.array.dtype}, expected ${want.array.dtype}`);
    }
  }
  if (got.values.length !== want.values.length) {
    throw new Error(`${what} has ${got.values.length} elements, expected ${want.values.length}`);
  }
  const dtype = want.array?.dtype ?? got.array?.dtype ?? "float32";
  const shape = got.array?.shape ?? want.array?.shape ?? [got.values.length];
  compareValues(got.values, want.values, { dtype, shape, what, tolerance: tolerance ?? usual(dtype) });
}

/** {@link expectClose} for every leaf of two trees, which must have the same leaves. */
export async function expectTreeClose(
  actual: unknown,
  expected: unknown,
  tolerance?: Tolerance,
): Promise<void> {
  const got = flattenWithPath(actual);
  const want = flattenWithPath(expected);
  const paths = (entries: readonly { path: string }[]) => entries.map(({ path }) => path).join(", ");
  if (paths(got) !== paths(want)) {
    throw new Error(`the result has the leaves ${paths(got)}, expected ${paths(want)}`);
  }
  for (const [i, { path, leaf }] of got.entries()) {
    await expectClose(comparable(leaf, path), comparable(want[i]?.leaf, path), tolerance, `leaf ${path}`);
  }
}

function comparable(leaf: unknown, path: string): Comparable {
  if (leaf instanceof Tensor || leaf instanceof HostArray || typeof leaf === "number") return leaf;
  throw new Error(`leaf ${path} is no array`);
}

async function download(
  value: Comparable,
): Promise<{ values: ArrayLike<number>; array?: { dtype: DType; shape: Shape } }> {
  if (typeof value === "number") return { values: [value] };
  if (value instanceof Tensor) return { values: await value.data(), array: value.type };
  if (value instanceof HostArray) return { values: value.values, array: value };
  return { values: value };
}

function usual(dtype: DType): Tolerance {
  if (!isFloat(dtype)) return agreement.exact;
  return dtype === "bfloat16" || dtype === "float16" ? agreement.half : agreement.value;
}

interface Comparison {
  readonly dtype: DType;
  readonly shape: Shape;
  readonly what: string;
  readonly tolerance: Tolerance;
}

function compareValues(got: ArrayLike<number>, want: ArrayLike<number>, comparison: Comparison): void {
  const { dtype, shape, what, tolerance } = comparison;
  let wrong = 0;
  let worst = { excess: 0, index: -1 };
  for (let i = 0; i < want.length; i++) {
    const [a, b] = [got[i] ?? Number.NaN, want[i] ?? Number.NaN];
    if (a === b || (Number.isNaN(a) && Number.isNaN(b))) continue;
    const difference = Math.abs(a - b);
    const bound = boundOf(b, tolerance, dtype);
    if (difference <= bound) continue;
    wrong++;
    const excess = Number.isNaN(difference) || bound === 0 ? Number.POSITIVE_INFINITY : difference / bound;
    if (worst.index < 0 || excess > worst.excess) worst = { excess, index: i };
  }
  if (wrong === 0) return;
  const { index, excess } = worst;
  const [a, b] = [got[index] ?? Number.NaN, want[index] ?? Number.NaN];
  const bounds = Object.entries(tolerance).map(([name, bound]) => `${name} ${bound}`);
  throw new Error(
    `${what}: ${wrong} of ${want.length} elements differ (${bounds.join(" or ") || "exactly"}); most at ` +
      `[${indices(index, shape)}]: got ${a}, expected ${b}, difference ${Math.abs(a - b)}` +
      (Number.isFinite(excess) ? `, ${excess.toPrecision(3)} times the bound` : ""),
  );
}

function boundOf(expected: number, { rtol = 0, atol = 0, ulps = 0 }: Tolerance, dtype: DType): number {
  if (!Number.isFinite(expected)) return 0;
  return Math.max(rtol * Math.abs(expected), atol, ulps === 0 ? 0 : ulps * unitOfLastPlace(expected, dtype));
}

function unitOfLastPlace(value: number, dtype: DType): number {
  const smallestNormal = dtype === "float16" ? 2 ** -14 : dtype === "float64" ? 2 ** -1022 : 2 ** -126;
  return limits(dtype).epsilon * 2 ** Math.floor(Math.log2(Math.max(Math.abs(value), smallestNormal)));
}

function indices(index: number, shape: Shape): number[] {
  const result: number[] = [];
  let rest = index;
  for (const n of [...shape].reverse()) {
    result.unshift(rest % n);
    rest = Math.floor(rest / n);
  }
  return result;
}
