/**
 * Collectives decomposed into the hops of a ring, so that each hop can overlap with computing on the part that arrived
 * before it. All of them work on trees of tensors.
 */

import { need } from "../ir/arguments.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { axesSize } from "../ir/mesh.js";
import { type OptionsOf, schema } from "../ir/schema.js";
import { at } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import * as np from "../numpy/index.js";
import { lookUpAxes } from "../trace/axes.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import { leafTensor } from "../trace/trace.js";
import * as tree from "../trace/tree.js";

const ringOptions = schema({
  /** Whether device 0 sends to device 1 (true, the default) or device 1 to device 0. */
  shiftUp: true,
});

/** Which way a ring turns. */
export interface RingOptions extends OptionsOf<typeof ringOptions> {}

/**
 * Every device's block in `size − 1` hops: the list of a device starts with its own block, followed by those of the
 * devices before it (with `shiftUp`) or after it. A hop up the ring forward, a hop down backward.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P("model"), outSpecs: P("model") };
 * const gather = shardMap((x: Tensor) => np.concatenate(parallel.asyncGather(x, "model")), specs);
 * gather(np.array([1, 2])); // [1, 2, 2, 1]
 * ```
 */
export function asyncGather<T>(x: T, axisName: string, options?: RingOptions): T[] {
  need("string", axisName, "axisName", "asyncGather");
  const { shiftUp } = ringOptions.read(options, "asyncGather");
  const blocks = [x];
  for (let hop = 1; hop < ringSize(axisName, "asyncGather"); hop++) {
    blocks.push(lax.pshift(at(blocks, hop - 1), axisName, shiftUp ? 1 : -1));
  }
  return blocks;
}

/**
 * {@link asyncGather} with both directions of the ring in use, in half as many hops one after the other; the
 * list has the same order.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P("model"), outSpecs: P("model") };
 * const gather = shardMap((x: Tensor) => np.concatenate(parallel.asyncGatherBidirectional(x, "model")), specs);
 * gather(np.array([1, 2])); // [1, 2, 2, 1]
 * ```
 */
export function asyncGatherBidirectional<T>(x: T, axisName: string, options?: RingOptions): T[] {
  need("string", axisName, "axisName", "asyncGatherBidirectional");
  const { shiftUp } = ringOptions.read(options, "asyncGatherBidirectional");
  const size = ringSize(axisName, "asyncGatherBidirectional");
  const [up, down] = [[x], [x]];
  for (let hop = 1; hop < size; hop++) {
    const isUp = hop % 2 === 1;
    const way = isUp ? up : down;
    way.push(lax.pshift(at(way, way.length - 1), axisName, isUp ? 1 : -1));
  }
  const [near, far] = shiftUp ? [up, down] : [down, up];
  return [...near, ...far.slice(1).reverse()];
}

/**
 * Every device's block with both directions of the ring in use: the first half of the features travels up, the
 * second down.
 *
 * @returns 2 · size pieces: the first halves in the order of {@link asyncGather}, then the second halves in the
 * order of `asyncGather` with `shiftUp: false`
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P("model"), outSpecs: P("model") };
 * const gather = shardMap((x: Tensor) => np.stack(parallel.asyncGatherSplit(x, "model")), specs);
 * gather(np.array([1, 2, 3, 4])); // [[1], [3], [2], [4], [3], [1], [4], [2]]
 * ```
 */
export function asyncGatherSplit<T>(x: T, axisName: string): T[] {
  ringSize(axisName, "asyncGatherSplit");
  checkEven(x, "asyncGatherSplit");
  const [first, second] = halves(x);
  return [...asyncGather(first, axisName), ...asyncGather(second, axisName, { shiftUp: false })];
}

/** A part of a sum, or a function that computes it when it is needed, while the partial sum travels. */
export type RingPart<T> = T | (() => T);

