/** Which tokens a model reads, and where it keeps what it remembers of them. */
import { isInitializing, variable } from "../../nn/modules/variables.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { activation } from "./names.js";
import type { Rotation } from "./rotary.js";

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
  /** With pages, where the tokens and their past are. */
  readonly places?: Places;
  /** What layers share: one for all, or those for layers without and with a window if there are both. */
  readonly layers?: readonly LayerReading[];
}

/** Where keys and values are in the pool of pages. */
interface Places {
  /** The rows that keep those of the tokens, int32 [batch, length]; outside of the pool for padding. */
  readonly kept: Tensor;
  /** The rows of the past in the order of positions, int32 [batch, pages · pageSize]. */
  readonly past: Tensor;
}

/** What attention needs to know of positions. */
export interface LayerReading {
  /** How queries and keys are rotated, if they are. */
  readonly rotation?: Rotation;
  /** With a cache: which of the past the queries see, bool [batch, 1, length, pages · pageSize]. */
  readonly seen?: Tensor;
}

/** The number of positions in a page of the cache. */
export const pageSize = 16;

const poolSize = (cacheLength: number) => Math.ceil(cacheLength / pageSize) * pageSize;

/** A reading with its places in the pool, which are the same in all layers. */
export function withPlaces(reading: Reading, { cacheLength }: ModelConfig): Reading {
  const { positions, pages } = reading;
  if (!pages || cacheLength === undefined) return reading;
  const seen = np.maximum(positions, 0);
  const page = np.takeAlongAxis(pages, np.floorDivide(seen, pageSize), 1);
  const own = page.mul(pageSize).add(np.remainder(seen, pageSize));
  // Updates outside of the pool are dropped.
  const kept = np.where(np.less(positions, 0), poolSize(cacheLength), own);
  const [batch = 0, numPages = 0] = pages.shape;
  const past = np.expandDims(pages.mul(pageSize), 2).add(np.arange(pageSize));
  return { ...reading, places: { kept, past: past.reshape([batch, numPages * pageSize]) } };
}

/**
 * Keeps keys or values [batch, length, heads, size] in the pages of their rows, and returns those of all positions in
 * the pages, [batch, pages · pageSize, heads, size]. Without a cache, those of the call.
 */
export function withPast(name: string, x: Tensor, { places }: Reading, { cacheLength }: ModelConfig): Tensor {
  if (cacheLength === undefined) return x;
  const [, , ...rest] = x.shape;
  const pool = variable("cache", name, () =>
    ops.zeros({ dtype: x.dtype, shape: [poolSize(cacheLength), ...rest] }),
  );
  if (isInitializing() || !places) return x;
  pool.value = activation(pool.value.at(places.kept).set(x), null, "activationHeads", null);
  return np.take(pool.value, places.past, 0, { mode: "clip" });
}
