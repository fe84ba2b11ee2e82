import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { TreeError, ValueError } from "../../ir/errors.js";
import { zeros } from "../../numpy/arrays/creation.js";
import { add, multiply } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { tracedAsOneCall } from "../../trace/builder.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/**
 * A step of an optimiser as a pair of pure functions, with optax's meaning. `grads`, `params` and the updates
 * are trees of the same structure; boxes such as `nn.Partitioned` stay around their values.
 *
 * ```ts
 * const optimizer = adamw({ learningRate: 1e-3 });
 * let state = optimizer.init(params);
 * const [updates, next] = optimizer.update(grads, state, params);
 * params = applyUpdates(params, updates);
 * ```
 */
export interface GradientTransformation<S = unknown> {
  /** The state before the first step: a tree of tensors, in which moments have the boxes of their parameters. */
  init(params: unknown): S;
  /**
   * The updates made from the gradients, and the next state. Some transformations need the parameters, and line
   * searches the loss.
   */
  update<T>(grads: T, state: S, params?: T, extra?: ExtraArgs<T>): [updates: T, state: S];
}

/** Where {@link TypedTransformation} has the type of its state; no value has it. */
declare const stateType: unique symbol;

/**
 * A transformation in whose states trees like the parameters have their type: `scaleByAdam().init({ w }).mu.w` is a
 * tensor. S is the state with `unknown` for each of these trees.
 */
export interface TypedTransformation<S> {
  /** The state before the first step. */
  init<P>(params: P): StateOf<S, P>;
  /** The updates made from the gradients, and the next state. */
  update<T>(
    grads: T,
    state: StateOf<S, unknown>,
    params?: T,
    extra?: ExtraArgs<T>,
  ): [updates: T, state: StateOf<S, T>];
  readonly [stateType]: S;
}

/** The state of a {@link TypedTransformation} of parameters of type P. */
export type StateOf<S, P> =
  S extends Opaque<infer O>
    ? O
    : S extends Tensor
      ? S
      : S extends PartOfParams<infer W>
        ? PartOf<P, W>
        : { readonly [K in keyof S]: unknown extends S[K] ? P : StateOf<S[K], P> };

/** In the state of a {@link TypedTransformation}: a tree like the part of the parameters that a wrapper passes on. */
export interface PartOfParams<W extends "some" | "fast"> {
  readonly [partType]: W;
}

declare const partType: unique symbol;

type PartOf<P, W> = unknown extends P
  ? unknown
  : W extends "some"
    ? tree.MapTree<P, Tensor, Tensor | null>
    : P extends { readonly fast: infer F }
      ? F
      : unknown;

/** The state S of a transformation that gets only a part of the parameters. */
export type StateOfPart<S, W extends "some" | "fast"> = S extends
  | Opaque<unknown>
  | Tensor
  | PartOfParams<"some" | "fast">
  ? S
  : { readonly [K in keyof S]: unknown extends S[K] ? PartOfParams<W> : StateOfPart<S[K], W> };

/** A state that has the same type for all parameters. */
export interface Opaque<S> {
  readonly [stateType]: S;
}

/** The loss, for transformations that need more than gradients. */
export interface ExtraArgs<T = unknown> {
  /** The loss at the parameters. */
  readonly value?: Tensor;
  /** Its gradient there. */
  readonly grad?: T;
  /** The loss as a function of the parameters. */
  readonly valueFn?: (params: T) => Tensor;
}

/** The state of a transformation that has none. */
export type EmptyState = readonly [];

/** The states of several transformations, as {@link TypedTransformation} writes them. */
export type ChainState<G extends readonly GradientTransformation[]> = { [K in keyof G]: StepState<G[K]> };

/** The state of a transformation, as {@link TypedTransformation} writes it. */
export type StepState<G> =
  G extends TypedTransformation<infer S> ? S : G extends GradientTransformation<infer S> ? Opaque<S> : never;

/** Applies a function, which calls none of the user's, to the tensors of trees of the same structure. */
export function mapTensors<T>(
  fn: (x: Tensor, ...others: Tensor[]) => Tensor,
  first: T,
  ...others: unknown[]
): T {
  const changed = (path: string, ...values: unknown[]): unknown => {
    const [x, ...rest] = values.map((value) => requireTensor(value, path));
    return x ? fn(x, ...rest) : values[0];
  };
  return tracedAsOneCall(() => tree.mapWithPath<T, unknown, unknown>(changed, first, ...others)) as T;
}

function requireTensor(value: unknown, path: string): Tensor {
  if (value instanceof Tensor) return value;
  throw new TreeError(`[optim] the leaf at "${path}" is not a tensor but ${describe(value)}`);
}

/** The sum of the products of two trees. */
export function inner(a: unknown, b: unknown): Tensor {
  const products = tree.leaves(mapTensors((x, y) => sum(multiply(x, y)), a, b)) as Tensor[];
  return products.reduce((total, x) => total.add(x), zeros([]));
}

