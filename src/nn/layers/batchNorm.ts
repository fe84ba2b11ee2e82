import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, normalizeDims, range } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import type { Tensor } from "../../trace/tensor.js";
import { module } from "../modules/module.js";
import { givenOnce } from "../modules/operands.js";
import { isInitializing, type Variable, variable } from "../modules/variables.js";
import {
  biasConfig,
  meanAndVariance,
  type NormalizationCallOptions,
  normalizationConfig,
  normalize,
} from "./normalization.js";

const batchNormConfig = schema({
  ...normalizationConfig.fields,
  ...biasConfig.fields,
  /** Whether to normalise by the running averages instead of the batch; given here or at the call. */
  useRunningAverage: optional("flag"),
  /** The dims of the features; the last by default. Mean and variance are taken over all others. */
  axis: optional("integerOrIntegers", -1),
  /** The decay of the running averages per step; 0.99 by default. */
  momentum: 0.99,
  /** Added to the variance; 1e-5 by default. */
  epsilon: 1e-5,
});

/** Configuration of {@link BatchNorm}. */
export interface BatchNormConfig extends OptionsOf<typeof batchNormConfig> {}

/** Options of a call of {@link BatchNorm}. */
export interface BatchNormCallOptions extends NormalizationCallOptions {
  /** Whether to normalise by the running averages, if the configuration does not set it. */
  readonly useRunningAverage?: boolean;
}

/**
 * Brings every feature to mean 0 and variance 1 over the batch, then scales and shifts it. While training it
 * updates running averages in the collection `batch_stats`, by which it normalises afterwards:
 *
 * ```ts
 * const [y, updates] = model.with({ mutable: ["batch_stats"] }).apply(variables, x, true);
 * ```
 *
 * In whole-array programs the batch is the whole batch, however it is split over devices. In a shard map
 * `axisName` names the axes over which it is split: an all-reduce of the means forward and backward.
 *
 * @example
 * ```ts
 * const layer = nn.BatchNorm({ useRunningAverage: true });
 * const x = np.ones([2, 3]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [2, 3]
 * ```
 */
export const BatchNorm = module({ name: "BatchNorm", options: batchNormConfig }, (config) => {
  const { axis, momentum, epsilon, paramDtype } = config;
  const { axisName, forceFloat32Reductions, ...others } = config;
  return (x: Tensor, { mask, useRunningAverage }: BatchNormCallOptions = {}): Tensor => {
    const runs = givenOnce("useRunningAverage", config.useRunningAverage, useRunningAverage, "BatchNorm");
    const features = normalizeDims(axis, x.ndim, "BatchNorm");
    const dims = range(x.ndim).filter((dim) => !features.includes(dim));
    const shape = features.map((dim) => at(x.shape, dim));
    const kept = x.shape.map((n, dim) => (features.includes(dim) ? n : 1));
    const dtype = forceFloat32Reductions ? "float32" : paramDtype;
    const mean = variable("batch_stats", "mean", () => np.zeros(shape, dtype));
    const variance = variable("batch_stats", "var", () => np.ones(shape, dtype));
    const settings = { ...others, forceFloat32Reductions, epsilon, axisName: undefined };
    if (runs) {
      const stored = { mean: np.reshape(mean.value, kept), variance: np.reshape(variance.value, kept) };
      return normalize(x, stored, axis, settings, "BatchNorm");
    }
    // During initialisation no shard map surrounds the module, and the averages stay at 0 and 1.
    const across = isInitializing() ? settings : { ...settings, axisName };
    const now = meanAndVariance(x, dims, across, { mask, useMean: true });
    if (!isInitializing()) {
      if (now.mean) approach(mean, now.mean, momentum);
      approach(variance, now.variance, momentum);
    }
    return normalize(x, now, axis, settings, "BatchNorm");
  };
});

/** Moves a running average toward a value. */
function approach(average: Variable<Tensor>, value: Tensor, momentum: number): void {
  const { value: before } = average;
  const now = np.reshape(value, before.shape);
  average.value = np.add(np.multiply(before, momentum), np.multiply(now, 1 - momentum));
}

const instanceNormConfig = schema({
  ...normalizationConfig.fields,
  ...biasConfig.fields,
  /** The dims of the features, which have parameters and are not averaged over; the last by default. */
  featureAxes: optional("integerOrIntegers", -1),
});

/** Configuration of {@link InstanceNorm}. */
export interface InstanceNormConfig extends OptionsOf<typeof instanceNormConfig> {}

/**
 * Brings every feature of every example (the first dim) to mean 0 and variance 1, then scales and shifts it.
 *
 * @example
 * ```ts
 * const layer = nn.InstanceNorm();
 * const x = np.array([[[1, 10], [3, 30]]]);
 * layer.apply(layer.init(random.key(0), x), x); // [[[-1, -1], [1, 1]]]
 * ```
 */
export const InstanceNorm = module({ name: "InstanceNorm", options: instanceNormConfig }, (config) => {
  const { featureAxes } = config;
  return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
    const features = normalizeDims(featureAxes, x.ndim, "InstanceNorm");
    if (features.includes(0)) {
      throw new ShapeError("[InstanceNorm] featureAxes must not have dim 0, which is that of the examples");
    }
    const dims = range(x.ndim).filter((dim) => dim > 0 && !features.includes(dim));
    const statistics = meanAndVariance(x, dims, config, { mask, useMean: true });
    return normalize(x, statistics, featureAxes, config, "InstanceNorm");
  };
});
