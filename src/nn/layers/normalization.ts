import { either } from "../../ir/arguments.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, normalizeDims, range, type Shape } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import { pmean } from "../../spmd/mesh/collectives.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { promoteTypes } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { module } from "../modules/module.js";
import { computeType, layerTypes } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import { param } from "../modules/variables.js";

/** The schema of {@link NormalizationConfig}. */
export const normalizationConfig = schema({
  ...layerTypes.fields,
  /** Added to the variance; 1e-6 by default. */
  epsilon: 1e-6,
  /** Whether the result is multiplied by the parameter `scale`; true by default. */
  useScale: true,
  /** Initialises `scale`; ones by default. */
  scaleInit: optional<ParamInitializer>("function", initializers.ones),
  /** Mesh axes over which the dims to normalise are split in a shard map. */
  axisName: optional("stringOrStrings"),
  /** Whether the variance is the mean of squares minus the square of the mean; true by default. */
  useFastVariance: true,
  /** Whether mean and variance are computed in float32 at least; true by default. */
  forceFloat32Reductions: true,
});

/** What normalisation layers have in common. */
export interface NormalizationConfig extends OptionsOf<typeof normalizationConfig> {}

/** A configuration with its defaults. */
type Normalization = Values<typeof normalizationConfig.fields>;

/** The schema of {@link BiasConfig}. */
export const biasConfig = schema({
  /** Whether the parameter `bias` is added; true by default. */
  useBias: true,
  /** Initialises `bias`; zeros by default. */
  biasInit: optional<ParamInitializer>("function", initializers.zeros),
});

/** What normalisation layers with a bias have in common. */
export interface BiasConfig extends OptionsOf<typeof biasConfig> {}

const normalizedDims = schema({
  /** The dims over which mean and variance are taken; the last by default. */
  reductionAxes: optional("integerOrIntegers", -1),
  /** The dims that `scale` and `bias` have; the last by default. */
  featureAxes: optional("integerOrIntegers", -1),
});

/** Which dims are normalised and which have parameters. */
export interface NormalizedDims extends OptionsOf<typeof normalizedDims> {}

/** Options of a call of a normalisation layer. */
export interface NormalizationCallOptions {
  /** Which elements count for mean and variance; broadcasts against the input. */
  readonly mask?: Tensor;
}

const layerNormConfig = schema({
  ...normalizationConfig.fields,
  ...biasConfig.fields,
  ...normalizedDims.fields,
});

/** Configuration of {@link LayerNorm}. */
export interface LayerNormConfig extends OptionsOf<typeof layerNormConfig> {}

const rmsNormConfig = schema({
  ...normalizationConfig.fields,
  ...normalizedDims.fields,
});

/** Configuration of {@link RMSNorm}. */
export interface RMSNormConfig extends OptionsOf<typeof rmsNormConfig> {}

const groupNormConfig = schema({
  ...normalizationConfig.fields,
  ...biasConfig.fields,
  /** The number of groups; 32 by default. `null` with `groupSize`. */
  numGroups: optional(either("number", "null")),
  /** The number of channels in a group, instead of `numGroups`. */
  groupSize: optional("number"),
  /** The dims over which mean and variance are taken, the last among them; all but the first by default. */
  reductionAxes: optional("integerOrIntegers"),
});

/** Configuration of {@link GroupNorm}. */
export interface GroupNormConfig extends OptionsOf<typeof groupNormConfig> {}

/**
 * Brings every vector to mean 0 and variance 1, then scales it and adds a bias.
 *
 * @example
 * ```ts
 * const layer = nn.LayerNorm({});
 * const x = np.array([[1, 3]]);
 * layer.apply(layer.init(random.key(0), x), x); // [[-1, 1]]
 * ```
 */
export const LayerNorm = module({ name: "LayerNorm", options: layerNormConfig }, (config) => {
  const { reductionAxes, featureAxes, useBias } = config;
  return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
    const dims = normalizeDims(reductionAxes, x.ndim, "LayerNorm");
    const statistics = meanAndVariance(x, dims, config, { mask, useMean: true });
    return normalize(x, statistics, featureAxes, { ...config, useBias }, "LayerNorm");
  };
});

/**
 * Brings every vector to a mean of squares of 1, then scales it.
 *
 * @example
 * ```ts
 * const layer = nn.RMSNorm({});
 * const x = np.array([[3, 4]]);
 * layer.apply(layer.init(random.key(0), x), x); // [[0.8485, 1.131]]
 * ```
 */
export const RMSNorm = module({ name: "RMSNorm", options: rmsNormConfig }, (config) => {
  const { reductionAxes, featureAxes } = config;
  return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
    const dims = normalizeDims(reductionAxes, x.ndim, "RMSNorm");
    const statistics = meanAndVariance(x, dims, config, { mask, useMean: false });
    return normalize(x, statistics, featureAxes, { ...config, useBias: false }, "RMSNorm");
  };
});

