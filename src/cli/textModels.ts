/** The models that commands write texts with: those of runs, and of folders as Hugging Face publishes them. */
import { existsSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import type { Variables } from "../nn/modules/scope.js";
import { castFloats } from "../optim/index.js";
import { Mesh } from "../spmd/mesh/mesh.js";
import { optionalChoice, optionalText, text } from "../train/config/configSchema.js";
import { modelConfig } from "../train/config/runConfig.js";
import { storedConfig, storedParams } from "../train/folder/savedRun.js";
import { fuseProjections } from "../train/generation/fuseProjections.js";
import type { ModelConfig } from "../train/models/config.js";
import { readTextFormat } from "../train/pretrained/chatFiles.js";
import { companionFolder } from "../train/pretrained/initialize.js";
import { loadPretrained } from "../train/pretrained/loadPretrained.js";
import { storedTokenizer } from "../train/run/runData.js";
import type { ServedModel } from "../train/serve/textService.js";
import { parseAxes, UsageError } from "./commandLine.js";
import { findCheckpoint, isRunFolder } from "./runArguments.js";

/** The length of texts of pretrained models that do not give one. */
export const usualLength = 4096;

/** The options of commands that write texts. */
export const modelOptions = {
  mesh: optionalText("devices that share the work, such as data=2,model=2; one by default"),
  dtype: optionalChoice("type of parameters and activations; that of the folder by default", [
    "float32",
    "bfloat16",
    "float16",
  ]),
  ignoreFields: text(
    "",
    "unknown fields of a folder's config.json that do not change what the model computes, separated by commas",
  ),
};

/** Where and how a model computes. */
export interface ModelPlacement {
  readonly mesh?: Mesh | undefined;
  readonly dtype?: "float32" | "bfloat16" | "float16" | undefined;
  /** Fields of a `config.json` that may be unknown. */
  readonly ignoreFields?: readonly string[];
}

/** What the options of a command say about where and how a model computes. */
export function placementOf(values: {
  readonly mesh: string | undefined;
  readonly dtype: ModelPlacement["dtype"];
  readonly ignoreFields: string;
}): ModelPlacement {
  const { mesh, dtype, ignoreFields } = values;
  return { mesh: meshOf(mesh), dtype, ignoreFields: ignoreFields.split(",") };
}

/** The mesh that `--mesh` describes. */
function meshOf(text: string | undefined): Mesh | undefined {
  if (text === undefined) return undefined;
  const problems: string[] = [];
  const axes = parseAxes(text, ["data", "fsdp", "expert", "model"], problems);
  if (problems.length > 0) throw new UsageError(problems.join("\n"));
  const sizes = [...axes].map(([axis, size]) => [axis, Number(size)] as const);
  return Mesh.create(Object.fromEntries(sizes.filter(([axis, size]) => size > 1 || axis === "data")));
}

/** The model of a run's newest checkpoint, of a checkpoint, or of a folder with a `config.json`, fused for generation. */
export async function openModel(
  folder: string | undefined,
  command: string,
  placement: ModelPlacement = {},
): Promise<ServedModel> {
  const isPretrained =
    folder !== undefined && existsSync(join(folder, "config.json")) && !isRunFolder(folder);
  const model = await (isPretrained
    ? pretrained(folder, command, placement)
    : trained(folder, command, placement));
  return { ...model, ...fuseProjections(model.config, model.params, { donate: true }) };
}

/** The model of a run's checkpoint. */
async function trained(
  folder: string | undefined,
  command: string,
  { mesh, dtype }: ModelPlacement,
): Promise<ServedModel> {
  const { checkpoint, run } = await findCheckpoint(folder, command);
  const config = storedConfig(checkpoint);
  const tokenizer = await storedTokenizer(config, run);
  const params = await storedParams(checkpoint, tokenizer.vocabSize);
  const model = modelConfig(config, tokenizer.vocabSize);
  return {
    ...{ name: basename(resolve(run)), mesh, maxLength: config.data.sequence },
    ...inType(model, params, dtype),
    // Of the pretrained model that the run started from, if it did.
    ...(await readTextFormat(companionFolder(run), tokenizer, command)),
  };
}

/** A model in another type. */
function inType(
  config: ModelConfig,
  params: Variables,
  dtype: ModelPlacement["dtype"],
): Pick<ServedModel, "config" | "params"> {
  return dtype ? { config: { ...config, dtype }, params: castFloats(params, dtype) } : { config, params };
}

/** The model of a folder as Hugging Face publishes it. */
async function pretrained(folder: string, command: string, placement: ModelPlacement): Promise<ServedModel> {
  const { config, params, tokenizer, json } = await loadPretrained(folder, placement);
  if (!tokenizer) {
    throw new UsageError(`${folder} has no tokenizer.json: ${command} needs it to read prompts`);
  }
  const lengths = [json.max_position_embeddings, json.n_positions].filter((one) => Number.isInteger(one));
  return {
    ...{ name: basename(resolve(folder)), config, params, mesh: placement.mesh },
    maxLength: Number(lengths[0] ?? usualLength),
    ...(await readTextFormat(folder, tokenizer, command)),
  };
}
