import { need, needIfGiven, oneOf } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { isFloat } from "../../ir/dtype.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { axesSize, type MeshAxis } from "../../ir/mesh.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { at, normalizeDim, range } from "../../ir/shape.js";
import { checkedAxes, lookUpAxes } from "../../trace/axes.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { leafTensor } from "../../trace/trace.js";
import * as tree from "../../trace/tree.js";
import {
  type AxisIndexGroups,
  checkGroups,
  type DeviceGroups,
  exchangeGroup,
  gatherGroup,
  joinRows,
  rowsOf,
} from "./groups.js";

const groupOptions = schema({
  /** The devices along the axes in groups of one size, by their positions: each group works independently. */
  axisIndexGroups: optional<AxisIndexGroups>("list"),
});

/** Options of collectives that can work in groups. */
export interface GroupOptions extends OptionsOf<typeof groupOptions> {}

/** The groups that options name, if they name any. */
function groupsOf(
  { axisIndexGroups }: GroupOptions,
  axes: readonly MeshAxis[],
  caller: string,
): DeviceGroups | undefined {
  return axisIndexGroups && checkGroups(axisIndexGroups, axes, caller);
}

/** One mesh axis or several; several count as one, row-major in the order given. */
export type AxisNames = string | readonly string[];

/**
 * Applies a function to every leaf of a tree; numbers become tensors. Where types say along which axes values
 * differ, those that are equal along `axes` are marked first: each device takes part with a copy of its own.
 */
function onLeaves<T>(values: T, axes: readonly MeshAxis[], caller: string, fn: (x: Tensor) => Tensor): T {
  const checked = checkedAxes(axes);
  const changed = (path: string, leaf: unknown) => fn(ops.pvary(leafTensor(leaf, caller, path), checked));
  return tracedAsOneCall(() => tree.mapWithPath<T, unknown, Tensor>(changed, values)) as T;
}

/**
 * The sum over the devices along axes, on all of them. A plain number is summed at trace time, so
 * `psum(1, "data")` is the axis size as a number; of bools it counts those that are true. Backward, the cotangent
 * of the sum goes to all devices; without the replication check every device has one, and they add up.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const sum = shardMap((x: Tensor) => lax.psum(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
 * sum(np.array([1, 2, 3, 4])); // [4, 6]
 * ```
 */
export function psum<T>(values: T, axes: AxisNames, options?: GroupOptions): T {
  const found = lookUpAxes(axes, "psum");
  const groups = groupsOf(groupOptions.read(options, "psum"), found, "psum");
  if (typeof values === "number") return (values * (groups?.size ?? axesSize(found))) as T;
  return onLeaves(values, found, "psum", (x) => {
    const terms = x.dtype === "bool" ? ops.convert(x, "int32") : x;
    return groups ? ops.reduceSum(gatherGroup(terms, groups), [0]) : ops.psum(terms, found);
  });
}

/**
 * The mean over the devices along axes, on all of them.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const mean = shardMap((x: Tensor) => lax.pmean(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
 * mean(np.array([1, 2, 3, 4])); // [2, 3]
 * ```
 */
export function pmean<T>(values: T, axes: AxisNames, options?: GroupOptions): T {
  const found = lookUpAxes(axes, "pmean");
  const groups = groupsOf(groupOptions.read(options, "pmean"), found, "pmean");
  if (typeof values === "number") return values;
  return onLeaves(values, found, "pmean", (x) => {
    const float = isFloat(x.dtype) ? x : ops.convert(x, "float32");
    if (groups) return ops.div(ops.reduceSum(gatherGroup(float, groups), [0]), groups.size);
    return ops.div(ops.psum(float, found), axesSize(found));
  });
}

/**
 * The same values, marked as ones that may differ along axes: equal forward, their sum backward. In a shard map with
 * the replication check it happens automatically where a value that all devices share is combined with one that
 * differs; without the check nothing has to be marked.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(), outSpecs: P("data") };
 * shardMap((x: Tensor) => lax.pvary(x, "data"), specs)(np.array([1, 2])); // [1, 2, 1, 2]
 * ```
 */
export function pvary<T>(values: T, axes: AxisNames): T {
  return onLeaves(values, lookUpAxes(axes, "pvary"), "pvary", (x) => x);
}

const pcastOptions = schema({
  /** What the values become. */
  to: required(oneOf("varying")),
});

/** Options of {@link pcast}. */
export interface PcastOptions extends OptionsOf<typeof pcastOptions> {}

