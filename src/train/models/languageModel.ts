import { Dense, Embed } from "../../nn/layers/linear.js";
import { remat } from "../../nn/lift/remat.js";
import { scan } from "../../nn/lift/scan.js";
import { module } from "../../nn/modules/module.js";
import * as np from "../../numpy/index.js";
import { initializers } from "../../random/index.js";
import { Tensor } from "../../trace/tensor.js";
import { checkpointPolicies } from "../../transforms/derivatives/remat.js";
import type { ModelConfig } from "./config.js";
import { decoderOf, isMixed, localLayers } from "./decoder.js";
import { LlamaBlock, selectedNames, sharedByLayers } from "./llama.js";
import { MlstmBlock } from "./mlstm.js";
import { MoeBlock, tokensOf, withStatistics } from "./moeDecoder.js";
import { activation, weight, whole } from "./names.js";
import { normNamed } from "./norm.js";
import type { Reading } from "./reading.js";
import { sequencePositions } from "./sequence.js";
import { XlstmBlock } from "./xlstm.js";

/** Runs the blocks of a model one after the other on a residual stream. */
export type RunLayers = (config: ModelConfig, x: Tensor, reading: Reading) => Tensor;

/** The policy of each choice of `remat`. */
export const rematPolicies = {
  selective: checkpointPolicies.saveOnlyTheseNames(...selectedNames),
  dots: checkpointPolicies.dotsSaveable,
  full: checkpointPolicies.nothingSaveable,
};

const blocks = { llama: LlamaBlock, moe: MoeBlock, mlstm: MlstmBlock, xlstm: XlstmBlock };

/**
 * The block of a model as a step of a loop: `(stream, reading, isLocal) → [stream, nothing]`, where `isLocal` is given
 * only if some layers have a window.
 */
export function blockClass(config: ModelConfig) {
  const Block = blocks[config.kind];
  const Step = module(
    "Layer",
    (c: ModelConfig) =>
      (x: Tensor, reading: Reading, isLocal?: Tensor): [Tensor, null] => [
        Block({ ...c, name: "block" })(x, reading, isLocal),
        null,
      ],
  );
  return config.remat === "none" ? Step : remat(Step, { policy: rematPolicies[config.remat] });
}

/** A loop over `length` layers with stacked parameters. */
export function layerLoop(config: ModelConfig, length: number) {
  return scan(blockClass(config), {
    variableAxes: { params: 0, cache: 0, lora: 0 },
    splitRngs: { params: true, lora: true },
    inAxes: isMixed(decoderOf(config)) ? [null, 0] : [null],
    length,
    metadataParams: { partitionName: "layers" },
  });
}

/** Runs the blocks one after the other. */
export const runInTurn: RunLayers = (config, x, reading) => {
  const Layers = layerLoop(config, config.numLayers);
  const decoder = decoderOf(config);
  const layers = Layers({ ...config, name: "layers" });
  const isLocal = localLayers(decoder, config.numLayers);
  const [out] = isMixed(decoder) ? layers(x, reading, np.array(isLocal)) : layers(x, reading);
  return out;
};

/** Configuration of {@link LanguageModel}. */
export interface LanguageModelConfig extends ModelConfig {
  /** How the blocks are run; one after the other by default. */
  readonly runLayers?: RunLayers;
}

/** The embedding table of a model, which a tied output layer uses too. */
export function embeddingTable({ width, vocabSize, dtype, tieEmbeddings }: ModelConfig) {
  const spread = tieEmbeddings ? 1 / Math.sqrt(width) : 1;
  return Embed({
    name: "embed",
    numEmbeddings: vocabSize,
    features: width,
    dtype,
    embeddingInit: weight(["vocab", "embed"], initializers.normal(spread)),
  });
}

/** The residual stream before the first block: int32 tokens [batch, length] looked up in the table. */
export function embedTokens(
  config: ModelConfig,
  table: ReturnType<typeof embeddingTable>,
  tokens: Tensor,
  positions: Tensor,
): Tensor {
  const { embedScale, positions: encoding, maxLength } = decoderOf(config);
  const { width, dtype } = config;
  const looked = table(tokens);
  // Rounded to the type of the stream first, as the models that have a factor were trained.
  const scaled = embedScale === 1 ? looked : looked.mul(Tensor.scalar(embedScale, "float32").astype(dtype));
  const embedded = activation(scaled, "batch", "streamLength", "activationEmbed");
  if (encoding === "rotary") return withStatistics(config, embedded);
  const learned = Embed({
    name: "positions",
    numEmbeddings: maxLength,
    features: width,
    dtype,
    embeddingInit: weight(["positions", "embed"], initializers.normal(0.02)),
  });
  const placed = embedded.add(learned(np.maximum(positions, 0)));
  return withStatistics(config, activation(placed, "batch", "streamLength", "activationEmbed"));
}

/** Limits values smoothly to ±cap; 0 for no limit. */
export function softCap(x: Tensor, cap: number): Tensor {
  return cap === 0 ? x : np.tanh(x.div(cap)).mul(cap);
}

/** The logits of the residual stream after the last block; of one token of each row if `last` says which. */
export function outputLogits(
  config: ModelConfig,
  table: () => ReturnType<typeof embeddingTable>,
  stream: Tensor,
  last?: Tensor,
): Tensor {
  const { vocabSize, dtype } = config;
  const { headBias, logitCap } = decoderOf(config);
  const tokens = tokensOf(config, stream);
  const wanted = last ? np.takeAlongAxis(tokens, last.reshape([-1, 1, 1]), 1) : tokens;
  const normed = whole(normNamed("norm", config)(wanted));
  const logits = config.tieEmbeddings
    ? table().attend(normed)
    : Dense({
        name: "head",
        features: vocabSize,
        useBias: headBias,
        dtype,
        kernelInit: weight(["embed", "vocab"]),
        biasInit: weight(["vocab"], initializers.zeros),
      })(normed);
  return softCap(activation(logits, "batch", "length", "activationVocab"), logitCap);
}

/**
 * A decoder: int32 tokens [batch, length] to logits [batch, length, vocabulary]. It is written over whole
 * tensors with named dims; the rules of {@link languageModelRules} say how a mesh splits them.
 *
 * It is given what it reads with a cache, and if rows hold several documents; with a cache also the index of the token of
 * each row whose logits are wanted, int32 [batch].
 */
export const LanguageModel = module(
  "LanguageModel",
  (config: LanguageModelConfig) =>
    (tokens: Tensor, given?: Reading, last?: Tensor): Tensor => {
      const { runLayers = runInTurn } = config;
      const table = embeddingTable(config);
      const read = given ?? { positions: sequencePositions(config, tokens.shape[1] ?? 0) };
      const x = embedTokens(config, table, tokens, read.positions);
      const reading = sharedByLayers(config, read);
      return outputLogits(config, () => table, runLayers(config, x, reading), last);
    },
);
