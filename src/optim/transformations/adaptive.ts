/** Transformations that scale gradients by their history: the parts of the adaptive optimisers. */

import { type OptionsOf, omit, schema } from "../../ir/schema.js";
import { fullLike, zerosLike } from "../../numpy/arrays/creation.js";
import { add, divide, maximum, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { abs, astype, sign, sqrt } from "../../numpy/elementwise/elementwise.js";
import { equal, greater, greaterEqual, where } from "../../numpy/elementwise/logic.js";
import { squaredSize } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import {
  blend,
  directionOf,
  filled,
  keeping,
  meanOfGradients,
  meanOfSquares,
  spreadOf,
  takenUp,
  unbiased,
  zerosOf,
} from "./moments.js";
import {
  adadeltaOptions,
  adamaxOptions,
  adamOptions,
  adanOptions,
  beliefOptions,
  radamOptions,
  rmsOptions,
  rssOptions,
  yogiOptions,
} from "./options.js";
import type { AdamOptions, AdamState, CountState } from "./scaling.js";
import { mapTensors, type TypedTransformation, typedTransformation } from "./transformation.js";

/** Options of {@link scaleByRms} and {@link scaleByStddev}. */
export interface RmsOptions extends OptionsOf<typeof rmsOptions> {}

/** Running means of gradients and of their squares. */
export interface MeansState extends CountState {
  readonly mu: unknown;
  readonly nu: unknown;
}

/** The running mean of squared gradients. */
export interface SquaresState extends CountState {
  readonly nu: unknown;
}

/** Divides by a spread, √(x + eps) or √x + eps: multiplies by its rounded inverse, as optax does. */
function overRoot(g: Tensor, squares: Tensor, eps: number, epsInSqrt: boolean): Tensor {
  return multiply(epsInSqrt ? ops.rsqrt(add(squares, eps)) : divide(1, add(sqrt(squares), eps)), g);
}

/**
 * Divides gradients by the root of the running mean of their squares.
 *
 * @example
 * ```ts
 * const step = optim.scaleByRms();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [3.162, -3.162] }
 * ```
 */
export function scaleByRms(options?: RmsOptions): TypedTransformation<SquaresState> {
  const { decay, eps, initialScale, epsInSqrt, biasCorrection } = rmsOptions.read(options, "scaleByRms");
  return keeping<SquaresState>(
    "scaleByRms",
    { nu: { ...meanOfSquares(decay), start: (p) => fullLike(p, initialScale) } },
    (count) => {
      const share = biasCorrection ? takenUp(decay, count) : undefined;
      return (g, { nu }) => overRoot(g, share ? unbiased(nu, share) : nu, eps, epsInSqrt);
    },
  );
}

/**
 * Divides gradients by their running standard deviation.
 *
 * @example
 * ```ts
 * const step = optim.scaleByStddev();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [3.333, -3.333] }
 * ```
 */
export function scaleByStddev(options?: RmsOptions): TypedTransformation<MeansState> {
  const { decay, eps, initialScale, epsInSqrt, biasCorrection } = rmsOptions.read(options, "scaleByStddev");
  return keeping<MeansState>(
    "scaleByStddev",
    {
      mu: meanOfGradients(decay),
      nu: { ...meanOfSquares(decay), start: (p) => fullLike(p, initialScale) },
    },
    (count) => {
      const share = biasCorrection ? takenUp(decay, count) : undefined;
      const whole = (x: Tensor) => (share ? unbiased(x, share) : x);
      return (g, { mu, nu }) => overRoot(g, subtract(whole(nu), squaredSize(whole(mu))), eps, epsInSqrt);
    },
  );
}

/** Options of {@link scaleByRss}. */
export interface RssOptions extends OptionsOf<typeof rssOptions> {}

/** The sum of all squared gradients so far. */
export interface RssState {
  readonly sumOfSquares: unknown;
}

/**
 * Divides gradients by the root of the sum of all their squares so far.
 *
 * @example
 * ```ts
 * const step = optim.scaleByRss();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.9877, -0.9969] }
 * ```
 */
export function scaleByRss(options?: RssOptions): TypedTransformation<RssState> {
  const { initialAccumulatorValue, eps } = rssOptions.read(options, "scaleByRss");
  return typedTransformation<RssState>(
    "scaleByRss",
    { sumOfSquares: "tree" },
    {
      init: (params) => ({ sumOfSquares: filled(params, initialAccumulatorValue) }),
      update: (grads, state) => {
        const sums = mapTensors((g, s) => add(squaredSize(g), s), grads, state.sumOfSquares);
        const updates = mapTensors(
          (g, s) => multiply(where(greater(s, 0), divide(1, sqrt(add(s, eps))), 0), g),
          grads,
          sums,
        );
        return [updates, { sumOfSquares: sums }];
      },
    },
  );
}

/** Adam's moments, and the largest second one that was seen. */
export interface AmsgradState extends AdamState {
  readonly nuMax: unknown;
}

const scaleByAmsgradSchema = schema(omit(adamOptions.fields, "nesterov"));

/**
 * {@link scaleByAdam} with the largest mean of squares so far instead of the newest.
 *
 * @example
 * ```ts
 * const step = optim.scaleByAmsgrad();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByAmsgrad(options?: Omit<AdamOptions, "nesterov">): TypedTransformation<AmsgradState> {
  const { b1, b2, eps, epsRoot, muDtype } = scaleByAmsgradSchema.read(options, "scaleByAmsgrad");
  return keeping<AmsgradState>(
    "scaleByAmsgrad",
    {
      mu: meanOfGradients(b1, muDtype),
      nu: meanOfSquares(b2),
      nuMax: { next: (_, { nu, nuMax }, count) => maximum(nuMax, unbiased(nu, takenUp(b2, count))) },
    },
    (count) =>
      (_, { mu, nuMax }) =>
        divide(unbiased(mu, takenUp(b1, count)), spreadOf(nuMax, eps, epsRoot)),
  );
}

/** Options of {@link scaleByAdamax}. */
export interface AdamaxOptions extends OptionsOf<typeof adamaxOptions> {}

/**
 * Divides the mean of the gradients by their decaying largest size.
 *
 * @example
 * ```ts
 * const step = optim.scaleByAdamax();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByAdamax(options?: AdamaxOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps } = adamaxOptions.read(options, "scaleByAdamax");
  return keeping<AdamState>(
    "scaleByAdamax",
    {
      mu: meanOfGradients(b1),
      nu: { next: (g, { nu }) => maximum(add(abs(g), eps), multiply(nu, b2)) },
    },
    (count) =>
      (_, { mu, nu }) =>
        divide(unbiased(mu, takenUp(b1, count)), nu),
  );
}

/** Options of {@link scaleByBelief}. */
export interface BeliefOptions extends OptionsOf<typeof beliefOptions> {}

/**
 * {@link scaleByAdam} that divides by the deviation of gradients from their mean.
 *
 * @example
 * ```ts
 * const step = optim.scaleByBelief();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1.111, -1.111] }
 * ```
 */
export function scaleByBelief(options?: BeliefOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps, epsRoot, nesterov } = beliefOptions.read(options, "scaleByBelief");
  return keeping<AdamState>(
    "scaleByBelief",
    {
      mu: meanOfGradients(b1),
      nu: { next: (g, { mu, nu }) => add(blend(squaredSize(subtract(g, mu)), nu, b2), epsRoot) },
    },
    (count) =>
      (g, { mu, nu }) =>
        divide(directionOf(g, mu, b1, count, nesterov), add(sqrt(unbiased(nu, takenUp(b2, count))), eps)),
  );
}

