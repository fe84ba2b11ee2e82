/** Pooling: what windows see of inputs [batch…, space…, features], reduced to one number for each feature. */
import { need } from "../ir/arguments.js";
import { ShapeError, ValueError } from "../ir/errors.js";
import { checkOptions } from "../ir/options.js";
import { formatType, type Shape, sizeOf } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import * as np from "../numpy/index.js";
import type { TensorLike } from "../trace/promote.js";
import { needTensor } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";

/** Options of {@link maxPool}, {@link minPool} and {@link pool}. */
export interface PoolOptions {
  /** How far the window moves along each spatial dim; 1 by default, as in Flax. */
  readonly strides?: Shape;
  /** `VALID` by default: only windows that lie inside. */
  readonly padding?: "SAME" | "VALID" | readonly (readonly [before: number, after: number])[];
}

/** Options of {@link avgPool}. */
export interface AvgPoolOptions extends PoolOptions {
  /** Whether the padding counts in averages; true by default. */
  readonly countIncludePad?: boolean;
}

/**
 * Reduces windows by any associative function.
 *
 * @param init what every reduction starts from, and what the padding holds
 */
export function pool(
  inputs: Tensor,
  init: TensorLike,
  reduceFn: (a: Tensor, b: Tensor) => Tensor,
  windowShape: Shape,
  options: PoolOptions = {},
): Tensor {
  needTensor(inputs, "inputs", "nn.pool");
  need("function", reduceFn, "reduceFn", "nn.pool");
  need("integers", windowShape, "windowShape", "nn.pool");
  checkOptions<PoolOptions>(options, { strides: true, padding: true }, "nn.pool");
  return pooled(inputs, init, reduceFn, windowShape, options, "pool");
}

/** The largest element of each window. */
export function maxPool(inputs: Tensor, windowShape: Shape, options: PoolOptions = {}): Tensor {
  needTensor(inputs, "inputs", "nn.maxPool");
  need("integers", windowShape, "windowShape", "nn.maxPool");
  checkOptions<PoolOptions>(options, { strides: true, padding: true }, "nn.maxPool");
  return pooled(inputs, Number.NEGATIVE_INFINITY, lax.max, windowShape, options, "maxPool");
}

/** The smallest element of each window. */
export function minPool(inputs: Tensor, windowShape: Shape, options: PoolOptions = {}): Tensor {
  needTensor(inputs, "inputs", "nn.minPool");
  need("integers", windowShape, "windowShape", "nn.minPool");
  checkOptions<PoolOptions>(options, { strides: true, padding: true }, "nn.minPool");
  return pooled(inputs, Number.POSITIVE_INFINITY, lax.min, windowShape, options, "minPool");
}

/** The mean of each window. */
export function avgPool(inputs: Tensor, windowShape: Shape, options: AvgPoolOptions = {}): Tensor {
  needTensor(inputs, "inputs", "nn.avgPool");
  need("integers", windowShape, "windowShape", "nn.avgPool");
  checkOptions<AvgPoolOptions>(
    options,
    { countIncludePad: true, strides: true, padding: true },
    "nn.avgPool",
  );
  const { countIncludePad = true, ...others } = options;
  const sums = pooled(inputs, 0, lax.add, windowShape, others, "avgPool");
  if (countIncludePad) return np.divide(sums, sizeOf(windowShape));
  const ones = np.ones([...inputs.shape.slice(-windowShape.length - 1, -1), 1], inputs.dtype);
  return np.divide(sums, pooled(ones, 0, lax.add, windowShape, others, "avgPool"));
}

function pooled(
  inputs: Tensor,
  init: TensorLike,
  reduceFn: (a: Tensor, b: Tensor) => Tensor,
  windowShape: Shape,
  { strides = windowShape.map(() => 1), padding = "VALID" }: PoolOptions,
  caller: string,
): Tensor {
  const numBatch = inputs.ndim - windowShape.length - 1;
  if (numBatch < 0) {
    throw new ShapeError(
      `[${caller}] a window [${windowShape}] needs inputs of ${windowShape.length} spatial dims and features, got ${formatType(inputs.type)}`,
    );
  }
  const wrong = Object.entries({ strides, padding }).find(
    ([, list]) => typeof list !== "string" && list.length !== windowShape.length,
  );
  if (wrong) {
    throw new ValueError(
      `[${caller}] ${wrong[0]} has ${wrong[1].length} entries for the ${windowShape.length} dims of the window: give one for each`,
    );
  }
  const ones = new Array<number>(numBatch).fill(1);
  const none = ones.map((): readonly [number, number] => [0, 0]);
  return lax.reduceWindow<Tensor, TensorLike>(inputs, init, reduceFn, [...ones, ...windowShape, 1], {
    windowStrides: [...ones, ...strides, 1],
    padding: typeof padding === "string" ? padding : [...none, ...padding, [0, 0]],
  });
}
