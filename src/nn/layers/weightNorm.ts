/** Wrappers that normalise the parameters of a layer at every call. */

import { either, integerFrom } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema, type Values } from "../../ir/schema.js";
import { at, normalizeDims, range } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { initializers, normal } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { mapVariables } from "../lift/mapVariables.js";
import { ModuleError } from "../modules/errors.js";
import {
  type AnyFunction,
  type ArgsOf,
  type ModuleInstance,
  type ModuleOptions,
  mainMethod,
  moduleClass,
  type ResultOf,
  scopeOf,
} from "../modules/module.js";
import { computeType, layerTypes } from "../modules/operands.js";
import type { ParamInitializer } from "../modules/partitioned.js";
import type { Variables } from "../modules/scope.js";
import { hasVariable, isInitializing, makeRng, param, variable } from "../modules/variables.js";

const wrapperConfig = schema({
  ...layerTypes.fields,
  /** The layer whose parameters are normalised. */
  layerInstance: required<unknown>("function"),
  /** Keeps divisors from being 0; 1e-12 by default. */
  epsilon: 1e-12,
});

/** What these wrappers have in common. */
export interface LayerWrapperConfig<F extends AnyFunction = AnyFunction>
  extends OptionsOf<typeof wrapperConfig> {
  readonly layerInstance: ModuleInstance<F>;
}

const weightNormConfig = schema({
  ...wrapperConfig.fields,
  /** Whether the normalised weights are multiplied by parameters; true by default. */
  useScale: true,
  /** Initialises those parameters; ones by default. */
  scaleInit: optional<ParamInitializer>("function", initializers.ones),
  /** The dims with separate norms and factors; the last by default, `null` for none. */
  featureAxes: optional(either("integerOrIntegers", "null"), -1),
  /** Only variables with one of these strings in their path are normalised; `["kernel"]` by default, `null` or `[]` for all. */
  variableFilter: optional(either("strings", "null"), ["kernel"]),
});

/** Configuration of {@link WeightNorm}. */
export interface WeightNormConfig<F extends AnyFunction = AnyFunction>
  extends OptionsOf<typeof weightNormConfig> {
  readonly layerInstance: ModuleInstance<F>;
}

const spectralNormConfig = schema({
  ...wrapperConfig.fields,
  /** How many power iterations a call makes; 1 by default. */
  nSteps: optional(integerFrom(0), 1),
  /** Whether weights with more than two dims throw instead of being flattened; false by default. */
  errorOnNonMatrix: false,
  /** Where the vectors and singular values are kept; `batch_stats` by default. */
  collectionName: "batch_stats",
});

/** Configuration of {@link SpectralNorm}. */
export interface SpectralNormConfig<F extends AnyFunction = AnyFunction>
  extends OptionsOf<typeof spectralNormConfig> {
  readonly layerInstance: ModuleInstance<F>;
}

/** Options of a call of {@link SpectralNorm}. */
export interface SpectralNormCallOptions {
  /** Whether to update the stored vectors and singular values; true while training. */
  readonly updateStats: boolean;
}

/** The class of {@link WeightNorm}, which takes its types from the layer. */
export interface WeightNormClass {
  <F extends AnyFunction>(
    config: WeightNormConfig<F> & ModuleOptions,
  ): ModuleInstance<(...args: ArgsOf<F>) => ResultOf<F>>;
  readonly moduleName: string;
}

/** The class of {@link SpectralNorm}, whose calls take options before the arguments of the layer. */
export interface SpectralNormClass {
  <F extends AnyFunction>(
    config: SpectralNormConfig<F> & ModuleOptions,
  ): ModuleInstance<(options: SpectralNormCallOptions, ...args: ArgsOf<F>) => ResultOf<F>>;
  readonly moduleName: string;
}

const fieldNames = { layerInstance: "layer_instance" };

/**
 * A layer whose weights are divided by their norm and multiplied by a learned one, which separates their length
 * from their direction.
 *
 * @example
 * ```ts
 * const layer = nn.WeightNorm({ layerInstance: nn.Dense({ features: 3 }) });
 * const x = np.ones([2, 4]);
 * layer.apply(layer.init(random.key(0), x), x).shape; // [2, 3]
 * ```
 */
export const WeightNorm = moduleClass<WeightNormClass>({
  name: "WeightNorm",
  options: weightNormConfig,
  methods: {
    [mainMethod]:
      (config: Values<typeof weightNormConfig.fields> & LayerWrapperConfig) =>
      (...args: readonly unknown[]) =>
        withMapped(config, args, (path, value) => weightNormalized(config, path, value), false),
  },
  fieldNames,
});

