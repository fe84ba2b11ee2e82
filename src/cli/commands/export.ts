import { join } from "node:path";
import { choice, optionalText } from "../../train/config/configSchema.js";
import { modelConfig, tuneConfig } from "../../train/config/runConfig.js";
import { type StoredModel, storedConfig, storedParams } from "../../train/folder/savedRun.js";
import { adapterOptions } from "../../train/models/tune.js";
import { saveAdapters } from "../../train/pretrained/adapters.js";
import { companionFolder } from "../../train/pretrained/initialize.js";
import { readJson } from "../../train/pretrained/pretrainedFolder.js";
import { savePretrained } from "../../train/pretrained/savePretrained.js";
import { storedTokenizer } from "../../train/run/runData.js";
import { defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { phase } from "../phase.js";
import { findCheckpoint } from "../runArguments.js";

/** Writes a trained model for another library. */
export const exportModel = defineCommand({
  name: "export",
  summary: "write a trained model for another library",
  usage: "<run or checkpoint folder> [options]",
  options: {
    to: choice(
      "hf",
      "the format: hf is a folder that Hugging Face's transformers reads, with adapters merged; peft only the adapters",
      ["hf", "peft"],
    ),
    out: optionalText("the folder to write; that of the format in the run's folder by default"),
  },
  takesFields: false,
  examples: [
    "shardwise export runs/default",
    "shardwise export runs/default --to hf --out models/mine",
    "shardwise export runs/tuned --to peft",
  ],
  run: async ({ positional, values }) => {
    const { checkpoint, run } = await findCheckpoint(positional[0], "export");
    const out = values.out ?? join(run, values.to);
    const config = storedConfig(checkpoint);
    const tokenizer = await storedTokenizer(config, run);
    const { vocabSize } = tokenizer;
    const companions = companionFolder(run);
    const json = await readJson(join(companions, "config.json"), "export");
    phase("loading the model");
    const model = modelConfig(config, vocabSize);
    if (values.to === "peft") {
      const tune = tuneConfig(config);
      if (!tune || !json) {
        throw new UsageError(
          `${run} has no adapters of a pretrained model: train with --init and --tune lora, or use --to hf`,
        );
      }
      const { params: adapters } = await checkpoint.restoreTree<StoredModel>();
      phase(`writing ${out}`);
      await saveAdapters(out, { config: model, json, adapters, options: adapterOptions(model, tune) });
    } else {
      const params = await storedParams(checkpoint, vocabSize);
      phase(`writing ${out}`);
      await savePretrained(out, {
        params,
        config: model,
        folder: companions,
        tokenizer,
        ...(json && { json }),
      });
    }
    phase("");
    process.stdout.write(`step ${checkpoint.step} is in ${out}\n`);
    return exitCodes.ok;
  },
});
