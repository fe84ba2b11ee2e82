/** Which tokens a model reads, and where it keeps what it remembers of them. */
import { isInitializing, variable } from "../../nn/modules/variables.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { activation } from "./names.js";

/** The tokens of a call. */
export interface Reading {
  /**
   * int32 [length]; [batch, length] with a cache, where −1 marks padding that is neither kept nor seen, or if rows hold
   * several documents, where they count from the start of each.
   */
  readonly positions: Tensor;
  /** The number of every token's document in its row, int32 [batch, length]; undefined if rows are one document. */
  readonly segmentIds?: Tensor;
  /** With a cache: the pages with the past of every row, in the order of positions, int32 [batch, pages]. */
  readonly pages?: Tensor;
}

/** The number of positions in a page of the cache. */
export const pageSize = 16;

/**
 * Keeps keys or values [batch, length, heads, size] in the pages of their rows, and returns those of all positions in
 * the pages, [batch, pages · pageSize, heads, size]. Without a cache, those of the call.
 */
export function withPast(
  name: string,
  x: Tensor,
  { positions, pages }: Reading,
  { cacheLength }: ModelConfig,
): Tensor {
  if (cacheLength === undefined) return x;
  const [, , ...rest] = x.shape;
  const pool = variable("cache", name, () =>
    ops.zeros({ dtype: x.dtype, shape: [Math.ceil(cacheLength / pageSize) * pageSize, ...rest] }),
  );
  if (isInitializing() || !pages) return x;
  const seen = np.maximum(positions, 0);
  const page = np.takeAlongAxis(pages, np.floorDivide(seen, pageSize), 1);
  const own = page.mul(pageSize).add(np.remainder(seen, pageSize));
  // Updates outside of the pool are dropped.
  const rows = np.where(np.less(positions, 0), pool.value.shape[0] ?? 0, own);
  pool.value = activation(pool.value.at(rows).set(x), null, "activationHeads", null);
  const [batch = 0, numPages = 0] = pages.shape;
  const past = np.expandDims(pages.mul(pageSize), 2).add(np.arange(pageSize));
  return np.take(pool.value, past.reshape([batch, numPages * pageSize]), 0, { mode: "clip" });
}
