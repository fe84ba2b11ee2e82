/** How a number, mostly the learning rate, changes with the steps. */

import { need, needIfGiven } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { ValueError } from "../ir/errors.js";
import { needOptions } from "../ir/options.js";
import { add, divide, maximum, minimum, multiply, power, subtract } from "../numpy/arithmetic.js";
import { astype, cos, floor } from "../numpy/elementwise.js";
import { greaterEqual, less, where } from "../numpy/logic.js";
import { type TensorLike, toTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";

/** A float32 scalar for the number of steps done so far; it works on traced counts and on plain numbers. */
export type Schedule = (count: TensorLike) => Tensor;

/** A fixed learning rate, or a schedule of it. */
export type LearningRate = number | Schedule;

const float = (count: TensorLike): Tensor =>
  count instanceof Tensor ? astype(count, "float32") : toTensor(count, "float32", "schedule");

function checkSteps(caller: string, steps: Readonly<Record<string, number>>, least: number): void {
  const wrong = Object.entries(steps).filter(([, n]) => !(Number.isInteger(n) && n >= least));
  if (wrong.length > 0) {
    const list = wrong.map(([name, n]) => `${name} = ${describe(n)}`).join(", ");
    throw new ValueError(`[${caller}] numbers of steps must be whole and at least ${least}, got ${list}`);
  }
}

/** Always the same value. */
export function constant(value: number): Schedule {
  return () => toTensor(value, "float32", "constant");
}

/** Options of {@link linear}. */
export interface LinearOptions {
  readonly from: number;
  readonly to: number;
  /** The number of steps from the first value to the last; 0 means the first for ever. */
  readonly steps: number;
}

/** A straight line from one value to another, which then stays. */
export function linear(options: LinearOptions): Schedule {
  needOptions<LinearOptions>(options, { from: true, to: true, steps: true }, "linear");
  const { from, to, steps } = options;
  checkSteps("linear", { steps }, 0);
  if (steps === 0) return constant(from);
  return (count) => {
    const done = minimum(maximum(float(count), 0), steps);
    return add(multiply(subtract(1, divide(done, steps)), from - to), to);
  };
}

/** Options of {@link cosine}. */
export interface CosineOptions {
  readonly from: number;
  /** The value at the end; 0 by default. */
  readonly to?: number;
  readonly steps: number;
  /** The power to which the half wave is raised; 1 by default. */
  readonly exponent?: number;
}

/** Half a cosine wave from one value down to another, which then stays. */
export function cosine(options: CosineOptions): Schedule {
  needOptions<CosineOptions>(options, { from: true, to: true, steps: true, exponent: true }, "cosine");
  const { from, to = 0, steps, exponent = 1 } = options;
  checkSteps("cosine", { steps }, 1);
  const alpha = from === 0 ? 0 : to / from;
  return (count) => {
    const share = divide(minimum(float(count), steps), steps);
    const wave = multiply(add(cos(multiply(share, Math.PI)), 1), 0.5);
    const shaped = exponent === 1 ? wave : power(wave, exponent);
    return multiply(add(multiply(shaped, 1 - alpha), alpha), from);
  };
}

/** Options of {@link warmupCosine}. */
export interface WarmupCosineOptions {
  /** The value of the first step; 0 by default. */
  readonly from?: number;
  readonly peak: number;
  /** The value at the end; 0 by default. */
  readonly to?: number;
  readonly warmupSteps: number;
  /** The number of all steps, those of the warm-up included. */
  readonly steps: number;
}

/** A straight line up to the peak, then half a cosine wave down. */
export function warmupCosine(options: WarmupCosineOptions): Schedule {
  needOptions<WarmupCosineOptions>(
    options,
    { from: true, peak: true, to: true, warmupSteps: true, steps: true },
    "warmupCosine",
  );
  const { from = 0, peak, to = 0, warmupSteps, steps } = options;
  checkSteps("warmupCosine", { warmupSteps }, 0);
  if (!(steps > warmupSteps)) {
    throw new ValueError(
      `[warmupCosine] the ${steps} steps include the ${warmupSteps} of the warm-up and must be more`,
    );
  }
  return join(
    [linear({ from, to: peak, steps: warmupSteps }), cosine({ from: peak, to, steps: steps - warmupSteps })],
    [warmupSteps],
  );
}

/** Options of {@link wsd}. */
export interface WsdOptions {
  /** The value of the first step; 0 by default. */
  readonly from?: number;
  readonly peak: number;
  /** The value at the end; 0 by default. */
  readonly to?: number;
  readonly warmupSteps: number;
  readonly stableSteps: number;
  readonly decaySteps: number;
}

/** Warm-up, stable, decay: a straight line up, the peak for most of the time, a straight line down. */
export function wsd(options: WsdOptions): Schedule {
  needOptions<WsdOptions>(
    options,
    { from: true, peak: true, to: true, warmupSteps: true, stableSteps: true, decaySteps: true },
    "wsd",
  );
  const { from = 0, peak, to = 0, warmupSteps, stableSteps, decaySteps } = options;
  checkSteps("wsd", { warmupSteps, stableSteps, decaySteps }, 0);
  return join(
    [
      linear({ from, to: peak, steps: warmupSteps }),
      constant(peak),
      linear({ from: peak, to, steps: decaySteps }),
    ],
    [warmupSteps, warmupSteps + stableSteps],
  );
}

/** Several schedules one after the other; each counts from the step at which it begins. */
export function join(schedules: readonly Schedule[], boundaries: readonly number[]): Schedule {
  need("list", schedules, "schedules", "join");
  for (const schedule of schedules) need("function", schedule, "each schedule", "join");
  need("integers", boundaries, "boundaries", "join");
  const [first, ...rest] = schedules;
  if (!first || rest.length !== boundaries.length) {
    throw new ValueError(
      `[join] ${schedules.length} schedules need ${schedules.length - 1} boundaries, got ${boundaries.length}`,
    );
  }
  return (count) =>
    rest.reduce((value, schedule, i) => {
      const boundary = boundaries[i] ?? 0;
      return where(less(count, boundary), value, schedule(subtract(count, boundary)));
    }, first(count));
}

/** Options of {@link polynomial}. */
export interface PolynomialOptions extends LinearOptions {
  /** The power to which the way that is left is raised; 1 is a straight line. */
  readonly power: number;
  /** The step at which the change begins; 0 by default. */
  readonly begin?: number;
}

/** From one value to another along a power of the steps that are left; it then stays. */
export function polynomial(options: PolynomialOptions): Schedule {
  needOptions<PolynomialOptions>(
    options,
    { power: true, begin: true, from: true, to: true, steps: true },
    "polynomial",
  );
  const { from, to, power: exponent, steps, begin = 0 } = options;
  checkSteps("polynomial", { steps, begin }, 0);
  if (steps === 0) return constant(from);
  return (count) => {
    const done = minimum(maximum(subtract(float(count), begin), 0), steps);
    const left = subtract(1, divide(done, steps));
    return add(multiply(power(left, exponent), from - to), to);
  };
}

/** Options of {@link exponential}. */
export interface ExponentialOptions {
  readonly from: number;
  /** What the value is multiplied by in `steps` steps. */
  readonly decayRate: number;
  readonly steps: number;
  /** The step at which the decay begins; 0 by default. */
  readonly begin?: number;
  /** Whether the value changes only every `steps` steps. */
  readonly staircase?: boolean;
  /** Where the decay ends; nowhere by default. */
  readonly to?: number;
}

/** A value that is multiplied by the same factor again and again. */
export function exponential(options: ExponentialOptions): Schedule {
  needOptions<ExponentialOptions>(
    options,
    { from: true, decayRate: true, steps: true, begin: true, staircase: true, to: true },
    "exponential",
  );
  const { from, decayRate, steps, begin = 0, staircase = false, to } = options;
  checkSteps("exponential", { steps }, 1);
  checkSteps("exponential", { begin }, 0);
  if (!(decayRate > 0)) throw new ValueError(`[exponential] decayRate must be more than 0, got ${decayRate}`);
  return (count) => {
    const done = maximum(subtract(float(count), begin), 0);
    const share = divide(done, steps);
    const value = multiply(power(decayRate, staircase ? floor(share) : share), from);
    if (to === undefined) return value;
    return decayRate < 1 ? maximum(value, to) : minimum(value, to);
  };
}

/** Steps and the factors that a value is multiplied by from them on. */
export type Boundaries = Readonly<Record<number, number>>;

function sortedBoundaries(boundaries: Boundaries, caller: string): [step: number, factor: number][] {
  const pairs = Object.entries(boundaries).map(([step, factor]): [number, number] => [Number(step), factor]);
  const isRight = ([step, factor]: [number, number]) =>
    Number.isInteger(step) && step >= 0 && typeof factor === "number" && factor >= 0;
  const wrong = pairs.find((pair) => !isRight(pair));
  if (wrong) {
    throw new ValueError(
      `[${caller}] step ${wrong[0]} and factor ${describe(wrong[1])} must be numbers from 0, the step a whole one`,
    );
  }
  return pairs.sort(([a], [b]) => a - b);
}

/**
 * A value that is multiplied by a factor at each of some steps.
 *
 * ```ts
 * piecewiseConstant(0.1, { 1000: 0.1, 2000: 0.1 }) // 0.1, then 0.01, then 0.001
 * ```
 */
export function piecewiseConstant(from: number, boundaries: Boundaries = {}): Schedule {
  need("number", from, "from", "piecewiseConstant");
  needIfGiven("object", boundaries, "boundaries", "piecewiseConstant");
  const pairs = sortedBoundaries(boundaries, "piecewiseConstant");
  return (count) =>
    pairs.reduce(
      (value, [step, factor]) => where(greaterEqual(float(count), step), multiply(value, factor), value),
      constant(from)(0),
    );
}

/** A value that moves from each boundary to the next, along straight lines or half cosine waves. */
export function piecewiseInterpolate(
  shape: "linear" | "cosine",
  from: number,
  boundaries: Boundaries = {},
): Schedule {
  need("number", from, "from", "piecewiseInterpolate");
  needIfGiven("object", boundaries, "boundaries", "piecewiseInterpolate");
  const pairs = sortedBoundaries(boundaries, "piecewiseInterpolate");
  return (count) => {
    const now = float(count);
    let begin = 0;
    let value = from;
    let result = constant(from)(0);
    for (const [step, factor] of pairs) {
      const next = value * factor;
      const share = divide(subtract(now, begin), Math.max(step - begin, 1));
      const between =
        shape === "linear"
          ? add(multiply(share, next - value), value)
          : add(multiply(add(cos(multiply(share, Math.PI)), 1), (value - next) / 2), next);
      result = where(less(now, begin), result, where(less(now, step), between, next));
      begin = step;
      value = next;
    }
    return result;
  };
}

/** Options of {@link linearOneCycle} and {@link cosineOneCycle}. */
export interface OneCycleOptions {
  readonly steps: number;
  readonly peak: number;
  /** The share of the steps until the peak; 0.3 by default. */
  readonly start?: number;
  /** What the peak is divided by at the first step; 25 by default. */
  readonly divFactor?: number;
  /** What the first value is divided by at the last step; 10 000 by default. */
  readonly finalDivFactor?: number;
}

/** Options of {@link linearOneCycle}. */
export interface LinearOneCycleOptions extends OneCycleOptions {
  /** The share of the steps until the first value is reached again; 0.85 by default. */
  readonly final?: number;
}

/** Straight lines up to a peak, back, and down to nearly nothing. */
export function linearOneCycle(options: LinearOneCycleOptions): Schedule {
  needOptions<LinearOneCycleOptions>(
    options,
    { final: true, steps: true, peak: true, start: true, divFactor: true, finalDivFactor: true },
    "linearOneCycle",
  );
  const { steps, peak, start = 0.3, final = 0.85, divFactor = 25, finalDivFactor = 1e4 } = options;
  checkSteps("linearOneCycle", { steps }, 1);
  return piecewiseInterpolate("linear", peak / divFactor, {
    [Math.trunc(start * steps)]: divFactor,
    [Math.trunc(final * steps)]: 1 / divFactor,
    [steps]: 1 / finalDivFactor,
  });
}

/** Half a cosine wave up to a peak and one down to nearly nothing. */
export function cosineOneCycle(options: OneCycleOptions): Schedule {
  needOptions<OneCycleOptions>(
    options,
    { steps: true, peak: true, start: true, divFactor: true, finalDivFactor: true },
    "cosineOneCycle",
  );
  const { steps, peak, start = 0.3, divFactor = 25, finalDivFactor = 1e4 } = options;
  checkSteps("cosineOneCycle", { steps }, 1);
  return piecewiseInterpolate("cosine", peak / divFactor, {
    [Math.trunc(start * steps)]: divFactor,
    [steps]: 1 / (divFactor * finalDivFactor),
  });
}

/** A straight line from `from` to `peak` in the given steps, then `peak`. */
export function warmupConstant(options: WarmupConstantOptions): Schedule {
  needOptions<WarmupConstantOptions>(
    options,
    { from: true, peak: true, warmupSteps: true },
    "warmupConstant",
  );
  const { from = 0, peak, warmupSteps } = options;
  return linear({ from, to: peak, steps: warmupSteps });
}

/** Options of {@link warmupConstant}. */
export interface WarmupConstantOptions {
  /** The value of the first step; 0 by default. */
  readonly from?: number;
  readonly peak: number;
  readonly warmupSteps: number;
}

/** Options of {@link warmupExponential}. */
export interface WarmupExponentialOptions extends Omit<ExponentialOptions, "from"> {
  /** The value of the first step; 0 by default. */
  readonly from?: number;
  readonly peak: number;
  readonly warmupSteps: number;
}

/** A straight line up to the peak, then {@link exponential} decay. */
export function warmupExponential(options: WarmupExponentialOptions): Schedule {
  needOptions<WarmupExponentialOptions>(
    options,
    {
      from: true,
      peak: true,
      warmupSteps: true,
      decayRate: true,
      steps: true,
      begin: true,
      staircase: true,
      to: true,
    },
    "warmupExponential",
  );
  const { from = 0, peak, warmupSteps, ...rest } = options;
  return join(
    [linear({ from, to: peak, steps: warmupSteps }), exponential({ ...rest, from: peak })],
    [warmupSteps],
  );
}

/** {@link warmupCosine} again and again: cosine waves with warm restarts. */
export function sgdr(cycles: readonly WarmupCosineOptions[]): Schedule {
  need("list", cycles, "cycles", "sgdr");
  for (const cycle of cycles) need("object", cycle, "each of cycles", "sgdr");
  const ends = cycles.map((_, i) => cycles.slice(0, i + 1).reduce((total, { steps }) => total + steps, 0));
  return join(cycles.map(warmupCosine), ends.slice(0, -1));
}
