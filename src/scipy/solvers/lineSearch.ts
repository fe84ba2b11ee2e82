/**
 * Searches along a line for a step after which a function is lower and flatter (the strong Wolfe conditions), by Nocedal
 * and Wright's algorithms 3.5 and 3.6.
 */

import { isFloat } from "../../ir/dtype.js";
import * as np from "../../numpy/index.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { valueAndGrad } from "../../transforms/derivatives/grad.js";

/** How far a step must lower the function, and flatten it, as shares of the slope at the start. */
const [lower, flatter] = [1e-4, 0.9];

/** Maximum number of lengths that are tried between two others. */
const maxInside = 30;

/** A point of the line: its distance in steps, the value and the slope there, and the gradient. */
interface Point {
  readonly at: Tensor;
  readonly value: Tensor;
  readonly slope: Tensor;
  readonly gradient: Tensor;
}

/** What a search found: the length of the step, and the function there. */
export interface LineSearchResult {
  readonly length: Tensor;
  readonly value: Tensor;
  readonly gradient: Tensor;
  /** 0; 1 if nothing was found between two points, 3 if no such points were found. */
  readonly failure: Tensor;
  readonly evaluations: Tensor;
}

const pick = <T>(condition: Tensor, yes: T, no: T): T =>
  tree.map((a: Tensor, b: Tensor) => np.where(condition, a, b), yes, no) as T;
const both = np.logicalAnd;
const either = np.logicalOr;
const neither = (...conditions: readonly Tensor[]) => np.logicalNot(conditions.reduce(either));
const int = (value: number) => Tensor.scalar(value, "int32");

/** The minimum of the parabola with a value and a slope at one point, and a value at another. */
function parabola(from: Point, to: Point): Tensor {
  const width = np.subtract(to.at, from.at);
  const rise = np.subtract(np.subtract(to.value, from.value), np.multiply(from.slope, width));
  const curvature = np.divide(rise, np.square(width));
  return np.subtract(from.at, np.divide(from.slope, np.multiply(curvature, 2)));
}

/** The minimum of the cubic through three points, with a slope at the first; NaN if it has none. */
function cubic(from: Point, to: Point, third: Point): Tensor {
  const [b, c] = [to, third].map((point) => np.subtract(point.at, from.at)) as [Tensor, Tensor];
  const [riseB, riseC] = (
    [
      [to, b],
      [third, c],
    ] as const
  ).map(([point, width]) =>
    np.subtract(np.subtract(point.value, from.value), np.multiply(from.slope, width)),
  ) as [Tensor, Tensor];
  const scale = np.multiply(np.square(np.multiply(b, c)), np.subtract(b, c));
  const cube = np.subtract(np.multiply(np.square(c), riseB), np.multiply(np.square(b), riseC));
  const square = np.subtract(np.multiply(np.power(b, 3), riseC), np.multiply(np.power(c, 3), riseB));
  const [k, l] = [np.divide(cube, scale), np.divide(square, scale)];
  const root = np.sqrt(np.subtract(np.square(l), np.multiply(np.multiply(k, from.slope), 3)));
  return np.add(from.at, np.divide(np.subtract(root, l), np.multiply(k, 3)));
}

interface Bracket {
  readonly done: Tensor;
  readonly failed: Tensor;
  readonly step: Tensor;
  /** The ends: the lower one, and the one that a minimum lies before. */
  readonly low: Point;
  readonly high: Point;
  /** The end that was given up last. */
  readonly old: Point;
  readonly found: Point;
}

/** What the conditions of a search ask of a point. */
interface Conditions {
  readonly pointAt: (at: Tensor) => Point;
  /** Whether the function is not low enough there. */
  readonly isHigh: (point: Point) => Tensor;
  readonly isFlat: (point: Point) => Tensor;
}

