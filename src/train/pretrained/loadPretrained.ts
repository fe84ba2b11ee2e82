import { existsSync } from "#platform/fs";
import { join } from "#platform/path";
import { need } from "../../ir/arguments.js";
import { ConfigError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { logicalToMeshSharding } from "../../nn/modules/logicalPartitioning.js";
import { getPartitionSpec } from "../../nn/modules/partitioned.js";
import type { Variables } from "../../nn/modules/scope.js";
import { castFloats } from "../../optim/index.js";
import * as random from "../../random/index.js";
import { meshKind } from "../../spmd/mesh/mesh.js";
import * as ops from "../../trace/ops.js";
import { evalShape } from "../../transforms/makeProgram.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { readTokenizer } from "../data/tokenizers/tokenizerFile.js";
import { importLeaves } from "../files/safetensors/exchange.js";
import { findTensors } from "../files/safetensors/safetensorsFiles.js";
import type { RestoreOptions } from "../files/safetensors/treeFiles.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { languageModelRules } from "../models/names.js";
import { type ParamDtype, paramDtypeKind } from "../step/parameterUpdates.js";
import { type PretrainedConfig, pretrainedLeaves, readPretrainedConfig } from "./pretrainedFolder.js";

const loadOptions = schema({
  /** The mesh to place the parameters on, with any of the axes data, fsdp and model; one device by default. */
  mesh: optional(meshKind),
  /** The type of parameters and activations; that of the files by default. */
  dtype: optional(paramDtypeKind),
  /** Fields of `config.json` that are unknown here and do not change what the model computes. */
  ignoreFields: optional<readonly string[]>("strings", []),
});

/** Options of {@link loadPretrained}. */
export interface LoadPretrainedOptions extends OptionsOf<typeof loadOptions> {}

/** A pretrained model. */
export interface Pretrained {
  /** The model: `model.apply(params, tokens)` gives logits. */
  readonly model: ReturnType<typeof LanguageModel>;
  /** Its parameters, on the devices of the mesh. */
  readonly params: Variables;
  /** The tokeniser of the folder's `tokenizer.json`, if it has one. */
  readonly tokenizer: Tokenizer | undefined;
  /** The configuration of the model. */
  readonly config: ModelConfig;
  /** Where it was loaded from. */
  readonly folder: string;
  /** The folder's `config.json`. */
  readonly json: Readonly<Record<string, unknown>>;
}

/**
 * Loads a model from a folder as Hugging Face publishes it: `config.json`, safetensors files, `tokenizer.json`. Each
 * process reads only the bytes that its devices hold. Every tensor of the files and every parameter of the model must
 * match; all differences are listed in one error.
 *
 * ```ts
 * const { model, params, tokenizer } = await loadPretrained("models/llama", { mesh, dtype: "bfloat16" });
 * const logits = model.apply(params, tokens);
 * ```
 *
 * @example
 * ```ts
 * await train.loadPretrained("no/such/folder").catch((error) => error.code); // "file"
 * ```
 */
export async function loadPretrained(
  folder: string,
  options: LoadPretrainedOptions = {},
): Promise<Pretrained> {
  const caller = "loadPretrained";
  need("path", folder, "folder", caller);
  const { mesh, dtype, ignoreFields } = loadOptions.read(options, caller);
  const pretrained = await readPretrainedConfig(folder, ignoreFields);
  const type = dtype ?? pretrained.storedDtype;
  const config: ModelConfig = {
    ...pretrained.model,
    dtype: type,
    remat: "none",
  };
  const tokenizer = await folderTokenizer(folder, config.vocabSize);
  const model = LanguageModel(config);
  const types = parameterTypes(config, type);
  const shardings =
    mesh && logicalToMeshSharding(getPartitionSpec(types), mesh, languageModelRules("sync", mesh.axisNames));
  const params = await importPretrained(folder, types, config, pretrained, shardings ? { shardings } : {});
  return { model, params, tokenizer, config, folder, json: pretrained.json };
}

/** The types of a model's parameters. */
export function parameterTypes(config: ModelConfig, dtype: ParamDtype): Variables {
  const create = () =>
    castFloats(
      LanguageModel(config).init(random.key(0), ops.zeros({ dtype: "int32", shape: [1, 2] })),
      dtype,
    );
  return evalShape(create)() as unknown as Variables;
}

/** Reads the parameters of a folder into the structure of `types`. */
export async function importPretrained<T>(
  folder: string,
  types: T,
  model: ModelConfig,
  pretrained: PretrainedConfig,
  placement: Pick<RestoreOptions<T>, "shardings" | "mesh">,
): Promise<T> {
  const caller = "loadPretrained";
  const found = await findTensors(folder, caller);
  const { family } = pretrained;
  const leaves = pretrainedLeaves(types, model, pretrained, [...found.tensors.keys()]);
  const isIgnored = (name: string) =>
    (family.ignored?.test(name) ?? false) || (model.tieEmbeddings && name === "lm_head.weight");
  const options = { ...placement, caller, file: folder, isIgnored, converts: true };
  return (await importLeaves(types, leaves, found, options)) as T;
}

/** The tokeniser of a folder, which must not have more tokens than the model. */
async function folderTokenizer(folder: string, vocabSize: number): Promise<Tokenizer | undefined> {
  const file = join(folder, "tokenizer.json");
  if (!existsSync(file)) return undefined;
  const tokenizer = await readTokenizer(file);
  if (tokenizer.vocabSize <= vocabSize) return tokenizer;
  throw new ConfigError(
    `[loadPretrained] ${file} has ${tokenizer.vocabSize} tokens, but the model has only ${vocabSize}: it belongs to another model`,
  );
}