/** x + size · y, in the types of x. */
export function addScaled<T>(x: T, size: Tensor, y: unknown): T {
  return mapTensors((a, b) => add(a, multiply(b, astype(size, a.dtype))), x, y);
}

/** The parameters, for a transformation that requires them. */
export function requireParams<T>(params: T | undefined, caller: string): T {
  if (params !== undefined) return params;
  throw new TreeError(`[${caller}] needs the parameters: call update(grads, state, params)`);
}

/** What the parts of a transformation's state are: tensors, or trees of them. */
type StateParts<S> = { readonly [K in keyof S]: "tensor" | "tree" };

/** A {@link transformation} in whose state, written as `T`, everything unknown is a tree like the parameters. */
export const typedTransformation = <S extends object, T = S>(
  caller: string,
  parts: StateParts<S>,
  step: GradientTransformation<S>,
): TypedTransformation<T> => transformation(caller, parts, step) as unknown as TypedTransformation<T>;

/** A transformation that throws for states which its `init` did not make. */
export function transformation<S extends object>(
  caller: string,
  parts: StateParts<S>,
  { init, update }: GradientTransformation<S>,
): GradientTransformation<S> {
  const names = Object.keys(parts);
  return {
    init,
    update: (grads, state, params, extra) => {
      const values = new Map<string, unknown>(isState(state) ? Object.entries(state) : []);
      const wrong = names.filter(
        (name) =>
          !values.has(name) || (parts[name as keyof S] === "tensor" && !(values.get(name) instanceof Tensor)),
      );
      if (wrong.length === 0) return update(grads, state, params, extra);
      throw new TreeError(
        `[${caller}] the state has no right ${wrong.join(" and no right ")}: pass what init or the last update returned, not ${describe(state)}`,
      );
    },
  };
}

const isState = (state: unknown): state is object => typeof state === "object" && state !== null;

/**
 * A transformation without state.
 *
 * @example
 * ```ts
 * const step = optim.stateless((grads) => tree.map((g: Tensor) => g.mul(2), grads));
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [2, 4] }
 * ```
 */
export function stateless(fn: <T>(grads: T, params: T | undefined) => T): GradientTransformation<EmptyState> {
  need("function", fn, "fn", "stateless");
  return {
    init: () => [],
    update: (grads, state, params) => [fn(grads, params), state],
  };
}

/** Throws unless a value is a transformation. */
export function needTransformation(value: unknown, caller: string): void {
  need("object", value, "a transformation", caller);
  if (
    "init" in value &&
    "update" in value &&
    [value.init, value.update].every((one) => typeof one === "function")
  ) {
    return;
  }
  throw new ValueError(
    `[${caller}] a transformation must have the functions init and update, as adamw(…) has`,
  );
}

/**
 * The transformation that changes nothing.
 *
 * @example
 * ```ts
 * const step = optim.identity();
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [1, 2] }
 * ```
 */
export function identity(): GradientTransformation<EmptyState> {
  return stateless((grads) => grads);
}

/**
 * One transformation after the other; its state is the list of theirs.
 *
 * ```ts
 * chain(clipByGlobalNorm(1), adamw({ learningRate: 3e-4 }))
 * ```
 *
 * @example
 * ```ts
 * const optimizer = optim.chain(optim.clipByGlobalNorm(1), optim.sgd({ learningRate: 1 }));
 * const params = { w: np.array([0, 0]) };
 * const [updates] = optimizer.update({ w: np.array([3, 4]) }, optimizer.init(params), params);
 * updates; // { "w": [-0.6, -0.8] }
 * ```
 */
export function chain<const G extends readonly GradientTransformation[]>(
  ...steps: G
): TypedTransformation<ChainState<G>> {
  for (const step of steps) needTransformation(step, "chain");
  const chained: GradientTransformation<readonly unknown[]> = {
    init: (params) => steps.map((step) => step.init(params)),
    update: (grads, states, params, extra) => {
      need("list", states, "the state", "chain");
      if (states.length !== steps.length) {
        throw new TreeError(
          `[chain] the state is that of ${states.length} transformations, but ${steps.length} are chained: use the state that init made`,
        );
      }
      let updates = grads;
      const next = steps.map((step, i) => {
        const [changed, state] = step.update(updates, states[i], params, extra);
        updates = changed;
        return state;
      });
      return [updates, next];
    },
  };
  return chained as unknown as TypedTransformation<ChainState<G>>;
}

/**
 * The parameters plus their updates, in the types of the parameters.
 *
 * @example
 * ```ts
 * optim.applyUpdates({ w: np.array([1, 2]) }, { w: np.array([0.5, -1]) }); // { "w": [1.5, 1] }
 * ```
 */
export function applyUpdates<T>(params: T, updates: T): T {
  return mapTensors((p, u) => astype(add(p, u), p.dtype), params, updates);
}
