import { Dense, Embed } from "../../nn/linear.js";
import { module } from "../../nn/module.js";
import { RMSNorm } from "../../nn/normalization.js";
import { remat } from "../../nn/remat.js";
import { scan } from "../../nn/scan.js";
import { isInitializing, variable } from "../../nn/variables.js";
import { initializers } from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { checkpointPolicies } from "../../transforms/derivatives/remat.js";
import type { ModelConfig } from "./config.js";
import { LlamaBlock } from "./llama.js";
import { MlstmBlock } from "./mlstm.js";
import { activation, weight } from "./names.js";

/** Runs the blocks of a model one after the other on a residual stream. */
export type RunLayers = (config: ModelConfig, x: Tensor, positions: Tensor) => Tensor;

/** The policy of each choice of `remat`. */
export const rematPolicies = {
  dots: checkpointPolicies.dotsSaveable,
  full: checkpointPolicies.nothingSaveable,
};

/** The block of a model as a step of a loop: `(stream, positions) → [stream, nothing]`. */
export function blockClass(config: ModelConfig) {
  const Block = config.kind === "llama" ? LlamaBlock : MlstmBlock;
  const Step = module("Layer", (c: ModelConfig) => (x: Tensor, positions: Tensor): [Tensor, null] => [
    Block({ ...c, name: "block" })(x, positions),
    null,
  ]);
  return config.remat === "none" ? Step : remat(Step, { policy: rematPolicies[config.remat] });
}

/** A loop over `length` layers with stacked parameters. */
export function layerLoop(config: ModelConfig, length: number) {
  return scan(blockClass(config), {
    variableAxes: { params: 0, cache: 0 },
    splitRngs: { params: true },
    inAxes: [null],
    length,
    metadataParams: { partitionName: "layers" },
  });
}

const runInTurn: RunLayers = (config, x, positions) => {
  const Layers = layerLoop(config, config.numLayers);
  const [out] = Layers({ ...config, name: "layers" })(x, positions);
  return out;
};

/** The position of a token that is decoded alone, counted in the cache. */
function nextPosition(): Tensor {
  const count = variable("cache", "position", () => ops.zeros({ dtype: "int32", shape: [1] }));
  const position = count.value;
  if (!isInitializing()) count.value = position.add(1);
  return position;
}

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
export function embedTokens(table: ReturnType<typeof embeddingTable>, tokens: Tensor): Tensor {
  return activation(table(tokens), "batch", "length", "activationEmbed");
}

/** The logits of the residual stream after the last block. */
export function outputLogits(
  config: ModelConfig,
  table: () => ReturnType<typeof embeddingTable>,
  stream: Tensor,
): Tensor {
  const { vocabSize, dtype } = config;
  const norm = RMSNorm({
    name: "norm",
    epsilon: config.normEpsilon,
    dtype,
    scaleInit: weight(["norm"], initializers.ones),
  });
  const normed = activation(norm(stream), "batch", "length", "activationEmbed");
  const logits = config.tieEmbeddings
    ? table().attend(normed)
    : Dense({
        name: "head",
        features: vocabSize,
        useBias: false,
        dtype,
        kernelInit: weight(["embed", "vocab"]),
      })(normed);
  return activation(logits, "batch", "length", "activationVocab");
}

/**
 * A decoder: int32 tokens [batch, length] to logits [batch, length, vocabulary]. It is written over whole
 * tensors with named dims; the rules of {@link languageModelRules} say how a mesh splits them.
 */
export const LanguageModel = module(
  "LanguageModel",
  (config: LanguageModelConfig) =>
    (tokens: Tensor): Tensor => {
      const { runLayers = runInTurn } = config;
      const [, length = 0] = tokens.shape;
      const table = embeddingTable(config);
      const x = embedTokens(table, tokens);
      const positions = config.cacheLength === undefined ? ops.iota("int32", [length], 0) : nextPosition();
      return outputLogits(config, () => table, runLayers(config, x, positions));
    },
);
