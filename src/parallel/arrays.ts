import { need } from "../ir/arguments.js";
import { ShapeError } from "../ir/errors.js";
import { axesSize } from "../ir/mesh.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, normalizeDim } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import { type DimNames, Partitioned } from "../nn/index.js";
import * as np from "../numpy/index.js";
import { foldIn } from "../random/index.js";
import { axesOf } from "../spmd/mesh/partitionSpec.js";
import { lookUpAxes } from "../trace/axes.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { boxed, dimSplitBy, mapParams } from "./params.js";

/**
 * A random key that differs along an axis: the device's position is folded into it.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(), outSpecs: P("data") };
 * const draw = shardMap((key: Tensor) => random.normal(parallel.foldRngOverAxis(key, "data"), [1]), specs);
 * draw(random.key(0)); // [1.004, -2.442]
 * ```
 */
export function foldRngOverAxis(key: Tensor, axisName: string | readonly string[]): Tensor {
  return foldIn(key, lax.axisIndex(axisName));
}

/**
 * This device's part of a tensor that is the same on all devices of an axis.
 *
 * @param splitDim the dim that is split, in the order of the devices
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P(), outSpecs: P("model") };
 * shardMap((x: Tensor) => parallel.splitArrayOverMesh(x, "model", 0), specs)(np.array([1, 2, 3, 4])); // [1, 2, 3, 4]
 * ```
 */
export function splitArrayOverMesh(x: Tensor, axisName: string, splitDim: number): Tensor {
  needTensor(x, "x", "splitArrayOverMesh");
  const axisSize = axesSize(lookUpAxes(axisName, "splitArrayOverMesh"));
  const dim = normalizeDim(splitDim, x.ndim, "splitArrayOverMesh");
  if (axisSize === 1) return x;
  const n = at(x.shape, dim);
  if (n % axisSize !== 0) {
    throw new ShapeError(
      `[splitArrayOverMesh] dim ${dim} of [${x.shape}] does not split over axis "${axisName}" (${n} / ${axisSize} = ${n / axisSize}): use a size that is a multiple of ${axisSize}`,
    );
  }
  const size = n / axisSize;
  return lax.dynamicSliceInDim(x, np.multiply(lax.axisIndex(axisName), size), size, dim);
}

const stackOptions = schema({
  /** The position of the new dim; 0 by default. */
  dim: 0,
  /** Makes the parameters zero on all devices but the one at this position along the axis. */
  maskExcept: optional("number"),
});

/** Options of {@link stackParams}. */
export interface StackOptions extends OptionsOf<typeof stackOptions> {}

/**
 * Declares the parameters of each device along an axis to be slices of one: every parameter gets a dim of
 * size 1 that the axis splits. Undone by {@link unstackParams}.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P(), outSpecs: P("model") };
 * const stack = shardMap((x: Tensor) => nn.unbox<Tensor>(parallel.stackParams(x, "model")), specs);
 * stack(np.array([1, 2])); // [[1, 2], [1, 2]]
 * ```
 */
export function stackParams<T>(params: T, axisName: string, options?: StackOptions): T {
  need("string", axisName, "axisName", "stackParams");
  const { dim, maskExcept } = stackOptions.read(options, "stackParams");
  lookUpAxes(axisName, "stackParams");
  return mapParams(params, "stackParams", ({ value, names }) => {
    const place = normalizeDim(dim, value.ndim + 1, "stackParams");
    const kept = maskExcept === undefined ? value : onlyAt(value, axisName, maskExcept);
    const stacked: DimNames = [...names.slice(0, place), axisName, ...names.slice(place)];
    return new Partitioned(np.expandDims(kept, place), stacked);
  });
}

function onlyAt(value: Tensor, axisName: string, position: number): Tensor {
  return np.where(np.equal(lax.axisIndex(axisName), position), value, np.zerosLike(value));
}

/**
 * Removes the dim that {@link stackParams} added; other parameters are unchanged.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P(), outSpecs: P() };
 * const there = (x: Tensor) => parallel.unstackParams(parallel.stackParams(x, "model"), "model");
 * shardMap(there, { ...specs, checkReplication: false })(np.array([1, 2])); // [1, 2]
 * ```
 */
export function unstackParams<T>(params: T, axisName: string): T {
  lookUpAxes(axisName, "unstackParams");
  return mapParams(params, "unstackParams", ({ value, names, leaf, path }) => {
    const dim = dimSplitBy(names, axisName);
    if (dim < 0) return leaf;
    if (value.shape[dim] !== 1 || axesOf(names[dim]).length !== 1) {
      throw new ShapeError(
        `[unstackParams] dim ${dim} of the parameter "${path}" [${value.shape}] is split over axis "${axisName}" but holds ${value.shape[dim]} slices on a device, not 1: it was not made by stackParams, or for an axis of another size`,
      );
    }
    return boxed(
      np.squeeze(value, dim),
      names.filter((_, d) => d !== dim),
    );
  });
}