/**
 * A layer whose weights are divided by their largest singular value, which power iterations find over the calls.
 *
 * @example
 * ```ts
 * const layer = nn.SpectralNorm({ layerInstance: nn.Dense({ features: 3 }) });
 * const x = np.ones([2, 4]);
 * const variables = layer.init(random.key(0), { updateStats: false }, x);
 * layer.apply(variables, { updateStats: false }, x).shape; // [2, 3]
 * ```
 */
export const SpectralNorm = moduleClass<SpectralNormClass>({
  name: "SpectralNorm",
  options: spectralNormConfig,
  methods: {
    [mainMethod]:
      (config: Values<typeof spectralNormConfig.fields> & LayerWrapperConfig) =>
      (options: SpectralNormCallOptions, ...args: readonly unknown[]) =>
        withMapped(config, args, (path, value) => spectrallyNormalized(config, options, path, value), true),
  },
  fieldNames,
});

/** Calls the layer with each of its variables replaced. */
function withMapped(
  { layerInstance }: LayerWrapperConfig,
  args: readonly unknown[],
  replace: (path: string, value: Tensor) => Tensor,
  mutable: boolean,
): unknown {
  const name = scopeOf(layerInstance)?.path.at(-1);
  if (name === undefined)
    throw new ModuleError("unbound-module", "the layer has no place in the module tree");
  const transInFn = (variables: Variables): Variables =>
    Object.fromEntries(
      Object.entries(variables).map(([collection, values]) => [
        collection,
        tree.mapWithPath(
          (path: string, leaf: unknown) => (leaf instanceof Tensor ? replace(`${name}/${path}`, leaf) : leaf),
          values,
        ),
      ]),
    );
  const call = (layer: AnyFunction): unknown => (layer as (...args: readonly unknown[]) => unknown)(...args);
  return mapVariables(call, true, { transInFn, init: isInitializing(), mutable })(layerInstance);
}

function unit(x: Tensor, dims: np.Dims | undefined, epsilon: number): Tensor {
  const squares = np.sum(np.multiply(x, x), dims, { keepdims: true });
  return np.multiply(x, ops.rsqrt(np.add(squares, epsilon)));
}

function weightNormalized(
  {
    epsilon,
    useScale,
    scaleInit,
    featureAxes,
    variableFilter,
    paramDtype,
    dtype,
  }: Values<typeof weightNormConfig.fields>,
  path: string,
  value: Tensor,
): Tensor {
  if (variableFilter?.length && !variableFilter.some((part) => path.includes(part))) return value;
  const features = featureAxes === null ? [] : normalizeDims(featureAxes, value.ndim, "WeightNorm");
  features.sort((a, b) => a - b);
  const dims = range(value.ndim).filter((dim) => !features.includes(dim));
  const normalized = unit(value, dims, epsilon);
  const shape = features.map((dim) => at(value.shape, dim));
  const scale = useScale ? param(`${path}/scale`, scaleInit, shape, paramDtype) : undefined;
  const kept = value.shape.map((n, dim) => (features.includes(dim) ? n : 1));
  const scaled = scale ? np.multiply(normalized, np.reshape(scale, kept)) : normalized;
  return ops.convert(scaled, computeType([value, scale], dtype, "WeightNorm"));
}

function spectrallyNormalized(
  config: Values<typeof spectralNormConfig.fields>,
  { updateStats }: SpectralNormCallOptions,
  path: string,
  value: Tensor,
): Tensor {
  const { nSteps, epsilon, errorOnNonMatrix, paramDtype, collectionName } = config;
  if (value.ndim <= 1 || nSteps < 1) return value;
  if (value.ndim > 2 && errorOnNonMatrix) {
    throw new ValueError(
      `[SpectralNorm] ${path} has ${value.ndim} dims: errorOnNonMatrix allows only matrices`,
    );
  }
  const width = value.shape.at(-1) ?? 1;
  const matrix = np.reshape(value, [value.size / width, width]);
  const known = hasVariable(collectionName, `${path}/u`);
  const makeU = () => normal(makeRng("params"), [1, width], paramDtype);
  const first = variable(collectionName, `${path}/u`, known ? undefined : makeU);
  const kept = variable(collectionName, `${path}/sigma`, () => np.ones([], paramDtype));
  let u = first.value;
  let v = u;
  for (let step = 0; step < nSteps; step++) {
    v = unit(np.matmul(u, np.transpose(matrix)), undefined, epsilon);
    u = unit(np.matmul(v, matrix), undefined, epsilon);
  }
  [u, v] = [ops.stopGradient(u), ops.stopGradient(v)];
  const sigma = np.reshape(np.matmul(np.matmul(v, matrix), np.transpose(u)), []);
  const normalized = np.divide(matrix, np.where(np.notEqual(sigma, 0), sigma, 1));
  if (updateStats) {
    first.value = u;
    kept.value = sigma;
  }
  const dtype = computeType([value, u, v, sigma], config.dtype, "SpectralNorm");
  return ops.convert(np.reshape(normalized, value.shape), dtype);
}
