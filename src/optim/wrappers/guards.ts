/** Transformations that bound single gradients or parameters, and noise. */

import { need } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { zerosLike } from "../../numpy/arrays/creation.js";
import { add, clip as clipTo, divide, maximum, multiply, power } from "../../numpy/elementwise/arithmetic.js";
import { astype, negative, sqrt } from "../../numpy/elementwise/elementwise.js";
import { less, where } from "../../numpy/elementwise/logic.js";
import { isnan } from "../../numpy/elementwise/specialValues.js";
import { squaredSize } from "../../numpy/operands.js";
import { any, sum } from "../../numpy/reductions/reductions.js";
import { normal } from "../../random/floats.js";
import { split } from "../../random/keys.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { mapWholes } from "../transformations/blocks.js";
import { zeroCount } from "../transformations/moments.js";
import type { CountState } from "../transformations/scaling.js";
import {
  type EmptyState,
  type GradientTransformation,
  mapTensors,
  requireParams,
  stateless,
  type TypedTransformation,
  transformation,
  typedTransformation,
} from "../transformations/transformation.js";

function checkPositive(caller: string, what: string, value: number): void {
  if (!(value > 0)) throw new ValueError(`[${caller}] ${what} must be more than 0, got ${value}`);
}

/**
 * Keeps every element of the gradients between −maxDelta and maxDelta.
 *
 * @example
 * ```ts
 * const step = optim.clip(1);
 * const grads = { w: np.array([0.5, -3]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.5, -1] }
 * ```
 */
export function clip(maxDelta: number): GradientTransformation<EmptyState> {
  need("number", maxDelta, "maxDelta", "clip");
  checkPositive("clip", "maxDelta", maxDelta);
  return stateless((grads) => mapTensors((g) => clipTo(g, -maxDelta, maxDelta), grads));
}

/**
 * Shrinks the gradient of each parameter so that its root mean square is at most `threshold`.
 *
 * @example
 * ```ts
 * const step = optim.clipByBlockRms(1);
 * const grads = { w: np.array([2, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, 1] }
 * ```
 */
export function clipByBlockRms(threshold: number): GradientTransformation<EmptyState> {
  need("number", threshold, "threshold", "clipByBlockRms");
  checkPositive("clipByBlockRms", "the threshold", threshold);
  return stateless((grads) =>
    mapWholes((whole, g) => divide(g, maximum(divide(whole.rms(g), threshold), 1)), grads),
  );
}

const adaptiveGradClipOptions = schema({
  /** The least norm that parameters count with; 1e-3 by default. */
  eps: 1e-3,
});

/** Options of {@link adaptiveGradClip}. */
export interface AdaptiveGradClipOptions extends OptionsOf<typeof adaptiveGradClipOptions> {}

/**
 * Shrinks gradients so that the norm of each output unit's is at most `clipping` times that of its weights.
 * The units of a matrix are its columns, those of a convolution its last dim.
 *
 * @example
 * ```ts
 * const step = optim.adaptiveGradClip(0.1);
 * const params = { w: np.array([3, 4]) };
 * step.update({ w: np.array([30, 0.1]) }, step.init(params), params)[0]; // { "w": [0.5, 0.001667] }
 * ```
 */
export function adaptiveGradClip(
  clipping: number,
  options?: AdaptiveGradClipOptions,
): GradientTransformation<EmptyState> {
  need("number", clipping, "clipping", "adaptiveGradClip");
  const { eps } = adaptiveGradClipOptions.read(options, "adaptiveGradClip");
  checkPositive("adaptiveGradClip", "clipping", clipping);
  return stateless((grads, params) =>
    mapTensors(
      (g, p) => {
        const norm = unitNorm(g);
        const most = multiply(maximum(unitNorm(p), eps), clipping);
        return where(less(norm, most), g, multiply(g, divide(most, maximum(norm, 1e-6))));
      },
      grads,
      requireParams(params, "adaptiveGradClip"),
    ),
  );
}

function unitNorm(x: Tensor): Tensor {
  const vector = x.shape.filter((n) => n !== 1).length <= 1;
  const reduced = x.ndim === 3 ? [0] : x.shape.slice(0, -1).map((_, dim) => dim);
  return sqrt(sum(squaredSize(x), vector ? undefined : reduced, { keepdims: true }));
}

/** Which parameters had a gradient with NaN in the last step. */
export interface ZeroNansState {
  readonly foundNan: unknown;
}

/**
 * Replaces NaN in gradients by zero and records where there was one.
 *
 * @example
 * ```ts
 * const step = optim.zeroNans();
 * const grads = { w: np.array([1, NaN]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, 0] }
 * ```
 */
export function zeroNans(): TypedTransformation<ZeroNansState> {
  const found = (values: unknown) => mapTensors((g) => any(isnan(g)), values);
  return typedTransformation<ZeroNansState>(
    "zeroNans",
    { foundNan: "tree" },
    {
      init: (params) => ({ foundNan: mapTensors((p) => any(zerosLike(p, "bool")), params) }),
      update: (grads) => [mapTensors((g) => where(isnan(g), 0, g), grads), { foundNan: found(grads) }],
    },
  );
}

/**
 * Shortens updates that would make a parameter negative so that it becomes zero.
 *
 * @example
 * ```ts
 * const step = optim.keepParamsNonnegative();
 * const params = { w: np.array([1, 2]) };
 * step.update({ w: np.array([-3, 1]) }, step.init(params), params)[0]; // { "w": [-1, 1] }
 * ```
 */
export function keepParamsNonnegative(): GradientTransformation<EmptyState> {
  return stateless((grads, params) =>
    mapTensors(
      (u, p) => where(less(add(p, u), 0), negative(p), u),
      grads,
      requireParams(params, "keepParamsNonnegative"),
    ),
  );
}

/** The key of the noise to come. */
export interface AddNoiseState extends CountState {
  readonly key: Tensor;
}

/**
 * Adds normal noise whose variance falls with the steps: eta / step^gamma.
 *
 * @example
 * ```ts
 * const step = optim.addNoise(0.01, 0.55, random.key(0));
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1.02, 1.923] }
 * ```
 */
export function addNoise(eta: number, gamma: number, key: Tensor): GradientTransformation<AddNoiseState> {
  need("number", eta, "eta", "addNoise");
  need("number", gamma, "gamma", "addNoise");
  needTensor(key, "key", "addNoise");
  return transformation<AddNoiseState>(
    "addNoise",
    { key: "tensor", count: "tensor" },
    {
      init: () => ({ count: zeroCount(), key }),
      update: (grads, state) => {
        const count = state.count.add(1);
        const deviation = sqrt(divide(eta, power(astype(count, "float32"), gamma)));
        const keys = split(state.key);
        const each = split(keys.get(1), tree.leaves(grads).length);
        let i = 0;
        const updates = mapTensors((g) => {
          const noise = normal(each.get(i++), g.shape, g.dtype);
          return add(g, multiply(noise, astype(deviation, g.dtype)));
        }, grads);
        return [updates, { count, key: keys.get(0) }];
      },
    },
  );
}
