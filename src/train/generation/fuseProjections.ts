/** Kernels that multiply the same input as one: a product of one row with a large kernel reads the memory faster. */
import { ConfigError, TreeError } from "../../ir/errors.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { unbox } from "../../nn/modules/metadata.js";
import { isTree, type Variables, type VariableTree } from "../../nn/modules/scope.js";
import * as np from "../../numpy/index.js";
import { jit } from "../../spmd/run/jit.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import type { ModelConfig } from "../models/config.js";
import { decoderOf } from "../models/decoder.js";

const fuseOptions = schema({
  /** Whether to free the kernels that were given as soon as they are joined. */
  donate: false,
});

/** Options of {@link fuseProjections}. */
export interface FuseProjectionsOptions extends OptionsOf<typeof fuseOptions> {}

/** A kind of layers that become one. */
interface Fusion {
  /** The module of a block that they belong to. */
  readonly module: string;
  readonly from: readonly string[];
  readonly to: string;
  /** Joins their kernels or biases, which end with the dims of features. */
  readonly join: (...parts: Tensor[]) => Tensor;
}

const heads: Fusion = {
  module: "attention",
  from: ["query", "key", "value"],
  to: "queryKeyValue",
  join: jit(
    (...parts: Tensor[]) => {
      const [, key] = parts;
      const [numKvHeads = 1, headSize = 1] = key?.shape.slice(-2) ?? [];
      const grouped = (x: Tensor) => x.reshape([...x.shape.slice(0, -2), numKvHeads, -1, headSize]);
      return np.concatenate(parts.map(grouped), -2);
    },
    { name: "fuseHeads" },
  ),
};

const gateUp: Fusion = {
  module: "mlp",
  from: ["gate", "up"],
  to: "gateUp",
  join: jit((...parts: Tensor[]) => np.stack(parts, -2), { name: "fuseGate" }),
};

function fusionsOf(model: ModelConfig): readonly Fusion[] {
  const ofMlp = decoderOf(model).mlp === "gated" ? [gateUp] : [];
  const byKind = { llama: [heads, ...ofMlp], moe: [heads], xlstm: ofMlp, mlstm: [] };
  if (Object.hasOwn(byKind, model.kind)) return byKind[model.kind];
  throw new ConfigError(
    `[fuseProjections] the configuration has kind ${String(model.kind)}, which no model has: use ${Object.keys(byKind).join(", ")}`,
  );
}

/**
 * A model for {@link generate} whose queries, keys and values are one product, and gate and up of its MLP another, with
 * the same texts: a product of one row with a large kernel comes closer to the memory's speed than those with its parts.
 * Models that have nothing to join, or whose kernels are quantised, stay as they are.
 *
 * ```ts
 * const { config, params } = await loadPretrained("models/llama");
 * const fused = fuseProjections(config, params, { donate: true });
 * for await (const { token } of generate(fused.config, fused.params, [[1, 2, 3]])) console.log(token);
 * ```
 *
 * @param params with the layers in order, on any devices; without `donate` they are kept beside those of the result
 *
 * @example
 * ```ts
 * const config = { kind: "mlstm" } as never; // has nothing to join
 * train.fuseProjections(config, {}).config === config; // true
 * ```
 */
export function fuseProjections(
  config: ModelConfig,
  params: Variables,
  options: FuseProjectionsOptions = {},
): { readonly config: ModelConfig; readonly params: Variables } {
  const { donate } = fuseOptions.read(options, "fuseProjections");
  const fusions = config.isFused ? [] : fusionsOf(config);
  if (fusions.length === 0) return { config, params };
  const plain = unbox<Variables>(params);
  const layers = nodeOf(plain.params, "layers");
  const block = nodeOf(layers, "block");
  const partsOf = ({ module, from }: Fusion) => from.map((name) => nodeOf(nodeOf(block, module), name));
  const isPlain = (part: VariableTree) => Object.values(part).every((x) => x instanceof Tensor);
  if (!fusions.flatMap(partsOf).every(isPlain)) return { config, params };
  const changed = fusions.map((fusion) => {
    const { module, from, to, join } = fusion;
    const [first, ...others] = partsOf(fusion);
    const joined = tree.map((...xs: Tensor[]) => join(...xs), first, ...others);
    if (donate) tree.dispose([first, ...others]);
    const rest = Object.entries(nodeOf(block, module)).filter(([name]) => !from.includes(name));
    return [module, { ...Object.fromEntries(rest), [to]: joined }] as const;
  });
  const own = { ...plain.params, layers: { ...layers, block: { ...block, ...Object.fromEntries(changed) } } };
  return { config: { ...config, isFused: true }, params: { ...plain, params: own } };
}

/** A child of a tree of variables. */
function nodeOf(node: VariableTree | undefined, name: string): VariableTree {
  const child = node?.[name];
  if (isTree(child)) return child;
  throw new TreeError(`[fuseProjections] the parameters have no "${name}": give those of a language model`);
}
