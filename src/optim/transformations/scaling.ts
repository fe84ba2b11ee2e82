/** The transformations that optimisers are chained from. */

import { need } from "../../ir/arguments.js";
import { dtypeKind } from "../../ir/dtype.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { add, divide, multiply } from "../../numpy/elementwise/arithmetic.js";
import { astype, negative, sign } from "../../numpy/elementwise/elementwise.js";
import { toTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import type { LearningRate, Schedule } from "../schedules.js";
import {
  blend,
  keeping,
  keptIn,
  lookAhead,
  meanOfGradients,
  meanOfSquares,
  spreadOf,
  takenUp,
  unbiased,
  zeroCount,
  zerosOf,
} from "./moments.js";
import { adamOptions, lionOptions, rate } from "./options.js";
import {
  type EmptyState,
  type GradientTransformation,
  mapTensors,
  requireParams,
  stateless,
  type TypedTransformation,
  transformation,
  typedTransformation,
} from "./transformation.js";

/**
 * Multiplies every gradient by a number.
 *
 * @example
 * ```ts
 * const step = optim.scale(-0.5);
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [-0.5, -1] }
 * ```
 */
export function scale(factor: number): GradientTransformation<EmptyState> {
  return stateless((grads) => mapTensors((g) => multiply(g, factor), grads));
}

/** How often a transformation was applied. */
export interface CountState {
  readonly count: Tensor;
}

/** A transformation whose state is the number of steps done. */
function counted(
  fn: <T>(grads: T, count: Tensor, params: T | undefined) => T,
): GradientTransformation<CountState> {
  return transformation<CountState>(
    "scaleBySchedule",
    { count: "tensor" },
    {
      init: () => ({ count: zeroCount() }),
      update: (grads, { count }, params) => [fn(grads, count, params), { count: count.add(1) }],
    },
  );
}

/**
 * Multiplies every gradient by a schedule's value at the number of steps done.
 *
 * @example
 * ```ts
 * const step = optim.scaleBySchedule(optim.linear({ from: 0.5, to: 0, steps: 10 }));
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.5, 1] }
 * ```
 */
export function scaleBySchedule(schedule: Schedule): GradientTransformation<CountState> {
  need("function", schedule, "schedule", "scaleBySchedule");
  return counted((grads, count) => {
    const factor = toTensor(schedule(count), "float32", "scaleBySchedule");
    return mapTensors((g) => multiply(g, astype(factor, g.dtype)), grads);
  });
}

/**
 * Multiplies by the negative learning rate, so that the updates point downhill.
 *
 * @example
 * ```ts
 * const step = optim.scaleByLearningRate(0.1);
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [-0.1, -0.2] }
 * ```
 */
export function scaleByLearningRate(
  learningRate: LearningRate,
): GradientTransformation<CountState | EmptyState> {
  need(rate, learningRate, "learningRate", "scaleByLearningRate");
  if (typeof learningRate === "number") return scale(-learningRate);
  return scaleBySchedule((count) => negative(learningRate(count)));
}

const traceOptions = schema({
  /** The share of the trace that stays each step. */
  decay: required("number"),
  /** Whether to look one step ahead. */
  nesterov: false,
  /** The type in which the trace is kept; that of the parameters by default. */
  dtype: optional(dtypeKind),
});

/** Options of {@link trace}. */
export interface TraceOptions extends OptionsOf<typeof traceOptions> {}

/** The decaying sum of the gradients: momentum. */
export interface TraceState {
  readonly trace: unknown;
}

/**
 * Replaces gradients by their decaying sum.
 *
 * @example
 * ```ts
 * const step = optim.trace({ decay: 0.9 });
 * const [, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2])));
 * step.update(np.array([1, 2]), state)[0]; // [1.9, 3.8]
 * ```
 */
export function trace(options: TraceOptions): TypedTransformation<TraceState> {
  const { decay, nesterov, dtype } = traceOptions.read(options, "trace");
  return typedTransformation<TraceState>(
    "trace",
    { trace: "tree" },
    {
      init: (params) => ({ trace: zerosOf(params, dtype) }),
      update: (grads, state) => {
        const push = (g: Tensor, t: Tensor) => add(g, multiply(t, decay));
        const next = mapTensors(push, grads, state.trace);
        const updates = nesterov ? mapTensors(push, grads, next) : next;
        return [updates, { trace: keptIn(next, dtype) }];
      },
    },
  );
}

/** Options of {@link scaleByAdam}. */
export interface AdamOptions extends OptionsOf<typeof adamOptions> {}

/** Adam's moments, each a tree like the parameters. */
export interface AdamState {
  readonly count: Tensor;
  readonly mu: unknown;
  readonly nu: unknown;
}

/**
 * Divides the mean of the gradients by the root of the mean of their squares.
 *
 * @example
 * ```ts
 * const step = optim.scaleByAdam();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByAdam(options?: AdamOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps, epsRoot, muDtype, nesterov } = adamOptions.read(options, "scaleByAdam");
  return keeping<AdamState>(
    "scaleByAdam",
    { mu: meanOfGradients(b1, muDtype), nu: meanOfSquares(b2) },
    (count) => {
      const [meanShare, squareShare] = [takenUp(b1, count), takenUp(b2, count)];
      return (g, { mu, nu }) => {
        const mean = nesterov ? lookAhead(g, mu, b1, count) : unbiased(mu, meanShare);
        return divide(mean, spreadOf(unbiased(nu, squareShare), eps, epsRoot));
      };
    },
  );
}

/** Options of {@link scaleByLion}. */
export interface LionOptions extends OptionsOf<typeof lionOptions> {}

/** Lion's momentum, a tree like the parameters. */
export interface LionState {
  readonly count: Tensor;
  readonly mu: unknown;
}

/**
 * Steps of equal size in every direction: the sign of gradient and momentum together.
 *
 * @example
 * ```ts
 * const step = optim.scaleByLion();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByLion(options?: LionOptions): TypedTransformation<LionState> {
  const { b1, b2, muDtype } = lionOptions.read(options, "scaleByLion");
  return typedTransformation<LionState>(
    "scaleByLion",
    { count: "tensor", mu: "tree" },
    {
      init: (params) => ({ count: zeroCount(), mu: zerosOf(params, muDtype) }),
      update: (grads, state) => {
        const updates = mapTensors((g, m) => sign(blend(g, m, b1)), grads, state.mu);
        const mu = mapTensors((g, m) => blend(g, m, b2), grads, state.mu);
        return [updates, { count: state.count.add(1), mu: keptIn(mu, muDtype) }];
      },
    },
  );
}

/**
 * Adds a share of the parameters, fixed or by a schedule, to their gradients, so that they shrink.
 *
 * @example
 * ```ts
 * const step = optim.addDecayedWeights(0.1);
 * const params = { w: np.array([1, 2]) };
 * step.update({ w: np.array([0, 0]) }, step.init(params), params)[0]; // { "w": [0.1, 0.2] }
 * ```
 */
export function addDecayedWeights(
  weightDecay: LearningRate,
): GradientTransformation<CountState | EmptyState> {
  const push = <T>(grads: T, params: T | undefined, share: Tensor | number): T =>
    mapTensors(
      (g, p) => add(g, multiply(p, typeof share === "number" ? share : astype(share, p.dtype))),
      grads,
      requireParams(params, "addDecayedWeights"),
    );
  need(rate, weightDecay, "weightDecay", "addDecayedWeights");
  if (typeof weightDecay === "number") return stateless((grads, params) => push(grads, params, weightDecay));
  return counted((grads, count, params) => push(grads, params, weightDecay(count)));
}
