import { need, needIfGiven } from "../ir/arguments.js";
import { dtypeKind } from "../ir/dtype.js";
import { ShardingError } from "../ir/errors.js";
import { axesSize } from "../ir/mesh.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, normalizeDim, range } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import {
  type AnyFunction,
  type DimNames,
  type ModuleClass,
  mapVariables,
  modulePath,
  Partitioned,
} from "../nn/index.js";
import { axesOf } from "../spmd/mesh/partitionSpec.js";
import { lookUpAxes } from "../trace/axes.js";
import * as ops from "../trace/ops.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { customGradient } from "../transforms/derivatives/customVjp.js";
import { splitArrayOverMesh } from "./arrays.js";
import { logger } from "./logger.js";
import { boxed, dimSplitBy, formatNames, mapParams, type OpenParam } from "./params.js";

/** Default size, in elements, up to which parameters are not split. */
const defaultMinWeightSize = 2 ** 18;

/**
 * Keeps only this device's part of every parameter: the largest dim that the axis size divides, and that no other axis
 * splits, is split over the axis. Parameters with at most `minWeightSize` elements stay whole.
 *
 * @param params a tree of tensors and {@link Partitioned} boxes, equal on all devices of the axis
 * @returns the same tree with `Partitioned` parts where a parameter was split
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(), outSpecs: P("data") };
 * const shard = shardMap((x: Tensor) => nn.unbox<Tensor>(parallel.shardParams(x, "data", 0)), specs);
 * shard(np.array([1, 2, 3, 4])); // [1, 2, 3, 4]
 * ```
 */
export function shardParams<T>(params: T, axisName: string, minWeightSize = defaultMinWeightSize): T {
  need("string", axisName, "axisName", "shardParams");
  needIfGiven("number", minWeightSize, "minWeightSize", "shardParams");
  return shardTree(params, axisName, minWeightSize, "");
}

/** {@link shardParams} with the path of the module, for messages. */
function shardTree<T>(params: T, axisName: string, minWeightSize: number, place: string): T {
  const axisSize = axesSize(lookUpAxes(axisName, "shardParams"));
  return mapParams(params, "shardParams", (param) => {
    const { value, names, leaf } = param;
    const what = () =>
      `[shardParams] the parameter "${param.path}"${place} [${value.shape}] with names ${formatNames(names)}`;
    if (dimSplitBy(names, axisName) >= 0) {
      logger().warn(`${what()} is split over axis "${axisName}" already: it stays as it is`);
      return leaf;
    }
    if (value.size <= minWeightSize) {
      logger().info(
        `${what()} stays whole: it has ${value.size} elements, and more than ${minWeightSize} are split over axis "${axisName}"`,
      );
      return leaf;
    }
    const dim = dimToSplit(param, axisSize);
    if (dim === undefined) {
      logger().info(
        `${what()} stays whole: axis "${axisName}" of size ${axisSize} divides none of its free dims`,
      );
      return leaf;
    }
    return new Partitioned(splitArrayOverMesh(value, axisName, dim), withName(names, dim, axisName));
  });
}

/** The largest unsplit dim that the axis size divides; the last one of equals. */
function dimToSplit({ value, names }: OpenParam, axisSize: number): number | undefined {
  const { shape } = value;
  return range(shape.length)
    .filter((d) => names[d] === null && at(shape, d) % axisSize === 0)
    .sort((a, b) => at(shape, b) - at(shape, a) || b - a)[0];
}

function withName(names: DimNames, dim: number, name: string | null): DimNames {
  return names.map((entry, d) => (d === dim ? name : entry));
}

const gatherOptions = schema({
  /** The type parameters are gathered in; their own by default. */
  gatherDtype: optional(dtypeKind),
  /** The type gradients are summed in; that of the parameters by default. */
  gradScatterDtype: optional(dtypeKind),
});

/** The dtypes in which parameters and their gradients are communicated. */
export interface GatherOptions extends OptionsOf<typeof gatherOptions> {}

/**
 * The whole tensor from the parts of an axis. All-gather forward, mean-reduce-scatter backward.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P("data") };
 * shardMap((x: Tensor) => parallel.gatherArrayWithMeanGrads(x, 0, "data"), specs)(np.array([1, 2])); // [1, 2, 1, 2]
 * ```
 */