/**
 * The sum over the devices, of which each keeps one part, in `size − 1` hops that each add a part on the way.
 * With `shiftUp` the part that ends on device d is `xs[i]` of the device `size − 1 − i` places before d. A hop
 * up the ring forward, a hop down backward.
 *
 * @param xs as many parts as the axis has devices
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P("model"), outSpecs: P("model") };
 * const scatter = shardMap((x: Tensor) => parallel.asyncScatter([x, x.mul(10)], "model"), specs);
 * scatter(np.array([1, 2])); // [12, 21]
 * ```
 */
export function asyncScatter<T>(xs: readonly RingPart<T>[], axisName: string, options?: RingOptions): T {
  const { shiftUp } = ringOptions.read(options, "asyncScatter");
  need("string", axisName, "axisName", "asyncScatter");
  checkParts(xs, axisName, "asyncScatter");
  return ringSum(
    xs.map((x) => () => partOf(x)),
    (sum) => lax.pshift(sum, axisName, shiftUp ? 1 : -1),
  );
}

/**
 * {@link asyncScatter} with both directions in use: the first half of the features travels up, the second down;
 * of an odd number the second half has one more.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P("model"), outSpecs: P("model") };
 * const scatter = shardMap((x: Tensor) => parallel.asyncScatterSplit([x, x.mul(10)], "model"), specs);
 * scatter(np.array([1, 1, 2, 2])); // [12, 12, 21, 21]
 * ```
 */
export function asyncScatterSplit<T>(xs: readonly RingPart<T>[], axisName: string): T {
  checkParts(xs, axisName, "asyncScatterSplit");
  const [up, down] = ringSum(
    xs.map((x) => () => halves(partOf(x))),
    ([first, second]) => [lax.pshift(first, axisName, 1), lax.pshift(second, axisName, -1)],
  );
  return tree.map((a: Tensor, b: Tensor) => np.concatenate([a, b], -1), up, down);
}

function partOf<T>(part: RingPart<T>): T {
  return typeof part === "function" ? (part as () => T)() : part;
}

/** The hop of the sum comes before the next part in the program, so that the two can overlap. */
function ringSum<T>(parts: readonly (() => T)[], hop: (sum: T) => T): T {
  return parts.slice(1).reduce((sum, part) => {
    const moving = hop(sum);
    return addTrees(moving, part());
  }, at(parts, 0)());
}

function ringSize(axisName: string, caller: string): number {
  return axesSize(lookUpAxes(axisName, caller));
}

function checkParts(xs: readonly unknown[], axisName: string, caller: string): void {
  need("list", xs, "the parts", caller);
  const size = ringSize(axisName, caller);
  if (xs.length !== size) {
    throw new ValueError(
      `[${caller}] got ${xs.length} parts for the ${size} devices of axis "${axisName}": give one part for each device`,
    );
  }
}

/** Gathered halves are entries of one list, which must have the same type. */
function checkEven(x: unknown, caller: string): void {
  for (const { path, leaf } of tree.flattenWithPath(x)) {
    const { shape } = leafTensor(leaf, caller, path);
    const features = shape.at(-1);
    if (features === undefined || features % 2 !== 0) {
      const sum = features === undefined ? "it has no dim" : `${features} / 2 = ${features / 2}`;
      throw new ShapeError(
        `[${caller}] the last dim of ${path ? `"${path}"` : "the input"} [${shape}] does not split into two halves (${sum}): use an even number of features`,
      );
    }
  }
}

/** The two halves of the last dim of every leaf; of an odd size the second has one more. */
function halves<T>(x: T): [T, T] {
  const cutAt = (from: (middle: number) => number, to: (middle: number, size: number) => number) =>
    tree.map((leaf: Tensor) => {
      const size = leaf.shape.at(-1) ?? 0;
      const middle = Math.floor(size / 2);
      return ops.sliceDim(leaf, leaf.ndim - 1, from(middle), to(middle, size));
    }, x);
  return [
    cutAt(
      () => 0,
      (middle) => middle,
    ),
    cutAt(
      (middle) => middle,
      (_, size) => size,
    ),
  ];
}

function addTrees<T>(a: T, b: T): T {
  return tree.map((x: Tensor, y: Tensor) => np.add(x, y), a, b);
}
