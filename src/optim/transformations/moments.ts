/** Running means of gradients, which most optimisers keep. */
import type { DType } from "../../ir/dtype.js";
import { fullLike, zeros, zerosLike } from "../../numpy/arrays/creation.js";
import { add, divide, multiply, power, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype, sqrt } from "../../numpy/elementwise/elementwise.js";
import { squaredSize } from "../../numpy/operands.js";
import type { Tensor } from "../../trace/tensor.js";
import { mapTensors, type TypedTransformation, typedTransformation } from "./transformation.js";

/** A counter that starts at 0. */
export function zeroCount(): Tensor {
  return zeros([], "int32");
}

/** A tree of zeros like the parameters, in another type if wanted. */
export function zerosOf(params: unknown, dtype?: DType): unknown {
  return mapTensors((p) => zerosLike(p, dtype), params);
}

/** A tree like the parameters in which every element is the same number. */
export function filled(params: unknown, value: number): unknown {
  return mapTensors((p) => fullLike(p, value), params);
}

/** (1 − decay) · x + decay · mean. */
export function blend(x: Tensor, mean: Tensor, decay: number): Tensor {
  return add(multiply(x, 1 - decay), multiply(mean, decay));
}

/** The total weight of the values in a running mean that starts at zero: 1 − decay^steps. */
export function takenUp(decay: number, steps: Tensor): Tensor {
  return subtract(1, power(decay, astype(steps, "float32")));
}

/** A running mean corrected for its initial value of zero. */
export function unbiased(mean: Tensor, share: Tensor): Tensor {
  return divide(mean, astype(share, mean.dtype));
}

/** The running mean one step ahead, after Nesterov: the newest gradient counts once more. */
export function lookAhead(g: Tensor, mean: Tensor, decay: number, count: Tensor): Tensor {
  return blend(unbiased(g, takenUp(decay, count)), unbiased(mean, takenUp(decay, count.add(1))), decay);
}

/** By what a direction is divided: the root of a mean of squares, with what keeps it from zero. */
export function spreadOf(squares: Tensor, eps: number, epsRoot: number): Tensor {
  return add(sqrt(epsRoot === 0 ? squares : add(squares, epsRoot)), eps);
}

/** Converts a tree to a narrower type, if one is given. */
export function keptIn(values: unknown, dtype: DType | undefined): unknown {
  return dtype === undefined ? values : mapTensors((x) => astype(x, dtype), values);
}

/** The number of steps done, which most states have. */
interface Counted {
  readonly count: Tensor;
}

/** The values of one parameter, by the names that their trees have in the state. */
type Own<S> = { readonly [K in Exclude<keyof S, "count">]: Tensor };

/** A value kept for every parameter. */
interface Kept<S> {
  /** The value before the first step; zeros by default. */
  readonly start?: (param: Tensor) => Tensor;
  /** Its next value: those declared before it are new, the others old. @param count the steps with this one */
  readonly next: (grad: Tensor, own: Own<S>, count: Tensor) => Tensor;
  /** The type in which it is kept between steps, if it is not that of the parameter. */
  readonly dtype?: DType | undefined;
}

/**
 * A transformation that counts steps and keeps values of every parameter.
 *
 * @param updates the update of a parameter from its gradient and the new values
 */
export function keeping<S extends Counted>(
  caller: string,
  values: { readonly [K in keyof Own<S>]: Kept<S> },
  updates: (count: Tensor) => (grad: Tensor, own: Own<S>) => Tensor,
): TypedTransformation<S> {
  const kept = Object.entries<Kept<S>>(values);
  const each = <T>(fn: (grad: Tensor, own: Own<S>) => Tensor, grads: T, state: Trees): T =>
    mapTensors(
      (grad, ...own) => fn(grad, Object.fromEntries(kept.map(([name], i) => [name, own[i]])) as Own<S>),
      grads,
      ...kept.map(([name]) => state[name]),
    );
  const parts = Object.fromEntries([["count", "tensor"], ...kept.map(([name]) => [name, "tree"])]);
  return typedTransformation<S>(caller, parts, {
    init: (params) => {
      const starts = kept.map(([name, { start, dtype }]) => [
        name,
        start ? mapTensors(start, params) : zerosOf(params, dtype),
      ]);
      return { count: zeroCount(), ...Object.fromEntries(starts) };
    },
    update: (grads, state) => {
      const count = state.count.add(1);
      const next: Trees = Object.fromEntries(Object.entries(state));
      for (const [name, { next: follow }] of kept) {
        next[name] = each((grad, own) => follow(grad, own, count), grads, next);
      }
      const changes = each(updates(count), grads, next);
      const stored = kept.map(([name, { dtype }]) => [name, keptIn(next[name], dtype)]);
      return [changes, { count, ...Object.fromEntries(stored) }];
    },
  });
}

type Trees = Record<string, unknown>;

/** The running mean of gradients, as the first of the values of {@link keeping}. */
export function meanOfGradients(decay: number, dtype?: DType): Kept<{ count: Tensor; mu: unknown }> {
  return { next: (g, { mu }) => blend(g, mu, decay), dtype };
}

/** The running mean of squared gradients. */
export function meanOfSquares(decay: number): Kept<{ count: Tensor; nu: unknown }> {
  return { next: (g, { nu }) => blend(squaredSize(g), nu, decay) };
}

/** The mean of gradients corrected for its start, or one step ahead after Nesterov. */
export function directionOf(g: Tensor, mu: Tensor, decay: number, count: Tensor, nesterov: boolean): Tensor {
  return nesterov ? lookAhead(g, mu, decay, count) : unbiased(mu, takenUp(decay, count));
}
