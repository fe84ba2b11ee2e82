/** Adapters in the format of PEFT: `adapter_config.json` and `adapter_model.safetensors`. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { need } from "../../ir/arguments.js";
import { byteSize, decode, encode, viewHost } from "../../ir/dtype.js";
import { ConfigError, ShardwiseError } from "../../ir/errors.js";
import { sizeOf } from "../../ir/shape.js";
import { type LoraModule, type LoraOptions, lora } from "../../nn/layers/lora.js";
import type { Variables } from "../../nn/modules/scope.js";
import * as random from "../../random/index.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { type ExchangedLeaf, importLeaves } from "../files/safetensors/exchange.js";
import { writeView } from "../files/safetensors/fileViews.js";
import { writeSafetensors } from "../files/safetensors/safetensors.js";
import type { StoredArray } from "../files/safetensors/safetensorsBytes.js";
import { findTensors } from "../files/safetensors/safetensorsFiles.js";
import { download, namedLeaves } from "../files/safetensors/treeFiles.js";
import { ConfigJson } from "./configJson.js";
import type { Pretrained } from "./loadPretrained.js";
import { sizesOf, type TensorEntry } from "./modelFamilies.js";
import { parsePretrainedConfig, readJson, stackedNames } from "./pretrainedFolder.js";
import { writeFolder } from "./savePretrained.js";
import { parseLayout } from "./tensorLayout.js";

/** A pretrained model with adapters. */
export interface PretrainedAdapters {
  /** The model with adapters. */
  readonly model: LoraModule<[tokens: Tensor], Tensor>;
  readonly adapters: Variables;
  /** How the adapters were made. */
  readonly options: LoraOptions;
}

/** The linear layers of a model: the name of each here and in files. */
function linearLayers(pretrained: Pick<Pretrained, "json" | "config">): Map<string, TensorEntry> {
  const { family, config } = parsePretrainedConfig(
    pretrained.json,
    "config.json",
    Object.keys(pretrained.json),
  );
  const entries = family.tensors(pretrained.config, config);
  return new Map(
    entries.flatMap((entry) =>
      /\/kernel$/.test(entry[0]) ? [[entry[0].replace(/\/kernel$/, ""), entry]] : [],
    ),
  );
}

const lastName = (path: string, separator: string) => path.split(separator).at(-1) ?? "";
const moduleOf = (tensor: string) => tensor.replace(/\.weight$/, "");

/** The layouts of the two factors and of DoRA's lengths, from that of the kernel. */
function factorLayouts([leaf, tensor, layout]: TensorEntry) {
  const [file = ""] = layout.split("->");
  const dims = file.match(/\([^)]*\)|\w/g) ?? [];
  const [out = "", into = ""] = dims;
  if (layout.includes("+") || dims.length !== 2 || !layout.includes("->")) {
    throw new ConfigError(
      `[adapters] ${tensor} holds several kernels or is stored as [in, out]: adapters of "${leaf}" have no form in PEFT`,
    );
  }
  const letters = (dim: string) => dim.replace(/[()]/g, "");
  return {
    a: ["lora_A.weight", `r ${into} -> ${letters(into)} r`],
    b: ["lora_B.weight", `${out} r -> r ${letters(out)}`],
    magnitude: ["lora_magnitude_vector", `${out} -> ${letters(out)}`],
  } as const;
}

