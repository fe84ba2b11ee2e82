/** Padding with constants, with the tensor's own elements, or with what is computed of them. */

import { oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { isInteger } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType, range } from "../../ir/shape.js";
import { Complex } from "../../trace/complexNumber.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { linspace } from "../arrays/creation.js";
import { round } from "../elementwise/elementwise.js";
import { asTensor, cast, toType } from "../operands.js";
import { max, mean, min } from "../reductions/reductions.js";
import { median } from "../statistics/quantiles.js";
import { applyAlongAxis } from "./mapping.js";

/** A value everywhere, one before and one after every dim, or a pair for each dim. */
export type PadPairs<V> = V | readonly [before: V, after: V] | readonly (readonly [before: V, after: V])[];

/** How many elements to add: everywhere, before and after every dim, or for each dim. */
export type PadWidth = PadPairs<number>;

/** Where the added elements come from. */
export type PadMode =
  | "constant"
  | "edge"
  | "empty"
  | "linear_ramp"
  | "maximum"
  | "mean"
  | "median"
  | "minimum"
  | "reflect"
  | "symmetric"
  | "wrap";

/**
 * Fills the ends of a vector along a dim, which holds zeros there (or, in the corners, what was filled before).
 *
 * @param width how many elements were added before and after
 * @returns the vector with its ends filled
 */
export type PadFunction = (
  vector: Tensor,
  width: readonly [before: number, after: number],
  dim: number,
) => Tensor;

const padOptions = schema({
  /** Where the added elements come from; `constant` by default. */
  mode: optional<PadMode | PadFunction>("any", "constant"),
  /** The values of mode `constant`; 0 by default. */
  constantValues: optional<PadPairs<TensorLike>>("any", 0),
  /** Where the ramps of mode `linear_ramp` end, at the outside; 0 by default. */
  endValues: optional<PadPairs<TensorLike>>("any"),
  /** Of how many elements at each end `maximum`, `mean`, `median` and `minimum` are; all by default. */
  statLength: optional<PadWidth>("any"),
  /** Whether the images of `reflect` and `symmetric` are turned about the edge: `odd` is 2 · edge − image. */
  reflectType: optional(oneOf("even", "odd")),
});

/** Options of {@link pad}. */
export interface PadOptions extends OptionsOf<typeof padOptions> {}

/**
 * Adds elements before and after each dim, one dim after the other. Modes: `constant`, `edge` (repeats the outermost
 * element), `reflect` (mirrors without it), `symmetric` (mirrors with it), `wrap` (goes round), `linear_ramp` (from the
 * edge to `endValues`), `maximum`, `mean`, `median` and `minimum` (of elements at that end), `empty` (zeros), or a function
 * of the vectors along each dim.
 *
 * ```ts
 * np.pad(x, [[1, 1], [0, 2]], { mode: "edge" });
 * np.pad(x, 2, { constantValues: [0, 1] }); // zeros before, ones after
 * ```
 *
 * @example
 * ```ts
 * np.pad(np.array([1, 2]), 1); // [0, 1, 2, 0]
 * ```
 */
export function pad(value: TensorLike, width: PadWidth, options: PadOptions = {}): Tensor {
  const { mode, constantValues } = padOptions.read(options, "pad");
  const x = asTensor(value, "pad");
  const widths = toPairs(width, x, isWidth, { what: "widths", says: "a width is a pair of integers from 0" });
  if (mode === "constant") return padConstant(x, widths, constantValues);
  if (mode === "empty") return padConstant(x, widths, 0);
  if (typeof mode === "function") {
    return widths.reduce(
      (y, own, dim) => applyAlongAxis((vector) => mode(vector, own, dim), dim, y),
      padConstant(x, widths, 0),
    );
  }
  const extend = Object.hasOwn(extensions, mode) ? extensions[mode] : undefined;
  if (extend === undefined) {
    const known = ["constant", "empty", ...Object.keys(extensions)].sort();
    throw new ValueError(`[pad] unknown mode ${describe(mode)}: use ${known.join(", ")}`);
  }
  const settings = settingsOf(options, x);
  return widths.reduce((y, [low, high], dim) => {
    if (low === 0 && high === 0) return y;
    if (at(y.shape, dim) === 0) {
      throw new ShapeError(
        `[pad] dim ${dim} of ${formatType(x.type)} is empty: only mode "constant" can pad it`,
      );
    }
    return extend({ x: y, dim, low, high, settings });
  }, x);
}

