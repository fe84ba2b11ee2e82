import type { Engine } from "../../ir/engine.js";
import type { Variables } from "../../nn/modules/scope.js";
import { Mesh } from "../../spmd/mesh/mesh.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import type { ModelConfig } from "../models/config.js";
import { CachedModel } from "./cachedModel.js";
import { type ContinueOptions, continueText } from "./continueText.js";

/** A model with its parameters and tokeniser, to sample text from. */
export interface Sampled {
  readonly model: ModelConfig;
  /** The parameters with layers in canonical order, on any devices. */
  readonly params: Variables;
  readonly tokenizer: Tokenizer;
  /** Maximum number of tokens that the model sees. */
  readonly window: number;
  /** The engine to run on; the shared engine of the process by default. */
  readonly engine?: Engine;
  /** The mesh to run on; one device of the engine by default, because a single row of tokens cannot be split. */
  readonly mesh?: Mesh | undefined;
}

/** Continues a text with a model. */
export async function sampleText(of: Sampled, options: ContinueOptions): Promise<string> {
  const { model, tokenizer, window, engine } = of;
  const mesh = of.mesh ?? Mesh.create({ data: 1 }, engine ? { engine, devices: [0] } : {});
  const cached = new CachedModel(model, of.params, { slots: 1, maxLength: window, mesh });
  let known: readonly number[] = [];
  /** The logits after a text; what the model has read already is not read again. */
  const logits = async (tokens: readonly number[]) => {
    const isMore = known.length < tokens.length && known.every((token, i) => token === tokens[i]);
    if (!isMore) cached.forget(0);
    const rest = tokens.slice(isMore ? known.length : 0);
    known = [...tokens];
    const { logits } = await cached.read(0, rest);
    const data = await logits.data();
    logits.dispose();
    return Array.from(data, Number);
  };
  try {
    return await continueText(logits, tokenizer, window, options);
  } finally {
    await cached.close();
  }
}
