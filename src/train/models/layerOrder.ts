/**
 * Converts between the canonical order of a model's layers, which checkpoints use, and their layout in a pipeline.
 * Layer `(repeat · stages + stage) · layersPerStage + i` is the i-th of that stage in that repeat, so that only shapes
 * and paths differ:
 *
 * | | path | shape |
 * | --- | --- | --- |
 * | canonical | `layers/block/…` | `[numLayers, …]` |
 * | in a pipeline | `layers/layers/stack/block/…` | `[repeats, stages, layersPerStage, …]`, without the first dim for one repeat |
 *
 * In a V every other repeat runs from the last stage to the first, so its layers are stored in reverse order of stages.
 */
import { TreeError } from "../../ir/errors.js";
import { isTyped, type Shape } from "../../ir/shape.js";
import { LogicallyPartitioned } from "../../nn/modules/logicalPartitioning.js";
import { type DimNames, Partitioned } from "../../nn/modules/partitioned.js";
import * as np from "../../numpy/index.js";
import type { PipelinePlacement } from "../../parallel/schedule/schedule.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";

/** How layers are spread over the stages of a pipeline. */
export interface LayerLayout {
  readonly numStages: number;
  readonly numRepeats: number;
  readonly layersPerStage: number;
  /** Whether parts are placed in a loop (the default) or in a V. */
  readonly placement?: PipelinePlacement;
}

/** The name of the dim over the layers of one stage. */
const withinStage = "stageLayers";

/** The leading dims of a layer's parameter, and their names. */
function leading({ numStages, numRepeats, layersPerStage }: LayerLayout): { shape: Shape; names: DimNames } {
  const round = { shape: [numStages, layersPerStage], names: ["layers", withinStage] };
  if (numRepeats === 1) return round;
  return { shape: [numRepeats, ...round.shape], names: ["circular_repeats", ...round.names] };
}

/** Spreads the layers of a tree in canonical order over stages; everything outside of `layers` is unchanged. */
export function fromCanonical<T>(values: T, layout: LayerLayout | undefined): T {
  if (!layout) return values;
  const { shape, names } = leading(layout);
  const place = (leaf: unknown) => turned(reshapeFront(leaf, shape, 1), layout);
  const spread = (layers: unknown) => ({ layers: { stack: mapLeaves(layers, place, names, 1) } });
  return changeLayers(values, spread) as T;
}

/** The inverse of {@link fromCanonical}. */
export function toCanonical<T>(values: T, layout: LayerLayout | undefined): T {
  if (!layout) return values;
  const { shape } = leading(layout);
  const numLayers = shape.reduce((product, n) => product * n, 1);
  const gather = (layers: unknown) => {
    const stack = childOf(childOf(layers, "layers"), "stack");
    const collect = (leaf: unknown) => reshapeFront(turned(leaf, layout), [numLayers], shape.length);
    return mapLeaves(stack, collect, ["layers"], shape.length);
  };
  return changeLayers(values, gather) as T;
}

/** Applies a function to every subtree named `layers`, in parameters and in the optimiser's moments. */
function changeLayers(node: unknown, change: (layers: unknown) => unknown): unknown {
  if (Array.isArray(node)) return node.map((child) => changeLayers(child, change));
  if (!isPlainObject(node) || isTyped(node)) return node;
  return Object.fromEntries(
    Object.entries(node).map(([key, child]) => [
      key,
      key === "layers" ? change(child) : changeLayers(child, change),
    ]),
  );
}

function isPlainObject(node: unknown): node is Readonly<Record<string, unknown>> {
  return typeof node === "object" && node !== null && Object.getPrototypeOf(node) === Object.prototype;
}

function childOf(node: unknown, key: string): unknown {
  if (isPlainObject(node) && key in node) return node[key];
  throw new TreeError(`[toCanonical] the layers are not those of a pipeline: there is no "${key}"`);
}

/** Changes the leading dims of every leaf, and their names in its box. */
function mapLeaves(
  values: unknown,
  change: (leaf: unknown) => unknown,
  names: DimNames,
  replaced: number,
): unknown {
  const { leaves, structure } = tree.flatten(values, (node) => node instanceof Partitioned || isTyped(node));
  const mapped = leaves.map((leaf) => {
    if (!(leaf instanceof Partitioned)) return change(leaf);
    const value = change(leaf.value);
    const all = [...names, ...leaf.names.slice(replaced)];
    return leaf instanceof LogicallyPartitioned
      ? new LogicallyPartitioned(value, all, leaf)
      : new Partitioned(value, all, leaf.mesh);
  });
  return tree.unflatten(structure, mapped);
}

function reshapeFront(leaf: unknown, front: Shape, replaced: number): unknown {
  if (!isTyped(leaf))
    throw new TreeError(`[canonical] a leaf below "layers" is a ${typeof leaf}, not a tensor`);
  const shape = [...front, ...leaf.shape.slice(replaced)];
  return leaf instanceof Tensor ? leaf.reshape(shape) : { dtype: leaf.dtype, shape };
}

/** A leaf [repeats, stages, …] with the stages of every other repeat in reverse order, as in a V. */
function turned(leaf: unknown, { placement, numRepeats }: LayerLayout): unknown {
  if (placement !== "v" || !(leaf instanceof Tensor)) return leaf;
  const rounds = np.split(leaf, numRepeats, 0);
  return np.concatenate(rounds.map((round, i) => (i % 2 === 1 ? np.flip(round, 1) : round)));
}
