/** Reductions of windows that move over tensors: pooling, running sums and the like. */

import { need } from "../ir/arguments.js";
import { isFloat, limits } from "../ir/dtype.js";
import { DTypeError, ShapeError, TreeError } from "../ir/errors.js";
import type { OpName } from "../ir/ops.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, formatType, range, type Shape, tensorType } from "../ir/shape.js";
import { traceFlat } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { flattenArgs } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { dilated, layOut, paddingKind, type WindowShape, windowCounts, windowOver } from "./windows.js";

const reduceWindowOptions = schema({
  /** How far the window moves along each dim; 1 by default. */
  windowStrides: optional("integers"),
  /** `"VALID"` by default. */
  padding: optional(paddingKind),
  /** The distance at which the operand's elements are laid out; between them lies the initial value. */
  baseDilation: optional("integers"),
  /** The distance between the elements of the window. */
  windowDilation: optional("integers"),
});

/** Options of {@link reduceWindow}. */
export interface ReduceWindowOptions extends OptionsOf<typeof reduceWindowOptions> {}

/**
 * Reduces the elements in a window at each of its positions.
 *
 * Where several elements are the largest (or smallest), the first of them gets the cotangent.
 *
 * @param operand a tensor, or a tree of tensors of one shape
 * @param init a scalar for each leaf, from which every reduction starts and which fills the padding
 * @param computation combines two values; it must be associative
 * @param windowDimensions the size of the window along every dim
 *
 * @example
 * ```ts
 * lax.reduceWindow(np.array([1, 5, 2, 3]), -Infinity, lax.max, [2], { windowStrides: [2] }); // [5, 3]
 * ```
 */
export function reduceWindow<T, I = T>(
  operand: T,
  init: I,
  computation: (a: T, b: T) => T,
  windowDimensions: Shape,
  options?: ReduceWindowOptions,
): T {
  need("function", computation, "computation", "lax.reduceWindow");
  need("list", windowDimensions, "windowDimensions", "lax.reduceWindow");
  const given = reduceWindowOptions.read(options, "lax.reduceWindow");
  const caller = "lax.reduceWindow";
  const { tensors, structure } = flattenArgs(operand, caller);
  const { shape } = at(tensors, 0);
  if (tensors.some((x) => x.ndim !== shape.length || x.shape.some((n, d) => n !== shape[d]))) {
    throw new ShapeError(
      `[${caller}] the operands need the same shape, got ${tensors.map(({ type }) => formatType(type)).join(", ")}`,
    );
  }
  const starts = initialValues(init, tensors, caller);
  const window = windowOver(
    shape,
    {
      size: windowDimensions,
      strides: given.windowStrides,
      dilation: given.windowDilation,
      baseDilation: given.baseDilation,
      padding: given.padding ?? "VALID",
    },
    caller,
  );
  const combine: Combine = (a, b) => {
    const joined = computation(tree.unflatten<T>(structure, a), tree.unflatten<T>(structure, b));
    return flattenArgs(joined, caller).tensors;
  };
  const known = monoidOf(tensors, combine);
  const fold = known === undefined ? combine : foldOf(known, combine);
  const padded = tensors.map((x, i) => layOut(x, at(starts, i), 0, window, caller));
  const counts = windowCounts(at(padded, 0).shape, window);
  const reduced = [...range(shape.length)]
    .reverse()
    .reduce<readonly Tensor[]>((list, dim) => reduceDim(list, dim, at(counts, dim), window, fold), padded);
  if (known !== undefined && startsAtIdentity(known, at(starts, 0))) {
    return tree.unflatten<T>(structure, reduced);
  }
  const whole = starts.map((start, i) => ops.broadcastInDim(start, at(reduced, i).shape, []));
  return tree.unflatten<T>(structure, fold(whole, reduced));
}

/** Combines the leaves of two trees. */
type Combine = (a: readonly Tensor[], b: readonly Tensor[]) => readonly Tensor[];

/** Ops of which the identity is known. */
type Monoid = Extract<OpName, "add" | "mul" | "max" | "min">;

