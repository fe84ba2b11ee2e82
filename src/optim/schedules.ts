/** How a number, mostly the learning rate, changes with the steps. */

import { integerFrom, need, needIfGiven } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { ValueError } from "../ir/errors.js";
import { type OptionsOf, omit, optional, required, schema } from "../ir/schema.js";
import { add, divide, maximum, minimum, multiply, power, subtract } from "../numpy/elementwise/arithmetic.js";
import { astype, cos, floor } from "../numpy/elementwise/elementwise.js";
import { greaterEqual, less, where } from "../numpy/elementwise/logic.js";
import { type TensorLike, toTensor } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";

/** A float32 scalar for the number of steps done so far; it works on traced counts and on plain numbers. */
export type Schedule = (count: TensorLike) => Tensor;

/** A fixed learning rate, or a schedule of it. */
export type LearningRate = number | Schedule;

const float = (count: TensorLike): Tensor =>
  count instanceof Tensor ? astype(count, "float32") : toTensor(count, "float32", "schedule");

/** A number of steps. */
const stepsFrom = (least: number) => required(integerFrom(least));

/** The step at which a change begins. */
const begin = optional(integerFrom(0), 0);

/**
 * Always the same value.
 *
 * @example
 * ```ts
 * optim.constant(0.1)(5); // 0.1
 * ```
 */
export function constant(value: number): Schedule {
  return () => toTensor(value, "float32", "constant");
}

const linearOptions = schema({
  /** The value of the first step. */
  from: required("number"),
  /** The value at the end. */
  to: required("number"),
  /** The number of steps from the first value to the last; 0 means the first for ever. */
  steps: stepsFrom(0),
});

/** Options of {@link linear}. */
export interface LinearOptions extends OptionsOf<typeof linearOptions> {}

/**
 * A straight line from one value to another, which then stays.
 *
 * @example
 * ```ts
 * optim.linear({ from: 0, to: 1, steps: 10 })(5); // 0.5
 * ```
 */
export function linear(options: LinearOptions): Schedule {
  const { from, to, steps } = linearOptions.read(options, "linear");
  if (steps === 0) return constant(from);
  return (count) => {
    const done = minimum(maximum(float(count), 0), steps);
    return add(multiply(subtract(1, divide(done, steps)), from - to), to);
  };
}

const cosineOptions = schema({
  /** The value of the first step. */
  from: required("number"),
  /** The value at the end; 0 by default. */
  to: 0,
  /** The number of steps from the first value to the last. */
  steps: stepsFrom(1),
  /** The power to which the half wave is raised; 1 by default. */
  exponent: 1,
});

/** Options of {@link cosine}. */
export interface CosineOptions extends OptionsOf<typeof cosineOptions> {}

/**
 * Half a cosine wave from one value down to another, which then stays.
 *
 * @example
 * ```ts
 * optim.cosine({ from: 1, steps: 100 })(50); // 0.5
 * ```
 */
export function cosine(options: CosineOptions): Schedule {
  const { from, to, steps, exponent } = cosineOptions.read(options, "cosine");
  const alpha = from === 0 ? 0 : to / from;
  return (count) => {
    const share = divide(minimum(float(count), steps), steps);
    const wave = multiply(add(cos(multiply(share, Math.PI)), 1), 0.5);
    const shaped = exponent === 1 ? wave : power(wave, exponent);
    return multiply(add(multiply(shaped, 1 - alpha), alpha), from);
  };
}

const warmupCosineOptions = schema({
  /** The value of the first step; 0 by default. */
  from: 0,
  /** The value at the end of the warm-up. */
  peak: required("number"),
  /** The value at the end; 0 by default. */
  to: 0,
  /** The number of steps of the warm-up. */
  warmupSteps: stepsFrom(0),
  /** The number of all steps, those of the warm-up included. */
  steps: stepsFrom(0),
  /** The power to which the half wave is raised; 1 by default. */
  exponent: 1,
});

/** Options of {@link warmupCosine}. */
export interface WarmupCosineOptions extends OptionsOf<typeof warmupCosineOptions> {}

/**
 * A straight line up to the peak, then half a cosine wave down.
 *
 * @example
 * ```ts
 * optim.warmupCosine({ peak: 1, warmupSteps: 10, steps: 100 })(10); // 1
 * ```
 */
export function warmupCosine(options: WarmupCosineOptions): Schedule {
  const { from, peak, to, warmupSteps, steps, exponent } = warmupCosineOptions.read(options, "warmupCosine");
  if (!(steps > warmupSteps)) {
    throw new ValueError(
      `[warmupCosine] the ${steps} steps include the ${warmupSteps} of the warm-up and must be more`,
    );
  }
  return join(
    [
      linear({ from, to: peak, steps: warmupSteps }),
      cosine({ from: peak, to, steps: steps - warmupSteps, exponent }),
    ],
    [warmupSteps],
  );
}