/** Narrows a bracket until a point in it meets the conditions; only where it is wanted. */
function zoom({ pointAt, isHigh, isFlat }: Conditions, low: Point, high: Point, wanted: Tensor): Bracket {
  const middle = (x: Tensor, y: Tensor) => np.divide(np.add(x, y), 2);
  const start: Bracket = {
    done: np.logicalNot(wanted),
    failed: np.zerosLike(wanted),
    step: int(0),
    low,
    high,
    old: { ...low, at: middle(low.at, high.at), value: middle(low.value, high.value) },
    found: { ...low, at: np.onesLike(low.at) },
  };
  const narrowest = low.at.dtype === "float64" ? 1e-10 : 1e-5;
  const narrower = (bracket: Bracket): Bracket => {
    const width = np.abs(np.subtract(bracket.high.at, bracket.low.at));
    const [left, right] = [
      np.minimum(bracket.low.at, bracket.high.at),
      np.maximum(bracket.low.at, bracket.high.at),
    ];
    const isInside = (at: Tensor, margin: number) =>
      both(
        at.gt(np.add(left, np.multiply(width, margin))),
        at.lt(np.subtract(right, np.multiply(width, margin))),
      );
    const [byCubic, byParabola] = [
      cubic(bracket.low, bracket.high, bracket.old),
      parabola(bracket.low, bracket.high),
    ];
    const isCubic = both(bracket.step.gt(0), isInside(byCubic, 0.2));
    const halved = middle(bracket.low.at, bracket.high.at);
    const at = np.where(isCubic, byCubic, np.where(isInside(byParabola, 0.1), byParabola, halved));
    const point = pointAt(at);
    const isNewHigh = either(isHigh(point), point.value.ge(bracket.low.value));
    const isFound = both(isFlat(point), np.logicalNot(isNewHigh));
    const isLow = neither(isNewHigh, isFound);
    const turns = both(isLow, np.multiply(point.slope, np.subtract(bracket.high.at, bracket.low.at)).ge(0));
    const isHighReplaced = either(isNewHigh, turns);
    const step = np.add(bracket.step, 1);
    return {
      done: either(bracket.done, isFound),
      failed: either(either(bracket.failed, width.le(narrowest)), step.ge(maxInside)),
      step,
      low: pick(isLow, point, bracket.low),
      high: pick(isNewHigh, point, pick(turns, bracket.low, bracket.high)),
      old: pick(isHighReplaced, bracket.high, pick(isLow, bracket.low, bracket.old)),
      found: pick(isFound, point, bracket.found),
    };
  };
  return whileLoop(({ done, failed }: Bracket) => neither(done, failed), narrower, start);
}

interface Search {
  readonly done: Tensor;
  readonly failed: Tensor;
  /** Ordinal of the next length, from 1. */
  readonly trial: Tensor;
  readonly previous: Point;
  readonly found: Point;
  readonly evaluations: Tensor;
}

/**
 * Searches along a direction from a point.
 *
 * @param from the point, the value and the gradient there, and the value at the point before
 * @param most maximum number of lengths that are tried, apart from those inside of brackets
 */
export function searchLine(
  fun: (x: Tensor) => Tensor,
  from: { readonly x: Tensor; readonly value: Tensor; readonly gradient: Tensor; readonly before: Tensor },
  direction: Tensor,
  most: number,
): LineSearchResult {
  const pointAt = (at: Tensor): Point => {
    const [value, gradient] = valueAndGrad(fun)(np.add(from.x, np.multiply(at, direction)));
    return { at, value, slope: np.dot(gradient, direction), gradient };
  };
  const { dtype } = from.x;
  const slope = np.dot(from.gradient, direction);
  const start: Point = { at: Tensor.scalar(0, dtype), value: from.value, slope, gradient: from.gradient };
  const conditions: Conditions = {
    pointAt,
    isHigh: ({ at, value }) => value.gt(np.add(from.value, np.multiply(np.multiply(at, slope), lower))),
    isFlat: (point) => np.abs(point.slope).le(np.multiply(slope, -flatter)),
  };
  // As far as the last step would have gone down along this slope, and at most 1.
  const likely = np.divide(np.multiply(np.subtract(from.value, from.before), 2.02), slope);
  const first = np.where(likely.gt(1), Tensor.scalar(1, dtype), likely);
  const no = Tensor.scalar(0, "bool");
  const last = whileLoop(
    ({ done, failed, trial }: Search) => both(neither(done, failed), trial.le(most)),
    ({ done, failed, trial, previous, found, evaluations }: Search): Search => {
      const point = pointAt(np.where(trial.eq(1), first, np.multiply(previous.at, 2)));
      const isPast = either(conditions.isHigh(point), both(point.value.ge(previous.value), trial.gt(1)));
      const isFound = both(conditions.isFlat(point), np.logicalNot(isPast));
      const isRising = both(point.slope.ge(0), neither(isPast, isFound));
      const inBracket = either(isPast, isRising);
      const bracket = zoom(
        conditions,
        pick(isPast, previous, point),
        pick(isPast, point, previous),
        inBracket,
      );
      return {
        done: either(done, either(isFound, inBracket)),
        failed: either(failed, both(inBracket, bracket.failed)),
        trial: np.add(trial, 1),
        previous: point,
        found: pick(isFound, point, pick(inBracket, bracket.found, found)),
        evaluations: np.add(np.add(evaluations, 1), bracket.step),
      };
    },
    { done: no, failed: no, trial: int(1), previous: start, found: start, evaluations: int(0) },
  );
  // Shorter steps than this vanish when they are added in float32.
  const least = isFloat(dtype) && dtype !== "float64" ? 1e-8 : 0;
  const length = last.found.at;
  const failure = np.where(last.failed, int(1), np.where(last.done, int(0), int(3)));
  return {
    length: np.where(np.abs(length).lt(least), np.multiply(np.sign(length), least), length),
    value: last.found.value,
    gradient: last.found.gradient,
    failure,
    evaluations: last.evaluations,
  };
}