/** Options of {@link scaleByYogi}. */
export interface YogiOptions extends OptionsOf<typeof yogiOptions> {}

/**
 * {@link scaleByAdam} whose mean of squares changes by steps of the size of the squared gradient.
 *
 * @example
 * ```ts
 * const step = optim.scaleByYogi();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.9994, -0.9997] }
 * ```
 */
export function scaleByYogi(options?: YogiOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps, epsRoot, initialAccumulatorValue } = yogiOptions.read(options, "scaleByYogi");
  const start = (p: Tensor) => fullLike(p, initialAccumulatorValue);
  const follow = (squares: Tensor, nu: Tensor) =>
    subtract(nu, multiply(multiply(sign(subtract(nu, squares)), 1 - b2), squares));
  return keeping<AdamState>(
    "scaleByYogi",
    { mu: { ...meanOfGradients(b1), start }, nu: { start, next: (g, { nu }) => follow(squaredSize(g), nu) } },
    (count) =>
      (_, { mu, nu }) => {
        const spread = spreadOf(unbiased(nu, takenUp(b2, count)), eps, epsRoot);
        return divide(unbiased(mu, takenUp(b1, count)), spread);
      },
  );
}

/** Options of {@link scaleByRadam}. */
export interface RadamOptions extends OptionsOf<typeof radamOptions> {}

