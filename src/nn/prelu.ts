import * as np from "../numpy/index.js";
import type { Tensor } from "../trace/tensor.js";
import { module } from "./module.js";
import type { LayerTypes } from "./operands.js";
import { param } from "./variables.js";

/** Configuration of {@link PReLU}. */
export interface PReLUConfig extends Pick<LayerTypes, "paramDtype"> {
  /** The slope below 0 at first; 0.01 by default. */
  readonly negativeSlopeInit?: number;
}

/** x where it is not negative, else x times a slope that is learned. */
export const PReLU = module(
  { name: "PReLU", options: { negativeSlopeInit: true, paramDtype: true } },
  (config: PReLUConfig) => {
    const { negativeSlopeInit = 0.01, paramDtype = "float32" } = config;
    return (x: Tensor): Tensor => {
      const slope = param("negative_slope", () => np.full([], negativeSlopeInit, paramDtype));
      return np.where(np.greaterEqual(x, 0), x, np.multiply(np.astype(slope, x.dtype), x));
    };
  },
);