/**
 * JAX's newer name of {@link pvary}.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(), outSpecs: P("data") };
 * shardMap((x: Tensor) => lax.pcast(x, "data", { to: "varying" }), specs)(np.array([1, 2])); // [1, 2, 1, 2]
 * ```
 */
export function pcast<T>(values: T, axes: AxisNames, options: PcastOptions): T {
  const { to } = pcastOptions.read(options, "pcast");
  if (to !== "varying") {
    throw new ValueError(
      `[pcast] to must be "varying", got ${describe(to)}: use lax.psum, pmean or pmax to make values equal`,
    );
  }
  return pvary(values, axes);
}

/**
 * The largest value over the devices along axes, on all of them.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const most = shardMap((x: Tensor) => lax.pmax(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
 * most(np.array([1, 5, 3, 4])); // [3, 5]
 * ```
 */
export function pmax<T>(values: T, axes: AxisNames, options?: GroupOptions): T {
  const found = lookUpAxes(axes, "pmax");
  const groups = groupsOf(groupOptions.read(options, "pmax"), found, "pmax");
  return onLeaves(values, found, "pmax", (x) =>
    groups ? ops.reduceMax(gatherGroup(x, groups), [0]) : ops.pmax(x, found),
  );
}

/**
 * The smallest value over the devices along axes, on all of them.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const least = shardMap((x: Tensor) => lax.pmin(x, "data"), { mesh, inSpecs: P("data"), outSpecs: P() });
 * least(np.array([1, 5, 3, 4])); // [1, 4]
 * ```
 */
export function pmin<T>(values: T, axes: AxisNames, options?: GroupOptions): T {
  const found = lookUpAxes(axes, "pmin");
  const groups = groupsOf(groupOptions.read(options, "pmin"), found, "pmin");
  return onLeaves(values, found, "pmin", (x) =>
    groups ? ops.reduceMin(gatherGroup(x, groups), [0]) : ops.pmin(x, found),
  );
}

const allGatherOptions = schema({
  ...groupOptions.fields,
  /** The dim along which the blocks are concatenated; the first by default. */
  dim: 0,
  /** Whether blocks are concatenated along `dim` (true) or stacked along a new one (false, the default). */
  tiled: false,
});

/** Options of {@link allGather}. */
export interface AllGatherOptions extends OptionsOf<typeof allGatherOptions> {}

/**
 * Every device's block on all devices. All-gather forward, reduce-scatter backward.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const gather = shardMap((x: Tensor) => lax.allGather(x, "data", { tiled: true }), {
 *   mesh,
 *   inSpecs: P("data"),
 *   outSpecs: P("data"),
 * });
 * gather(np.array([1, 2])); // [1, 2, 1, 2]
 * ```
 */
export function allGather<T>(values: T, axes: AxisNames, options?: AllGatherOptions): T {
  const { dim, tiled, ...group } = allGatherOptions.read(options, "allGather");
  const found = lookUpAxes(axes, "allGather");
  const groups = groupsOf(group, found, "allGather");
  return onLeaves(values, found, "allGather", (x) => {
    if (groups) {
      const place = normalizeDim(dim, tiled ? x.ndim : x.ndim + 1, "allGather");
      const rows = gatherGroup(x, groups);
      return tiled ? joinRows(rows, place) : ops.moveDim(rows, 0, place);
    }
    if (tiled) return ops.allGather(x, found, normalizeDim(dim, x.ndim, "allGather"));
    const place = normalizeDim(dim, x.ndim + 1, "allGather");
    return ops.allGather(ops.reshape(x, x.shape.toSpliced(place, 0, 1)), found, place);
  });
}

const psumScatterOptions = schema({
  ...groupOptions.fields,
  /** The dim of which each device keeps its block; the first by default. */
  dim: 0,
  /** Whether `dim` stays with the size of a block (true) or is removed, having the axis's size (false, the default). */
  tiled: false,
});

/** Options of {@link psumScatter}. */
export interface PsumScatterOptions extends OptionsOf<typeof psumScatterOptions> {}

/**
 * The sum over the devices, of which each keeps its block. Reduce-scatter forward, all-gather backward.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const scatter = shardMap((x: Tensor) => lax.psumScatter(x, "data", { tiled: true }), {
 *   mesh,
 *   inSpecs: P(),
 *   outSpecs: P("data"),
 * });
 * scatter(np.array([1, 2])); // [2, 4]
 * ```
 */
