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
  /** The module of a block that they belong to; the block itself if undefined. */
  readonly module?: string;
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

/** Layers of the block of `mlstm`. */
const mlstm: readonly Fusion[] = [
  { from: ["up", "gate"], to: "upGate", join: gateUp.join },
  {
    from: ["query", "key", "value"],
    to: "queryKeyValue",
    join: jit((...parts: Tensor[]) => np.swapaxes(np.stack(parts, -3), -1, -2), { name: "fuseMemory" }),
  },
  { from: ["inputGate", "forgetGate"], to: "gates", join: gateUp.join },
];

function fusionsOf(model: ModelConfig): readonly Fusion[] {
  const ofMlp = decoderOf(model).mlp === "gated" ? [gateUp] : [];
  const byKind = { llama: [heads, ...ofMlp], moe: [heads], xlstm: ofMlp, mlstm };
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
 * const config = { kind: "llama", isFused: true } as never; // nothing is left to join
 * train.fuseProjections(config, {}).config === config; // true
 * ```
 */
export function fuseProjections(
  config: ModelConfig,
  params: Variables,
  options: FuseProjectionsOptions = {},
): { readonly config: ModelConfig; readonly params: Variables } {
  const { donate } = fuseOptions.read(options, "fuseProjections");
  if (config.isFused) return { config, params };
  const fusions = fusionsOf(config);
  const plain = unbox<Variables>(params);
  const layers = nodeOf(plain.params, "layers");
  const block = nodeOf(layers, "block");
  const ownerOf = ({ module }: Fusion, of: VariableTree) => (module === undefined ? of : nodeOf(of, module));
  const partsOf = (fusion: Fusion) => fusion.from.map((name) => childOf(ownerOf(fusion, block), name));
  const isPlain = (part: unknown) =>
    (isTree(part) ? Object.values(part) : [part]).every((x) => x instanceof Tensor);
  if (!fusions.flatMap(partsOf).every(isPlain)) return { config, params };
  let fused = block;
  for (const fusion of fusions) {
    const { module, from, to, join } = fusion;
    const [first, ...others] = partsOf(fusion);
    const joined = tree.map((...xs: Tensor[]) => join(...xs), first, ...others);
    if (donate) tree.dispose([first, ...others]);
    const rest = Object.entries(ownerOf(fusion, fused)).filter(([name]) => !from.includes(name));
    const owner = { ...Object.fromEntries(rest), [to]: joined };
    fused = module === undefined ? owner : { ...fused, [module]: owner };
  }
  const own = { ...plain.params, layers: { ...layers, block: fused } };
  return { config: { ...config, isFused: true }, params: { ...plain, params: own } };
}

/** A variable, or a tree of them, in a tree of variables. */
function childOf(node: VariableTree | undefined, name: string): unknown {
  const child = node?.[name];
  if (child !== undefined) return child;
  throw new TreeError(`[fuseProjections] the parameters have no "${name}": give those of a language model`);
}

/** A tree in a tree of variables. */
function nodeOf(node: VariableTree | undefined, name: string): VariableTree {
  const child = childOf(node, name);
  if (isTree(child)) return child;
  throw new TreeError(
    `[fuseProjections] "${name}" of the parameters is not a tree: give those of a language model`,
  );
}
