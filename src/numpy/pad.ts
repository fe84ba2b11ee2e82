/** Padding with constants or with the tensor's own elements. */

import { need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { checkOptions } from "../ir/options.js";
import { at, formatType, range } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { asTensor, toType } from "./operands.js";

/** How many elements to add: everywhere, before and after every dim, or for each dim. */
export type PadWidth = number | readonly [number, number] | readonly (readonly [number, number])[];

/** Where the added elements come from. */
export type PadMode = "constant" | "edge" | "reflect" | "symmetric" | "wrap";

/** Options of {@link pad}. */
export interface PadOptions {
  readonly mode?: PadMode | undefined;
  /** The value of mode `constant`. */
  readonly constantValues?: TensorLike | undefined;
}

/**
 * Adds elements before and after each dim. Modes: `constant`, `edge` (repeats the outermost element),
 * `reflect` (mirrors without it), `symmetric` (mirrors with it), `wrap` (goes round).
 *
 * ```ts
 * np.pad(x, [[1, 1], [0, 2]], { mode: "edge" })
 * ```
 */
export function pad(value: TensorLike, width: PadWidth, options: PadOptions = {}): Tensor {
  checkOptions<PadOptions>(options, { mode: true, constantValues: true }, "pad");
  const { mode = "constant", constantValues = 0 } = options;
  const x = asTensor(value, "pad");
  const widths = toWidths(width, x);
  if (mode === "constant") {
    const filler = toType(constantValues, x.dtype, "pad");
    if (filler.ndim !== 0) {
      throw new ShapeError(`[pad] constantValues must be one number, got ${formatType(filler.type)}`);
    }
    return ops.pad(x, filler, {
      low: widths.map(([low]) => low),
      high: widths.map(([, high]) => high),
      interior: widths.map(() => 0),
    });
  }
  const extend = extensions[mode];
  if (extend === undefined) {
    throw new ValueError(
      `[pad] unknown mode "${mode}": use ${Object.keys(extensions).join(", ")} or constant`,
    );
  }
  return widths.reduce((y, [low, high], dim) => {
    if (low === 0 && high === 0) return y;
    if (at(y.shape, dim) === 0) {
      throw new ShapeError(
        `[pad] dim ${dim} of ${formatType(x.type)} is empty: only mode "constant" can pad it`,
      );
    }
    return extend(y, dim, low, high);
  }, x);
}

function toWidths(width: PadWidth, x: Tensor): (readonly [number, number])[] {
  const list: readonly unknown[] = typeof width === "number" ? [width, width] : width;
  need("list", list, "the widths", "pad");
  const pairs: readonly unknown[] = list.every((w) => typeof w === "number") ? [list] : list;
  const widths = range(x.ndim).map((d) => (pairs.length === 1 ? pairs[0] : pairs[d]));
  if (pairs.length !== 1 && pairs.length !== x.ndim) {
    throw new ShapeError(
      `[pad] got widths for ${pairs.length} dims, ${formatType(x.type)} has ${x.ndim}: pass one [before, after] per dim, or one for all`,
    );
  }
  return widths.map((w) => {
    const [low, high]: readonly unknown[] = Array.isArray(w) ? w : [];
    if (!isWidth(low) || !isWidth(high)) {
      throw new ValueError(
        `[pad] a width is a pair of integers from 0, got ${Array.isArray(w) ? `[${w.map(describe).join(",")}]` : describe(w)}`,
      );
    }
    return [low, high] as const;
  });
}

function isWidth(n: unknown): n is number {
  return typeof n === "number" && Number.isInteger(n) && n >= 0;
}

type Extend = (x: Tensor, dim: number, low: number, high: number) => Tensor;

const extensions: { readonly [M in Exclude<PadMode, "constant">]: Extend } = {
  edge: (x, dim, low, high) => {
    const n = at(x.shape, dim);
    const copies = (index: number, count: number) => {
      const edge = ops.sliceDim(x, dim, index, index + 1);
      const shape = x.shape.map((size, d) => (d === dim ? count : size));
      return count === 0 ? [] : [ops.broadcastInDim(edge, shape, range(x.ndim))];
    };
    return ops.concatenate([...copies(0, low), x, ...copies(n - 1, high)], dim);
  },
  reflect: (x, dim, low, high) => mirrored(x, dim, low, high, 1),
  symmetric: (x, dim, low, high) => mirrored(x, dim, low, high, 0),
  wrap: (x, dim, low, high) => {
    const n = at(x.shape, dim);
    const rounds = (count: number) => new Array<Tensor>(Math.floor(count / n)).fill(x);
    const before = low % n === 0 ? [] : [ops.sliceDim(x, dim, n - (low % n), n)];
    const after = high % n === 0 ? [] : [ops.sliceDim(x, dim, 0, high % n)];
    return ops.concatenate([...before, ...rounds(low), x, ...rounds(high), ...after], dim);
  },
};

/** Adds mirror images, several where the padding is wider than the tensor; `skip` leaves out the edge. */
function mirrored(x: Tensor, dim: number, low: number, high: number, skip: 0 | 1): Tensor {
  const n = at(x.shape, dim);
  const period = n - skip;
  if (period === 0) return extensions.edge(x, dim, low, high);
  const first = ops.sliceDim(x, dim, 0, period);
  const last = ops.sliceDim(x, dim, skip, n);
  /** The images on one side from the tensor outwards, each cut to what is still needed. */
  const images = (count: number, odd: Tensor, even: Tensor, cut: (image: Tensor, size: number) => Tensor) =>
    range(Math.ceil(count / period)).map((i) =>
      cut(i % 2 === 0 ? ops.reverse(odd, [dim]) : even, Math.min(period, count - i * period)),
    );
  const before = images(low, last, first, (image, size) => ops.sliceDim(image, dim, period - size, period));
  const after = images(high, first, last, (image, size) => ops.sliceDim(image, dim, 0, size));
  return ops.concatenate([...before.reverse(), x, ...after], dim);
}
