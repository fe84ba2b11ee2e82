import { decimal, integer, text } from "../../train/config/schema.js";
import { sampleText } from "../../train/generation/sampleText.js";
import { defineCommand, exitCodes } from "../command.js";
import { meshOf, modelOptions, openModel, usualLength } from "../models.js";
import { phase } from "../phase.js";
import { engineOption, useEngine } from "../runArguments.js";

/** Samples text from a checkpoint. */
export const generate = defineCommand({
  name: "generate",
  summary: "continue a text with a trained model",
  usage: "<run, checkpoint or Hugging Face folder> [options]",
  options: {
    prompt: text("", "the text to continue; empty by default"),
    length: integer(200, "number of tokens to add", 0),
    temperature: decimal(0.8, "lower values favour likely tokens; 0 always takes the likeliest"),
    "top-k": integer(0, "sample from the K likeliest tokens only, or from all with 0", 0),
    "top-p": decimal(1, "sample from the likeliest tokens that together have this probability"),
    "min-p": decimal(0, "sample only from tokens at least this fraction as probable as the likeliest one"),
    "repetition-penalty": decimal(1, "above 1, tokens that already occur in the text become less likely"),
    stop: text("", "a string that ends the text; none by default"),
    seed: integer(0, "seed of the sampling", 0),
    ...modelOptions,
    ...engineOption,
  },
  takesFields: false,
  examples: [
    'shardwise generate runs/default --prompt "Call me"',
    "shardwise generate models/llama --mesh model=2 --dtype bfloat16 --top-p 0.9",
    "shardwise generate runs/default/checkpoints/step-00000500 --temperature 0.5 --top-k 40",
  ],
  run: async (parsed) => {
    await useEngine(parsed);
    const { prompt, length, temperature, "top-k": topK, "top-p": topP, "min-p": minP } = parsed.values;
    const { "repetition-penalty": repetitionPenalty, stop, seed } = parsed.values;
    phase("loading the model");
    const placement = { mesh: meshOf(parsed.values.mesh), dtype: parsed.values.dtype };
    const model = await openModel(parsed.positional[0], "generate", placement);
    const { config, params, tokenizer, maxLength, mesh } = model;
    const closed = new AbortController();
    process.stdout.on("error", () => closed.abort());
    phase("");
    process.stdout.write(prompt);
    await sampleText(
      { model: config, params, tokenizer, mesh, window: Math.min(maxLength, usualLength) },
      {
        ...{ prompt, length, temperature, topK, topP, minP, repetitionPenalty, seed },
        stop: stop === "" ? [] : [stop],
        signal: closed.signal,
        onText: (piece) => process.stdout.write(piece),
      },
    );
    process.stdout.write("\n");
    return exitCodes.ok;
  },
});
