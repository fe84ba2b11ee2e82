import { dotProductAttention } from "../../nn/attention.js";
import { silu } from "../../nn/functions.js";
import { Dense, DenseGeneral } from "../../nn/linear.js";
import { module } from "../../nn/module.js";
import { RMSNorm } from "../../nn/normalization.js";
import { isInitializing, variable } from "../../nn/variables.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { activation, weight, whole } from "./names.js";
import { rotary } from "./rotary.js";

/** The cached values of all tokens up to this one: [batch, length, …], 0 for later positions. */
function cached(name: string, x: Tensor, position: Tensor, length: number): Tensor {
  const [batch = 0, , ...rest] = x.shape;
  const all = variable("cache", name, () => ops.zeros({ dtype: x.dtype, shape: [batch, length, ...rest] }));
  if (isInitializing()) return all.value;
  const zero = Tensor.scalar(0, "int32");
  const starts = [zero, position.reshape([]), ...rest.map(() => zero)];
  all.value = ops.dynamicUpdateSlice(all.value, x, starts);
  return all.value;
}

/** Causal self-attention with rotary positions and grouped key-value heads. */
const Attention = module("Attention", (config: ModelConfig) => (x: Tensor, positions: Tensor): Tensor => {
  const { numHeads, numKvHeads, width, dtype, ropeBase, cacheLength } = config;
  const headSize = width / numHeads;
  const project = (name: string, heads: number, dim: "heads" | "kvHeads") =>
    activation(
      DenseGeneral({
        name,
        features: [heads, headSize],
        useBias: false,
        dtype,
        kernelInit: weight(["embed", dim, "headSize"]),
      })(x),
      "batch",
      "length",
      "activationHeads",
      null,
    );
  const query = rotary(project("query", numHeads, "heads"), positions, ropeBase);
  const key = rotary(project("key", numKvHeads, "kvHeads"), positions, ropeBase);
  const value = project("value", numKvHeads, "kvHeads");
  const past = (name: string, own: Tensor) =>
    cacheLength === undefined ? own : cached(name, own, positions, cacheLength);
  const seen =
    cacheLength === undefined
      ? { isCausal: true }
      : { mask: np.lessEqual(np.arange(cacheLength), positions).reshape([1, 1, 1, cacheLength]) };
  const mixed = dotProductAttention(query, past("keys", key), past("values", value), seen);
  return DenseGeneral({
    name: "out",
    features: width,
    axis: [-2, -1],
    useBias: false,
    dtype,
    kernelInit: weight(["heads", "headSize", "embed"]),
  })(mixed);
});

/** The gated MLP: `down(silu(gate(x)) · up(x))`. */
const SwiGlu = module("SwiGLU", (config: ModelConfig) => (x: Tensor): Tensor => {
  const { mlpWidth, width, dtype } = config;
  const inner = (name: string) =>
    activation(
      Dense({ name, features: mlpWidth, useBias: false, dtype, kernelInit: weight(["embed", "mlp"]) })(x),
      "batch",
      "length",
      "activationMlp",
    );
  const gated = silu(inner("gate")).mul(inner("up"));
  return Dense({
    name: "down",
    features: width,
    useBias: false,
    dtype,
    kernelInit: weight(["mlp", "embed"]),
  })(gated);
});

/** A pre-norm block: attention and a gated MLP, each added to the residual stream. */
export const LlamaBlock = module("Block", (config: ModelConfig) => (x: Tensor, positions: Tensor): Tensor => {
  const norm = (name: string) =>
    RMSNorm({
      name,
      epsilon: config.normEpsilon,
      dtype: config.dtype,
      scaleInit: weight(["norm"], initializers.ones),
    });
  const attended = x.add(
    Attention({ ...config, name: "attention" })(whole(norm("attentionNorm")(x)), positions),
  );
  const stream = activation(attended, "batch", "length", "activationEmbed");
  const result = stream.add(SwiGlu({ ...config, name: "mlp" })(whole(norm("mlpNorm")(stream))));
  return activation(result, "batch", "length", "activationEmbed");
});