const wsdOptions = schema({
  /** The value of the first step; 0 by default. */
  from: 0,
  /** The value between the warm-up and the decay. */
  peak: required("number"),
  /** The value at the end; 0 by default. */
  to: 0,
  /** The number of steps of the warm-up. */
  warmupSteps: stepsFrom(0),
  /** The number of steps at the peak. */
  stableSteps: stepsFrom(0),
  /** The number of steps of the decay. */
  decaySteps: stepsFrom(0),
});

/** Options of {@link wsd}. */
export interface WsdOptions extends OptionsOf<typeof wsdOptions> {}

/**
 * Warm-up, stable, decay: a straight line up, the peak for most of the time, a straight line down.
 *
 * @example
 * ```ts
 * const schedule = optim.wsd({ peak: 1, warmupSteps: 10, stableSteps: 80, decaySteps: 10 });
 * [schedule(5), schedule(50), schedule(95)]; // [0.5, 1, 0.5]
 * ```
 */
export function wsd(options: WsdOptions): Schedule {
  const { from, peak, to, warmupSteps, stableSteps, decaySteps } = wsdOptions.read(options, "wsd");
  return join(
    [
      linear({ from, to: peak, steps: warmupSteps }),
      constant(peak),
      linear({ from: peak, to, steps: decaySteps }),
    ],
    [warmupSteps, warmupSteps + stableSteps],
  );
}

/**
 * Several schedules one after the other; each counts from the step at which it begins.
 *
 * @example
 * ```ts
 * const schedule = optim.join([optim.constant(1), optim.linear({ from: 1, to: 0, steps: 10 })], [100]);
 * schedule(105); // 0.5
 * ```
 */
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

const polynomialOptions = schema({
  ...linearOptions.fields,
  /** The power to which the way that is left is raised; 1 is a straight line. */
  power: required("number"),
  /** The step at which the change begins; 0 by default. */
  begin,
});

/** Options of {@link polynomial}. */
export interface PolynomialOptions extends OptionsOf<typeof polynomialOptions> {}

/**
 * From one value to another along a power of the steps that are left; it then stays.
 *
 * @example
 * ```ts
 * optim.polynomial({ from: 1, to: 0, steps: 10, power: 2 })(5); // 0.25
 * ```
 */
export function polynomial(options: PolynomialOptions): Schedule {
  const { from, to, power: exponent, steps, begin } = polynomialOptions.read(options, "polynomial");
  if (steps === 0) return constant(from);
  return (count) => {
    const done = minimum(maximum(subtract(float(count), begin), 0), steps);
    const left = subtract(1, divide(done, steps));
    return add(multiply(power(left, exponent), from - to), to);
  };
}

const exponentialOptions = schema({
  /** The value before the decay begins. */
  from: required("number"),
  /** What the value is multiplied by in `steps` steps. */
  decayRate: required("number"),
  /** The number of steps in which the value is multiplied by `decayRate` once. */
  steps: stepsFrom(1),
  /** The step at which the decay begins; 0 by default. */
  begin,
  /** Whether the value changes only every `steps` steps. */
  staircase: false,
  /** Where the decay ends; nowhere by default. */
  to: optional("number"),
});

/** Options of {@link exponential}. */
export interface ExponentialOptions extends OptionsOf<typeof exponentialOptions> {}

/**
 * A value that is multiplied by the same factor again and again.
 *
 * @example
 * ```ts
 * optim.exponential({ from: 1, steps: 10, decayRate: 0.5 })(20); // 0.25
 * ```
 */
export function exponential(options: ExponentialOptions): Schedule {
  const { from, decayRate, steps, begin, staircase, to } = exponentialOptions.read(options, "exponential");
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
      `[${caller}] step ${wrong[0]} and factor ${describe(wrong[1])} must be numbers of at least 0, and the step an integer`,
    );
  }
  return pairs.sort(([a], [b]) => a - b);
}

/**
 * A value that is multiplied by a factor at each of some steps.
 *
 * @example
 * ```ts
 * optim.piecewiseConstant(0.1, { 1000: 0.1, 2000: 0.1 })(1500); // 0.01
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

/**
 * A value that moves from each boundary to the next, along straight lines or half cosine waves.
 *
 * @example
 * ```ts
 * optim.piecewiseInterpolate("linear", 1, { 10: 0.5, 20: 2 })(5); // 0.75
 * ```
 */
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

