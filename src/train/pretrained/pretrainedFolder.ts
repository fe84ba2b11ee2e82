/** A folder as Hugging Face publishes models: its configuration, and where its files hold each leaf of the model. */

import { readFile, stat } from "#platform/fs";
import { join } from "#platform/path";
import { InternalError, ShardwiseError, TreeError } from "../../ir/errors.js";
import { parseJson } from "../../ir/jsonReaders.js";
import { formatType, range, sameNumbers } from "../../ir/shape.js";
import { reasonOf, systemCode } from "../files/disk/fileError.js";
import { isObject, type JsonObject } from "../files/disk/json.js";
import type { ExchangedLeaf } from "../files/safetensors/exchange.js";
import { namedLeaves } from "../files/safetensors/treeFiles.js";
import type { ModelConfig } from "../models/config.js";
import { expertsOf } from "../models/experts.js";
import { headSizeOf } from "../models/llama.js";
import { ConfigJson } from "./configJson.js";
import { type FamilyModel, familyOf, type ModelFamily, sizesOf } from "./modelFamilies.js";
import { parseLayout } from "./tensorLayout.js";

/** The configuration of a pretrained model. */
export interface PretrainedConfig {
  /** What its `config.json` holds. */
  readonly json: JsonObject;
  readonly config: ConfigJson;
  readonly family: ModelFamily;
  readonly model: FamilyModel;
  /** The type of the parameters in its files. */
  readonly storedDtype: "float32" | "bfloat16" | "float16";
}

/** Larger configurations are not read. */
const maxBytes = 2 ** 24;

/** Larger heads are not read: a list of frequencies is made for their positions. */
const maxHeadSize = 2 ** 16;

/** Reads a small JSON file; undefined if it does not exist. */
export async function readJson(path: string, caller: string): Promise<JsonObject | undefined> {
  const fail = (rule: string, cause?: unknown) =>
    new ShardwiseError("file", `[${caller}] ${path}: ${rule}`, { cause });
  let text: string;
  try {
    const { size } = await stat(path);
    if (size > maxBytes) throw fail(`${size} bytes are over the limit ${maxBytes}`);
    text = await readFile(path, "utf8");
  } catch (error) {
    if (systemCode(error) === "ENOENT") return undefined;
    throw error instanceof ShardwiseError ? error : fail(reasonOf(error), error);
  }
  const json = parseJson(text, (reason, cause) => fail(`it is not JSON (${reason})`, cause));
  if (isObject(json)) return json;
  throw fail("it must hold an object");
}

const dtypes = ["float32", "bfloat16", "float16"] as const;

/** Reads the `config.json` of a folder. @param ignored unknown fields that do not matter */
export async function readPretrainedConfig(
  folder: string,
  ignored: readonly string[] = [],
): Promise<PretrainedConfig> {
  const file = join(folder, "config.json");
  const json = await readJson(file, "loadPretrained");
  if (!json) {
    const isFolder = await stat(folder).then(
      (found) => found.isDirectory(),
      () => false,
    );
    throw new ShardwiseError(
      "file",
      isFolder
        ? `[loadPretrained] ${folder} has no config.json: name the folder of a model, with config.json and safetensors files`
        : `[loadPretrained] ${folder} is not a folder`,
    );
  }
  return parsePretrainedConfig(json, file, ignored);
}

/** The model that a `config.json` describes. */
export function parsePretrainedConfig(
  json: JsonObject,
  file: string,
  ignored: readonly string[] = [],
): PretrainedConfig {
  const config = new ConfigJson(json, file);
  if (isObject(json.text_config) && isObject(json.vision_config)) {
    throw config.error("it is the configuration of a multimodal model; only text models are supported");
  }
  const family = familyOf(config);
  const model = family.read(config);
  const complete: ModelConfig = { ...model, dtype: "float32", remat: "none" };
  const headSize = headSizeOf(complete);
  if (headSize > maxHeadSize)
    throw config.error(`heads of ${headSize} numbers are over the limit ${maxHeadSize}`);
  family.tensors(complete, config);
  config.done(ignored);
  const stored = json.dtype ?? json.torch_dtype;
  const storedDtype = dtypes.find((dtype) => dtype === stored) ?? "float32";
  return { json, config, family, model, storedDtype };
}

/**
 * The leaves of a model's parameters with their places in files.
 *
 * @param stored the names of the tensors in the files, if they exist already
 */
export function pretrainedLeaves(
  types: unknown,
  model: ModelConfig,
  { family, config }: PretrainedConfig,
  stored?: readonly string[],
): ExchangedLeaf[] {
  const { prefix } = family;
  // Files may lack the family's optional prefix.
  const hasPrefix = prefix === undefined || (stored?.some((name) => name.startsWith(prefix)) ?? true);
  const sizes = sizesOf(model);
  const entries = new Map(family.tensors(model, config).map((entry) => [entry[0], entry]));
  return namedLeaves(types, "loadPretrained").map((leaf) => {
    const path = leaf.path.replace(/^params\//, "");
    const [, given = "", text = ""] = entries.get(path) ?? [];
    if (text === "") throw new InternalError(`[loadPretrained] no table has the leaf "${path}"`);
    const tensor = hasPrefix ? given : given.replace(prefix, "");
    const layout = parseLayout(text, sizes);
    const { names, stacked } = stackedNames(tensor, model, stored?.length);
    const shape = [...stacked, ...layout.shape];
    if (!sameNumbers(shape, leaf.type.shape)) {
      throw new TreeError(
        `[loadPretrained] "${path}" is ${formatType(leaf.type)}, but the files hold [${shape}] for it`,
      );
    }
    const { fileShape, offset, strides } = layout;
    return {
      ...leaf,
      isPart: true,
      view: { names, numStacked: stacked.length, fileShape, offset, strides },
    };
  });
}

/**
 * The tensors of a name with `*` for the number of a layer and `#` for that of an expert, and the dims they stack.
 *
 * @param numStored how many tensors the files have: a configuration that needs more is not theirs
 */
export function stackedNames(
  tensor: string,
  model: ModelConfig,
  numStored = Number.POSITIVE_INFINITY,
): { names: string[]; stacked: number[] } {
  const counts = { "*": model.numLayers, "#": expertsOf(model).numExperts };
  let [names, stacked]: [string[], number[]] = [[tensor], []];
  for (const [mark, count] of Object.entries(counts)) {
    if (!tensor.includes(mark)) continue;
    const numNeeded = names.length * count;
    if (numNeeded > numStored) {
      throw new TreeError(
        `[loadPretrained] the configuration needs ${numNeeded} tensors "${tensor}", but the files have only ${numStored} tensors: they belong to another model`,
      );
    }
    names = names.flatMap((name) => range(count).map((i) => name.replace(mark, String(i))));
    stacked = [...stacked, count];
  }
  return { names, stacked };
}
