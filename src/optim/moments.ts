/** Running means of gradients, which most optimisers keep. */
import type { DType } from "../ir/dtype.js";
import { add, divide, multiply, power, subtract } from "../numpy/arithmetic.js";
import { fullLike, zeros, zerosLike } from "../numpy/creation.js";
import { astype } from "../numpy/elementwise.js";
import type { Tensor } from "../trace/tensor.js";
import { mapTensors } from "./transformation.js";

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

/** Converts a tree to a narrower type, if one is given. */
export function keptIn(values: unknown, dtype: DType | undefined): unknown {
  return dtype === undefined ? values : mapTensors((x) => astype(x, dtype), values);
}
