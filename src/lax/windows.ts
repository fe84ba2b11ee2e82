/** What convolutions and reductions of windows share: how a window lies in a tensor and how it moves. */

import { arrayOf, either, type Kind, need, oneOf } from "../ir/arguments.js";
import { show } from "../ir/describe.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { at, range, type Shape } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";

/** A rule for padding: as many windows as strides fit into the dim, or only windows that lie inside. */
export type PaddingRule = "SAME" | "SAME_LOWER" | "VALID";

/** What goes before and after every dim of a window; negative amounts crop. */
export type WindowPadding = PaddingRule | readonly (readonly [low: number, high: number])[];

/** The kind of paddings that are a pair for each dim. */
export const pairsKind = arrayOf("integers", "pairs [low, high]") as Kind<
  readonly (readonly [low: number, high: number])[]
>;

/** The kind of arguments that are a {@link WindowPadding}. */
export const paddingKind: Kind<WindowPadding> = either(oneOf("SAME", "SAME_LOWER", "VALID"), pairsKind);

/** A window over some dims of a tensor, one entry of each list for every such dim. */
export interface WindowShape {
  readonly size: Shape;
  readonly strides: Shape;
  /** The distance between the elements of the window. */
  readonly dilation: Shape;
  /** The distance at which the elements of the tensor are laid out before it is padded. */
  readonly baseDilation: Shape;
  readonly padding: readonly (readonly [low: number, high: number])[];
}

/** The user's description of a window. */
export interface WindowRequest {
  readonly size: Shape;
  readonly strides?: Shape | undefined;
  readonly dilation?: Shape | undefined;
  readonly baseDilation?: Shape | undefined;
  readonly padding: WindowPadding;
}

/** The number of elements that n elements cover at a distance. */
export const dilated = (n: number, distance: number) => (n === 0 ? 0 : (n - 1) * distance + 1);

/**
 * The padding that a rule stands for.
 *
 * @param windowShape the size of the window, with the gaps between its elements
 *
 * @example
 * ```ts
 * lax.padtypeToPads([5], [3], [2], "SAME"); // [[1, 1]]
 * ```
 */
export function padtypeToPads(
  inShape: Shape,
  windowShape: Shape,
  windowStrides: Shape,
  padding: PaddingRule,
): [low: number, high: number][] {
  need("integers", inShape, "inShape", "lax.padtypeToPads");
  need("integers", windowShape, "windowShape", "lax.padtypeToPads");
  need("list", windowStrides, "windowStrides", "lax.padtypeToPads");
  need("string", padding, "padding", "lax.padtypeToPads");
  return inShape.map((n, d) => {
    if (padding === "VALID") return [0, 0];
    const stride = at(windowStrides, d);
    const total = Math.max(0, (Math.ceil(n / stride) - 1) * stride + at(windowShape, d) - n);
    const less = Math.floor(total / 2);
    return padding === "SAME" ? [less, total - less] : [total - less, less];
  });
}

/** Checks the user's description of a window over dims of the given sizes, and fills in the rest. */
export function windowOver(space: Shape, request: WindowRequest, caller: string): WindowShape {
  const perDim = (list: Shape | undefined, what: string): Shape => {
    const numbers = list ?? space.map(() => 1);
    if (numbers.length !== space.length || numbers.some((n) => !Number.isInteger(n) || n < 1)) {
      throw new ValueError(
        `[${caller}] ${what} [${numbers}] must be integers of at least 1, one for each of the ${space.length} dims of the window`,
      );
    }
    return numbers;
  };
  const size = perDim(request.size, "the window");
  const strides = perDim(request.strides, "strides");
  const dilation = perDim(request.dilation, "the dilation of the window");
  const baseDilation = perDim(request.baseDilation, "the dilation of the operand");
  const covered = size.map((k, d) => dilated(k, at(dilation, d)));
  const padding =
    typeof request.padding === "string"
      ? padtypeToPads(space, covered, strides, request.padding)
      : request.padding;
  if (padding.length !== space.length || padding.some((pair) => !pair.every(Number.isInteger))) {
    throw new ValueError(
      `[${caller}] padding ${show(padding)} must be a pair of integers for each of the ${space.length} dims of the window`,
    );
  }
  return { size, strides, dilation, baseDilation, padding };
}

/** How often a window fits along each dim of a tensor that is padded already. */
export function windowCounts(space: Shape, { size, strides, dilation }: WindowShape): number[] {
  return space.map((n, d) =>
    Math.max(0, Math.floor((n - dilated(at(size, d), at(dilation, d))) / at(strides, d)) + 1),
  );
}

/**
 * Lays the elements of some dims out at their distance and pads them.
 *
 * @param first the dim of x that is the first of the window
 */
export function layOut(x: Tensor, value: Tensor, first: number, window: WindowShape, caller: string): Tensor {
  const { padding, baseDilation } = window;
  const put = (list: readonly number[]) =>
    range(x.ndim).map((d) => (d < first || d >= first + list.length ? 0 : at(list, d - first)));
  padding.forEach(([low, high], d) => {
    const n = dilated(at(x.shape, first + d), at(baseDilation, d));
    if (low + n + high < 0) {
      throw new ShapeError(
        `[${caller}] padding [${low}, ${high}] crops more than the ${n} elements of dim ${first + d}`,
      );
    }
  });
  return ops.pad(x, value, {
    low: put(padding.map(([low]) => low)),
    high: put(padding.map(([, high]) => high)),
    interior: put(baseDilation.map((n) => n - 1)),
  });
}

/** The indices of all elements of a window, the last dim running fastest. */
export function positions(size: Shape): Shape[] {
  return size.reduce<Shape[]>((list, n) => list.flatMap((head) => range(n).map((i) => [...head, i])), [[]]);
}

/** The elements that one element of the window covers while it moves over a padded tensor. */
export function metBy(x: Tensor, position: Shape, first: number, counts: Shape, window: WindowShape): Tensor {
  const { strides, dilation } = window;
  const inside = (d: number) => d >= first && d < first + counts.length;
  const start = (d: number) => (inside(d) ? at(position, d - first) * at(dilation, d - first) : 0);
  return ops.slice(
    x,
    range(x.ndim).map(start),
    x.shape.map((n, d) =>
      inside(d) ? start(d) + dilated(at(counts, d - first), at(strides, d - first)) : n,
    ),
    range(x.ndim).map((d) => (inside(d) ? at(strides, d - first) : 1)),
  );
}
