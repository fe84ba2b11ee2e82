import { describe } from "./describe.js";
import { byteSize, type DType, shortName } from "./dtype.js";
import { DimError, ShapeError } from "./errors.js";

/** The sizes of a tensor's dimensions, outermost first. */
export type Shape = readonly number[];

/** One named axis of a device mesh, or of a mapped (`vmap`) dimension. */
export interface MeshAxis {
  readonly name: string;
  readonly size: number;
}

/** What is known about a tensor without its values. */
export interface TensorType {
  readonly dtype: DType;
  readonly shape: Shape;
  /**
   * The axes of surrounding shard maps along which the value may differ from device to device; see `varying.ts`. Shard
   * maps without the replication check do not track it.
   */
  readonly varying?: readonly MeshAxis[];
  /**
   * A float that comes from JavaScript numbers alone: it takes the float type of what it is combined with. Only
   * promotion reads it; to everything after tracing it is a float like any other.
   */
  readonly weak?: true;
}

/** A leaf of a tree that has a type: a tensor, or what `evalShape` returns. */
export function isTyped(node: unknown): node is TensorType {
  return (
    typeof node === "object" &&
    node !== null &&
    "dtype" in node &&
    "shape" in node &&
    typeof node.dtype === "string" &&
    Array.isArray(node.shape)
  );
}

/** The type of each of some values. */
export function typesOf(values: readonly { readonly type: TensorType }[]): TensorType[] {
  return values.map(({ type }) => type);
}

/** Makes a {@link TensorType}. */
export function tensorType(dtype: DType, shape: Shape): TensorType {
  return { dtype, shape };
}

/** The type of a value that differs along the same axes but has another shape. */
export function withShape(type: TensorType, shape: Shape): TensorType {
  return { ...type, shape };
}

/** The type of a value that keeps its data type whatever it is combined with. */
export function strongType(type: TensorType): TensorType {
  if (!type.weak) return type;
  const { weak: _, ...strong } = type;
  return strong;
}

/**
 * The number of elements of a tensor of this shape.
 *
 * @example
 * ```ts
 * engines.sizeOf([4, 8]); // 32
 * ```
 */
export function sizeOf(shape: Shape): number {
  let size = Array.isArray(shape) ? 1 : undefined;
  for (let d = 0; size !== undefined && d < shape.length; d++) {
    const n: unknown = shape[d];
    size = typeof n === "number" ? size * n : undefined;
  }
  if (size === undefined) throw new ShapeError(`a shape must be an array of sizes, got ${describe(shape)}`);
  return size;
}

/** Whether two lists of numbers (shapes, permutations, …) are equal. */
export function sameNumbers(a: readonly number[], b: readonly number[]): boolean {
  if (a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** Throws unless a value looks like a type; a shallow check. */
function checkType(type: TensorType): void {
  if (Array.isArray(type?.shape)) return;
  throw new ShapeError(`a type must have dtype and shape, got ${describe(type)}`);
}

/**
 * Whether two types are equal in data type and shape.
 *
 * @example
 * ```ts
 * engines.sameType({ dtype: "float32", shape: [4] }, { dtype: "float32", shape: [4] }); // true
 * ```
 */
export function sameType(a: TensorType, b: TensorType): boolean {
  checkType(a);
  checkType(b);
  return a.dtype === b.dtype && sameNumbers(a.shape, b.shape);
}

/**
 * The printed form of a type, such as `f32[4,8]`.
 *
 * @example
 * ```ts
 * engines.formatType({ dtype: "float32", shape: [4, 8] }); // "f32[4,8]"
 * ```
 */
export function formatType(type: TensorType): string {
  checkType(type);
  return `${shortName(type.dtype)}[${type.shape.join(",")}]`;
}

/** The bytes that a dense tensor takes. */
export function bytesOf(type: TensorType): number {
  return sizeOf(type.shape) * byteSize(type.dtype);
}

/** The bytes that some values take together, as dense tensors. */
export function bytesOfAll(values: readonly { readonly type: TensorType }[]): number {
  return values.reduce((sum, { type }) => sum + bytesOf(type), 0);
}

/** Bytes in the unit that suits them, such as `1.5 MiB`. */
export function formatBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toFixed(1))} ${units[power]}`;
}

/** The distance in elements between neighbours along each dimension of a dense row-major tensor. */
export function rowMajorStrides(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let d = shape.length - 1; d >= 0; d--) {
    strides[d] = step;
    step *= at(shape, d);
  }
  return strides;
}

/** Maximum length of a list; a longer one would only exhaust memory. */
const maxLength = 2 ** 27;

/** The integers 0 … n − 1. */
export function range(n: number): number[] {
  if (!(n <= maxLength))
    throw new ShapeError(`a list of ${describe(n)} entries is too long: the maximum is ${maxLength}`);
  return Array.from({ length: n }, (_, i) => i);
}

/** The element at `index`, which the caller knows to exist. */
export function at<T>(list: readonly T[], index: number): T {
  const item = list[index];
  if (item === undefined && !Object.hasOwn(list, index)) {
    throw new DimError(`index ${index} is outside a list of ${list.length} entries`);
  }
  return item as T;
}

type Entries<T, N extends number, Known extends readonly T[] = []> = Known["length"] extends N
  ? Known
  : Entries<T, N, readonly [...Known, T]>;

/** The entries of a list, of which the caller knows the number. */
export function entriesOf<T, const N extends number>(list: readonly T[], count: N): Entries<T, N> {
  if (list.length !== count) throw new DimError(`a list of ${list.length} entries is not one of ${count}`);
  return list as unknown as Entries<T, N>;
}

/** The permutation that undoes `permutation`. */
export function inversePermutation(permutation: readonly number[]): number[] {
  const inverse = new Array<number>(permutation.length);
  permutation.forEach((p, i) => {
    inverse[p] = i;
  });
  return inverse;
}

/**
 * Brings a dimension that may count from the end (−1 is the last) into 0 … rank − 1.
 *
 * @param caller the function named in the error message
 */
export function normalizeDim(dim: number, rank: number, caller: string): number {
  if (!Number.isInteger(dim) || dim < -rank || dim >= rank) {
    const wrong =
      typeof dim === "number"
        ? `dim ${dim} is out of range for a tensor of ${rank} dims`
        : `a dim is a number, and options come after it, got ${describe(dim)}`;
    throw new DimError(
      `[${caller}] ${wrong}: use ${
        rank === 0 ? "a tensor with at least one dim" : `an integer from ${-rank} to ${rank - 1}`
      }`,
    );
  }
  // The sum turns −0 into 0.
  return dim < 0 ? dim + rank : dim + 0;
}

/** Normalises several dims, which must be different; `null` or `undefined` means all of them. */
export function normalizeDims(
  dims: number | readonly number[] | null | undefined,
  rank: number,
  caller: string,
): number[] {
  if (dims === null || dims === undefined) return range(rank);
  const given: readonly number[] = Array.isArray(dims) ? dims : [dims];
  const list = given.map((d) => normalizeDim(d, rank, caller));
  if (new Set(list).size !== list.length) {
    throw new DimError(`[${caller}] dims [${given.join(",")}] name a dimension twice`);
  }
  return list;
}
