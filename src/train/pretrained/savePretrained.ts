import { copyFile, existsSync, mkdir, readdir, readFile, rename, rm, writeFile } from "#platform/fs";
import { dirname, join } from "#platform/path";
import { need } from "../../ir/arguments.js";
import { byteSize, decode, encode, type HostData, viewHost } from "../../ir/dtype.js";
import { ConfigError, ShardwiseError, TreeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, sizeOf } from "../../ir/shape.js";
import type { Variables } from "../../nn/modules/scope.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import type { Tokenizer } from "../data/tokenizers/tokenizer.js";
import { formatTokenizer } from "../data/tokenizers/tokenizerJson.js";
import type { JsonObject } from "../files/disk/json.js";
import type { ExchangedLeaf } from "../files/safetensors/exchange.js";
import { writeView } from "../files/safetensors/fileViews.js";
import { writeSafetensors } from "../files/safetensors/safetensors.js";
import { wholeOf } from "../files/safetensors/treeFiles.js";
import type { ModelConfig } from "../models/config.js";
import { decoderOf, llamaDecoder } from "../models/decoder.js";
import { type ParamDtype, paramDtypeKind } from "../step/parameterUpdates.js";
import { type PretrainedConfig, parsePretrainedConfig, pretrainedLeaves } from "./pretrainedFolder.js";

/** A model to save: what {@link loadPretrained} returns, or your own model. */
export interface SavedModel {
  /** The parameters, as {@link loadPretrained} or a model's `init` returns them. */
  readonly params: Variables;
  readonly config: ModelConfig;
  /** The `config.json` to write: that of the model that the parameters come from; Llama's by default. */
  readonly json?: Readonly<Record<string, unknown>>;
  /** A folder whose tokeniser files are copied. */
  readonly folder?: string;
  /** The tokeniser to write if there is none to copy: one of this library, such as `byteTokenizer()`. */
  readonly tokenizer?: Tokenizer | undefined;
}

const saveOptions = schema({
  /** The type of the files' tensors; that of `json` by default. */
  dtype: optional(paramDtypeKind),
  /** The size from which files are split, in bytes; 5 GB by default. */
  maxFileBytes: 5e9,
});

/** Options of {@link savePretrained}. */
export interface SavePretrainedOptions extends OptionsOf<typeof saveOptions> {}

/** Small files of a model that other libraries read besides the configuration and the parameters. */
export const companionFiles = [
  "tokenizer.json",
  "tokenizer_config.json",
  "tokenizer.model",
  "special_tokens_map.json",
  "generation_config.json",
  "chat_template.jinja",
  "vocab.json",
  "merges.txt",
];

/**
 * Writes a model as a folder that Hugging Face's transformers reads. The folder appears when it is complete. Parameters
 * that were loaded and not changed have the same bits as before.
 *
 * ```ts
 * const pretrained = await loadPretrained("models/llama");
 * await savePretrained("models/mine", { ...pretrained, params: trained });
 * ```
 *
 * @example
 * ```ts
 * await train.savePretrained("x", { params: {}, config: { kind: "mlstm" } }).catch((error) => error.code); // "config"
 * ```
 */
export async function savePretrained(
  folder: string,
  model: SavedModel,
  options: SavePretrainedOptions = {},
): Promise<void> {
  const caller = "savePretrained";
  need("path", folder, "folder", caller);
  need("object", model, "the model", caller);
  const { params, config, json } = model;
  need("object", params, "params", caller);
  need("object", config, "config", caller);
  const { maxFileBytes, ...rest } = saveOptions.read(options, caller);
  const pretrained = parsePretrainedConfig(
    (json as JsonObject) ?? llamaJson(config, model.tokenizer?.endOfText),
    "config.json",
    Object.keys(json ?? {}),
  );
  const dtype = rest.dtype ?? pretrained.storedDtype;
  await writeFolder(folder, caller, async (draft) => {
    await writeTensors(draft, fileTensors(params, config, pretrained), dtype, maxFileBytes);
    const fields = {
      ...pretrained.json,
      ...("torch_dtype" in pretrained.json ? { torch_dtype: dtype } : { dtype }),
    };
    await writeFile(join(draft, "config.json"), await configText(fields, dtype, model.folder));
    for (const name of model.folder === undefined ? [] : companionFiles) {
      const from = join(model.folder ?? "", name);
      if (existsSync(from)) await copyFile(from, join(draft, name));
    }
    if (model.tokenizer && !existsSync(join(draft, "tokenizer.json")))
      await writeTokenizer(draft, model.tokenizer);
  });
}

