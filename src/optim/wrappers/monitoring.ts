/** Transformations that pass updates on unchanged and keep measurements of them in their state. */

import { need } from "../../ir/arguments.js";
import {
  type ExtraArgs,
  type GradientTransformation,
  needTransformation,
  transformation,
} from "../transformations/transformation.js";
import { type EmaOptions, type EmaState, ema } from "./wrappers.js";

/** A function of updates: their norm, say. */
export type Measure = (updates: unknown) => unknown;

/** The state of {@link snapshot}. */
export interface SnapshotState {
  /** What was measured last, by its name. */
  readonly measurement: Readonly<Record<string, unknown>>;
}

/**
 * Keeps a measurement of the updates that pass: at this place of a chain, of the last step.
 *
 * @example
 * ```ts
 * const optimizer = optim.chain(optim.snapshot("norm", optim.globalNorm), optim.sgd({ learningRate: 1 }));
 * const grads = { w: np.array([3, 4]) };
 * const [, state] = optimizer.update(grads, optimizer.init(grads), grads);
 * state[0].measurement; // { "norm": 5 }
 * ```
 */
export function snapshot(name: string, measure: Measure): GradientTransformation<SnapshotState> {
  need("string", name, "the name", "snapshot");
  need("function", measure, "measure", "snapshot");
  return transformation<SnapshotState>(
    "snapshot",
    { measurement: "tree" },
    {
      init: (params) => ({ measurement: { [name]: measure(params) } }),
      update: (grads) => [grads, { measurement: { [name]: measure(grads) } }],
    },
  );
}

/** A measurement that remembers something: it gets updates as a transformation does, and returns what it measured. */
export interface StatefulMeasure<S = unknown> {
  init(params: unknown): S;
  update(updates: unknown, state: S): [measured: unknown, state: S];
}

/**
 * The running mean of what is measured, for {@link monitor}.
 *
 * @example
 * ```ts
 * const step = optim.monitor({ norm: optim.measureWithEma(optim.globalNorm, 0.5) });
 * const grads = { w: np.array([3, 4]) };
 * step.update(grads, step.init(grads))[1].measurements; // { "norm": 5 }
 * ```
 */
export function measureWithEma(
  measure: Measure,
  decay: number,
  options?: EmaOptions,
): StatefulMeasure<EmaState> {
  need("function", measure, "measure", "measureWithEma");
  const mean = ema(decay, options);
  return {
    init: (params) => mean.init(measure(params)),
    update: (updates, state) => mean.update(measure(updates), state),
  };
}

/** The state of {@link monitor}. */
export interface MonitorState {
  /** What was measured last, by name; nothing before the first step. */
  readonly measurements: Readonly<Record<string, unknown>>;
  /** What the measures remember, by name. */
  readonly states: Readonly<Record<string, unknown>>;
}

/**
 * Keeps several measurements of the updates that pass.
 *
 * @param measures functions of updates, or what {@link measureWithEma} returns
 *
 * @example
 * ```ts
 * const step = optim.monitor({ norm: optim.globalNorm, isFinite: optim.allFinite });
 * const grads = { w: np.array([3, 4]) };
 * step.update(grads, step.init(grads))[1].measurements; // { "norm": 5, "isFinite": true }
 * ```
 */
export function monitor(
  measures: Readonly<Record<string, Measure | StatefulMeasure | GradientTransformation>>,
): GradientTransformation<MonitorState> {
  need("object", measures, "measures", "monitor");
  const steps = Object.entries(measures).map(([name, measure]) => [name, asStep(measure)] as const);
  return transformation<MonitorState>(
    "monitor",
    { measurements: "tree", states: "tree" },
    {
      init: (params) => ({
        measurements: {},
        states: Object.fromEntries(steps.map(([name, step]) => [name, step.init(params)])),
      }),
      update: <T>(
        grads: T,
        { states }: MonitorState,
        params?: T,
        extra?: ExtraArgs<T>,
      ): [T, MonitorState] => {
        const made = steps.map(
          ([name, step]) => [name, step.update(grads, states[name], params, extra)] as const,
        );
        const part = (i: 0 | 1) => Object.fromEntries(made.map(([name, results]) => [name, results[i]]));
        return [grads, { measurements: part(0), states: part(1) }];
      },
    },
  );
}

function asStep(
  measure: Measure | StatefulMeasure | GradientTransformation,
): Pick<GradientTransformation, "init"> & { update(...args: unknown[]): [unknown, unknown] } {
  if (typeof measure === "function")
    return { init: () => [], update: (updates, state) => [measure(updates), state] };
  needTransformation(measure, "monitor");
  return measure as ReturnType<typeof asStep>;
}