export function psumScatter<T>(values: T, axes: AxisNames, options?: PsumScatterOptions): T {
  const { dim, tiled, ...group } = psumScatterOptions.read(options, "psumScatter");
  const found = lookUpAxes(axes, "psumScatter");
  const groups = groupsOf(group, found, "psumScatter");
  return onLeaves(values, found, "psumScatter", (x) => {
    const d = normalizeDim(dim, x.ndim, "psumScatter");
    if (!tiled) checkAxisSized(x, d, found, "psumScatter", groups);
    const block = groups ? scatterGroup(x, d, groups) : ops.psumScatter(x, found, d);
    return tiled ? block : ops.reshape(block, x.shape.toSpliced(d, 1));
  });
}

/** The sum over a group, of which each member keeps its block of a dim. */
function scatterGroup(x: Tensor, dim: number, groups: DeviceGroups): Tensor {
  checkDivides(x, dim, groups, "psumScatter");
  return ops.reduceSum(exchangeGroup(rowsOf(x, dim, groups.size), groups), [0]);
}

type Permutation = readonly (readonly [source: number, target: number])[];

/**
 * Sends from device to device; a device that receives nothing gets zeros. The inverse permutation backward.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ ring: 2 });
 * const swap = shardMap((x: Tensor) => lax.ppermute(x, "ring", [[0, 1], [1, 0]]), {
 *   mesh,
 *   inSpecs: P("ring"),
 *   outSpecs: P("ring"),
 * });
 * swap(np.array([1, 2, 3, 4])); // [3, 4, 1, 2]
 * ```
 */
export function ppermute<T>(values: T, axes: AxisNames, permutation: Permutation): T {
  return permuted(values, axes, permutation);
}

/** As {@link ppermute}, where only devices that receive something read what they get. */
export function ppermuteUnset<T>(values: T, axes: AxisNames, permutation: Permutation): T {
  return permuted(values, axes, permutation, { unset: true });
}

function permuted<T>(
  values: T,
  axes: AxisNames,
  permutation: Permutation,
  others?: { readonly unset: true },
): T {
  const found = lookUpAxes(axes, "ppermute");
  return onLeaves(values, found, "ppermute", (x) => ops.ppermute(x, found, permutation, others));
}

/**
 * Sends each device's block `shift` places along a ring; negative shifts go the other way.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P("data") };
 * shardMap((x: Tensor) => lax.pshift(x, "data"), specs)(np.array([1, 2])); // [2, 1]
 * ```
 */
export function pshift<T>(values: T, axis: AxisNames, shift = 1): T {
  needIfGiven("number", shift, "shift", "pshift");
  const size = axesSize(lookUpAxes(axis, "pshift"));
  if (!Number.isInteger(shift)) throw new ValueError(`[pshift] shift must be an integer, got ${shift}`);
  const target = (i: number) => (((i + shift) % size) + size) % size;
  const pairs = range(size).map((i) => [i, target(i)] as const);
  return ppermute(values, axis, pairs);
}

/**
 * {@link ppermute} by sources: the device at position i gets the block of the one at `sources[i]`.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P("data") };
 * shardMap((x: Tensor) => lax.pshuffle(x, "data", [1, 0]), specs)(np.array([1, 2])); // [2, 1]
 * ```
 */
export function pshuffle<T>(values: T, axes: AxisNames, sources: readonly number[]): T {
  need("integers", sources, "sources", "pshuffle");
  const size = axesSize(lookUpAxes(axes, "pshuffle"));
  if (sources.length !== size || new Set(sources).size !== size) {
    throw new ValueError(
      `[pshuffle] sources [${sources}] must name each of the ${size} devices once: use a permutation of 0 … ${size - 1}`,
    );
  }
  return ppermute(
    values,
    axes,
    sources.map((source, target) => [source, target] as const),
  );
}

/**
 * The block of the device at position `source`, on all devices. A broadcast forward, a sum to that device backward.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P() };
 * shardMap((x: Tensor) => lax.pbroadcast(x, "data", 1), specs)(np.array([1, 2])); // [2]
 * ```
 */
export function pbroadcast<T>(values: T, axes: AxisNames, source: number): T {
  const found = lookUpAxes(axes, "pbroadcast");
  const size = axesSize(found);
  if (!(Number.isInteger(source) && source >= 0 && source < size)) {
    throw new ValueError(
      `[pbroadcast] source ${describe(source)} is not one of ${size} positions: use 0 … ${size - 1}`,
    );
  }
  return onLeaves(values, found, "pbroadcast", (x) => {
    const isSource = ops.compare("eq", axisIndex(axes), source);
    const own = ops.select(ops.broadcastInDim(isSource, x.shape, []), x, ops.zeros(x.type));
    return ops.psum(own, found);
  });
}

