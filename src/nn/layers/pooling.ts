/** Pooling: what windows see of inputs [batch…, space…, features], reduced to one number for each feature. */

import { either, need, oneOf } from "../../ir/arguments.js";
import { ShapeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { formatType, type Shape, sizeOf } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { pairsKind } from "../../lax/windows.js";
import * as np from "../../numpy/index.js";
import { needTensor, type TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

const poolOptions = schema({
  /** How far the window moves along each spatial dim; 1 by default, as in Flax. */
  strides: optional("integers"),
  /** `VALID` by default: only windows that lie inside. */
  padding: optional(either(oneOf("SAME", "VALID"), pairsKind)),
});

/** Options of {@link maxPool}, {@link minPool} and {@link pool}. */
export interface PoolOptions extends OptionsOf<typeof poolOptions> {}

const avgPoolOptions = schema({
  ...poolOptions.fields,
  /** Whether the padding counts in averages; true by default. */
  countIncludePad: true,
});

/** Options of {@link avgPool}. */
export interface AvgPoolOptions extends OptionsOf<typeof avgPoolOptions> {}

/**
 * Reduces windows by any associative function.
 *
 * @param init what every reduction starts from, and what the padding holds
 *
 * @example
 * ```ts
 * nn.pool(np.array([[[1], [5], [2], [3]]]), 0, np.add, [2], { strides: [2] }); // [[[6], [5]]]
 * ```
 */
export function pool(
  inputs: Tensor,
  init: TensorLike,
  reduceFn: (a: Tensor, b: Tensor) => Tensor,
  windowShape: Shape,
  options?: PoolOptions,
): Tensor {
  needTensor(inputs, "inputs", "nn.pool");
  need("function", reduceFn, "reduceFn", "nn.pool");
  need("integers", windowShape, "windowShape", "nn.pool");
  return pooled(inputs, init, reduceFn, windowShape, poolOptions.read(options, "nn.pool"), "pool");
}

/**
 * The largest element of each window.
 *
 * @example
 * ```ts
 * nn.maxPool(np.arange(4).reshape([1, 4, 1]), [2], { strides: [2] }); // [[[1], [3]]]
 * ```
 */
export function maxPool(inputs: Tensor, windowShape: Shape, options?: PoolOptions): Tensor {
  needTensor(inputs, "inputs", "nn.maxPool");
  need("integers", windowShape, "windowShape", "nn.maxPool");
  const given = poolOptions.read(options, "nn.maxPool");
  return pooled(inputs, Number.NEGATIVE_INFINITY, lax.max, windowShape, given, "maxPool");
}

/**
 * The smallest element of each window.
 *
 * @example
 * ```ts
 * nn.minPool(np.array([3, 1, 2, 5]).reshape([1, 4, 1]), [2], { strides: [2] }); // [[[1], [2]]]
 * ```
 */
export function minPool(inputs: Tensor, windowShape: Shape, options?: PoolOptions): Tensor {
  needTensor(inputs, "inputs", "nn.minPool");
  need("integers", windowShape, "windowShape", "nn.minPool");
  const given = poolOptions.read(options, "nn.minPool");
  return pooled(inputs, Number.POSITIVE_INFINITY, lax.min, windowShape, given, "minPool");
}

/**
 * The mean of each window.
 *
 * @example
 * ```ts
 * nn.avgPool(np.arange(4).reshape([1, 4, 1]), [2], { strides: [2] }); // [[[0.5], [2.5]]]
 * ```
 */
export function avgPool(inputs: Tensor, windowShape: Shape, options?: AvgPoolOptions): Tensor {
  needTensor(inputs, "inputs", "nn.avgPool");
  need("integers", windowShape, "windowShape", "nn.avgPool");
  const { countIncludePad, ...others } = avgPoolOptions.read(options, "nn.avgPool");
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
