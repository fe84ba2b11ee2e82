import { type AttentionOptions, dotProductAttention } from "../../nn/dotProductAttention.js";
import { gelu, relu, silu } from "../../nn/functions.js";
import { Dense, DenseGeneral } from "../../nn/linear.js";
import { module } from "../../nn/module.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "./config.js";
import { type DecoderConfig, decoderOf, isMixed } from "./decoder.js";
import { activation, weight, whole } from "./names.js";
import { normNamed } from "./norm.js";
import { type Reading, withPast } from "./reading.js";
import { rotary, rotaryFrequencies } from "./rotary.js";

/** The features of a head. */
export function headSizeOf(config: ModelConfig): number {
  return decoderOf(config).headSize || config.width / config.numHeads;
}

/** The rotary frequencies of a layer. @param isLocal whether it has a window, if layers differ */
function frequenciesOf(config: ModelConfig, isLocal: Tensor | undefined): Tensor {
  const decoder = decoderOf(config);
  const size = headSizeOf(config);
  const global = np.array(rotaryFrequencies(size, config.ropeBase, decoder), "float32");
  const { ropeLocalBase, window } = decoder;
  if (ropeLocalBase === 0 || window === 0) return global;
  // Windows are short, so the frequencies of their layers are never scaled.
  const plain = { ...decoder, ropeScaling: "none" } as const;
  const local = np.array(rotaryFrequencies(size, ropeLocalBase, plain), "float32");
  return isLocal ? np.where(isLocal, local, global) : local;
}

/** Which keys the queries see: a mask [batch, 1, queries, keys], or the options of attention that say the same. */
function visibleKeys(
  config: ModelConfig,
  positions: Tensor,
  numKeys: number,
  isLocal: Tensor | undefined,
): Pick<AttentionOptions, "isCausal" | "localWindowSize" | "mask"> {
  const { window, layers, attentionCap } = decoderOf(config);
  const hasWindow = window > 0 && layers.includes("L");
  if (config.cacheLength === undefined && !isLocal && attentionCap === 0) {
    return { isCausal: true, ...(hasWindow ? { localWindowSize: [window - 1, 0] } : {}) };
  }
  const queries = np.expandDims(positions, -1);
  const keys = np.arange(numKeys);
  const past = np.lessEqual(keys, queries);
  const near = np.less(queries.sub(keys), window);
  const nearOrGlobal = isLocal ? np.logicalOr(np.logicalNot(isLocal), near) : near;
  const seen = hasWindow ? np.logicalAnd(past, nearOrGlobal) : past;
  return { mask: np.expandDims(seen, positions.ndim === 1 ? [0, 1] : 1) };
}

/** Attention whose logits are limited to ±cap, over any heads; otherwise as {@link dotProductAttention}. */
function cappedAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  { scale, cap, mask }: { readonly scale: number; readonly cap: number; readonly mask: Tensor },
): Tensor {
  const [batch = 0, length = 0, heads = 0, size = 0] = query.shape;
  const kvHeads = key.shape[2] ?? 1;
  const grouped = query.reshape([batch, length, kvHeads, heads / kvHeads, size]);
  const logits = np
    .einsum("BTKGH,BSKH->BKGTS", grouped, key)
    .astype("float32")
    .mul(scale / cap);
  const seen = np.expandDims(mask, 2);
  const masked = np.where(seen, np.tanh(logits).mul(cap), -1e30);
  const peak = ops.stopGradient(np.max(masked, -1, { keepdims: true }));
  const exps = np.exp(masked.sub(peak));
  const weights = exps.div(np.sum(exps, -1, { keepdims: true })).astype(value.dtype);
  return np.einsum("BKGTS,BSKH->BTKGH", weights, value).reshape([batch, length, heads, size]);
}