/** Values for both ends of each dim. */
function toPairs<V>(
  given: unknown,
  x: Tensor,
  isOne: (value: unknown) => value is V,
  { what, says }: { readonly what: string; readonly says: string },
): (readonly [V, V])[] {
  const list: readonly unknown[] = Array.isArray(given) ? given : [given, given];
  const pairs: readonly unknown[] = list.some(Array.isArray) ? list : [list];
  if (pairs.length !== 1 && pairs.length !== x.ndim) {
    throw new ShapeError(
      `[pad] got ${what} for ${pairs.length} dims, ${formatType(x.type)} has ${x.ndim}: pass one [before, after] per dim, or one for all`,
    );
  }
  return range(x.ndim).map((d) => {
    const pair = pairs.length === 1 ? pairs[0] : pairs[d];
    const [low, high]: readonly unknown[] = Array.isArray(pair) ? pair : [];
    if (isOne(low) && isOne(high) && Array.isArray(pair) && pair.length === 2) return [low, high] as const;
    throw new ValueError(
      `[pad] ${says}, got ${Array.isArray(pair) ? `[${pair.map(describe).join(",")}]` : describe(pair)}`,
    );
  });
}

function isWidth(n: unknown): n is number {
  return typeof n === "number" && Number.isInteger(n) && n >= 0;
}

function isLength(n: unknown): n is number {
  return isWidth(n) && n > 0;
}

function isScalar(value: unknown): value is TensorLike {
  if (value instanceof Tensor) return value.ndim === 0;
  return typeof value === "number" || typeof value === "boolean" || value instanceof Complex;
}

function padConstant(
  x: Tensor,
  widths: readonly (readonly [number, number])[],
  values: PadPairs<TensorLike>,
): Tensor {
  const padded = (y: Tensor, filler: TensorLike, low: readonly number[], high: readonly number[]) =>
    ops.pad(y, toType(filler, x.dtype, "pad"), { low, high, interior: low.map(() => 0) });
  if (!Array.isArray(values) && isScalar(values)) {
    return padded(
      x,
      values,
      widths.map(([low]) => low),
      widths.map(([, high]) => high),
    );
  }
  const fillers = toPairs(values, x, isScalar, {
    what: "constantValues",
    says: "constantValues are scalars, or pairs of them",
  });
  const none = x.shape.map(() => 0);
  return widths.reduce((y, [low, high], dim) => {
    const [before, after] = at(fillers, dim);
    const front = padded(y, before, none.with(dim, low), none);
    return padded(front, after, none, none.with(dim, high));
  }, x);
}

/** Arguments that some modes need besides widths. */
interface Settings {
  readonly ends: readonly (readonly [TensorLike, TensorLike])[];
  readonly lengths: readonly (readonly [number, number])[] | undefined;
  readonly isOdd: boolean;
}

function settingsOf({ endValues = 0, statLength, reflectType = "even" }: PadOptions, x: Tensor): Settings {
  if (reflectType !== "even" && reflectType !== "odd") {
    throw new ValueError(`[pad] reflectType must be "even" or "odd", got ${describe(reflectType)}`);
  }
  return {
    ends: toPairs(endValues, x, isScalar, {
      what: "endValues",
      says: "endValues are scalars, or pairs of them",
    }),
    lengths:
      statLength === undefined
        ? undefined
        : toPairs(statLength, x, isLength, {
            what: "statLength",
            says: "a statLength is a pair of integers of at least 1",
          }),
    isOdd: reflectType === "odd",
  };
}

/** A dim of a tensor, and how many elements it gets at each end. */
interface Extension {
  readonly x: Tensor;
  readonly dim: number;
  readonly low: number;
  readonly high: number;
  readonly settings: Settings;
}

type Extend = (extension: Extension) => Tensor;

