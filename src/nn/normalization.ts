import { ShapeError } from "../ir/errors.js";
import type { OptionNames } from "../ir/options.js";
import { at, normalizeDims, range, type Shape } from "../ir/shape.js";
import * as np from "../numpy/index.js";
import { initializers } from "../random/index.js";
import { type AxisNames, pmean } from "../spmd/mesh/collectives.js";
import { tracedAsOneCall } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import { promoteTypes } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { module } from "./module.js";
import { computeType, type LayerTypes } from "./operands.js";
import type { ParamInitializer } from "./partitioned.js";
import { param } from "./variables.js";

/** What normalisation layers have in common. */
export interface NormalizationConfig extends LayerTypes {
  /** Added to the variance; 1e-6 by default. */
  readonly epsilon?: number;
  /** Whether the result is multiplied by the parameter `scale`; true by default. */
  readonly useScale?: boolean;
  /** Initialises `scale`; ones by default. */
  readonly scaleInit?: ParamInitializer;
  /** Mesh axes over which the dims to normalise are split in a shard map. */
  readonly axisName?: AxisNames;
  /** Whether the variance is the mean of squares minus the square of the mean; true by default. */
  readonly useFastVariance?: boolean;
  /** Whether mean and variance are computed in float32 at least; true by default. */
  readonly forceFloat32Reductions?: boolean;
}

/** What normalisation layers with a bias have in common. */
export interface BiasConfig {
  /** Whether the parameter `bias` is added; true by default. */
  readonly useBias?: boolean;
  /** Initialises `bias`; zeros by default. */
  readonly biasInit?: ParamInitializer;
}

/** Which dims are normalised and which have parameters. */
export interface NormalizedDims {
  /** The dims over which mean and variance are taken; the last by default. */
  readonly reductionAxes?: number | readonly number[];
  /** The dims that `scale` and `bias` have; the last by default. */
  readonly featureAxes?: number | readonly number[];
}

/** Options of a call of a normalisation layer. */
export interface NormalizationCallOptions {
  /** Which elements count for mean and variance; broadcasts against the input. */
  readonly mask?: Tensor;
}

/** Configuration of {@link LayerNorm}. */
export interface LayerNormConfig extends NormalizationConfig, BiasConfig, NormalizedDims {}

/** Configuration of {@link RMSNorm}. */
export interface RMSNormConfig extends NormalizationConfig, NormalizedDims {}

/** Configuration of {@link GroupNorm}. */
export interface GroupNormConfig extends NormalizationConfig, BiasConfig {
  /** The number of groups; 32 by default. `null` with `groupSize`. */
  readonly numGroups?: number | null;
  /** The number of channels in a group, instead of `numGroups`. */
  readonly groupSize?: number;
  /** The dims over which mean and variance are taken, the last among them; all but the first by default. */
  readonly reductionAxes?: number | readonly number[];
}

/** The names of {@link NormalizationConfig}. */
export const normNames: OptionNames<NormalizationConfig> = {
  epsilon: true,
  useScale: true,
  scaleInit: true,
  axisName: true,
  useFastVariance: true,
  forceFloat32Reductions: true,
  dtype: true,
  paramDtype: true,
};

/** The names of {@link BiasConfig}. */
export const biasNames: OptionNames<BiasConfig> = { useBias: true, biasInit: true };

/** Brings every vector to mean 0 and variance 1, then scales it and adds a bias. */
export const LayerNorm = module(
  { name: "LayerNorm", options: { ...normNames, ...biasNames, reductionAxes: true, featureAxes: true } },
  (config: LayerNormConfig) => {
    const { reductionAxes = -1, featureAxes = -1, useBias = true } = config;
    return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
      const dims = normalizeDims(reductionAxes, x.ndim, "LayerNorm");
      const statistics = meanAndVariance(x, dims, config, { mask, useMean: true });
      return normalize(x, statistics, featureAxes, { ...config, useBias }, "LayerNorm");
    };
  },
);

/** Brings every vector to a mean of squares of 1, then scales it. */
export const RMSNorm = module(
  { name: "RMSNorm", options: { ...normNames, reductionAxes: true, featureAxes: true } },
  (config: RMSNormConfig) => {
    const { reductionAxes = -1, featureAxes = -1 } = config;
    return (x: Tensor, { mask }: NormalizationCallOptions = {}): Tensor => {
      const dims = normalizeDims(reductionAxes, x.ndim, "RMSNorm");
      const statistics = meanAndVariance(x, dims, config, { mask, useMean: false });
      return normalize(x, statistics, featureAxes, { ...config, useBias: false }, "RMSNorm");
    };
  },
);

/** Brings groups of channels (the last dim), together with all dims but the first, to mean 0 and variance 1. */
export const GroupNorm = module(
  {
    name: "GroupNorm",
    options: { ...normNames, ...biasNames, numGroups: true, groupSize: true, reductionAxes: true },
  },
  (config: GroupNormConfig) => {
    const { useBias = true, reductionAxes } = config;
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
  },
);

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
  { dtype, axisName, useFastVariance = true, forceFloat32Reductions = true }: NormalizationConfig,
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
  config: NormalizationConfig & BiasConfig,
  caller: string,
): Tensor {
  const { epsilon = 1e-6, useScale = true, useBias = true, dtype, paramDtype = "float32" } = config;
  const { scaleInit = initializers.ones, biasInit = initializers.zeros } = config;
  const dims = normalizeDims(featureAxes, x.ndim, caller);
  const shape = dims.map((dim) => at(x.shape, dim));
  const spread: Shape = x.shape.map((n, dim) => (dims.includes(dim) ? n : 1));
  const make = (name: string, init: ParamInitializer) =>
    np.reshape(param(name, init, shape, paramDtype), spread);
  const scale = useScale ? make("scale", scaleInit) : undefined;
  const bias = useBias ? make("bias", biasInit) : undefined;
  return tracedAsOneCall(() => {
    const inverse = ops.rsqrt(np.add(variance, epsilon));
    const factor = scale ? np.multiply(inverse, scale) : inverse;
    const scaled = np.multiply(mean ? np.subtract(x, mean) : x, factor);
    const y = bias ? np.add(scaled, bias) : scaled;
    return ops.convert(y, computeType([x, scale, bias], dtype, caller));
  });
}