const oneCycleOptions = schema({
  /** The number of steps of the whole cycle. */
  steps: stepsFrom(1),
  /** The largest value. */
  peak: required("number"),
  /** The share of the steps until the peak; 0.3 by default. */
  start: 0.3,
  /** What the peak is divided by at the first step; 25 by default. */
  divFactor: 25,
  /** What the first value is divided by at the last step; 10 000 by default. */
  finalDivFactor: 1e4,
});

/** Options of {@link linearOneCycle} and {@link cosineOneCycle}. */
export interface OneCycleOptions extends OptionsOf<typeof oneCycleOptions> {}

const linearOneCycleOptions = schema({
  ...oneCycleOptions.fields,
  /** The share of the steps until the first value is reached again; 0.85 by default. */
  final: 0.85,
});

/** Options of {@link linearOneCycle}. */
export interface LinearOneCycleOptions extends OptionsOf<typeof linearOneCycleOptions> {}

/**
 * Straight lines up to a peak, back, and down to nearly nothing.
 *
 * @example
 * ```ts
 * optim.linearOneCycle({ peak: 1, steps: 100 })(30); // 1
 * ```
 */
export function linearOneCycle(options: LinearOneCycleOptions): Schedule {
  const { steps, peak, start, final, divFactor, finalDivFactor } = linearOneCycleOptions.read(
    options,
    "linearOneCycle",
  );
  return piecewiseInterpolate("linear", peak / divFactor, {
    [Math.trunc(start * steps)]: divFactor,
    [Math.trunc(final * steps)]: 1 / divFactor,
    [steps]: 1 / finalDivFactor,
  });
}

/**
 * Half a cosine wave up to a peak and one down to nearly nothing.
 *
 * @example
 * ```ts
 * optim.cosineOneCycle({ peak: 1, steps: 100 })(30); // 1
 * ```
 */
export function cosineOneCycle(options: OneCycleOptions): Schedule {
  const { steps, peak, start, divFactor, finalDivFactor } = oneCycleOptions.read(options, "cosineOneCycle");
  return piecewiseInterpolate("cosine", peak / divFactor, {
    [Math.trunc(start * steps)]: divFactor,
    [steps]: 1 / (divFactor * finalDivFactor),
  });
}

/**
 * A straight line from `from` to `peak` in the given steps, then `peak`.
 *
 * @example
 * ```ts
 * optim.warmupConstant({ peak: 1, warmupSteps: 10 })(5); // 0.5
 * ```
 */
export function warmupConstant(options: WarmupConstantOptions): Schedule {
  const { from, peak, warmupSteps } = warmupConstantOptions.read(options, "warmupConstant");
  return linear({ from, to: peak, steps: warmupSteps });
}

const warmupConstantOptions = schema({
  /** The value of the first step; 0 by default. */
  from: 0,
  /** The value after the warm-up. */
  peak: required("number"),
  /** The number of steps of the warm-up. */
  warmupSteps: stepsFrom(0),
});

/** Options of {@link warmupConstant}. */
export interface WarmupConstantOptions extends OptionsOf<typeof warmupConstantOptions> {}

const warmupExponentialOptions = schema({
  ...omit(exponentialOptions.fields, "from"),
  /** The value of the first step; 0 by default. */
  from: 0,
  /** The value at the end of the warm-up. */
  peak: required("number"),
  /** The number of steps of the warm-up. */
  warmupSteps: stepsFrom(0),
});

/** Options of {@link warmupExponential}. */
export interface WarmupExponentialOptions extends OptionsOf<typeof warmupExponentialOptions> {}

/**
 * A straight line up to the peak, then {@link exponential} decay.
 *
 * @example
 * ```ts
 * const schedule = optim.warmupExponential({ peak: 1, warmupSteps: 10, steps: 100, decayRate: 0.5 });
 * [schedule(5), schedule(110)]; // [0.5, 0.5]
 * ```
 */
export function warmupExponential(options: WarmupExponentialOptions): Schedule {
  const { from, peak, warmupSteps, ...rest } = warmupExponentialOptions.read(options, "warmupExponential");
  return join(
    [linear({ from, to: peak, steps: warmupSteps }), exponential({ ...rest, from: peak })],
    [warmupSteps],
  );
}

/**
 * {@link warmupCosine} again and again: cosine waves with warm restarts.
 *
 * @example
 * ```ts
 * const cycle = { peak: 1, warmupSteps: 10, steps: 100 };
 * optim.sgdr([cycle, cycle])(110); // 1
 * ```
 */
export function sgdr(cycles: readonly WarmupCosineOptions[]): Schedule {
  need("list", cycles, "cycles", "sgdr");
  for (const cycle of cycles) need("object", cycle, "each of cycles", "sgdr");
  const ends = cycles.map((_, i) => cycles.slice(0, i + 1).reduce((total, { steps }) => total + steps, 0));
  return join(cycles.map(warmupCosine), ends.slice(0, -1));
}