/** The leaves of adapters with their places in PEFT's file. */
function adapterLeaves(
  adapters: unknown,
  pretrained: Pick<Pretrained, "json" | "config">,
  rank: number,
): ExchangedLeaf[] {
  const layers = linearLayers(pretrained);
  const sizes = { ...sizesOf(pretrained.config), r: rank };
  return namedLeaves(adapters, "adapters").map((leaf) => {
    const path = leaf.path.replace(/^lora\//, "");
    const [layer, part] = [path.slice(0, path.lastIndexOf("/")), lastName(path, "/")];
    const entry = layers.get(layer);
    if (!entry || (part !== "a" && part !== "b" && part !== "magnitude")) {
      throw new ConfigError(`[adapters] the model's files have no linear layer for "${leaf.path}"`);
    }
    const [ending, layout] = factorLayouts(entry)[part];
    const name = `base_model.model.${moduleOf(entry[1])}.${ending}`;
    const { names, stacked } = stackedNames(name, pretrained.config);
    const { fileShape, offset, strides } = parseLayout(layout, sizes);
    return {
      ...leaf,
      isPart: true,
      view: { names, numStacked: stacked.length, fileShape, offset, strides },
    };
  });
}

/**
 * Reads adapters that PEFT wrote for a pretrained model.
 *
 * ```ts
 * const { model, adapters } = await loadAdapters("models/mine-lora", pretrained);
 * const merged = model.merge(pretrained.params, adapters);
 * ```
 *
 * @example
 * ```ts
 * await train.loadAdapters("no/such/folder", { json: {}, config: {} }).catch((error) => error.code); // "file"
 * ```
 */
export async function loadAdapters(
  folder: string,
  pretrained: Pick<Pretrained, "model" | "params" | "config" | "json">,
): Promise<PretrainedAdapters> {
  need("path", folder, "folder", "loadAdapters");
  need("object", pretrained, "the model", "loadAdapters");
  const options = await readAdapterOptions(folder, pretrained);
  const model = lora(pretrained.model, options);
  const example = ops.zeros({ dtype: "int32", shape: [1, 2] });
  const types = evalShape((params: Variables) => model.init(random.key(0), params, example))(
    pretrained.params,
  );
  const leaves = adapterLeaves(types, pretrained, options.rank);
  const found = await findTensors(join(folder, "adapter_model.safetensors"), "loadAdapters");
  const adapters = await importLeaves(types as unknown as Variables, leaves, found, {
    caller: "loadAdapters",
    file: folder,
    isIgnored: () => false,
    converts: true,
  });
  return { model, adapters: adapters as Variables, options };
}

/** How the adapters of a folder were made. */
export async function readAdapterOptions(
  folder: string,
  pretrained: Pick<Pretrained, "json" | "config">,
): Promise<LoraOptions> {
  const file = join(folder, "adapter_config.json");
  const json = await readJson(file, "loadAdapters");
  if (!json) throw new ShardwiseError("file", `[loadAdapters] ${folder} has no adapter_config.json`);
  return readOptions(new ConfigJson(json, file), [...linearLayers(pretrained)]);
}

function readOptions(config: ConfigJson, layers: readonly (readonly [string, TensorEntry])[]): LoraOptions {
  config.only("peft_type", "LORA");
  config.only("bias", "none");
  for (const name of ["rank_pattern", "alpha_pattern", "modules_to_save", "layers_to_transform"]) {
    const value = config.raw(name) ?? {};
    if (Object.keys(Object(value)).length > 0) throw config.error(`${name} is not supported`);
  }
  const rank = config.count("r");
  const given = config.number("lora_alpha", rank);
  const alpha = config.flag("use_rslora", false) ? given * Math.sqrt(rank) : given;
  const names = config.raw("target_modules");
  const isNamed = ([, [, tensor]]: readonly [string, TensorEntry]) => {
    if (names === "all-linear") return !tensor.startsWith("lm_head");
    const own = lastName(moduleOf(tensor), ".");
    return (
      Array.isArray(names) && names.some((name) => name === own || moduleOf(tensor).endsWith(`.${name}`))
    );
  };
  const targets = layers.filter(isNamed).map(([path]) => lastName(path, "/"));
  if (targets.length === 0)
    throw config.error(`target_modules ${JSON.stringify(names)} names no linear layer of the model`);
  return { rank, alpha, targets: [...new Set(targets)], dora: config.flag("use_dora", false) };
}

/**
 * Writes adapters in PEFT's format, for a pretrained model.
 *
 * ```ts
 * await saveAdapters("models/mine-lora", { ...pretrained, adapters, options: { rank: 8, targets: ["query"] } });
 * ```
 *
 * @example
 * ```ts
 * await train.saveAdapters("x", { adapters: {}, options: { rank: 0 }, json: {}, config: {} }).catch((e) => e.code); // "config"
 * ```
 */
export async function saveAdapters(
  folder: string,
  saved: Pick<Pretrained, "config" | "json"> & Pick<PretrainedAdapters, "adapters" | "options">,
): Promise<void> {
  need("path", folder, "folder", "saveAdapters");
  need("object", saved, "the adapters", "saveAdapters");
  const { adapters, options } = saved;
  const arrays: (readonly [string, StoredArray])[] = [];
  const modules = new Set<string>();
  for (const leaf of adapterLeaves(adapters, saved, options.rank)) {
    const { view, type } = leaf;
    const data = await download(leaf, "saveAdapters");
    const wide = type.dtype === "float32" ? data : encode("float32", Array.from(decode(type.dtype, data)));
    const [shape, size] = [type.shape.slice(view.numStacked), wide.length / view.names.length];
    for (const [i, name] of view.names.entries()) {
      const stored = viewHost("float32", new ArrayBuffer(sizeOf(view.fileShape) * byteSize("float32")));
      writeView(view, shape, "float32", wide.subarray(i * size, (i + 1) * size), stored);
      arrays.push([name, { dtype: "float32", shape: view.fileShape, data: stored }] as const);
      modules.add(lastName(name.replace(/\.lora_.*$/, ""), "."));
    }
  }
  const { rank, alpha = rank, dora = false } = options;
  const json = { peft_type: "LORA", task_type: "CAUSAL_LM", r: rank, lora_alpha: alpha, use_dora: dora };
  const rest = { bias: "none", lora_dropout: 0, inference_mode: true, target_modules: [...modules].sort() };
  await writeFolder(folder, "saveAdapters", async (draft) => {
    await writeSafetensors(join(draft, "adapter_model.safetensors"), arrays, [["format", "pt"]]);
    await writeFile(join(draft, "adapter_config.json"), `${JSON.stringify({ ...json, ...rest }, null, 2)}\n`);
  });
}
