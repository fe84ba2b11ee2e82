import { need, needIfGiven, oneOf } from "../ir/arguments.js";
import { ValueError } from "../ir/errors.js";
import { axesSize } from "../ir/mesh.js";
import { type FieldsOf, type OptionsOf, optional, required, schema, type Values } from "../ir/schema.js";
import { at } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import {
  type AnyFunction,
  initializers,
  isBoxed,
  isInitializing,
  type ModuleInstance,
  type ModuleOptions,
  mapRngs,
  mapVariables,
  module,
  type ParamInitializer,
} from "../nn/index.js";
import { mainMethod, moduleClass } from "../nn/modules/module.js";
import * as np from "../numpy/index.js";
import { lookUpAxes } from "../trace/axes.js";
import type { Tensor } from "../trace/tensor.js";
import { foldRngOverAxis, stackParams, unstackParams } from "./arrays.js";
import { asyncGather, asyncGatherBidirectional, asyncScatter, asyncScatterSplit } from "./ringCollectives.js";

/** Configuration of {@link ModelParallelismWrapper}. */
export interface ModelParallelismConfig<F extends AnyFunction, K extends object = Record<never, never>> {
  /** The mesh axis along which every device has its own parameters. */
  readonly modelAxisName: string;
  /** Makes the module; the name `sharded` and `moduleKwargs` that it is given belong to its configuration. */
  readonly moduleFn: (config: K & { readonly name: string }) => ModuleInstance<F>;
  /** Makes all parameters zero but those of the device at this position; none by default. */
  readonly maskExceptModelIdx?: number | undefined;
  /** Whether the devices start from different random parameters; true by default. */
  readonly splitRngs?: boolean;
  /** Further fields of the module's configuration. */
  readonly moduleKwargs?: K;
}

type LooseFunction = (...args: readonly unknown[]) => unknown;

const modelParallelismConfig = schema({
  modelAxisName: required("string"),
  moduleFn: required<(config: object) => ModuleInstance<LooseFunction>>("function"),
  maskExceptModelIdx: optional("number"),
  splitRngs: true,
  moduleKwargs: optional("object", {}),
} satisfies FieldsOf<ModelParallelismConfig<LooseFunction>>);

/** A module class whose modules have the signature of the module that they wrap. */
export interface ModelParallelismWrapperClass {
  <F extends AnyFunction, K extends object = Record<never, never>>(
    config: ModelParallelismConfig<F, K> & ModuleOptions,
  ): ModuleInstance<F>;
  readonly moduleName: string;
}

/**
 * A module that has its own parameters on every device of an axis. Stored, they are slices of one parameter with a
 * leading dim that the axis splits.
 *
 * @example
 * ```ts
 * const moduleFn = (config: object) => nn.Dense({ features: 3, ...config });
 * const layer = parallel.ModelParallelismWrapper({ modelAxisName: "model", moduleFn });
 * const init = parallel.initSharded(layer.init, { mesh: Mesh.create({ model: 2 }) });
 * nn.getPartitionSpec(init(random.key(0), np.ones([1, 4]))).params.sharded.kernel; // P("model", null, null)
 * ```
 */
export const ModelParallelismWrapper = moduleClass<ModelParallelismWrapperClass>({
  name: "ModelParallelismWrapper",
  methods: { [mainMethod]: callSharded },
  options: modelParallelismConfig,
});

function callSharded(config: Values<typeof modelParallelismConfig.fields>): LooseFunction {
  const { modelAxisName, moduleFn, maskExceptModelIdx, splitRngs, moduleKwargs } = config;
  return (...args) => {
    const size = axesSize(lookUpAxes(modelAxisName, "ModelParallelismWrapper"));
    checkMask(maskExceptModelIdx, modelAxisName, size);
    if (isInitializing() && splitRngs) {
      mapRngs((key, name) => (name === "params" ? foldRngOverAxis(key, modelAxisName) : key));
    }
    const call: LooseFunction = (...inner) => moduleFn({ ...moduleKwargs, name: "sharded" })(...inner);
    const mapped = mapVariables(call, "params", {
      transInFn: (variables) => unstackParams(variables, modelAxisName),
      transOutFn: (variables) => stackParams(variables, modelAxisName, { maskExcept: maskExceptModelIdx }),
      mutable: true,
    });
    return mapped(...args);
  };
}