const extensions: { readonly [M in Exclude<PadMode, "constant" | "empty">]: Extend } = {
  edge: ({ x, dim, low, high }) => {
    const edge = (index: number) => ops.sliceDim(x, dim, index, index + 1);
    return between(x, dim, repeated(edge(0), dim, low), repeated(edge(at(x.shape, dim) - 1), dim, high));
  },
  reflect: (extension) => mirrored(extension, 1),
  symmetric: (extension) => mirrored(extension, 0),
  wrap: ({ x, dim, low, high }) => {
    const n = at(x.shape, dim);
    const rounds = (count: number) => new Array<Tensor>(Math.floor(count / n)).fill(x);
    const before = low % n === 0 ? [] : [ops.sliceDim(x, dim, n - (low % n), n)];
    const after = high % n === 0 ? [] : [ops.sliceDim(x, dim, 0, high % n)];
    return ops.concatenate([...before, ...rounds(low), x, ...rounds(high), ...after], dim);
  },
  linear_ramp: ({ x, dim, low, high, settings }) => {
    const [first, last] = at(settings.ends, dim);
    const ramp = (end: TensorLike, index: number, count: number) => {
      const edge = ops.reshape(ops.sliceDim(x, dim, index, index + 1), x.shape.toSpliced(dim, 1));
      return ops.moveDim(linspace(end, edge, count, { endpoint: false, dtype: x.dtype }), 0, dim);
    };
    const after = ops.reverse(ramp(last, at(x.shape, dim) - 1, high), [dim]);
    return between(x, dim, ramp(first, 0, low), after);
  },
  maximum: (extension) => withStatistic(extension, max),
  minimum: (extension) => withStatistic(extension, min),
  mean: (extension) => withStatistic(extension, mean),
  median: (extension) => withStatistic(extension, median),
};

/** A tensor of size 1 along a dim, repeated. */
function repeated(x: Tensor, dim: number, count: number): Tensor {
  return ops.broadcastInDim(x, x.shape.with(dim, count), range(x.ndim));
}

/** A tensor with others before and after it, which may be empty. */
function between(x: Tensor, dim: number, before: Tensor, after: Tensor): Tensor {
  return ops.concatenate(
    [before, x, after].filter((part) => part === x || part.size > 0),
    dim,
  );
}

/** Fills each end with a reduction of the elements there. */
function withStatistic(
  { x, dim, low, high, settings: { lengths } }: Extension,
  reduce: (x: TensorLike, dim: number, options: { readonly keepdims: boolean }) => Tensor,
): Tensor {
  const n = at(x.shape, dim);
  const [first, last] = lengths ? at(lengths, dim).map((length) => Math.min(length, n)) : [n, n];
  const statistic = (from: number, to: number) => {
    const result = reduce(ops.sliceDim(x, dim, from, to), dim, { keepdims: true });
    return cast(isInteger(x.dtype) ? round(result) : result, x.dtype);
  };
  const before = repeated(statistic(0, first ?? n), dim, low);
  return between(x, dim, before, repeated(statistic(n - (last ?? n), n), dim, high));
}

/** Adds mirror images, several where the padding is wider than the tensor; `skip` leaves out the edge. */
function mirrored({ x, dim, low, high, settings: { isOdd } }: Extension, skip: 0 | 1): Tensor {
  const n = at(x.shape, dim);
  const offset = n > 1 ? skip : 0;
  const grow = (start: Tensor, count: number, isBefore: boolean) => {
    let [whole, edge] = [start, endOf(start, dim, isBefore)];
    for (let done = 0; done < count; done += n - offset) {
      const size = Math.min(count - done, n - offset);
      const from = isBefore ? offset : at(whole.shape, dim) - size - offset;
      const image = ops.reverse(ops.sliceDim(whole, dim, from, from + size), [dim]);
      const part = isOdd ? ops.sub(repeated(ops.add(edge, edge), dim, size), image) : image;
      if (n > 1) edge = endOf(part, dim, isBefore);
      whole = ops.concatenate(isBefore ? [part, whole] : [whole, part], dim);
    }
    return whole;
  };
  return grow(grow(x, low, true), high, false);
}

/** The first or the last slice along a dim. */
function endOf(x: Tensor, dim: number, isFirst: boolean): Tensor {
  const index = isFirst ? 0 : at(x.shape, dim) - 1;
  return ops.sliceDim(x, dim, index, index + 1);
}
