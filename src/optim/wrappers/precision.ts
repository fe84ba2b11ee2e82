/** Mixed precision: computing in narrow types while float32 holds what they would lose. */

import { need } from "../../ir/arguments.js";
import { type DType, isFloat, limits } from "../../ir/dtype.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { array } from "../../numpy/arrays/creation.js";
import { divide, maximum, minimum, multiply } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import { equal, logicalAnd, logicalNot, where } from "../../numpy/elementwise/logic.js";
import { isfinite } from "../../numpy/elementwise/specialValues.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { sumOverTree } from "../transformations/clipping.js";
import { zeroCount } from "../transformations/moments.js";
import {
  type ExtraArgs,
  type GradientTransformation,
  mapTensors,
  needTransformation,
  requireParams,
  type StepState,
  type TypedTransformation,
  typedTransformation,
} from "../transformations/transformation.js";
import { select } from "./accumulate.js";

/**
 * The tree with its floats in another type; integers and booleans stay.
 *
 * @example
 * ```ts
 * optim.castFloats({ w: np.array([1.5]), n: np.array([1], "int32") }, "bfloat16").w.dtype; // "bfloat16"
 * ```
 */
export function castFloats<T>(values: T, dtype: DType): T {
  return mapTensors((x) => (isFloat(x.dtype) && x.dtype !== dtype ? astype(x, dtype) : x), values);
}

/**
 * A function whose first argument, the parameters, is used in a narrower type while its gradients keep the
 * type of the parameters: bfloat16 compute with float32 master weights.
 *
 * @example
 * ```ts
 * const loss = optim.computeIn("bfloat16", (w: Tensor) => np.sum(w.mul(2)));
 * const w = np.array([1, 2]);
 * [loss(w).dtype, grad(loss)(w).dtype]; // ["bfloat16", "float32"]
 * ```
 */
export function computeIn<P, A extends readonly unknown[], R>(
  dtype: DType,
  fn: (params: P, ...rest: A) => R,
): (params: P, ...rest: A) => R {
  need("function", fn, "fn", "computeIn");
  return (params, ...rest) => fn(castFloats(params, dtype), ...rest);
}

/** The state of {@link masterWeights}. */
export interface MasterState<S> {
  readonly master: unknown;
  readonly inner: S;
}

/**
 * An optimiser for parameters kept in a narrow type: its state holds them in float32, where small updates are
 * not lost. The updates lead the parameters to the rounded master weights.
 *
 * @example
 * ```ts
 * const optimizer = optim.masterWeights(optim.sgd({ learningRate: 1 }));
 * const w = np.array([1], "bfloat16");
 * const [, state] = optimizer.update(np.array([0.001], "bfloat16"), optimizer.init(w), w);
 * state.master; // [0.999]
 * ```
 */
export function masterWeights<G extends GradientTransformation>(
  inner: G,
): TypedTransformation<MasterState<StepState<G>>> {
  needTransformation(inner, "masterWeights");
  return typedTransformation<MasterState<unknown>, MasterState<StepState<G>>>(
    "masterWeights",
    { master: "tree", inner: "tree" },
    {
      init: (params) => {
        const master = castFloats(params, "float32");
        return { master, inner: inner.init(master) };
      },
      update: <T>(
        grads: T,
        state: MasterState<unknown>,
        params?: T,
        extra?: ExtraArgs<T>,
      ): [T, MasterState<unknown>] => {
        const current = requireParams(params, "masterWeights");
        const wide = (tree: T) => castFloats(tree, "float32");
        const loss = extra?.grad === undefined ? extra : { ...extra, grad: wide(extra.grad) };
        const [updates, next] = inner.update(wide(grads), state.inner, state.master as T, loss);
        const master = mapTensors((m, u) => m.add(u), state.master, updates);
        const moves = mapTensors(
          (p, m) => astype(astype(m, p.dtype), "float32").sub(astype(p, "float32")),
          current,
          master,
        );
        return [moves, { master, inner: next }];
      },
    },
  );
}

/**
 * The parameters that master weights stand for: each rounded to the type of its parameter, bit for bit, which a
 * sum of parameter and update is not where a weight moves by many times its size.
 *
 * @example
 * ```ts
 * const optimizer = optim.masterWeights(optim.sgd({ learningRate: 1 }));
 * const w = np.array([1], "bfloat16");
 * optim.roundedMaster(w, optimizer.init(w)).dtype; // "bfloat16"
 * ```
 */
