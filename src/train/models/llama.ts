import { type AttentionCallOptions, attention } from "../../nn/functions/attention.js";
import { contextAttention } from "../../nn/functions/contextAttention.js";
import { gelu, relu, silu } from "../../nn/functions/functions.js";
import { Dense, DenseGeneral } from "../../nn/layers/linear.js";
import { module } from "../../nn/modules/module.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { cond } from "../../transforms/control/cond.js";
import { checkpointName } from "../../transforms/derivatives/remat.js";
import { isRecurrent, type ModelConfig } from "./config.js";
import { type DecoderConfig, decoderOf, isMixed } from "./decoder.js";
import { activation, weight, whole } from "./names.js";
import { normNamed } from "./norm.js";
import { productsOf } from "./products.js";
import { type LayerReading, type Reading, withPast, withPlaces } from "./reading.js";
import { rotaryFrequencies, rotated, rotationOf } from "./rotary.js";

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

/** Which rows of the past the queries see: [batch, 1, length, rows]. */
function seenOfPast(
  config: ModelConfig,
  positions: Tensor,
  numKeys: number,
  isLocal: Tensor | undefined,
): Tensor {
  const { window, layers } = decoderOf(config);
  const keys = np.arange(numKeys);
  const queries = np.expandDims(positions, -1);
  const past = np.lessEqual(keys, queries);
  const near = np.less(queries.sub(keys), window);
  const nearOrGlobal = isLocal ? np.logicalOr(np.logicalNot(isLocal), near) : near;
  const seen = window > 0 && layers.includes("L") ? np.logicalAnd(past, nearOrGlobal) : past;
  return np.expandDims(seen, positions.ndim === 1 ? [0, 1] : 1);
}

/** What a layer needs to know of positions. @param isLocal whether it has a window, if layers differ */
function layerReading(config: ModelConfig, { positions, places }: Reading, isLocal?: Tensor): LayerReading {
  const { positions: encoding, ropeAttention } = decoderOf(config);
  const rotation = () => rotationOf(positions, frequenciesOf(config, isLocal), ropeAttention, config.dtype);
  return {
    ...(encoding === "rotary" && { rotation: rotation() }),
    ...(places && { seen: seenOfPast(config, positions, places.past.shape[1] ?? 0, isLocal) }),
  };
}

/** A reading from a cache with what its layers share: a loop over them would compute it for each. */
export function sharedByLayers(config: ModelConfig, given: Reading): Reading {
  if (config.cacheLength === undefined || isRecurrent(config)) return given;
  const reading = withPlaces(given, config);
  const kinds = isMixed(decoderOf(config)) ? [false, true].map((isLocal) => np.array(isLocal)) : [undefined];
  return { ...reading, layers: kinds.map((isLocal) => layerReading(config, reading, isLocal)) };
}

/** What a layer needs to know of positions, from what layers share if that was computed. */
function readingOfLayer(config: ModelConfig, reading: Reading, isLocal?: Tensor): LayerReading {
  const [global, local] = reading.layers ?? [layerReading(config, reading, isLocal)];
  if (!global || !local || !isLocal) return global ?? {};
  return tree.map((a: Tensor, b: Tensor) => np.where(isLocal, a, b), local, global);
}

/** Queries [batch, length, heads, headSize] with the keys and values of their sequences, to what they read. */
type Attend = (query: Tensor, key: Tensor, value: Tensor) => Tensor;

/** Attention within whole sequences, of which mesh axis `context` may split. */
function attendWithin(
  config: ModelConfig,
  segmentIds: Tensor | undefined,
  isLocal: Tensor | undefined,
  options: Pick<AttentionCallOptions, "scale" | "softcap">,
): Attend {
  const { window, layers } = decoderOf(config);
  const { exchange, placement } = config.context ?? {};
  const attend =
    (hasWindow: boolean): Attend =>
    (...operands) => {
      const sides = [window - 1, 0] as const;
      const seen = { ...options, causal: true, segmentIds, ...(hasWindow && { window: sides }) };
      const result = exchange
        ? contextAttention(...operands, { ...seen, context: exchange, placement })
        : attention(...operands, seen);
      return checkpointName(result, "attention").output;
    };
  if (!isLocal) return attend(window > 0 && layers.includes("L"));
  return (...operands) => cond(isLocal, attend(true), attend(false), ...operands);
}

/**
 * What `remat` "selective" keeps: the results of attention and of every second product of a block, so that the backward
 * pass repeats a third of the products and no attention.
 */
export const selectedNames = ["attention", "query", "value", "gate", "down"] as const;

/**
 * Queries, keys and values of heads that were projected together: each key head with its query heads before it, and its
 * value after it, so that devices can have different key heads.
 *
 * @param all [batch, length, key heads, query heads of each + 2, headSize]
 */
function headsOfFused(all: Tensor): [query: Tensor, key: Tensor, value: Tensor] {
  const [batch = 0, length = 0, numKvHeads = 0, rows = 0, headSize = 0] = all.shape;
  const heads = (from: number, to: number) =>
    all.get("...", np.s(from, to), np.s()).reshape([batch, length, numKvHeads * (to - from), headSize]);
  return [heads(0, rows - 2), heads(rows - 2, rows - 1), heads(rows - 1, rows)];
}