function checkMask(index: number | undefined, axisName: string, size: number): void {
  if (index === undefined || (Number.isInteger(index) && index >= 0 && index < size)) return;
  throw new ValueError(
    `[ModelParallelismWrapper] maskExceptModelIdx ${index} is not a position along axis "${axisName}" of size ${size}: use 0 to ${size - 1}`,
  );
}

/**
 * An initialiser whose values are multiplied by a factor.
 *
 * @example
 * ```ts
 * parallel.scaleInit(random.initializers.ones, 0.5)(random.key(0), [2]); // [0.5, 0.5]
 * ```
 */
export function scaleInit(init: ParamInitializer, scaleFactor = 1): ParamInitializer {
  need("function", init, "init", "scaleInit");
  needIfGiven("number", scaleFactor, "scaleFactor", "scaleInit");
  return (key, shape, dtype) => {
    const value = init(key, shape, dtype);
    return isBoxed(value)
      ? value.replaceBoxed(np.multiply(value.unbox(), scaleFactor))
      : np.multiply(value, scaleFactor);
  };
}

/** How a layer is split: its inputs are gathered, its outputs are summed and scattered, or not at all. */
export type TPMode = "gather" | "scatter" | "none";

/** The fields that tensor-parallel layers give to the dense layers inside them. */
export interface DenseOptions {
  readonly kernelInit: ParamInitializer;
  readonly useBias: boolean;
  readonly name?: string;
}

const denseCommon = schema({
  /** Makes the dense layer of one device, to whose configuration the given fields belong. */
  denseFn: required<(config: DenseOptions) => ModuleInstance<(x: Tensor) => Tensor>>("function"),
  /** The mesh axis that splits the layer. */
  modelAxisName: required("string"),
  /** `none` by default, which is the plain layer; so is every mode on an axis of size 1. */
  tpMode: optional(oneOf<TPMode>("gather", "scatter", "none"), "none"),
  /** Initialises the kernel; `lecunNormal` by default. */
  kernelInit: optional<ParamInitializer>("function", initializers.lecunNormal()),
  /** A factor for initial kernels of a split layer, whose devices see only a part of the whole; 1 by default. */
  kernelInitAdjustment: 1,
  /** Whether there is a bias; true by default. */
  useBias: true,
  /** The name of the dense layer, `module` by default; the small layers of {@link TPAsyncDense} are `shard_0`, … */
  denseName: optional("string", "module"),
});

/** What the tensor-parallel dense layers have in common. */
export interface TPDenseCommon extends OptionsOf<typeof denseCommon> {}

type Common = Values<typeof denseCommon.fields>;

const denseConfig = schema({
  ...denseCommon.fields,
  /** Whether the enclosing layer gathers the inputs or sums the outputs; false by default. */
  skipCommunication: false,
});

/** Configuration of {@link TPDense}. */
export interface TPDenseConfig extends OptionsOf<typeof denseConfig> {}

/**
 * A dense layer that is split over an axis.
 *
 * `gather`: the kernel is split by its outputs, and the inputs, whose features are split, are gathered first:
 * all-gather forward, reduce-scatter backward. `scatter`: the kernel is split by its inputs, and the outputs are
 * summed over the devices, of which each keeps its part of the features: reduce-scatter forward, all-gather
 * backward.
 *
 * @example
 * ```ts
 * const denseFn = (config: object) => nn.Dense({ features: 3, ...config });
 * const layer = parallel.TPDense({ denseFn, modelAxisName: "model", tpMode: "gather" });
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P(null, "model"), outSpecs: P(null, "model") };
 * shardMap((x: Tensor) => layer.apply(layer.init(random.key(0), x), x), specs)(np.ones([1, 4])).shape; // [1, 6]
 * ```
 */