/**
 * Brings groups of channels (the last dim), together with all dims but the first, to mean 0 and variance 1.
 *
 * @example
 * ```ts
 * const layer = nn.GroupNorm({ numGroups: 2 });
 * const x = np.ones([1, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [1, 4]
 * ```
 */
export const GroupNorm = module({ name: "GroupNorm", options: groupNormConfig }, (config) => {
  const { useBias, reductionAxes } = config;
  return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
    const channels = x.shape.at(-1) ?? 0;
    const numGroups = countGroups(config, channels);
    const last = x.ndim - 1;
    const dims =
      reductionAxes === undefined
        ? range(x.ndim).slice(1)
        : normalizeDims(reductionAxes, x.ndim, "GroupNorm");
    if (!dims.includes(last)) {
      throw new ShapeError(
        `[GroupNorm] reductionAxes [${dims}] must have the last dim ${last}, the channels`,
      );
    }
    const split = (value: Tensor) =>
      np.reshape(value, [...value.shape.slice(0, -1), numGroups, channels / numGroups]);
    const within = [...dims.filter((dim) => dim !== last), last + 1];
    const grouped = meanAndVariance(split(x), within, config, { mask: mask && split(mask), useMean: true });
    const spread = (value: Tensor) => {
      const whole = np.broadcastTo(value, [...value.shape.slice(0, -1), channels / numGroups]);
      return np.reshape(whole, [...whole.shape.slice(0, -2), channels]);
    };
    const statistics = { mean: grouped.mean && spread(grouped.mean), variance: spread(grouped.variance) };
    return normalize(x, statistics, -1, { ...config, useBias }, "GroupNorm");
  };
});

function countGroups({ numGroups, groupSize }: GroupNormConfig, channels: number): number {
  if (typeof numGroups === "number" && groupSize !== undefined) {
    throw new ShapeError("[GroupNorm] give numGroups or groupSize, not both");
  }
  const count = groupSize === undefined ? (numGroups ?? 32) : channels / groupSize;
  if (!Number.isInteger(count) || count < 1 || channels % count !== 0) {
    const by = groupSize === undefined ? `${count} groups` : `groups of ${groupSize}`;
    const rest = channels / (groupSize ?? count);
    throw new ShapeError(
      `[GroupNorm] ${channels} channels do not split into ${by} (${channels} / ${groupSize ?? count} = ${rest})`,
    );
  }
  return count;
}

/** Mean and variance, with the reduced dims kept as 1; no mean where it is taken to be 0. */
export interface Statistics {
  readonly mean: Tensor | undefined;
  readonly variance: Tensor;
}

/** Mean and variance of an input over dims, and over the mesh axes that the configuration names. */
export function meanAndVariance(
  input: Tensor,
  dims: readonly number[],
  { dtype, axisName, useFastVariance, forceFloat32Reductions }: Normalization,
  { mask, useMean }: { readonly mask: Tensor | undefined; readonly useMean: boolean },
): Statistics {
  return tracedAsOneCall(() => {
    const given = dtype ?? input.dtype;
    const x = ops.convert(input, forceFloat32Reductions ? promoteTypes(given, "float32") : given);
    const mean = (value: Tensor): Tensor => {
      const options = { keepdims: true, ...(mask ? { where: mask } : {}) };
      const here = np.mean(value, dims, options);
      return axisName === undefined ? here : pmean(here, axisName);
    };
    if (!useMean) return { mean: undefined, variance: mean(np.square(x)) };
    const centre = mean(x);
    const variance = useFastVariance
      ? np.maximum(np.subtract(mean(np.square(x)), np.square(centre)), 0)
      : mean(np.square(np.subtract(x, centre)));
    return { mean: centre, variance };
  });
}

/** Subtracts the mean, divides by the deviation, then scales and shifts by parameters of the running module. */
export function normalize(
  x: Tensor,
  { mean, variance }: Statistics,
  featureAxes: number | readonly number[],
  config: Normalization & Partial<Values<typeof biasConfig.fields>>,
  caller: string,
): Tensor {
  const { epsilon, useScale, useBias = true, dtype, paramDtype, scaleInit } = config;
  const { biasInit = initializers.zeros } = config;
  const dims = normalizeDims(featureAxes, x.ndim, caller);
  const shape = dims.map((dim) => at(x.shape, dim));
  const spread: Shape = x.shape.map((n, dim) => (dims.includes(dim) ? n : 1));
  const ownScale = useScale ? param("scale", scaleInit, shape, paramDtype) : undefined;
  const ownBias = useBias ? param("bias", biasInit, shape, paramDtype) : undefined;
  return tracedAsOneCall(() => {
    const scale = ownScale && np.reshape(ownScale, spread);
    const bias = ownBias && np.reshape(ownBias, spread);
    const inverse = ops.rsqrt(np.add(variance, epsilon));
    const factor = scale ? np.multiply(inverse, scale) : inverse;
    const scaled = np.multiply(mean ? np.subtract(x, mean) : x, factor);
    const y = bias ? np.add(scaled, bias) : scaled;
    return ops.convert(y, computeType([x, scale, bias], dtype, caller));
  });
}