export function roundedMaster<T>(params: T, options: MasterState<unknown>): T {
  need("object", options, "the state", "roundedMaster");
  const { master } = options;
  return mapTensors((p, m) => astype(m, p.dtype), params, master);
}

const lossScaleOptions = schema({
  /** The first scale; 2¹⁵ by default. */
  initial: 2 ** 15,
  /** The number of good steps after which the scale grows; 2000 by default. */
  growthInterval: 2000,
  /** What the scale is multiplied by then; 2 by default. */
  growthFactor: 2,
  /** What the scale is multiplied by after an overflow; ½ by default. */
  backoffFactor: 0.5,
  /** The smallest scale; 1 by default. */
  min: 1,
});

/** Options of {@link dynamicLossScale}. */
export interface LossScaleOptions extends OptionsOf<typeof lossScaleOptions> {}

/** The state of a loss scale. */
export interface LossScaleState {
  readonly scale: Tensor;
  /** The good steps since the scale last changed. */
  readonly goodSteps: Tensor;
}

/** A loss scale that grows until gradients overflow and then backs off. */
export interface LossScale {
  init(): LossScaleState;
  /** The loss to differentiate. */
  scale(state: LossScaleState, loss: Tensor): Tensor;
  /** The gradients of the loss itself, in float32. */
  unscale<T>(state: LossScaleState, grads: T): T;
  /** The next state, given whether all gradients were finite. */
  update(state: LossScaleState, finite: Tensor): LossScaleState;
}

/**
 * Keeps float16 gradients in the range of the type.
 *
 * @example
 * ```ts
 * const lossScale = optim.dynamicLossScale({ initial: 1024 });
 * const [w, scaling] = [np.array([3]), lossScale.init()];
 * const grads = grad((x: Tensor) => lossScale.scale(scaling, np.sum(np.square(x))))(w);
 * lossScale.unscale(scaling, grads); // [6]
 * ```
 */
export function dynamicLossScale(options?: LossScaleOptions): LossScale {
  const { initial, growthInterval, growthFactor, backoffFactor, min } = lossScaleOptions.read(
    options,
    "dynamicLossScale",
  );
  return {
    init: () => ({ scale: array(initial, "float32"), goodSteps: zeroCount() }),
    scale: (state, loss) => {
      checkScaleState(state);
      needTensor(loss, "the loss", "dynamicLossScale");
      return multiply(loss, astype(state.scale, loss.dtype));
    },
    unscale: (state, grads) => {
      checkScaleState(state);
      return mapTensors((g) => divide(astype(g, "float32"), state.scale), grads);
    },
    update: (state, finite) => {
      checkScaleState(state);
      const { scale, goodSteps } = state;
      const grows = logicalAnd(finite, equal(goodSteps, growthInterval - 1));
      const larger = minimum(multiply(scale, growthFactor), limits("float32").max);
      const smaller = maximum(multiply(scale, backoffFactor), min);
      return {
        scale: where(finite, where(grows, larger, scale), smaller),
        goodSteps: where(logicalAnd(finite, logicalNot(grows)), goodSteps.add(1), zeroCount()),
      };
    },
  };
}

function checkScaleState(state: LossScaleState): void {
  need("object", state, "the state", "dynamicLossScale");
  needTensor(state.scale, "the scale of the state", "dynamicLossScale");
  needTensor(state.goodSteps, "the good steps of the state", "dynamicLossScale");
}

/**
 * Whether no element of a tree is infinite or NaN, on any device that holds a block of it; a bool scalar.
 *
 * @example
 * ```ts
 * optim.allFinite({ w: np.array([1, NaN]) }); // false
 * ```
 */
export function allFinite(values: unknown): Tensor {
  return equal(
    sumOverTree(values, (x) => sum(astype(logicalNot(isfinite(x)), "float32"))),
    0,
  );
}

/**
 * The new tree where the gradients were finite, else the old one.
 *
 * @example
 * ```ts
 * optim.applyIfFinite(np.array(false), { w: np.array([2]) }, { w: np.array([1]) }); // { "w": [1] }
 * ```
 */
export function applyIfFinite<T>(finite: Tensor, next: T, before: T): T {
  return select(finite, next, before);
}
