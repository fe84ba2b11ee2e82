/** Samples of a run's model. */
import { modelConfig, tuneConfig } from "../config/runConfig.js";
import { onHost } from "../folder/savedRun.js";
import { sampleText } from "../generation/sampleText.js";
import { toCanonical } from "../models/layerOrder.js";
import { mergedParams } from "../models/tune.js";
import type { LanguageModelState } from "../step/state.js";
import type { BuiltRun } from "./build.js";
import type { RunData } from "./runData.js";

/** Length of the prompt of a sample, in tokens. */
const promptTokens = 48;

/** What the model writes with a state; empty in processes other than the first. */
export async function sampleOf(
  { config, options, group, mesh, training, data }: BuiltRun,
  state: LanguageModelState,
): Promise<string> {
  const { params: own, base } = state;
  const trained = await onHost({ params: own, ...(base && { base }) });
  // All processes hold a part of the parameters, but one of them is enough to sample.
  if (group.index > 0) return "";
  const model = modelConfig(config, data.tokenizer.vocabSize);
  const sampled = {
    model,
    params: toCanonical(mergedParams(trained, model, tuneConfig(config)), training.layout),
    tokenizer: data.tokenizer,
    window: config.data.sequence,
    engine: mesh.engine,
  };
  return sampleText(sampled, {
    prompt: await promptFrom(data),
    length: config.sample,
    seed: config.seed,
    ...(options.signal ? { signal: options.signal } : {}),
  });
}

/** A prompt that the model was not trained on, if there is validation text. */
async function promptFrom({ validation, training, tokenizer }: RunData): Promise<string> {
  const [source] = (validation ?? training).sources;
  const row = source && "numRows" in source ? (await source.read(0)).tokens : new Int32Array();
  const text = tokenizer.decode(row.subarray(0, promptTokens)).replaceAll("\uFFFD", "").trim();
  // The first and the last word may be incomplete.
  return text.replace(/^\S*\s+/, "").replace(/\s+\S*$/, "");
}
