/** How a number, mostly the learning rate, changes with the steps. */
import { ValueError } from "../ir/errors.js";
import { add, divide, maximum, minimum, multiply, power, subtract } from "../numpy/arithmetic.js";
import { astype, cos } from "../numpy/elementwise.js";
import { less, where } from "../numpy/logic.js";
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
    const list = wrong.map(([name, n]) => `${name} = ${n}`).join(", ");
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
export function linear({ from, to, steps }: LinearOptions): Schedule {
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
export function cosine({ from, to = 0, steps, exponent = 1 }: CosineOptions): Schedule {
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
export function warmupCosine({ from = 0, peak, to = 0, warmupSteps, steps }: WarmupCosineOptions): Schedule {
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
