/** Line searches: choose the length of a step along an update by the loss at points on the line. */

import { either, integerFrom, oneOf } from "../../ir/arguments.js";
import { TreeError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { array } from "../../numpy/arrays/creation.js";
import {
  add,
  divide,
  maximum,
  minimum,
  multiply,
  power,
  subtract,
} from "../../numpy/elementwise/arithmetic.js";
import { abs, astype, sqrt } from "../../numpy/elementwise/elementwise.js";
import {
  equal,
  greater,
  greaterEqual,
  less,
  lessEqual,
  logicalAnd,
  logicalNot,
  logicalOr,
  where,
} from "../../numpy/elementwise/logic.js";
import { isfinite, isinf, isnan } from "../../numpy/elementwise/specialValues.js";
import { Tensor } from "../../trace/tensor.js";
import { cond } from "../../transforms/control/cond.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { grad as gradOf, valueAndGrad } from "../../transforms/derivatives/grad.js";
import { zeroCount, zerosOf } from "../transformations/moments.js";
import {
  addScaled,
  type ExtraArgs,
  type GradientTransformation,
  inner,
  mapTensors,
  requireParams,
  transformation,
} from "../transformations/transformation.js";

/** The result of a search. */
export interface LinesearchInfo {
  /** How many lengths were tried. */
  readonly numLinesearchSteps: Tensor;
  /** By how much the loss did not fall enough; 0 where it did. */
  readonly decreaseError: Tensor;
}

/** The last step of a search: its length, and the loss where it led. */
export interface LinesearchState<I extends LinesearchInfo = LinesearchInfo> {
  /** The length, by which updates were multiplied; 1 at the start. */
  readonly learningRate: Tensor;
  /** The loss after the step; infinite at the start. */
  readonly value: Tensor;
  /** Its gradient there; `null` where it is not stored. */
  readonly grad: unknown;
  /** The result of the search. */
  readonly info: I;
}

const parts = { learningRate: "tensor", value: "tensor", grad: "tree", info: "tree" } as const;

const infinity = () => array(Number.POSITIVE_INFINITY, "float32");

/** The loss at the parameters, its gradient and the function; throws if one of them is missing. */
function requireLoss<T>(extra: ExtraArgs<T> | undefined, caller: string): Required<ExtraArgs<T>> {
  const { value, grad, valueFn } = extra ?? {};
  if (value !== undefined && grad !== undefined && valueFn !== undefined) return { value, grad, valueFn };
  throw new TreeError(
    `[${caller}] needs the loss: call update(grads, state, params, { value, grad, valueFn })`,
  );
}

/** 0 or more, infinite where it is not a number. */
const errorOf = (x: Tensor) => where(isnan(x), Number.POSITIVE_INFINITY, maximum(x, 0));

/** Updates times a length, in their types. */
function scaled<T>(updates: T, length: Tensor): T {
  return mapTensors((u) => multiply(u, astype(length, u.dtype)), updates);
}

const backtrackingOptions = schema({
  /** How often the step may become shorter. */
  maxBacktrackingSteps: required(integerFrom(0)),
  /** The share of the fall which the slope promises that is enough; 1e-4 by default. */
  slopeRtol: 1e-4,
  /** What a step that is too long is multiplied by; 0.8 by default. */
  decreaseFactor: 0.8,
  /** What the length of the last step is multiplied by for the first try; 1.5 by default. */
  increaseFactor: 1.5,
  /** The longest step; 1 by default. */
  maxLearningRate: 1,
  /** By how much the loss may fall too little; 0 by default. */
  atol: 0,
  /** The same as a share of the loss; 0 by default. */
  rtol: 0,
  /** Whether the gradient after the step is kept, for {@link valueAndGradFromState}. */
  storeGrad: false,
});

/** Options of {@link scaleByBacktrackingLinesearch}. */
export interface BacktrackingLinesearchOptions extends OptionsOf<typeof backtrackingOptions> {}

/**
 * Multiplies updates by the first of ever smaller lengths with which the loss falls enough (Armijo's rule); by 0 where
 * it is finite nowhere. It stands last in a chain, and `update` needs the loss.
 *
 * @example
 * ```ts
 * const loss = (w: Tensor) => np.sum(np.square(w));
 * const search = optim.scaleByBacktrackingLinesearch({ maxBacktrackingSteps: 15 });
 * const [optimizer, w] = [optim.chain(optim.sgd({ learningRate: 1 }), search), np.array([1])];
 * const [value, slope] = valueAndGrad(loss)(w);
 * const [updates] = optimizer.update(slope, optimizer.init(w), w, { value, grad: slope, valueFn: loss });
 * updates; // [-1.6]
 * ```
 */
export function scaleByBacktrackingLinesearch(
  options: BacktrackingLinesearchOptions,
): GradientTransformation<LinesearchState> {
  const caller = "scaleByBacktrackingLinesearch";
  const own = backtrackingOptions.read(options, caller);
  return transformation<LinesearchState>(caller, parts, {
    init: (params) => ({
      learningRate: array(1, "float32"),
      value: infinity(),
      grad: own.storeGrad ? zerosOf(params) : null,
      info: { numLinesearchSteps: zeroCount(), decreaseError: infinity() },
    }),
    update: <T>(
      updates: T,
      state: LinesearchState,
      params?: T,
      extra?: ExtraArgs<T>,
    ): [T, LinesearchState] => {
      const given = requireParams(params, caller);
      const { value, grad, valueFn } = requireLoss(extra, caller);
      const slope = inner(updates, grad);
      const [numLinesearchSteps, learningRate, newValue, decreaseError] = whileLoop<
        [Tensor, Tensor, Tensor, Tensor]
      >(
        ([count, , , error]) =>
          logicalAnd(logicalNot(lessEqual(error, own.atol)), lessEqual(count, own.maxBacktrackingSteps)),
        ([count, length]) => {
          const shorter = where(greater(count, 0), multiply(length, own.decreaseFactor), length);
          const reached = valueFn(addScaled(given, shorter, updates));
          const allowed = add(
            multiply(value, 1 + own.rtol),
            multiply(multiply(shorter, own.slopeRtol), slope),
          );
          return [count.add(1), shorter, reached, errorOf(subtract(reached, allowed))];
        },
        [
          zeroCount(),
          minimum(multiply(state.learningRate, own.increaseFactor), own.maxLearningRate),
          value,
          infinity(),
        ],
      );
      const used = where(isinf(decreaseError), 0, learningRate);
      const next = {
        learningRate: used,
        value: newValue,
        grad: own.storeGrad ? gradOf(valueFn)(addScaled(given, learningRate, updates)) : null,
        info: { numLinesearchSteps, decreaseError },
      };
      return [scaled(updates, used), next];
    },
  });
}

const zoomOptions = schema({
  /** How many lengths may be tried. */
  maxLinesearchSteps: required(integerFrom(1)),
  /** The longest step; none by default. */
  maxLearningRate: optional("number"),
  /** How far both conditions may be missed; 0 by default. */
  tol: 0,
  /** What a length is multiplied by until it is too long; 2 by default. */
  increaseFactor: 2,
  /** The share of the fall which the slope promises that is enough; 1e-4 by default. */
  slopeRtol: 1e-4,
  /** The share of the slope that may be left at the end; 0.9 by default. */
  curvRtol: 0.9,
  /** The share of the loss by which it may rise where the slope alone tells that it falls; 1e-6 by default. */
  approxDecRtol: optional(either("number", "null"), 1e-6),
  /** The shortest interval that is searched; 1e-5 by default. */
  stepsizePrecision: 1e-5,
  /** The first length: that of the last step (`keep`, the default) or 1 (`one`). */
  initialGuessStrategy: optional(oneOf("keep", "one"), "keep"),
});

/** Options of {@link scaleByZoomLinesearch}. */
export interface ZoomLinesearchOptions extends OptionsOf<typeof zoomOptions> {}

type ZoomValues = ReturnType<typeof zoomOptions.read>;

/** The result of {@link scaleByZoomLinesearch}. */
export interface ZoomLinesearchInfo extends LinesearchInfo {
  /** By how much the slope is still too steep; 0 where it is not. */
  readonly curvatureError: Tensor;
}

/** The state of {@link scaleByZoomLinesearch}. */
export type ZoomLinesearchState = LinesearchState<ZoomLinesearchInfo>;

/** A length with the loss there and its slope along the update. */
interface Point {
  readonly at: Tensor;
  readonly value: Tensor;
  readonly slope: Tensor;
}

/** A point with the gradient there. */
interface Trial extends Point {
  readonly grad: unknown;
}

/** The state of a search in progress. */
interface Search {
  readonly count: Tensor;
  /** The last length that was tried. */
  readonly last: Trial;
  readonly decreaseError: Tensor;
  readonly curvatureError: Tensor;
  /** Whether an interval is known that holds a good length; `low` is its better end. */
  readonly isFound: Tensor;
  readonly low: Point;
  readonly high: Point;
  /** An earlier end of the interval, through which a cubic curve is laid. */
  readonly reference: Point;
  /** The best length with which the loss falls enough; 0 while there is none. */
  readonly safe: Trial;
  readonly isDone: Tensor;
  readonly hasFailed: Tensor;
}

/** One of two trees of tensors. */
function choose<T>(condition: Tensor, yes: T, no: T): T {
  return mapTensors((a, b) => where(condition, a, b), yes, no);
}

/**
 * Multiplies updates by a length with which the loss falls enough and its slope becomes flat enough (the strong
 * conditions of Wolfe): lengths grow until an interval holds one, which then shrinks. It stands last in a chain, and
 * `update` needs the loss, as with {@link scaleByBacktrackingLinesearch}.
 *
 * @example
 * ```ts
 * const loss = (w: Tensor) => np.sum(np.square(w));
 * const search = optim.scaleByZoomLinesearch({ maxLinesearchSteps: 15 });
 * const [optimizer, w] = [optim.chain(optim.sgd({ learningRate: 1 }), search), np.array([1])];
 * const [value, slope] = valueAndGrad(loss)(w);
 * const [updates] = optimizer.update(slope, optimizer.init(w), w, { value, grad: slope, valueFn: loss });
 * updates; // [-1]
 * ```
 */
export function scaleByZoomLinesearch(
  options: ZoomLinesearchOptions,
): GradientTransformation<ZoomLinesearchState> {
  const caller = "scaleByZoomLinesearch";
  const own = zoomOptions.read(options, caller);
  return transformation<ZoomLinesearchState>(caller, parts, {
    init: (params) => ({
      learningRate: array(1, "float32"),
      value: infinity(),
      grad: zerosOf(params),
      info: { numLinesearchSteps: zeroCount(), decreaseError: infinity(), curvatureError: infinity() },
    }),
    update: <T>(
      updates: T,
      state: ZoomLinesearchState,
      params?: T,
      extra?: ExtraArgs<T>,
    ): [T, ZoomLinesearchState] => {
      const given = requireParams(params, caller);
      const { value, grad, valueFn } = requireLoss(extra, caller);
      const start: Trial = { at: array(0, "float32"), value, slope: inner(updates, grad), grad };
      const guess = own.initialGuessStrategy === "one" ? array(1, "float32") : state.learningRate;
      const evaluate = (at: Tensor): Trial => {
        const [reached, slopes] = valueAndGrad(valueFn)(addScaled(given, at, updates));
        return { at, value: reached, slope: inner(slopes, updates), grad: slopes };
      };
      const { count, last, safe, decreaseError, curvatureError, hasFailed } = whileLoop<Search>(
        (search) => logicalNot(logicalOr(search.isDone, search.hasFailed)),
        (search) => zoomStep(own, search, { start, guess, evaluate }),
        beginning(start),
      );
      const isSafe = logicalOr(greater(safe.at, 0), isinf(decreaseError));
      const end = choose(logicalAnd(hasFailed, isSafe), safe, last);
      const info = { numLinesearchSteps: count, decreaseError, curvatureError };
      return [scaled(updates, end.at), { learningRate: end.at, value: end.value, grad: end.grad, info }];
    },
  });
}

function beginning(start: Trial): Search {
  const { grad: _, ...point } = start;
  const never = array(false);
  return {
    count: zeroCount(),
    last: start,
    decreaseError: infinity(),
    curvatureError: infinity(),
    isFound: never,
    low: point,
    high: point,
    reference: point,
    safe: start,
    isDone: never,
    hasFailed: never,
  };
}

/** The line that is searched. */
interface Line {
  readonly start: Point;
  readonly guess: Tensor;
  readonly evaluate: (at: Tensor) => Trial;
}

/** Tries one more length: a larger one while no interval is found, then one inside of it. */
function zoomStep(own: ZoomValues, search: Search, { start, guess, evaluate }: Line): Search {
  const { count, last, isFound, low, high, safe } = search;
  const larger = where(equal(count, 0), guess, multiply(last.at, own.increaseFactor));
  const limit = own.maxLearningRate ?? Number.POSITIVE_INFINITY;
  const trial = evaluate(where(isFound, middleOf(search), minimum(larger, limit)));
  const { grad: _, ...tried } = trial;
  const { grad: __, ...before } = last;
  const [decreaseError, curvatureError] = [
    decreaseErrorOf(own, trial, start),
    curvatureErrorOf(own, trial, start),
  ];
  const isGood = lessEqual(maximum(decreaseError, curvatureError), own.tol);
  const isTooHigh = greater(decreaseError, 0);
  // Which ends the interval has next, before and after one is found.
  const endsHere = logicalOr(isTooHigh, logicalAnd(greaterEqual(trial.value, last.value), greater(count, 0)));
  const turnsHere = logicalAnd(greaterEqual(trial.slope, 0), logicalNot(endsHere));
  const isFoundNow = logicalOr(logicalOr(endsHere, turnsHere), isGood);
  const found = choose(turnsHere, { low: tried, high: before }, { low: before, high: tried });
  const isUpper = logicalOr(isTooHigh, greaterEqual(trial.value, low.value));
  const isTurned = logicalAnd(
    greaterEqual(multiply(trial.slope, subtract(high.at, low.at)), 0),
    logicalNot(isUpper),
  );
  const shrunk = {
    low: choose(isUpper, low, tried),
    high: choose(isUpper, tried, choose(isTurned, low, high)),
  };
  const isLower = logicalAnd(
    lessEqual(decreaseError, own.tol),
    logicalOr(logicalNot(isFound), less(trial.value, safe.value)),
  );
  const nextSafe = choose(isLower, trial, safe);
  const isEnd = logicalAnd(greaterEqual(larger, limit), logicalNot(isFoundNow));
  const isDone = logicalOr(isGood, logicalAnd(isEnd, logicalNot(isFound)));
  const isNarrow = logicalAnd(
    lessEqual(abs(subtract(high.at, low.at)), own.stepsizePrecision),
    greater(nextSafe.at, 0),
  );
  const givesUp = logicalOr(
    greaterEqual(count.add(1), own.maxLinesearchSteps),
    logicalAnd(isFound, isNarrow),
  );
  return {
    count: count.add(1),
    last: trial,
    decreaseError,
    curvatureError,
    isFound: logicalOr(isFound, isFoundNow),
    ...choose(isFound, shrunk, found),
    reference: choose(isFound, choose(logicalOr(isUpper, isTurned), high, low), found.low),
    safe: nextSafe,
    isDone,
    hasFailed: logicalAnd(givesUp, logicalNot(isDone)),
  };
}

/** By how much a point misses Armijo's rule, or where rounding hides the fall, the rule of Hager and Zhang. */
function decreaseErrorOf({ slopeRtol, approxDecRtol }: ZoomValues, point: Point, start: Point): Tensor {
  const risen = subtract(point.value, start.value);
  const error = subtract(risen, multiply(multiply(point.at, slopeRtol), start.slope));
  if (approxDecRtol === null) return errorOf(error);
  const bySlope = subtract(point.slope, multiply(start.slope, 2 * slopeRtol - 1));
  const byValue = subtract(risen, multiply(abs(start.value), approxDecRtol));
  return errorOf(minimum(maximum(bySlope, byValue), error));
}

function curvatureErrorOf({ curvRtol }: ZoomValues, point: Point, start: Point): Tensor {
  return errorOf(subtract(abs(point.slope), multiply(abs(start.slope), curvRtol)));
}

/** Where the interval is tried next: at the lowest point of a cubic or quadratic curve if inside, else in the middle. */
function middleOf({ low, high, reference }: Search): Tensor {
  const width = abs(subtract(high.at, low.at));
  const isInside = (x: Tensor, share: number) => {
    const margin = multiply(width, share);
    return logicalAnd(
      greater(x, add(minimum(high.at, low.at), margin)),
      less(x, subtract(maximum(high.at, low.at), margin)),
    );
  };
  const [cubic, quadratic] = [cubicMinimum(low, high, reference), quadraticMinimum(low, high)];
  const middle = divide(add(low.at, high.at), 2);
  return where(isInside(cubic, 0.2), cubic, where(isInside(quadratic, 0.1), quadratic, middle));
}

/** The lowest point of the cubic curve with value and slope of one point and the values of two others. */
function cubicMinimum({ at, value, slope }: Point, b: Point, c: Point): Tensor {
  const [toB, toC] = [subtract(b.at, at), subtract(c.at, at)];
  const rest = (point: Point, distance: Tensor) =>
    subtract(subtract(point.value, value), multiply(slope, distance));
  const [restB, restC] = [rest(b, toB), rest(c, toC)];
  const product = multiply(toB, toC);
  const divisor = multiply(multiply(product, product), subtract(toB, toC));
  const weigh = (n: number) => subtract(multiply(power(toC, n), restB), multiply(power(toB, n), restC));
  const [third, second] = [divide(weigh(2), divisor), divide(weigh(3).neg(), divisor)];
  const root = sqrt(subtract(multiply(second, second), multiply(multiply(third, 3), slope)));
  return add(at, divide(subtract(root, second), multiply(third, 3)));
}

/** The lowest point of the parabola with value and slope of one point and the value of another. */
function quadraticMinimum({ at, value, slope }: Point, b: Point): Tensor {
  const distance = subtract(b.at, at);
  const rest = subtract(subtract(b.value, value), multiply(slope, distance));
  const second = divide(rest, multiply(distance, distance));
  return subtract(at, divide(slope, multiply(second, 2)));
}

/**
 * Loss and gradient as a line search left them in its state, computed only where the state has none yet.
 *
 * @example
 * ```ts
 * const w = np.array([3]);
 * const loss = (x: Tensor) => np.sum(np.square(x));
 * optim.valueAndGradFromState(loss)(w, optim.lbfgs().init(w)); // [9, [6]]
 * ```
 */
export function valueAndGradFromState<P>(
  valueFn: (params: P) => Tensor,
): (params: P, state: unknown) => [value: Tensor, grad: P] {
  return (params, state) => {
    const stored = findStored(state);
    if (!stored) {
      throw new TreeError(
        "[valueAndGradFromState] the state has no value and gradient: use scaleByZoomLinesearch, or scaleByBacktrackingLinesearch with storeGrad",
      );
    }
    const { value, grad } = stored;
    const compute = (): [Tensor, P] => {
      const [loss, slopes] = valueAndGrad(valueFn)(params);
      return [loss, slopes as P];
    };
    return cond(isfinite(value), (): [Tensor, P] => [value, grad as P], compute);
  };
}

/** The part of a state that holds a loss and its gradient. */
function findStored(state: unknown): { readonly value: Tensor; readonly grad: unknown } | undefined {
  if (typeof state !== "object" || state === null || state instanceof Tensor) return undefined;
  if ("value" in state && "grad" in state && state.value instanceof Tensor && state.grad !== null) {
    return { value: state.value, grad: state.grad };
  }
  for (const part of Object.values(state)) {
    const stored = findStored(part);
    if (stored) return stored;
  }
  return undefined;
}