/**
 * {@link scaleByAdam} that trusts the mean of squares only as far as the steps so far allow.
 *
 * @example
 * ```ts
 * const step = optim.scaleByRadam();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [2, -4] }
 * ```
 */
export function scaleByRadam(options?: RadamOptions): TypedTransformation<AdamState> {
  const { b1, b2, eps, epsRoot, threshold, nesterov } = radamOptions.read(options, "scaleByRadam");
  const longest = 2 / (1 - b2) - 1;
  return keeping<AdamState>("scaleByRadam", { mu: meanOfGradients(b1), nu: meanOfSquares(b2) }, (count) => {
    const share = takenUp(b2, count);
    const steps = astype(count, "float32");
    const window = subtract(longest, divide(multiply(multiply(steps, 2), subtract(1, share)), share));
    const trust = sqrt(
      divide(
        multiply(multiply(window.sub(4), window.sub(2)), longest),
        multiply(window, (longest - 4) * (longest - 2)),
      ),
    );
    return (g, { mu, nu }) => {
      const direction = directionOf(g, mu, b1, count, nesterov);
      const trusted = multiply(astype(trust, direction.dtype), direction);
      const rectified = divide(trusted, spreadOf(unbiased(nu, share), eps, epsRoot));
      return where(greaterEqual(window, threshold), rectified, direction);
    };
  });
}

/** Options of {@link scaleByAdadelta}. */
export interface AdadeltaOptions extends OptionsOf<typeof adadeltaOptions> {}

/** The running means of squared gradients and of squared updates. */
export interface AdadeltaState {
  readonly squaredGrads: unknown;
  readonly squaredUpdates: unknown;
}

/**
 * Gives updates the size of the updates before.
 *
 * @example
 * ```ts
 * const step = optim.scaleByAdadelta();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0.003162, -0.003162] }
 * ```
 */
export function scaleByAdadelta(options?: AdadeltaOptions): TypedTransformation<AdadeltaState> {
  const { rho, eps } = adadeltaOptions.read(options, "scaleByAdadelta");
  return typedTransformation<AdadeltaState>(
    "scaleByAdadelta",
    { squaredGrads: "tree", squaredUpdates: "tree" },
    {
      init: (params) => ({ squaredGrads: zerosOf(params), squaredUpdates: zerosOf(params) }),
      update: (grads, state) => {
        // The squares of complex numbers are complex here, as in optax.
        const squaredGrads = mapTensors((g, s) => blend(multiply(g, g), s, rho), grads, state.squaredGrads);
        const updates = mapTensors(
          (g, s, before) => multiply(divide(sqrt(add(before, eps)), sqrt(add(s, eps))), g),
          grads,
          squaredGrads,
          state.squaredUpdates,
        );
        const squaredUpdates = mapTensors(
          (u, s) => blend(multiply(u, u), s, rho),
          updates,
          state.squaredUpdates,
        );
        return [updates, { squaredGrads, squaredUpdates }];
      },
    },
  );
}

/** Options of {@link scaleByAdan}. */
export interface AdanOptions extends OptionsOf<typeof adanOptions> {}

/** Adan's three moments and the last gradient. */
export interface AdanState extends CountState {
  readonly mu: unknown;
  readonly delta: unknown;
  readonly nu: unknown;
  readonly last: unknown;
}

/**
 * Adam with the change of the gradient as a second direction.
 *
 * @example
 * ```ts
 * const step = optim.scaleByAdan();
 * const grads = { w: np.array([2, -4]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, -1] }
 * ```
 */
export function scaleByAdan(options?: AdanOptions): TypedTransformation<AdanState> {
  const { b1, b2, b3, eps, epsRoot } = adanOptions.read(options, "scaleByAdan");
  const changeOf = (g: Tensor, last: Tensor, count: Tensor) =>
    where(equal(count, 1), zerosLike(g), subtract(g, last));
  return keeping<AdanState>(
    "scaleByAdan",
    {
      mu: meanOfGradients(b1),
      delta: { next: (g, { delta, last }, count) => blend(changeOf(g, last, count), delta, b2) },
      nu: {
        next: (g, { nu, last }, count) =>
          blend(squaredSize(add(g, multiply(changeOf(g, last, count), 1 - b2))), nu, b3),
      },
      last: { next: (g) => g },
    },
    (count) =>
      (_, { mu, delta, nu }) => {
        const ahead = multiply(unbiased(delta, takenUp(b2, count)), 1 - b2);
        const direction = add(unbiased(mu, takenUp(b1, count)), ahead);
        return divide(direction, spreadOf(unbiased(nu, takenUp(b3, count)), eps, epsRoot));
      },
  );
}
