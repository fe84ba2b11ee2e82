import { need } from "../ir/arguments.js";
import * as lax from "../lax/index.js";
import * as np from "../numpy/index.js";
import { split } from "../random/index.js";
import type { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";

/** The interface of an optimiser that {@link TrainState} uses; those of `shardwise/optim` implement it. */
export interface Optimizer<S> {
  init(params: unknown): S;
  update<T>(grads: T, state: S, params?: T): [updates: T, state: S];
}

/** What a {@link TrainState} is made of. */
export interface TrainStateParts<P, S, F> {
  /** The model: usually `model.apply`, possibly with options. */
  readonly applyFn: F;
  readonly optimizer: Optimizer<S>;
  /** The number of completed steps, an int32 scalar. */
  readonly step: Tensor;
  readonly params: P;
  readonly optState: S;
  /** The key of everything random in training; see {@link TrainState.nextRng}. */
  readonly rng: Tensor;
}

/**
 * Everything that a training step reads and changes. It is a tree: `jit`, `shardMap` and checkpoints see step,
 * parameters, optimiser state and key; the functions are static.
 *
 * ```ts
 * const state = TrainState.create({ applyFn: model.apply, params, optimizer: adamw({ learningRate: 1e-3 }), rng });
 * const next = state.applyGradients(grads);
 * ```
 */
export class TrainState<P = unknown, S = unknown, F = unknown> implements TrainStateParts<P, S, F> {
  readonly applyFn: F;
  readonly optimizer: Optimizer<S>;
  readonly step: Tensor;
  readonly params: P;
  readonly optState: S;
  readonly rng: Tensor;

  /** Use {@link TrainState.create}. */
  constructor(parts: TrainStateParts<P, S, F>) {
    need("object", parts, "the parts", "TrainState");
    this.applyFn = parts.applyFn;
    this.optimizer = parts.optimizer;
    this.step = parts.step;
    this.params = parts.params;
    this.optState = parts.optState;
    this.rng = parts.rng;
  }

  /** The state before the first step. */
  static create<P, S, F>(parts: Omit<TrainStateParts<P, S, F>, "step" | "optState">): TrainState<P, S, F> {
    need("object", parts, "the parts", "TrainState.create");
    need("object", parts.optimizer, "the optimizer", "TrainState.create");
    need("function", parts.optimizer.init, "init of the optimizer", "TrainState.create");
    const optState = parts.optimizer.init(parts.params);
    return new TrainState({ ...parts, step: np.array(0, "int32"), optState });
  }

  /** The same state with other parts. */
  replace(parts: Partial<Omit<TrainStateParts<P, S, F>, "applyFn" | "optimizer">>): TrainState<P, S, F> {
    return new TrainState({ ...this, ...parts });
  }

  /** The state after a step of the optimiser. */
  applyGradients(grads: P): TrainState<P, S, F> {
    const [updates, optState] = this.optimizer.update(grads, this.optState, this.params);
    const add = (p: Tensor, u: Tensor) => np.astype(np.add(p, u), p.dtype);
    const params = tree.map(add, this.params, updates);
    return this.replace({ params, optState, step: np.add(this.step, 1) });
  }

  /** The state with a new key, and a key to use now. */
  nextRng(): [state: TrainState<P, S, F>, key: Tensor] {
    const keys = split(this.rng);
    return [this.replace({ rng: lax.indexInDim(keys, 0, 0, false) }), lax.indexInDim(keys, 1, 0, false)];
  }
}

tree.registerClass(TrainState, {
  children: ({ step, params, optState, rng }: TrainState): [Tensor, unknown, unknown, Tensor] => [
    step,
    params,
    optState,
    rng,
  ],
  rebuild: (state, [step, params, optState, rng]) => state.replace({ step, params, optState, rng }),
  describe: ({ applyFn, optimizer }) => `${tree.formatStatic(applyFn)}, ${tree.formatStatic(optimizer)}`,
});
