import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { normalizeDims } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { bernoulli } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { module } from "../modules/module.js";
import { givenOnce } from "../modules/operands.js";
import { makeRng } from "../modules/variables.js";

const dropoutConfig = schema({
  /** The probability with which an element becomes 0. */
  rate: required("number"),
  /** Dims along which elements are dropped together. */
  broadcastDims: optional("integers", []),
  /** Whether the input passes unchanged; given here or at the call. */
  deterministic: optional("flag"),
  /** The name of the keys to draw from; `dropout` by default. */
  rngCollection: optional("string", "dropout"),
});

/** Configuration of {@link Dropout}. */
export interface DropoutConfig extends OptionsOf<typeof dropoutConfig> {}

/** Options of a call of {@link Dropout}. */
export interface DropoutCallOptions {
  /** Whether the input passes unchanged; given here or in the configuration. */
  readonly deterministic?: boolean;
  /** The key to use instead of one of the module's own. */
  readonly rng?: Tensor;
}

/**
 * Sets random elements to 0 and divides the others by the probability of staying.
 *
 * @example
 * ```ts
 * const layer = nn.Dropout({ rate: 0.5, deterministic: true });
 * layer.apply({}, np.array([1, 2])); // [1, 2]
 * ```
 */
export const Dropout = module(
  { name: "Dropout", options: dropoutConfig },
  ({ rate, broadcastDims, deterministic, rngCollection }) => {
    if (!(rate >= 0 && rate <= 1)) {
      throw new ValueError(`[Dropout] rate ${rate} is not a probability: use a number from 0 to 1`);
    }
    return (inputs: Tensor, options: DropoutCallOptions = {}): Tensor => {
      const isOff = givenOnce("deterministic", deterministic, options.deterministic, "Dropout");
      if (isOff || rate === 0) return inputs;
      if (rate === 1) return np.zerosLike(inputs);
      const shared = normalizeDims(broadcastDims, inputs.ndim, "Dropout");
      const shape = inputs.shape.map((n, dim) => (shared.includes(dim) ? 1 : n));
      const keep = bernoulli(options.rng ?? makeRng(rngCollection), 1 - rate, shape);
      return ops.select(
        np.broadcastTo(keep, inputs.shape),
        np.divide(inputs, 1 - rate),
        np.zerosLike(inputs),
      );
    };
  },
);
