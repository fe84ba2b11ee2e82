import type { Variables } from "../../nn/scope.js";
import { modelConfig } from "../../train/config/runConfig.js";
import { storedConfig } from "../../train/folder/savedRun.js";
import { sampleText } from "../../train/models/sampleText.js";
import { storedTokenizer } from "../../train/run/runData.js";
import { type Command, exitCodes } from "../command.js";
import { engineOption, findCheckpoint, integerOption, numberOption, useEngine } from "../runArguments.js";

/** Samples text from a checkpoint. */
export const generate: Command = {
  name: "generate",
  summary: "continue a text with a trained model",
  usage: "<run or checkpoint folder> [options]",
  options: [
    { name: "prompt", help: "the text to continue; empty by default" },
    { name: "length", help: "number of tokens to add; 200 by default" },
    { name: "temperature", help: "below 1 keeps to likely tokens, 0 takes the likeliest; 0.8 by default" },
    { name: "top-k", help: "sample from the K likeliest tokens only; 0, the default, for all" },
    { name: "seed", help: "seed of the sampling; 0 by default" },
    engineOption,
  ],
  takesFields: false,
  examples: [
    'shardwise generate runs/default --prompt "Call me"',
    "shardwise generate runs/default/checkpoints/step-00000500 --temperature 0.5 --top-k 40",
  ],
  run: async (parsed) => {
    await useEngine(parsed);
    const options = {
      length: integerOption(parsed, "length", 200, 0),
      temperature: numberOption(parsed, "temperature", 0.8, 0),
      topK: integerOption(parsed, "top-k", 0, 0),
      seed: integerOption(parsed, "seed", 0, 0),
    };
    const prompt = String(parsed.options.get("prompt") ?? "");
    const { checkpoint, run } = await findCheckpoint(parsed.positional[0], "generate");
    const config = storedConfig(checkpoint);
    const tokenizer = await storedTokenizer(config, run);
    const { params } = await checkpoint.restoreTree<{ readonly params: Variables }>();
    const closed = new AbortController();
    process.stdout.on("error", () => closed.abort());
    process.stdout.write(prompt);
    await sampleText(
      { model: modelConfig(config, tokenizer.vocabSize), params, tokenizer, window: config.data.sequence },
      { ...options, prompt, signal: closed.signal, onText: (text) => process.stdout.write(text) },
    );
    process.stdout.write("\n");
    return exitCodes.ok;
  },
};
