import { float8DotGeneral } from "../../nn/functions/float8DotGeneral.js";
import type { DotGeneral } from "../../nn/layers/linear.js";
import type { ModelConfig } from "./config.js";

/**
 * How the linear layers of blocks multiply. A model that reads with a cache multiplies few rows at a time: rounding its
 * weights to float8 for each of them would take longer than the product.
 */
export function productsOf({ products, cacheLength }: ModelConfig): { readonly dotGeneral?: DotGeneral } {
  return products === "float8" && cacheLength === undefined ? { dotGeneral: float8DotGeneral } : {};
}