function initialValues(init: unknown, tensors: readonly Tensor[], caller: string): Tensor[] {
  const { leaves } = tree.flatten(init);
  if (leaves.length !== tensors.length) {
    throw new TreeError(
      `[${caller}] ${leaves.length} initial values for ${tensors.length} operands: give one for each`,
    );
  }
  return leaves.map((value, i) => {
    const { dtype } = at(tensors, i);
    if (typeof value === "number" || typeof value === "boolean") return Tensor.scalar(value, dtype);
    if (value instanceof Tensor && value.ndim === 0 && value.dtype === dtype) return value;
    const got = value instanceof Tensor ? formatType(value.type) : String(value);
    throw new DTypeError(
      `[${caller}] the initial value must be a number or a scalar of type ${dtype}, got ${got}`,
    );
  });
}

/** The op that a function of two values stands for, if its identity is known. */
function monoidOf(tensors: readonly Tensor[], combine: Combine): Monoid | undefined {
  if (tensors.length !== 1) return undefined;
  const type = tensorType(at(tensors, 0).dtype, []);
  const { program } = traceFlat(([a, b]) => (a && b ? combine([a], [b]) : []), [type, type]);
  const [eqn, more] = program.eqns;
  const [a, b] = program.inputs;
  if (!eqn || more || program.outputs[0] !== eqn.outs[0]) return undefined;
  const inOrder = eqn.ins[0] === a && eqn.ins[1] === b;
  const { op } = eqn;
  return inOrder && (op === "add" || op === "mul" || op === "max" || op === "min") ? op : undefined;
}

/** Of equal floats the first is chosen, so that it gets the cotangent alone; NaN wins. */
function foldOf(known: Monoid, combine: Combine): Combine {
  if (known !== "max" && known !== "min") return combine;
  const wins = known === "max" ? "gt" : "lt";
  return (left, right) => {
    const [a, b] = [at(left, 0), at(right, 0)];
    if (!isFloat(a.dtype)) return combine(left, right);
    const second = ops.or(ops.compare(wins, b, a), ops.compare("ne", b, b));
    return [ops.select(second, b, a)];
  };
}

function startsAtIdentity(known: Monoid, start: Tensor): boolean {
  if (start.node.kind !== "literal") return false;
  const { value } = start.node.literal;
  if (known === "add") return value === 0;
  if (known === "mul") return value === 1;
  if (start.dtype === "bool") return value === (known === "max" ? 0 : 1);
  const { min, max } = limits(start.dtype);
  const ends = isFloat(start.dtype) ? [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] : [min, max];
  return value === ends[known === "max" ? 0 : 1];
}

/** Maximum size of windows that are folded element by element; larger ones are folded by doubling. */
const foldedOneByOne = 8;

/** Reduces the window's extent along one dim. */
function reduceDim(
  xs: readonly Tensor[],
  dim: number,
  count: number,
  { size, strides, dilation }: WindowShape,
  fold: Combine,
): readonly Tensor[] {
  const [k, stride, distance] = [at(size, dim), at(strides, dim), at(dilation, dim)];
  const take = (list: readonly Tensor[], start: number, step: number) => {
    const from = count === 0 ? 0 : start;
    return list.map((x) => ops.sliceDim(x, dim, from, from + dilated(count, step), step));
  };
  if (k <= foldedOneByOne) {
    const parts = range(k).map((i): readonly Tensor[] => take(xs, i * distance, stride));
    return parts.reduce(fold);
  }
  // The windows of 1, 2, 4 … elements at every place; k is a sum of some of them.
  let powers = xs;
  let result: readonly Tensor[] | undefined;
  let done = 0;
  for (let width = 1; width <= k; width *= 2) {
    if (Math.floor(k / width) % 2 === 1) {
      const part = take(powers, done * distance, stride);
      result = result ? fold(result, part) : part;
      done += width;
    }
    const length = at(at(powers, 0).shape, dim) - width * distance;
    if (2 * width > k || length <= 0) continue;
    const [low, high] = [powers, powers].map((list, i) =>
      list.map((x) => ops.sliceDim(x, dim, i * width * distance, i * width * distance + length)),
    );
    powers = fold(low ?? powers, high ?? powers);
  }
  return result ?? take(xs, 0, stride);
}
