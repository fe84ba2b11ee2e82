import * as np from "../../numpy/index.js";
import type { Tensor } from "../../trace/tensor.js";

/**
 * Rotates pairs of features by angles that grow with the position: feature `i` of the first half is paired
 * with feature `i` of the second.
 *
 * @param x [batch, length, heads, headSize]
 * @param positions int32 [batch, length] or [length]
 */
export function rotary(x: Tensor, positions: Tensor, base: number): Tensor {
  const half = (x.shape.at(-1) ?? 0) / 2;
  const frequencies = np.exp(
    np
      .arange(half)
      .astype("float32")
      .mul(-Math.log(base) / half),
  );
  const angles = np.expandDims(positions.astype("float32"), -1).mul(frequencies);
  const perHead = np.expandDims(angles, -2);
  const [cos, sin] = [np.cos(perHead).astype(x.dtype), np.sin(perHead).astype(x.dtype)];
  const [low, high] = [x.get("...", np.s(0, half)), x.get("...", np.s(half, 2 * half))];
  return np.concatenate([low.mul(cos).sub(high.mul(sin)), high.mul(cos).add(low.mul(sin))], -1);
}
