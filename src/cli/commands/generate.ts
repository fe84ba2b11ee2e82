import { at } from "../../ir/shape.js";
import { decimal, integer, optionalText, text } from "../../train/config/configSchema.js";
import type { ContinueOptions } from "../../train/generation/continueText.js";
import { type GenerateOptions, generate as generateTexts } from "../../train/generation/generate.js";
import { sampleText } from "../../train/generation/sampleText.js";
import type { ServedModel } from "../../train/serve/textService.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { phase } from "../phase.js";
import { readPrompts } from "../prompts.js";
import { engineOption, useEngine } from "../runArguments.js";
import { modelOptions, openModel, placementOf, usualLength } from "../textModels.js";

/** Samples text from a checkpoint. */
export const generate = defineCommand({
  name: "generate",
  summary: "continue texts with a trained model",
  usage: "<run, checkpoint or Hugging Face folder> [options]",
  options: {
    prompt: text("", "the text to continue; empty by default"),
    prompts: optionalText("a file of prompts instead: lines, or records with the field prompt or text"),
    slots: integer(8, "with --prompts, how many texts are continued at once"),
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
    "shardwise generate models/llama --prompts questions.jsonl --mesh data=2 > answers.jsonl",
    "shardwise generate models/llama --mesh model=2 --dtype bfloat16 --top-p 0.9",
    "shardwise generate runs/default/checkpoints/step-00000500 --temperature 0.5 --top-k 40",
  ],
  run: async (parsed) => {
    await useEngine(parsed);
    const { prompt, prompts: source, length, slots, stop, seed, ...rest } = parsed.values;
    if (source !== undefined && prompt !== "") {
      throw new UsageError("options --prompt and --prompts both say what to continue: use one of them");
    }
    const prompts = source === undefined ? undefined : await readPrompts(source);
    phase("loading the model");
    const model = await openModel(parsed.positional[0], "generate", placementOf(rest));
    const closed = new AbortController();
    process.stdout.on("error", () => closed.abort());
    phase("");
    const { "top-k": topK, "top-p": topP, "min-p": minP, "repetition-penalty": repetitionPenalty } = rest;
    const options = {
      ...{ temperature: rest.temperature, topK, topP, minP, repetitionPenalty, seed },
      stop: stop === "" ? [] : [stop],
      signal: closed.signal,
    };
    if (prompts) await writeTexts(model, prompts, { ...options, maxTokens: length, slots });
    else await writeText(model, { ...options, prompt, length });
    return exitCodes.ok;
  },
});

/** Writes a text while it is drawn. */
async function writeText(of: ServedModel, options: ContinueOptions): Promise<void> {
  const { config, params, tokenizer, maxLength, mesh } = of;
  process.stdout.write(options.prompt);
  await sampleText(
    { model: config, params, tokenizer, mesh, window: Math.min(maxLength, usualLength) },
    { ...options, onText: (piece) => process.stdout.write(piece) },
  );
  process.stdout.write("\n");
}

/** Writes a line of JSON for each prompt, in their order. */
async function writeTexts(
  { config, params, tokenizer, mesh }: ServedModel,
  prompts: readonly string[],
  options: GenerateOptions,
): Promise<void> {
  const texts = prompts.map(() => ({ text: "", isDone: false }));
  let numWritten = 0;
  for await (const { prompt, text, finish } of generateTexts(config, params, prompts, {
    ...options,
    tokenizer,
    mesh,
  })) {
    const own = at(texts, prompt);
    own.text += text;
    own.isDone = finish !== undefined;
    for (; texts[numWritten]?.isDone; numWritten++) {
      const line = { prompt: prompts[numWritten], text: texts[numWritten]?.text };
      process.stdout.write(`${JSON.stringify(line)}\n`);
    }
  }
}
