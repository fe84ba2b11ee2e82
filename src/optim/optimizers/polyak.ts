/** Steps whose length follows from how far the loss is from its smallest value. */

import { oneOf } from "../../ir/arguments.js";
import { TreeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { add, divide, maximum, minimum, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype } from "../../numpy/elementwise/elementwise.js";
import { lessEqual, where } from "../../numpy/elementwise/logic.js";
import { rate } from "../transformations/options.js";
import {
  chain,
  type EmptyState,
  type ExtraArgs,
  type GradientTransformation,
  inner,
  mapTensors,
} from "../transformations/transformation.js";
import { sgd } from "./optimizers.js";

const polyakOptions = schema({
  /** The smallest value of the loss; 0 by default. */
  fMin: 0,
  /** The longest step; 1 by default. */
  maxLearningRate: 1,
  /** Added to the squared norm of the gradient; 0 by default. */
  eps: 0,
  /** `sps+` makes no step where the loss is below `fMin`; `sps`, the default, one backwards. */
  variant: optional(oneOf("sps", "sps+"), "sps"),
});

/** Options of {@link scaleByPolyak}. */
export interface PolyakOptions extends OptionsOf<typeof polyakOptions> {}

/**
 * Multiplies gradients by (loss − smallest loss) / ‖gradient‖², for which `update` needs `{ value }`.
 *
 * @example
 * ```ts
 * const step = optim.scaleByPolyak();
 * const w = np.array([1, 1]);
 * step.update(np.array([2, 2]), step.init(w), w, { value: np.array(2) })[0]; // [0.5, 0.5]
 * ```
 */
export function scaleByPolyak(options?: PolyakOptions): GradientTransformation<EmptyState> {
  const { fMin, maxLearningRate, eps, variant } = polyakOptions.read(options, "scaleByPolyak");
  return {
    init: () => [],
    update: <T>(grads: T, state: EmptyState, _params?: T, extra?: ExtraArgs<T>): [T, EmptyState] => {
      if (extra?.value === undefined) {
        throw new TreeError("[scaleByPolyak] needs the loss: call update(grads, state, params, { value })");
      }
      const squares = add(inner(grads, grads), eps);
      const gap = subtract(extra.value, fMin);
      const length = minimum(divide(variant === "sps+" ? maximum(gap, 0) : gap, squares), maxLearningRate);
      const used = where(lessEqual(squares, Number.EPSILON), 0, length);
      return [mapTensors((g) => multiply(g, astype(used, g.dtype)), grads), state];
    },
  };
}

const polyakSgdOptions = schema({
  ...polyakOptions.fields,
  /** A factor of the gradient, by which the length does not change; 1 by default. */
  scaling: optional(rate, 1),
});

/** Options of {@link polyakSgd}. */
export interface PolyakSgdOptions extends OptionsOf<typeof polyakSgdOptions> {}

/**
 * Steps against the gradient of Polyak's length, for which `update` needs the loss:
 *
 * @example
 * ```ts
 * const optimizer = optim.polyakSgd();
 * const w = np.array([1, 1]);
 * optimizer.update(np.array([2, 2]), optimizer.init(w), w, { value: np.array(2) })[0]; // [-0.5, -0.5]
 * ```
 */
export function polyakSgd(options?: PolyakSgdOptions) {
  const { scaling, ...rest } = polyakSgdOptions.read(options, "polyakSgd");
  return chain(sgd({ learningRate: scaling }), scaleByPolyak(rest));
}