/** Writes a tokeniser, and for transformers its class and the token that ends a text. */
async function writeTokenizer(folder: string, tokenizer: Tokenizer): Promise<void> {
  const text = formatTokenizer(tokenizer);
  await writeFile(join(folder, "tokenizer.json"), text);
  const { added_tokens: added }: { added_tokens?: { id: number; content: string }[] } = JSON.parse(text);
  const end = added?.find(({ id }) => id === tokenizer.endOfText)?.content;
  const about = {
    tokenizer_class: "PreTrainedTokenizerFast",
    clean_up_tokenization_spaces: false,
    ...(end !== undefined && { eos_token: end }),
  };
  await writeFile(join(folder, "tokenizer_config.json"), `${JSON.stringify(about, null, 2)}\n`);
}

/**
 * The text of a `config.json`: that of the folder with another type if it holds the same, because JavaScript does not
 * tell 0.0 from 0, which transformers does.
 */
async function configText(fields: JsonObject, dtype: ParamDtype, folder?: string): Promise<string> {
  const file = join(folder ?? "", "config.json");
  const before = folder !== undefined && existsSync(file) ? await readFile(file, "utf8") : "{}";
  const text = before.replace(/("(?:torch_)?dtype":\s*)"[^"]*"/, `$1"${dtype}"`);
  const isSame = JSON.stringify(JSON.parse(text)) === JSON.stringify(fields);
  return isSame ? text : `${JSON.stringify(fields, null, 2)}\n`;
}

