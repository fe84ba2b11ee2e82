/** Optimisers that wrap other optimisers, and running means of updates. */

import { integerFrom, need, needIfGiven } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { dtypeKind } from "../../ir/dtype.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { add, mod, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { equal, notEqual, where } from "../../numpy/elementwise/logic.js";
import { needTensor, toTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import type { LearningRate, Schedule } from "../schedules.js";
import { blend, keptIn, takenUp, unbiased, zeroCount, zerosOf } from "../transformations/moments.js";
import { rate } from "../transformations/options.js";
import type { CountState } from "../transformations/scaling.js";
import {
  type GradientTransformation,
  mapTensors,
  needTransformation,
  requireParams,
  type StateOfPart,
  type StepState,
  type TypedTransformation,
  transformation,
  typedTransformation,
} from "../transformations/transformation.js";
import { select } from "./accumulate.js";

const emaOptions = schema({
  /** Whether the mean is corrected for its initial value of zero; true by default. */
  debias: true,
  /** The type in which the mean is kept; that of the updates by default. */
  accumulatorDtype: optional(dtypeKind),
});

/** Options of {@link ema}. */
export interface EmaOptions extends OptionsOf<typeof emaOptions> {}

/** The running mean of the updates. */
export interface EmaState extends CountState {
  readonly ema: unknown;
}

/**
 * Replaces gradients or updates by their running mean.
 *
 * @example
 * ```ts
 * const step = optim.ema(0.9);
 * const [, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2])));
 * step.update(np.array([3, 2]), state)[0]; // [2.053, 2]
 * ```
 */
export function ema(decay: number, options?: EmaOptions): TypedTransformation<EmaState> {
  need("number", decay, "decay", "ema");
  const { debias, accumulatorDtype } = emaOptions.read(options, "ema");
  return typedTransformation<EmaState>(
    "ema",
    { ema: "tree", count: "tensor" },
    {
      init: (params) => ({ count: zeroCount(), ema: zerosOf(params, accumulatorDtype) }),
      update: (grads, state) => {
        const count = state.count.add(1);
        const mean = mapTensors((g, m) => blend(g, m, decay), grads, state.ema);
        const updates = debias ? mapTensors((m) => unbiased(m, takenUp(decay, count)), mean) : mean;
        return [updates, { count, ema: keptIn(mean, accumulatorDtype) }];
      },
    },
  );
}

/** The parameters of {@link lookahead}: those that run ahead, and those that follow. */
export interface LookaheadParams<P> {
  readonly fast: P;
  readonly slow: P;
}

/**
 * The initial parameters for {@link lookahead}, made from those of a model.
 *
 * @example
 * ```ts
 * optim.lookaheadParams(np.array([1])); // { "fast": [1], "slow": [1] }
 * ```
 */
export function lookaheadParams<P>(params: P): LookaheadParams<P> {
  return { fast: params, slow: params };
}

const lookaheadOptions = schema({
  /** Number of fast steps between updates of the slow parameters. */
  syncPeriod: required(integerFrom(1)),
  /** How far they follow: the share of the way. */
  slowStepSize: required("number"),
  /** Whether the fast optimiser is then reset. */
  resetState: false,
});

/** Options of {@link lookahead}. */
export interface LookaheadOptions extends OptionsOf<typeof lookaheadOptions> {}

/** The state of {@link lookahead}. */
export interface LookaheadState<S> {
  readonly fast: S;
  readonly stepsSinceSync: Tensor;
}

type State = LookaheadState<unknown>;

/**
 * A fast optimiser whose parameters are pulled back every few steps towards slow ones that follow it. Its
 * parameters and updates are pairs (see {@link lookaheadParams}); gradients are those at the fast parameters.
 *
 * @example
 * ```ts
 * const optimizer = optim.lookahead(optim.sgd({ learningRate: 1 }), { syncPeriod: 1, slowStepSize: 0.5 });
 * const params = optim.lookaheadParams(np.array([1]));
 * const [updates] = optimizer.update(np.array([1]), optimizer.init(params), params);
 * optim.applyUpdates(params, updates); // { "fast": [0.5], "slow": [0.5] }
 * ```
 */
export function lookahead<G extends GradientTransformation>(
  inner: G,
  options: LookaheadOptions,
): TypedTransformation<LookaheadState<StateOfPart<StepState<G>, "fast">>> {
  needTransformation(inner, "lookahead");
  const { syncPeriod, slowStepSize, resetState } = lookaheadOptions.read(options, "lookahead");
  return typedTransformation<State, LookaheadState<StateOfPart<StepState<G>, "fast">>>(
    "lookahead",
    { fast: "tree", stepsSinceSync: "tensor" },
    {
      init: (params) => ({
        fast: inner.init(needPair(params).fast),
        stepsSinceSync: zeroCount(),
      }),
      update: <T>(grads: T, state: State, params?: T): [T, State] => {
        const { fast, slow } = needPair(requireParams<unknown>(params, "lookahead"));
        const given = isPair(grads) ? grads.fast : grads;
        const [steps, next] = inner.update<unknown>(given, state.fast, fast);
        const sync = equal(state.stepsSinceSync, syncPeriod - 1);
        const gap = mapTensors((f, u, s) => subtract(add(f, u), s), fast, steps, slow);
        const updates = {
          fast: mapTensors((u, g) => where(sync, subtract(u, multiply(g, 1 - slowStepSize)), u), steps, gap),
          slow: mapTensors((g) => where(sync, multiply(g, slowStepSize), 0), gap),
        };
        const kept = resetState ? select(sync, inner.init(fast), next) : next;
        return [updates as T, { fast: kept, stepsSinceSync: mod(state.stepsSinceSync.add(1), syncPeriod) }];
      },
    },
  );
}

function needPair(params: unknown): LookaheadParams<unknown> {
  if (isPair(params)) return params;
  throw new ValueError(
    `[lookahead] the parameters must be what lookaheadParams returns, got ${describe(params)}`,
  );
}

function isPair(value: unknown): value is LookaheadParams<unknown> {
  return typeof value === "object" && value !== null && "fast" in value && "slow" in value;
}

/** The state of {@link injectHyperparams}: the numbers that the optimiser uses, to be read and changed. */
export interface InjectState<H extends string, S> extends CountState {
  readonly hyperparams: Readonly<Record<H, Tensor>>;
  readonly inner: S;
}

/**
 * An optimiser whose numbers are part of its state: they can be logged, saved, and changed between steps
 * without compiling again. Numbers stay what the state says; schedules follow the steps.
 *
 * @example
 * ```ts
 * const optimizer = optim.injectHyperparams({ learningRate: 0.1 }, (h) => optim.sgd(h));
 * const w = np.array([1]);
 * const state = { ...optimizer.init(w), hyperparams: { learningRate: np.array(0.5) } };
 * optimizer.update(np.array([2]), state, w)[0]; // [-1]
 * ```
 */
export function injectHyperparams<H extends string, G extends GradientTransformation>(
  hyperparams: Readonly<Record<H, LearningRate>>,
  make: (current: Readonly<Record<H, Schedule>>) => G,
): TypedTransformation<InjectState<H, StepState<G>>> {
  need("object", hyperparams, "hyperparams", "injectHyperparams");
  need("function", make, "make", "injectHyperparams");
  const each = <V>(fn: (name: H, value: LearningRate) => V) =>
    Object.fromEntries(
      Object.entries<LearningRate>(hyperparams).map(([name, value]) => [name, fn(name as H, value)]),
    ) as Readonly<Record<H, V>>;
  const using = (values: Readonly<Record<H, Tensor>>) => {
    const made = make(each((name) => () => values[name]));
    needTransformation(made, "injectHyperparams");
    return made;
  };
  for (const [name, value] of Object.entries(hyperparams)) need(rate, value, name, "injectHyperparams");
  const at = (value: LearningRate, count: Tensor) =>
    typeof value === "number" ? toTensor(value, "float32", "injectHyperparams") : value(count);
  return typedTransformation<InjectState<H, unknown>, InjectState<H, StepState<G>>>(
    "injectHyperparams",
    { hyperparams: "tree", inner: "tree", count: "tensor" },
    {
      init: (params) => {
        const count = zeroCount();
        const values = each((_, value) => at(value, count));
        return { count, hyperparams: values, inner: using(values).init(params) };
      },
      update: (grads, state, params, extra) => {
        const values = each((name, value) =>
          typeof value === "number" ? state.hyperparams[name] : value(state.count),
        );
        const [updates, inner] = using(values).update(grads, state.inner, params, extra);
        return [updates, { count: state.count.add(1), hyperparams: values, inner }];
      },
    },
  );
}

/** The gradients collected so far. */
export interface ApplyEveryState extends CountState {
  readonly sum: unknown;
}

/**
 * Adds up gradients and passes on their sum at every `every`-th call; in between, updates are zero.
 *
 * @example
 * ```ts
 * const step = optim.applyEvery(2);
 * const [, state] = step.update(np.array([1, 2]), step.init(np.array([1, 2])));
 * step.update(np.array([3, 4]), state)[0]; // [4, 6]
 * ```
 */
export function applyEvery(every = 1): TypedTransformation<ApplyEveryState> {
  needIfGiven("number", every, "every", "applyEvery");
  need(integerFrom(1), every, "every", "applyEvery");
  return typedTransformation<ApplyEveryState>(
    "applyEvery",
    { sum: "tree", count: "tensor" },
    {
      init: (params) => ({ count: zeroCount(), sum: zerosOf(params) }),
      update: (grads, { count, sum }) => {
        const fresh = notEqual(count, 0);
        const total = mapTensors((g, s) => add(where(fresh, s, 0), g), grads, sum);
        const passes = equal(count, every - 1);
        const updates = mapTensors((t) => where(passes, t, 0), total);
        return [updates, { count: mod(count.add(1), every), sum: total }];
      },
    },
  );
}

/** The states of named transformations. */
export type NamedState = Readonly<Record<string, unknown>>;

/**
 * {@link chain} of transformations with names, by which their states are found.
 *
 * @example
 * ```ts
 * const optimizer = optim.namedChain(["momentum", optim.trace({ decay: 0.9 })], ["lr", optim.scale(-0.1)]);
 * Object.keys(optimizer.init(np.array([1]))); // ["momentum", "lr"]
 * ```
 */
export function namedChain(
  ...steps: readonly (readonly [name: string, step: GradientTransformation])[]
): GradientTransformation<NamedState> {
  for (const step of steps) {
    need("list", step, "each step", "namedChain");
    need("string", step[0], "the name of a step", "namedChain");
    needTransformation(step[1], "namedChain");
  }
  const names = steps.map(([name]) => name);
  const double = names.find((name, i) => names.indexOf(name) !== i);
  if (double !== undefined) throw new ValueError(`[namedChain] two transformations are named "${double}"`);
  return transformation<NamedState>(
    "namedChain",
    {},
    {
      init: (params) => Object.fromEntries(steps.map(([name, step]) => [name, step.init(params)])),
      update: (grads, states, params, extra) => {
        let updates = grads;
        const next = steps.map(([name, step]) => {
          const [changed, state] = step.update(updates, states[name], params, extra);
          updates = changed;
          return [name, state] as const;
        });
        return [updates, Object.fromEntries(next)];
      },
    },
  );
}

/**
 * `stepSize` of the new tensors and the rest of the old: a target network that follows slowly.
 *
 * @example
 * ```ts
 * optim.incrementalUpdate({ w: np.array([1]) }, { w: np.array([0]) }, 0.1); // { "w": [0.1] }
 * ```
 */
export function incrementalUpdate<T>(newTensors: T, oldTensors: T, stepSize: number): T {
  return mapTensors((n, o) => add(multiply(n, stepSize), multiply(o, 1 - stepSize)), newTensors, oldTensors);
}

/**
 * The new tensors at every `period`-th step, the old ones between.
 *
 * @example
 * ```ts
 * optim.periodicUpdate(np.array([2]), np.array([1]), np.array(4, "int32"), 2); // [2]
 * ```
 */
export function periodicUpdate<T>(newTensors: T, oldTensors: T, steps: Tensor, period: number): T {
  needTensor(steps, "steps", "periodicUpdate");
  need("number", period, "period", "periodicUpdate");
  need(integerFrom(1), period, "the period", "periodicUpdate");
  return select(equal(mod(steps, period), 0), newTensors, oldTensors);
}