/** Causal self-attention with grouped key-value heads. */
const Attention = module(
  "Attention",
  (config: ModelConfig) =>
    (x: Tensor, reading: Reading, isLocal?: Tensor): Tensor => {
      const { numHeads, numKvHeads, width, dtype } = config;
      const { positions } = reading;
      const decoder = decoderOf(config);
      const headSize = headSizeOf(config);
      const project = (name: string, heads: number, dim: "heads" | "kvHeads") =>
        activation(
          DenseGeneral({
            name,
            features: [heads, headSize],
            useBias: decoder.attentionBias !== "none",
            dtype,
            kernelInit: weight(["embed", dim, "headSize"]),
            biasInit: weight([dim, "headSize"], initializers.zeros),
          })(x),
          "batch",
          "length",
          "activationHeads",
          null,
        );
      const frequencies = decoder.positions === "rotary" ? frequenciesOf(config, isLocal) : undefined;
      const placed = (name: string, heads: Tensor) => {
        const normed = decoder.qkNorm ? normNamed(`${name}Norm`, config, "headSize")(heads) : heads;
        return frequencies ? rotary(normed, positions, frequencies, decoder.ropeAttention) : normed;
      };
      const query = placed("query", project("query", numHeads, "heads"));
      const key = placed("key", project("key", numKvHeads, "kvHeads"));
      const value = project("value", numKvHeads, "kvHeads");
      const keys = withPast("keys", key, reading, config);
      const values = withPast("values", value, reading, config);
      const seen = visibleKeys(config, positions, keys.shape[1] ?? 0, isLocal);
      const scale = decoder.attentionScale || 1 / Math.sqrt(headSize);
      const cap = decoder.attentionCap;
      const mixed =
        seen.mask && cap > 0
          ? cappedAttention(query, keys, values, { scale, cap, mask: seen.mask })
          : dotProductAttention(query, keys, values, { ...seen, scale });
      return DenseGeneral({
        name: "out",
        features: width,
        axis: [-2, -1],
        useBias: decoder.attentionBias === "all",
        dtype,
        kernelInit: weight(["heads", "headSize", "embed"]),
        biasInit: weight(["norm"], initializers.zeros),
      })(mixed);
    },
);

const activations: { readonly [A in DecoderConfig["activation"]]: (x: Tensor) => Tensor } = {
  silu,
  gelu: (x) => gelu(x, { approximate: false }),
  geluTanh: (x) => gelu(x),
  relu,
};

/** The MLP: `down(act(gate(x)) · up(x))`, or without a gate `down(act(up(x)))`. */
export const Mlp = module("SwiGLU", (config: ModelConfig) => (x: Tensor): Tensor => {
  const { mlpWidth, width, dtype } = config;
  const { mlp, mlpBias, activation: name } = decoderOf(config);
  const act = activations[name];
  const inner = (part: string) =>
    activation(
      Dense({
        name: part,
        features: mlpWidth,
        useBias: mlpBias,
        dtype,
        kernelInit: weight(["embed", "mlp"]),
        biasInit: weight(["mlp"], initializers.zeros),
      })(x),
      "batch",
      "length",
      "activationMlp",
    );
  const gated = mlp === "gated" ? act(inner("gate")).mul(inner("up")) : act(inner("up"));
  return Dense({
    name: "down",
    features: width,
    useBias: mlpBias,
    dtype,
    kernelInit: weight(["mlp", "embed"]),
    biasInit: weight(["norm"], initializers.zeros),
  })(gated);
});

/**
 * A block: attention and an MLP, each added to the residual stream, with norms where the configuration puts them.
 *
 * The third argument says whether the layer has a window, where only some have.
 */
export const LlamaBlock = module(
  "Block",
  (config: ModelConfig) =>
    (x: Tensor, reading: Reading, layer?: Tensor): Tensor => {
      const decoder = decoderOf(config);
      const isLocal = isMixed(decoder) && layer ? layer : undefined;
      const attend = (input: Tensor) => Attention({ ...config, name: "attention" })(input, reading, isLocal);
      const mlp = (input: Tensor) => Mlp({ ...config, name: "mlp" })(input);
      const before = (name: string, input: Tensor) => whole(normNamed(name, config)(input));
      const after = (name: string, output: Tensor) =>
        decoder.normPlacement === "both" ? normNamed(name, config)(output) : output;
      const streamed = (sum: Tensor) => activation(sum, "batch", "length", "activationEmbed");
      const normed = before("attentionNorm", x);
      const attended = after("attentionPostNorm", attend(normed));
      if (decoder.normPlacement === "parallel") return streamed(x.add(attended).add(mlp(normed)));
      const stream = streamed(x.add(attended));
      return streamed(stream.add(after("mlpPostNorm", mlp(before("mlpNorm", stream)))));
    },
);