export const TPDense = module({ name: "TPDense", options: denseConfig }, (config) => {
  const { modelAxisName, skipCommunication, denseName, kernelInit, useBias } = config;
  const { mode } = modeOf(config, "TPDense");
  const dense = () => shardedDense(config, denseName, useBias);
  return (x: Tensor): Tensor => {
    switch (mode) {
      case "none":
        return config.denseFn({ kernelInit, useBias })(x);
      case "gather": {
        const whole = skipCommunication ? x : lax.allGather(x, modelAxisName, { dim: -1, tiled: true });
        return dense()(whole);
      }
      case "scatter": {
        const y = dense()(x);
        return skipCommunication ? y : lax.psumScatter(y, modelAxisName, { dim: -1, tiled: true });
      }
    }
  };
});

const asyncDenseConfig = schema({
  ...denseCommon.fields,
  /** Whether inputs are gathered both ways around the ring; true by default. */
  useBidirectionalGather: true,
  /** Whether the halves of the outputs are summed in opposite directions around the ring; false by default. */
  useBidirectionalScatter: false,
});

/** Configuration of {@link TPAsyncDense}. */
export interface TPAsyncDenseConfig extends OptionsOf<typeof asyncDenseConfig> {}

/**
 * {@link TPDense} with rings in place of collectives, so that parts of the inputs (`gather`) or of the outputs
 * (`scatter`) travel while others are computed. Its parameters are those of one small layer `shard_0`, `shard_1`, … for
 * each hop: on device d, `shard_i` takes the inputs of device d − i (`gather`), or computes outputs of device d + size
 * − 1 − i (`scatter`).
 *
 * @example
 * ```ts
 * const denseFn = (config: object) => nn.Dense({ features: 3, ...config });
 * const layer = parallel.TPAsyncDense({ denseFn, modelAxisName: "model", tpMode: "gather" });
 * const specs = { mesh: Mesh.create({ model: 2 }), inSpecs: P(null, "model"), outSpecs: P(null, "model") };
 * shardMap((x: Tensor) => layer.apply(layer.init(random.key(0), x), x), specs)(np.ones([1, 4])).shape; // [1, 6]
 * ```
 */
export const TPAsyncDense = module({ name: "TPAsyncDense", options: asyncDenseConfig }, (config) => {
  const { modelAxisName, useBidirectionalGather, useBidirectionalScatter, kernelInit, useBias } = config;
  const { mode, size } = modeOf(config, "TPAsyncDense");
  // One bias for each output is enough, so only the first of the small layers has one.
  const shard = (i: number) => shardedDense(config, `shard_${i}`, useBias && i === 0);
  return (x: Tensor): Tensor => {
    switch (mode) {
      case "none":
        return config.denseFn({ kernelInit, useBias, name: "shard_0" })(x);
      case "gather": {
        const gather = useBidirectionalGather ? asyncGatherBidirectional : asyncGather;
        const outputs = gather(x, modelAxisName).map((part, i) => shard(i)(part));
        return outputs.slice(1).reduce((sum, y) => np.add(sum, y), at(outputs, 0));
      }
      case "scatter": {
        const scatter = useBidirectionalScatter ? asyncScatterSplit : asyncScatter;
        return scatter<Tensor>(
          Array.from({ length: size }, (_, i) => () => shard(i)(x)),
          modelAxisName,
        );
      }
    }
  };
});

/** The mode of a layer on its axis, and the size of the axis. */
function modeOf({ modelAxisName, tpMode }: Common, caller: string): { mode: TPMode; size: number } {
  const size = axesSize(lookUpAxes(modelAxisName, caller));
  return { mode: size > 1 ? tpMode : "none", size };
}

/** The dense layer of one device, in the wrapper that gives every device its own parameters. */
function shardedDense(
  { denseFn, modelAxisName, kernelInit, kernelInitAdjustment }: Common,
  name: string,
  useBias: boolean,
): ModuleInstance<(x: Tensor) => Tensor> {
  const scaled = scaleInit(kernelInit, kernelInitAdjustment);
  return ModelParallelismWrapper({
    modelAxisName,
    moduleFn: (config) => denseFn({ kernelInit: scaled, useBias, ...config }),
    name,
  });
}
