import { type OptionsOf, pick, schema } from "../../ir/schema.js";
import * as np from "../../numpy/index.js";
import type { Tensor } from "../../trace/tensor.js";
import { module } from "../modules/module.js";
import { layerTypes } from "../modules/operands.js";
import { param } from "../modules/variables.js";

const preluConfig = schema({
  ...pick(layerTypes.fields, "paramDtype"),
  /** The slope below 0 at first; 0.01 by default. */
  negativeSlopeInit: 0.01,
});

/** Configuration of {@link PReLU}. */
export interface PReLUConfig extends OptionsOf<typeof preluConfig> {}

/**
 * x where it is not negative, else x times a slope that is learned.
 *
 * @example
 * ```ts
 * const layer = nn.PReLU();
 * const x = np.array([-2, 3]);
 * layer.apply(layer.init(random.key(0), x), x); // [-0.02, 3]
 * ```
 */
export const PReLU = module({ name: "PReLU", options: preluConfig }, (config) => {
  const { negativeSlopeInit, paramDtype } = config;
  return (x: Tensor): Tensor => {
    const slope = param("negative_slope", () => np.full([], negativeSlopeInit, paramDtype));
    return np.where(np.greaterEqual(x, 0), x, np.multiply(np.astype(slope, x.dtype), x));
  };
});
