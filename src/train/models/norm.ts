import { LayerNorm, RMSNorm } from "../../nn/layers/normalization.js";
import { module } from "../../nn/modules/module.js";
import { param } from "../../nn/modules/variables.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { decoderOf } from "./decoder.js";
import { type ParamDim, weight } from "./names.js";

interface OffsetNormConfig {
  readonly epsilon: number;
  readonly offset: number;
  readonly dtype: ModelConfig["dtype"];
  readonly dim: ParamDim;
}

/** {@link RMSNorm} whose scale is stored without an offset. */
const OffsetNorm = module(
  "OffsetNorm",
  ({ epsilon, offset, dtype, dim }: OffsetNormConfig) =>
    (x: Tensor): Tensor => {
      const wide = x.astype("float32");
      const variance = np.mean(np.square(wide), -1, { keepdims: true });
      const scale = param("scale", weight([dim], initializers.constant(1 - offset)), [x.shape.at(-1) ?? 0]);
      const factor = scale.astype("float32").add(offset);
      return wide
        .div(np.sqrt(variance.add(epsilon)))
        .mul(factor)
        .astype(dtype);
    },
);

/** The norm of a model under a name. @param dim the logical name of the dim that is normalised */
export function normNamed(name: string, config: ModelConfig, dim: ParamDim = "norm") {
  const { norm, normOffset } = decoderOf(config);
  const { normEpsilon: epsilon, dtype } = config;
  const scaleInit = weight([dim], initializers.ones);
  if (norm === "layer") {
    const biasInit = weight([dim], initializers.zeros);
    return LayerNorm({ name, epsilon, dtype, scaleInit, biasInit, useFastVariance: false });
  }
  if (normOffset === 0) return RMSNorm({ name, epsilon, dtype, scaleInit });
  return OffsetNorm({ name, epsilon, offset: normOffset, dtype, dim });
}