const allToAllOptions = schema({
  ...groupOptions.fields,
  /** Whether dims are split and concatenated (true) or one of the axis's size is moved (false, the default). */
  tiled: false,
});

/** Options of {@link allToAll}. */
export interface AllToAllOptions extends OptionsOf<typeof allToAllOptions> {}

/**
 * Splits a dim among the devices and joins what they send along another. The same with dims swapped backward.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const specs = { mesh, inSpecs: P("data"), outSpecs: P(null, "data") };
 * const swap = shardMap((x: Tensor) => lax.allToAll(x, "data", 1, 0, { tiled: true }), specs);
 * swap(np.array([[1, 2], [3, 4]])); // [[1, 2], [3, 4]]
 * ```
 */
export function allToAll<T>(
  values: T,
  axes: AxisNames,
  splitDim: number,
  concatDim: number,
  options?: AllToAllOptions,
): T {
  need("number", splitDim, "splitDim", "allToAll");
  need("number", concatDim, "concatDim", "allToAll");
  const { tiled, ...group } = allToAllOptions.read(options, "allToAll");
  const found = lookUpAxes(axes, "allToAll");
  const groups = groupsOf(group, found, "allToAll");
  return onLeaves(values, found, "allToAll", (x) => {
    const from = normalizeDim(splitDim, x.ndim, "allToAll");
    const to = normalizeDim(concatDim, x.ndim, "allToAll");
    if (tiled && groups) {
      checkDivides(x, from, groups, "allToAll");
      return joinRows(exchangeGroup(rowsOf(x, from, groups.size), groups), to);
    }
    if (tiled) return ops.allToAll(x, found, from, to);
    checkAxisSized(x, from, found, "allToAll", groups);
    if (groups) return ops.moveDim(exchangeGroup(ops.moveDim(x, from, 0), groups), 0, to);
    const moved = ops.moveDim(x, from, to);
    return ops.allToAll(moved, found, to, to);
  });
}

/**
 * Exchanges a dim of the axis's size with the axis: {@link allToAll} that puts it back in its place.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(null, "data"), outSpecs: P(null, "data") };
 * shardMap((x: Tensor) => lax.pswapaxes(x, "data", 0), specs)(np.array([[1, 2], [3, 4]])); // [[1, 3], [2, 4]]
 * ```
 */
export function pswapaxes<T>(values: T, axes: AxisNames, dim: number, options?: GroupOptions): T {
  return allToAll(values, axes, dim, dim, groupOptions.read(options, "pswapaxes"));
}

/**
 * This device's position along axes, as an int32 scalar.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ data: 2 });
 * const index = shardMap((x: Tensor) => x.add(lax.axisIndex("data")), {
 *   mesh,
 *   inSpecs: P("data"),
 *   outSpecs: P("data"),
 * });
 * index(np.array([10, 10])); // [10, 11]
 *
 * ```
 */
export function axisIndex(axes: AxisNames): Tensor {
  const found = lookUpAxes(axes, "axisIndex");
  return ops.pvary(ops.axisIndex(found), checkedAxes(found));
}

/**
 * The number of devices along axes.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P("data") };
 * shardMap((x: Tensor) => x.mul(lax.axisSize("data")), specs)(np.array([1, 3])); // [2, 6]
 * ```
 */
export function axisSize(axes: AxisNames): number {
  return axesSize(lookUpAxes(axes, "axisSize"));
}

/** Throws unless a dim can be cut into a block for every member of a group. */
function checkDivides(x: Tensor, dim: number, { size }: DeviceGroups, caller: string): void {
  const n = at(x.shape, dim);
  if (n % size === 0) return;
  throw new ShapeError(
    `[${caller}] dim ${dim} of [${x.shape}] is not divisible among the ${size} members of a group (${n} / ${size} = ${(n / size).toFixed(2)})`,
  );
}

function checkAxisSized(
  x: Tensor,
  dim: number,
  axes: readonly MeshAxis[],
  caller: string,
  groups: DeviceGroups | undefined,
): void {
  const [n, size] = [at(x.shape, dim), groups?.size ?? axesSize(axes)];
  if (n !== size) {
    throw new ShapeError(
      `[${caller}] without tiled, dim ${dim} of [${x.shape}] must have the size ${size} of axis ${axes.map((a) => `"${a.name}"`).join(", ")}, it has ${n}: pass { tiled: true } to split it`,
    );
  }
}
