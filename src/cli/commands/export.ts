import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Variables } from "../../nn/scope.js";
import { modelConfig } from "../../train/config/runConfig.js";
import { choice, optionalText } from "../../train/config/schema.js";
import { storedConfig } from "../../train/folder/savedRun.js";
import { companionFolder } from "../../train/pretrained/initialize.js";
import { readJson } from "../../train/pretrained/pretrainedFolder.js";
import { savePretrained } from "../../train/pretrained/savePretrained.js";
import { storedTokenizer } from "../../train/run/runData.js";
import { defineCommand, exitCodes } from "../command.js";
import { phase } from "../phase.js";
import { findCheckpoint } from "../runArguments.js";

/** Writes a trained model for another library. */
export const exportModel = defineCommand({
  name: "export",
  summary: "write a trained model for another library",
  usage: "<run or checkpoint folder> [options]",
  options: {
    to: choice("hf", "the format: hf is a folder that Hugging Face's transformers reads", ["hf"]),
    out: optionalText("the folder to write; hf in the run's folder by default"),
  },
  takesFields: false,
  examples: ["shardwise export runs/default", "shardwise export runs/default --to hf --out models/mine"],
  run: async ({ positional, values }) => {
    const { checkpoint, run } = await findCheckpoint(positional[0], "export");
    const out = values.out ?? join(run, values.to);
    const config = storedConfig(checkpoint);
    const { vocabSize } = await storedTokenizer(config, run);
    const companions = companionFolder(run);
    const json = await readJson(join(companions, "config.json"), "export");
    phase("loading the model");
    const { params } = await checkpoint.restoreTree<{ readonly params: Variables }>();
    const folder = existsSync(companions) ? companions : run;
    phase(`writing ${out}`);
    await savePretrained(out, {
      params,
      config: modelConfig(config, vocabSize),
      folder,
      ...(json && { json }),
    });
    phase("");
    process.stdout.write(`step ${checkpoint.step} is in ${out}\n`);
    return exitCodes.ok;
  },
});
