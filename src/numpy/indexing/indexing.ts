/** Reading parts of tensors: static slices, dynamic positions and arrays of indices. */
import { describe } from "../../ir/describe.js";
import { isComplex, isFloat, isUnsigned } from "../../ir/dtype.js";
import { DimError, DTypeError, ValueError } from "../../ir/errors.js";
import { at, formatType, range, type Shape, sizeOf } from "../../ir/shape.js";
import { toInt32 } from "../../lax/operands.js";
import { isTracing, tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { asTensor, broadcastShape, expandTo } from "../operands.js";

/** Part of a dim as in NumPy's `start:stop:step`; made by {@link s}. */
export class Slice {
  constructor(
    readonly start: number | null,
    readonly stop: number | null,
    readonly step: number | null,
  ) {}
}

/**
 * One index of a tensor:
 * - a number takes one position and drops the dim; negative ones count from the end
 * - `np.s(start, stop, step)` takes a slice, `":"` the whole dim
 * - `"..."` stands for all dims that are not named
 * - `null` inserts a dim of size 1
 * - an integer tensor takes the positions it holds; a scalar tensor is a position known only at run time
 *
 * JavaScript arrays are refused: `[0, 2]` could be a slice or two positions.
 */
export type Index = number | null | "..." | ":" | Slice | Tensor;

/**
 * A slice with NumPy's meaning of `start:stop:step`; `null` leaves a part open.
 *
 * @example
 * ```ts
 * np.arange(4).get(np.s(null, null, -1)); // [3, 2, 1, 0]
 * ```
 */
export function s(
  start: number | null = null,
  stop: number | null = null,
  step: number | null = null,
): Slice {
  return new Slice(start, stop, step);
}

/** What happens along one dim of the tensor, or at one place of the result. */
type Entry =
  | { readonly kind: "new" }
  | { readonly kind: "gap" }
  | { readonly kind: "slice"; readonly start: number; readonly step: number; readonly count: number }
  | { readonly kind: "position"; readonly position: number }
  | { readonly kind: "dynamic"; readonly indices: Tensor };

/** Fills in the dims that are not named, and checks every index against the size of its dim. */
function toEntries(shape: Shape, indices: readonly Index[], caller: string): Entry[] {
  const named = indices.filter((index) => index !== null && index !== "...").length;
  if (indices.filter((index) => index === "...").length > 1) {
    throw new DimError(`[${caller}] "..." may appear only once in an index`);
  }
  if (named > shape.length) {
    throw new DimError(
      `[${caller}] ${named} indices for a tensor of ${shape.length} dims [${shape}]: pass at most ${shape.length}`,
    );
  }
  const rest = new Array<Index>(shape.length - named).fill(":");
  // Even if it stands for no dim, "..." separates the arrays of indices around it.
  const dots = rest.length > 0 ? rest : ["..." as const];
  const full = indices.includes("...")
    ? indices.flatMap((index) => (index === "..." ? dots : [index]))
    : [...indices, ...rest];
  let dim = 0;
  return full.map((index) => {
    if (index === null) return { kind: "new" };
    if (index === "...") return { kind: "gap" };
    const entry = toEntry(index, at(shape, dim), dim, caller);
    dim++;
    return entry;
  });
}

/** What to write in place of something that is not an index. */
function adviceFor(index: unknown): string {
  if (!Array.isArray(index))
    return 'use a number, np.s(start, stop, step), ":", null, "..." or an int32 tensor';
  const list = index.map(describe).join(", ");
  return `a slice is written np.s(${list}), a list of positions np.array([${list}], "int32")`;
}

function toEntry(index: Index, n: number, dim: number, caller: string): Entry {
  if (typeof index === "number") {
    if (!Number.isInteger(index) || index < -n || index >= n) {
      throw new DimError(
        `[${caller}] index ${index} is out of range for dim ${dim} of size ${n}: use an integer from ${-n} to ${n - 1}`,
      );
    }
    return { kind: "position", position: index < 0 ? index + n : index };
  }
  if (index instanceof Tensor) {
    if (index.dtype === "bool") {
      throw new DTypeError(
        `[${caller}] how many elements a mask selects depends on its values: use np.where(mask, …)`,
      );
    }
    if (isFloat(index.dtype) || isComplex(index.dtype)) {
      throw new DTypeError(
        `[${caller}] ${formatType(index.type)} cannot be an index: convert it with astype("int32")`,
      );
    }
    return { kind: "dynamic", indices: index };
  }
  if (index === ":") return sliceEntry(null, null, null, n, caller);
  if (index instanceof Slice) return sliceEntry(index.start, index.stop, index.step, n, caller);
  throw new ValueError(`[${caller}] ${describe(index)} is not an index: ${adviceFor(index)}`);
}

/** NumPy's reading of `start:stop:step` for a dim of size n. */
function sliceEntry(
  start: number | null,
  stop: number | null,
  step: number | null,
  n: number,
  caller: string,
): Entry {
  const by = step ?? 1;
  if (by === 0 || [start ?? 0, stop ?? 0, by].some((part) => !Number.isInteger(part))) {
    throw new ValueError(
      `[${caller}] slice ${[start, stop, step].map((part) => (part === null ? "" : describe(part))).join(":")} needs integers and a step that is not 0`,
    );
  }
  const [lowest, highest] = by > 0 ? [0, n] : [-1, n - 1];
  const inside = (position: number) =>
    Math.min(Math.max(position < 0 ? position + n : position, lowest), highest);
  const from = start === null ? (by > 0 ? 0 : n - 1) : inside(start);
  const to = stop === null ? (by > 0 ? n : -1) : inside(stop);
  return { kind: "slice", start: from, step: by, count: Math.max(0, Math.ceil((to - from) / by)) };
}

/**
 * One step from a tensor to a part of it, with its inverse: `put(x, part)` is x with that part replaced.
 * Reading an index is a chain of such steps, and writing goes back along the chain.
 */
export interface IndexStep {
  readonly get: (x: Tensor) => Tensor;
  readonly put: (x: Tensor, part: Tensor) => Tensor;
}

/** An index worked out for a tensor: steps, and at most one look-up by arrays of indices among them. */
export interface Plan {
  readonly before: readonly IndexStep[];
  readonly lookUp?: LookUp | undefined;
  /** Steps that keep all elements. */
  readonly after: readonly IndexStep[];
  /** The shape of the part. */
  readonly shape: Shape;
}

/** Takes slices along `dim` by int32 index. */
export interface LookUp {
  readonly dim: number;
  /** The shape of the indices. */
  readonly shape: Shape;
  /** The indices for `gather`, which clamps them. */
  readonly reading: () => Tensor;
  /** Which of them lie inside of their dims. */
  readonly isInside: () => Tensor;
  /** The indices for `scatter`, which drops those outside of the dim. */
  readonly writing: () => Tensor;
}

/** Works out what an index means for a tensor of the given shape. */
export function planIndex(shape: Shape, indices: readonly Index[], caller: string): Plan {
  const entries = toEntries(shape, indices, caller);
  const isArray = entries.some((entry) => entry.kind === "dynamic" && entry.indices.ndim > 0);
  return isArray ? planArrays(shape, entries, caller) : planPositions(shape, entries);
}

/** The shape that slices and new dims leave; `other` says what the remaining entries become. */
function shapeOf(entries: readonly Entry[], other: (entry: Entry) => readonly number[]): number[] {
  return entries.flatMap((entry) =>
    entry.kind === "slice"
      ? [entry.count]
      : entry.kind === "new"
        ? [1]
        : entry.kind === "gap"
          ? []
          : other(entry),
  );
}

/** Whether an entry is about a dim of the tensor. */
const isOfDim = ({ kind }: Entry) => kind !== "new" && kind !== "gap";

function sliceStep(shape: Shape, entries: readonly Entry[]): IndexStep[] {
  const dims = entries.filter(isOfDim);
  const parts = dims.map((entry, d) => {
    if (entry.kind === "position") return { start: entry.position, step: 1, count: 1 };
    return entry.kind === "slice" ? entry : { start: 0, step: 1, count: at(shape, d) };
  });
  // An empty slice may start anywhere; a backward one is a forward one read from its end.
  const starts = parts.map(({ start, step, count }) =>
    count === 0 ? 0 : step < 0 ? start + (count - 1) * step : start,
  );
  const strides = parts.map(({ step, count }) => (count > 1 ? Math.abs(step) : 1));
  const limits = parts.map(({ count }, d) =>
    count === 0 ? 0 : at(starts, d) + (count - 1) * at(strides, d) + 1,
  );
  const backward = range(parts.length).filter((d) => at(parts, d).step < 0 && at(parts, d).count > 1);
  const steps: IndexStep[] = [
    {
      get: (x) => ops.slice(x, starts, limits, strides),
      put: (x, part) => putSlice(x, part, starts, strides),
    },
  ];
  const reverse = (x: Tensor) => ops.reverse(x, backward);
  if (backward.length > 0) steps.push({ get: reverse, put: (_, part) => reverse(part) });
  return steps;
}

/** x with the elements `starts + i · strides` replaced. */
function putSlice(x: Tensor, part: Tensor, starts: readonly number[], strides: readonly number[]): Tensor {
  if (part.size === 0) return x;
  if (part.shape.join() === x.shape.join()) return part;
  if (strides.every((stride) => stride === 1)) {
    return ops.dynamicUpdateSlice(
      x,
      part,
      starts.map((start) => Tensor.scalar(start, "int32")),
    );
  }
  const interior = strides.map((stride) => stride - 1);
  const ends = starts.map((start, d) => start + (at(part.shape, d) - 1) * at(strides, d) + 1);
  const params = { low: starts, high: ends.map((end, d) => at(x.shape, d) - end), interior };
  const mask = ops.pad(ops.full(part.shape, true, "bool"), Tensor.scalar(false, "bool"), params);
  return ops.select(mask, ops.pad(part, Tensor.scalar(0, x.dtype), params), x);
}

function reshapeStep(from: Shape, to: Shape): IndexStep {
  return { get: (x) => ops.reshape(x, to), put: (_, part) => ops.reshape(part, from) };
}

/** Numbers, slices and scalar tensors. */
function planPositions(shape: Shape, entries: readonly Entry[]): Plan {
  const before = sliceStep(shape, entries);
  const dims = entries.filter(isOfDim);
  if (dims.some((entry) => entry.kind === "dynamic")) before.push(dynamicStep(shape, dims));
  const kept = shapeOf(dims, () => [1]);
  const result = shapeOf(entries, () => []);
  return { before, after: [reshapeStep(kept, result)], shape: result };
}

/** A slice of size 1 along the dims whose position is a scalar tensor: clamped on read, dropped on write. */
function dynamicStep(shape: Shape, dims: readonly Entry[]): IndexStep {
  const zero = Tensor.scalar(0, "int32");
  const starts = dims.map((entry, d) =>
    entry.kind === "dynamic" ? fromEnd(entry.indices, at(shape, d)) : zero,
  );
  const isInside = () =>
    dims
      .flatMap((entry, d) => (entry.kind === "dynamic" ? [inRange(at(starts, d), at(shape, d))] : []))
      .reduce((a, b) => ops.and(a, b));
  const get = (x: Tensor) =>
    ops.dynamicSlice(
      x,
      starts,
      x.shape.map((n, d) => (at(dims, d).kind === "dynamic" ? 1 : n)),
    );
  return {
    get,
    put: (x, part) =>
      ops.dynamicUpdateSlice(x, ops.select(expandTo(isInside(), part.shape), part, get(x)), starts),
  };
}

/** int32 indices in which negative ones have been counted from the end. */
export function fromEnd(indices: Tensor, n: number): Tensor {
  const index = toInt32(indices);
  if (isUnsigned(indices.dtype)) return index;
  return ops.select(ops.compare("lt", index, 0), ops.add(index, n), index);
}

/** Where indices lie in 0 … n − 1. */
export function inRange(indices: Tensor, n: number): Tensor {
  return ops.and(ops.compare("ge", indices, 0), ops.compare("lt", indices, n));
}

/** Limits int32 indices to 0 … n − 1. */
export function clampIndex(indices: Tensor, n: number): Tensor {
  return ops.clamp(Tensor.scalar(0, "int32"), indices, Tensor.scalar(Math.max(n - 1, 0), "int32"));
}

/**
 * Arrays of indices, which are broadcast against each other, as are numbers among them. Their dims take the
 * place of the dims they index when those are neighbours, and come first otherwise, as in NumPy.
 */
function planArrays(shape: Shape, entries: readonly Entry[], caller: string): Plan {
  const isLookedUp = (entry: Entry) => entry.kind === "dynamic" || entry.kind === "position";
  const sliced = entries.map((entry, i): Entry => (isLookedUp(entry) ? wholeDim(shape, entries, i) : entry));
  const dims = entries.filter(isOfDim);
  const looked = range(dims.length).filter((d) => isLookedUp(at(dims, d)));
  const others = range(dims.length).filter((d) => !looked.includes(d));
  const places = range(entries.length).filter((i) => isLookedUp(at(entries, i)));
  const first = at(places, 0);
  const areNeighbours = places.every((place, i) => place === first + i);

  const before = sliceStep(shape, sliced);
  const sizes = looked.map((d) => at(shape, d));
  const dim = areNeighbours ? at(looked, 0) : 0;
  const order = [...others.slice(0, dim), ...looked, ...others.slice(dim)];
  before.push({
    get: (x) => ops.transpose(x, order),
    put: (_, part) => ops.untranspose(part, order),
  });
  const kept = shapeOf(
    sliced.filter((entry, i) => isOfDim(entry) && !places.includes(i)),
    () => [],
  );
  const around = (middle: readonly number[]) => [...kept.slice(0, dim), ...middle, ...kept.slice(dim)];
  before.push(reshapeStep(around(sizes), around([sizeOf(sizes)])));

  const lookUp = flatIndices(
    looked.map((d) => at(dims, d)),
    sizes,
    dim,
    caller,
  );
  const outside = areNeighbours
    ? [entries.slice(0, first), entries.slice(first + places.length)]
    : [[], entries.filter((_, i) => !places.includes(i))];
  const [front = [], back = []] = outside.map((part) => shapeOf(part, () => []));
  const result = [...front, ...lookUp.shape, ...back];
  return { before, lookUp, after: [reshapeStep(around(lookUp.shape), result)], shape: result };
}

function wholeDim(shape: Shape, entries: readonly Entry[], index: number): Entry {
  const dim = entries.slice(0, index).filter(isOfDim).length;
  return { kind: "slice", start: 0, step: 1, count: at(shape, dim) };
}

/** One index into the flattened dims for each combination of indices. */
function flatIndices(
  entries: readonly Entry[],
  sizes: readonly number[],
  dim: number,
  caller: string,
): LookUp {
  const each = entries.map((entry, i) =>
    entry.kind === "dynamic"
      ? fromEnd(entry.indices, at(sizes, i))
      : Tensor.scalar(entry.kind === "position" ? entry.position : 0, "int32"),
  );
  const shape = broadcastShape(
    each.map((index) => index.shape),
    caller,
  );
  const [only] = each;
  if (only && each.length === 1) {
    const isInside = () => inRange(only, at(sizes, 0));
    return { dim, shape, reading: () => only, isInside, writing: () => only };
  }
  const spread = each.map((index) => expandTo(index, shape));
  const reading = () =>
    spread
      .map((index, i) => clampIndex(index, at(sizes, i)))
      .reduce((flat, index, i) => ops.add(ops.mul(flat, at(sizes, i)), index));
  const isInside = () =>
    spread.map((index, i) => inRange(index, at(sizes, i))).reduce((a, b) => ops.and(a, b));
  const writing = () => ops.select(isInside(), reading(), Tensor.scalar(-1, "int32"));
  return { dim, shape, reading, isInside, writing };
}

/**
 * Part of a tensor, as `x[…]` in NumPy. Numbers and slices are checked at once; positions in tensors are
 * clamped into the dim. As in JAX the gradient of what a tensor of positions read from outside is dropped.
 *
 * @example
 * ```ts
 * const x = np.array([[1, 2, 3], [4, 5, 6]]);
 * np.index(x, 0, np.s(1)); // [2, 3]
 * np.index(x, np.array([1, 0], "int32")); // [[4, 5, 6], [1, 2, 3]]
 * ```
 */
export function index(value: TensorLike, ...indices: readonly Index[]): Tensor {
  const x = asTensor(value, "index");
  const { before, lookUp, after } = planIndex(x.shape, indices, "index");
  const part = before.reduce((y, step) => step.get(y), x);
  const found = lookUp ? read(part, lookUp) : part;
  return after.reduce((y, step) => step.get(y), found);
}

function read(x: Tensor, { dim, shape, reading, isInside }: LookUp): Tensor {
  return tracedAsOneCall(() => {
    const found = ops.gather(x, reading(), { dim, batchDims: 0 });
    // Eager computation is not differentiated.
    if (!isTracing() || !(isFloat(x.dtype) || isComplex(x.dtype))) return found;
    const dims = range(shape.length).map((i) => dim + i);
    const mask = ops.broadcastInDim(isInside(), found.shape, dims);
    // Both are the same value: the choice is made by the gradient alone.
    return ops.select(mask, found, ops.stopGradient(found));
  });
}