/** Causal self-attention with grouped key-value heads. */
const Attention = module(
  "Attention",
  (config: ModelConfig) =>
    (x: Tensor, reading: Reading, isLocal?: Tensor): Tensor => {
      const { numHeads, numKvHeads, width, dtype } = config;
      const decoder = decoderOf(config);
      const headSize = headSizeOf(config);
      const { rotation, seen: mask } = readingOfLayer(config, reading, isLocal);
      const project = (name: string, features: readonly number[], dim: "heads" | "kvHeads") => {
        const between = features.slice(2).map(() => null);
        const made = DenseGeneral({
          name,
          features,
          useBias: decoder.attentionBias !== "none",
          dtype,
          ...productsOf(config),
          kernelInit: weight(["embed", dim, ...between, "headSize"]),
          biasInit: weight([dim, ...between, "headSize"], initializers.zeros),
        })(x);
        return activation(checkpointName(made, name), "batch", "length", "activationHeads", ...between, null);
      };
      const placed = (name: string, heads: Tensor) => {
        const normed = decoder.qkNorm ? normNamed(`${name}Norm`, config, "headSize")(heads) : heads;
        return rotation ? rotated(normed, rotation) : normed;
      };
      const [ownQuery, ownKey, value] = config.isFused
        ? headsOfFused(project("queryKeyValue", [numKvHeads, numHeads / numKvHeads + 2, headSize], "kvHeads"))
        : [
            project("query", [numHeads, headSize], "heads"),
            project("key", [numKvHeads, headSize], "kvHeads"),
            project("value", [numKvHeads, headSize], "kvHeads"),
          ];
      const [query, key] = [placed("query", ownQuery), placed("key", ownKey)];
      const keys = withPast("keys", key, reading, config);
      const values = withPast("values", value, reading, config);
      const options = {
        scale: decoder.attentionScale || 1 / Math.sqrt(headSize),
        softcap: decoder.attentionCap > 0 ? decoder.attentionCap : undefined,
      };
      const attendToPast: Attend = (...operands) => attention(...operands, { ...options, mask }).output;
      const isWhole = config.cacheLength === undefined;
      const attend = isWhole ? attendWithin(config, reading.segmentIds, isLocal, options) : attendToPast;
      return DenseGeneral({
        name: "out",
        features: width,
        axis: [-2, -1],
        useBias: decoder.attentionBias === "all",
        dtype,
        ...productsOf(config),
        kernelInit: weight(["heads", "headSize", "embed"]),
        biasInit: weight(["norm"], initializers.zeros),
      })(attend(query, keys, values));
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
  const inner = (part: string, ...parts: number[]) => {
    const between = parts.map(() => null);
    const made = DenseGeneral({
      name: part,
      features: [...parts, mlpWidth],
      useBias: mlpBias,
      dtype,
      ...productsOf(config),
      kernelInit: weight(["embed", ...between, "mlp"]),
      biasInit: weight([...between, "mlp"], initializers.zeros),
    })(x);
    return activation(checkpointName(made, part), "batch", "length", ...between, "activationMlp");
  };
  const gateAndUp = () => {
    if (!config.isFused) return [inner("gate"), inner("up")] as const;
    const both = inner("gateUp", 2);
    return [both.get("...", 0, np.s()), both.get("...", 1, np.s())] as const;
  };
  const gated = () => {
    const [gate, up] = gateAndUp();
    return act(gate).mul(up);
  };
  const down = Dense({
    name: "down",
    features: width,
    useBias: mlpBias,
    dtype,
    ...productsOf(config),
    kernelInit: weight(["mlp", "embed"]),
    biasInit: weight(["norm"], initializers.zeros),
  })(mlp === "gated" ? gated() : act(inner("up")));
  return checkpointName(down, "down");
});

/**
 * A block: attention and an MLP, each added to the residual stream, with norms where the configuration puts them.
 *
 * @param mlp the MLP, called once
 */
export function decoderBlock(config: ModelConfig, mlp: (input: Tensor) => Tensor) {
  return (x: Tensor, reading: Reading, layer?: Tensor): Tensor => {
    const decoder = decoderOf(config);
    const isLocal = isMixed(decoder) && layer ? layer : undefined;
    const attend = (input: Tensor) => Attention({ ...config, name: "attention" })(input, reading, isLocal);
    const before = (name: string, input: Tensor) => whole(normNamed(name, config)(input));
    const after = (name: string, output: Tensor) =>
      decoder.normPlacement === "both" ? normNamed(name, config)(output) : output;
    const streamed = (sum: Tensor) => activation(sum, "batch", "streamLength", "activationEmbed");
    const normed = before("attentionNorm", x);
    const attended = after("attentionPostNorm", attend(normed));
    if (decoder.normPlacement === "parallel") return streamed(x.add(attended).add(mlp(normed)));
    const stream = streamed(x.add(attended));
    return streamed(stream.add(after("mlpPostNorm", mlp(before("mlpNorm", stream)))));
  };
}

/**
 * The block of Llama and its relatives.
 *
 * The third argument says whether the layer has a window, where only some have.
 */
export const LlamaBlock = module("Block", (config: ModelConfig) =>
  decoderBlock(config, (input) => Mlp({ ...config, name: "mlp" })(input)),
);