/** Writes a new folder, which appears when it is complete. @param write writes its files to the folder that it is given */
export async function writeFolder(
  folder: string,
  caller: string,
  write: (draft: string) => Promise<void>,
): Promise<void> {
  const isUsed = existsSync(folder) && (await readdir(folder)).length > 0;
  if (isUsed) throw new ShardwiseError("file", `[${caller}] ${folder} is not empty: choose another folder`);
  const draft = join(dirname(folder), `.saving-${crypto.randomUUID()}`);
  try {
    await mkdir(draft, { recursive: true });
    await write(draft);
    await rm(folder, { recursive: true, force: true });
    await rename(draft, folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/** One tensor of the files: the parts of leaves that it is made of. */
interface FileTensor {
  readonly name: string;
  readonly size: number;
  readonly parts: readonly { readonly leaf: ExchangedLeaf; readonly index: number }[];
}

function fileTensors(params: Variables, config: ModelConfig, pretrained: PretrainedConfig): FileTensor[] {
  const found = new Map<string, FileTensor>();
  for (const leaf of pretrainedLeaves(params, config, pretrained)) {
    leaf.view.names.forEach((name, index) => {
      const before = found.get(name)?.parts ?? [];
      found.set(name, { name, size: sizeOf(leaf.view.fileShape), parts: [...before, { leaf, index }] });
    });
  }
  return [...found.values()];
}

async function writeTensors(
  folder: string,
  tensors: readonly FileTensor[],
  dtype: ParamDtype,
  maxBytes: number,
): Promise<void> {
  const files: FileTensor[][] = [[]];
  let filled = 0;
  for (const tensor of tensors) {
    const bytes = tensor.size * byteSize(dtype);
    if (filled > 0 && filled + bytes > maxBytes) {
      files.push([]);
      filled = 0;
    }
    files.at(-1)?.push(tensor);
    filled += bytes;
  }
  const number = (i: number) => String(i).padStart(5, "0");
  const nameOf = (i: number) =>
    files.length === 1
      ? "model.safetensors"
      : `model-${number(i + 1)}-of-${number(files.length)}.safetensors`;
  for (const [i, own] of files.entries()) {
    const arrays = [];
    for (const tensor of own) arrays.push([tensor.name, await arrayOf(tensor, dtype)] as const);
    await writeSafetensors(join(folder, nameOf(i)), arrays, [["format", "pt"]]);
  }
  if (files.length === 1) return;
  const weights = files.flatMap((own, i) => own.map(({ name }) => [name, nameOf(i)] as const));
  const total = tensors.reduce((bytes, { size }) => bytes + size * byteSize(dtype), 0);
  const index = { metadata: { total_size: total }, weight_map: Object.fromEntries(weights.sort()) };
  await writeFile(join(folder, "model.safetensors.index.json"), `${JSON.stringify(index, null, 2)}\n`);
}

async function arrayOf({ size, parts }: FileTensor, dtype: ParamDtype) {
  const data = viewHost(dtype, new ArrayBuffer(size * byteSize(dtype)));
  for (const { leaf, index } of parts) {
    const { view, type } = leaf;
    const shape = type.shape.slice(view.numStacked);
    writeView(view, shape, dtype, await elementsOf(leaf, index, dtype), data);
  }
  return { dtype, shape: at(parts, 0).leaf.view.fileShape, data };
}

/** The elements of one layer of a leaf, in the type of the files. */
async function elementsOf(
  { leaf, path, type, view }: ExchangedLeaf,
  index: number,
  dtype: ParamDtype,
): Promise<HostData> {
  if (!(leaf instanceof Tensor))
    throw new TreeError(`[savePretrained] the leaf at "${path}" is not a tensor`);
  const layer = view.numStacked === 0 ? leaf : layerOf(leaf, view.numStacked, index);
  const data = await wholeOf(layer, "savePretrained");
  if (layer !== leaf) layer.dispose();
  return type.dtype === dtype ? data : encode(dtype, Array.from(decode(type.dtype, data)));
}

/** The `index`-th element of a leaf's first dims, in row-major order. */
function layerOf(leaf: Tensor, numStacked: number, index: number): Tensor {
  let [layer, rest] = [leaf, index];
  for (let d = numStacked - 1; d >= 0; d--) {
    const size = at(leaf.shape, d);
    layer = ops.sliceDim(layer, d, rest % size, (rest % size) + 1);
    rest = Math.floor(rest / size);
  }
  return layer;
}

/** The `config.json` of a model with Llama's decoder. */
function llamaJson(model: ModelConfig, endOfText: number | undefined): JsonObject {
  const decoder = decoderOf(model);
  const differs = Object.entries(llamaDecoder).filter(
    ([name, value]) => name !== "headSize" && decoder[name as keyof typeof decoder] !== value,
  );
  if (model.kind !== "llama" || differs.length > 0) {
    const what = model.kind === "llama" ? `model.decoder.${differs[0]?.[0]}` : `the kind ${model.kind}`;
    throw new ConfigError(
      `[savePretrained] no family of transformers is a model with ${what}: only models with Llama's decoder, or that started from a pretrained one, can be exported`,
    );
  }
  return {
    architectures: ["LlamaForCausalLM"],
    model_type: "llama",
    dtype: "float32",
    vocab_size: model.vocabSize,
    hidden_size: model.width,
    intermediate_size: model.mlpWidth,
    num_hidden_layers: model.numLayers,
    num_attention_heads: model.numHeads,
    num_key_value_heads: model.numKvHeads,
    head_dim: decoder.headSize || model.width / model.numHeads,
    hidden_act: "silu",
    rms_norm_eps: model.normEpsilon,
    rope_theta: model.ropeBase,
    tie_word_embeddings: model.tieEmbeddings,
    max_position_embeddings: 4096,
    attention_bias: false,
    mlp_bias: false,
    ...(endOfText !== undefined && { eos_token_id: endOfText }),
  };
}
