import { ShardwiseError } from "../../ir/errors.js";
import { integer } from "../../train/config/configSchema.js";
import { runMesh, runTrainingFunctions } from "../../train/config/setup.js";
import { checkResumable, restoreRun, storedConfig } from "../../train/folder/savedRun.js";
import { evaluateOn } from "../../train/run/evaluation.js";
import { restoreReference } from "../../train/run/reference.js";
import { openRunData, storedTokenizer } from "../../train/run/runData.js";
import { defineCommand, exitCodes } from "../command.js";
import { phase } from "../phase.js";
import { configOf, engineOption, findCheckpoint, useEngine } from "../runArguments.js";

/** Measures the loss of a checkpoint. */
export const evaluate = defineCommand({
  name: "eval",
  summary: "measure the loss of a trained model",
  usage: "<run or checkpoint folder> [options]",
  options: { batches: integer(16, "maximum number of batches"), ...engineOption },
  takesFields: true,
  examples: [
    "shardwise eval runs/default",
    "shardwise eval runs/default --data.source other.txt --mesh model=2",
  ],
  run: async (parsed) => {
    await useEngine(parsed);
    const { batches } = parsed.values;
    const { checkpoint, run } = await findCheckpoint(parsed.positional[0], "eval");
    const config = configOf(checkpoint.manifest.config, parsed);
    const trainedOn = storedConfig(checkpoint).data;
    const own = { data: { ...config.data, source: trainedOn.source, validation: trainedOn.validation } };
    checkResumable({ ...config, data: { ...own.data, batch: trainedOn.batch } }, checkpoint);
    phase("reading the text and the checkpoint");
    const isOther = config.data.source !== trainedOn.source;
    // A text that the model was not trained on is evaluated as a whole.
    const data = await openRunData(
      isOther ? { ...config, data: { ...config.data, validation: 0 } } : config,
      run,
      { tokenizer: await storedTokenizer(config, run) },
    );
    const isDpo = config.dpo.beta > 0;
    if (isDpo && isOther) {
      throw new ShardwiseError(
        "value",
        `[eval] ${checkpoint.folder} was trained on preferences, whose loss needs the log-probabilities of the model before training; those of ${config.data.source} are not known: leave out --data.source`,
      );
    }
    await restoreReference(data, run);
    const training = runTrainingFunctions(config, data.tokenizer.vocabSize, runMesh(config));
    const state = await restoreRun(checkpoint, training);
    const source = data.validation ?? data.training;
    phase("measuring the loss");
    const loss = await evaluateOn(training, state, source, config, batches);
    phase("");
    if (!Number.isFinite(loss)) {
      throw new ShardwiseError(
        "value",
        `[eval] the loss of ${checkpoint.folder} is ${loss}: the model computes numbers that are not finite; evaluate an older checkpoint`,
      );
    }
    const what = isDpo
      ? "per pair"
      : `nats per token, perplexity ${Math.exp(loss).toFixed(2)}, ${(loss / Math.LN2).toFixed(3)} bits per token`;
    process.stdout.write(
      `step ${checkpoint.step}: loss ${loss.toFixed(4)} ${what} on ${isOther ? config.data.source : data.validation ? "the validation part" : "the training text"}\n`,
    );
    return exitCodes.ok;
  },
});