export function gatherArrayWithMeanGrads(
  x: Tensor,
  dim: number,
  axisName: string,
  options?: GatherOptions,
): Tensor {
  needTensor(x, "x", "gatherArrayWithMeanGrads");
  need("number", dim, "dim", "gatherArrayWithMeanGrads");
  need("string", axisName, "axisName", "gatherArrayWithMeanGrads");
  const { gatherDtype = x.dtype, gradScatterDtype = x.dtype } = gatherOptions.read(
    options,
    "gatherArrayWithMeanGrads",
  );
  const place = normalizeDim(dim, x.ndim, "gatherArrayWithMeanGrads");
  const axisSize = axesSize(lookUpAxes(axisName, "gatherArrayWithMeanGrads"));
  const gather = customGradient((part: Tensor) => {
    const whole = lax.allGather(ops.convert(part, gatherDtype), axisName, { dim: place, tiled: true });
    const pullback = (cotangent: Tensor): [Tensor] => {
      const sum = lax.psumScatter(ops.convert(cotangent, gradScatterDtype), axisName, {
        dim: place,
        tiled: true,
      });
      return [ops.convert(ops.div(sum, axisSize), x.dtype)];
    };
    return [whole, pullback];
  });
  return gather(x);
}

/**
 * Gathers the parameters that are split over an axis. All-gather forward, mean-reduce-scatter backward. A parameter
 * keeps its box if other axes split it, too.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P(), outSpecs: P(), checkReplication: false };
 * const there = (x: Tensor) => parallel.gatherParams(parallel.shardParams(x, "data", 0), "data");
 * shardMap(there, specs)(np.array([1, 2])); // [1, 2]
 * ```
 */
export function gatherParams<T>(params: T, axisName: string, options: GatherOptions = {}): T {
  lookUpAxes(axisName, "gatherParams");
  return mapParams(params, "gatherParams", ({ value, names, leaf, path }) => {
    const dim = dimSplitBy(names, axisName);
    if (dim < 0) return leaf;
    const axes = axesOf(names[dim]);
    if (axes.at(-1) !== axisName) {
      throw new ShardingError(
        `[gatherParams] dim ${dim} of the parameter "${path}" is split over ${JSON.stringify(axes)}: gather "${axes.at(-1)}", the innermost axis, before "${axisName}"`,
      );
    }
    const rest = axes.slice(0, -1);
    const entry = rest.length > 1 ? rest : (rest[0] ?? null);
    const whole = gatherArrayWithMeanGrads(value, dim, axisName, options);
    return boxed(
      whole,
      names.map((name, d) => (d === dim ? entry : name)),
    );
  });
}

const shardModuleOptions = schema({
  ...gatherOptions.fields,
  /** Parameters with at most this many elements stay whole; 2^18 by default. */
  minWeightSize: optional("number", defaultMinWeightSize),
});

/** Options of {@link shardModuleParams}. */
export interface ShardModuleOptions extends OptionsOf<typeof shardModuleOptions> {}

/**
 * A module whose parameters are stored in parts, one on each device of an axis, and gathered when it runs:
 * fully sharded data parallelism. The gradients of the parts are means over the axis.
 *
 * @param target a module class, or a function that creates and calls modules
 *
 * @example
 * ```ts
 * const layer = parallel.shardModuleParams(nn.Dense, "data", { minWeightSize: 0 })({ features: 4 });
 * const init = parallel.initSharded(layer.init, { mesh: Mesh.create({ data: 2 }) });
 * nn.getPartitionSpec(init(random.key(0), np.ones([2, 2]))).params.kernel; // P(null, "data")
 * ```
 */
export function shardModuleParams<C extends object, F extends AnyFunction, M>(
  target: ModuleClass<C, F, M>,
  axisName: string,
  options?: ShardModuleOptions,
): ModuleClass<C, F, M>;
export function shardModuleParams<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  axisName: string,
  options?: ShardModuleOptions,
): (...args: A) => R;
export function shardModuleParams<A extends readonly unknown[], R>(
  target: (...args: A) => R,
  axisName: string,
  options?: ShardModuleOptions,
): (...args: A) => R {
  need("string", axisName, "axisName", "shardModuleParams");
  const { minWeightSize, ...gather } = shardModuleOptions.read(options, "shardModuleParams");
  return mapVariables(target, "params", {
    transInFn: (variables) => gatherParams(variables, axisName, gather),
    transOutFn: (variables) =>
      shardTree(variables, axisName, minWeightSize, ` of the module /${modulePath().join("/")}`),
    mutable: true,
  });
}

/**
 * The mean of gradients over axes. The gradient of a parameter that an axis splits is unchanged along that axis: it is
 * the mean already (see {@link gatherParams}), or belongs to this device only.
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ data: 2 }), inSpecs: P("data"), outSpecs: P() };
 * shardMap((g: Tensor) => parallel.syncGradients({ w: g }, "data"), specs)(np.array([1, 3])); // { "w": [2] }
 * ```
 */
export function syncGradients<T>(grads: T, axisNames: string | readonly string[]): T {
  const axes = lookUpAxes(axisNames, "syncGradients").map(({ name }) => name);
  return mapParams(grads, "syncGradients", ({ value, names, leaf }) => {
    const replicated = axes.filter((name) => dimSplitBy(names, name) < 0);
    if (replicated.length === 0) return leaf;
    const mean = lax.pmean(value, replicated);
    return leaf instanceof Partitioned ? leaf.replaceBoxed(mean) : mean;
  });
}
