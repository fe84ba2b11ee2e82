import type { Engine } from "../ir/engine.js";
import type { Variables } from "../nn/scope.js";
import * as np from "../numpy/index.js";
import { jit } from "../spmd/jit.js";
import { Mesh } from "../spmd/mesh.js";
import { PartitionSpec } from "../spmd/partitionSpec.js";
import { devicePut, NamedSharding } from "../spmd/sharding.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { type GenerateOptions, generate, type NextLogits } from "./generate.js";
import type { ModelConfig } from "./models/config.js";
import { LanguageModel } from "./models/languageModel.js";
import type { Tokenizer } from "./tokenizer.js";

/** What text is sampled from: a model with its parameters, and how it reads text. */
export interface Sampled {
  readonly model: ModelConfig;
  /** The parameters with layers in their order, wherever they lie. */
  readonly params: Variables;
  readonly tokenizer: Tokenizer;
  /** How many tokens the model sees. */
  readonly window: number;
  /** What computes; the process's shared engine by default. */
  readonly engine?: Engine;
}

/** Continues a text with a model, on one device: a single row of tokens has nothing to split. */
export async function sampleText(of: Sampled, options: GenerateOptions): Promise<string> {
  const { model, tokenizer, window, engine } = of;
  const mesh = Mesh.create({ data: 1 }, engine ? { engine, devices: [0] } : {});
  const whole = new NamedSharding(mesh, new PartitionSpec([]));
  const params = await devicePut(of.params, whole);
  const network = LanguageModel(model);
  const compiled = jit(
    (own: Variables, tokens: Tensor, last: Tensor) => {
      const logits = np.squeeze(network.apply(own, tokens), 0);
      return np
        .squeeze(ops.dynamicSlice(logits, [last, Tensor.scalar(0, "int32")], [1, model.vocabSize]), 0)
        .astype("float32");
    },
    { mesh, outShardings: whole, name: "nextToken" },
  );
  const next: NextLogits = async (tokens, last) => {
    const row = Tensor.fromHost({ dtype: "int32", shape: [1, window] }, tokens);
    const at = Tensor.fromHost({ dtype: "int32", shape: [] }, Int32Array.of(last));
    const logits = compiled(params, row, at);
    const data = await logits.data();
    logits.dispose();
    return Array.from(data, Number);
  };
  const text = await generate(next, tokenizer, window, options);
  for (const leaf of tree.leaves(params)) if (leaf instanceof Tensor) leaf.dispose();
  return text;
}
