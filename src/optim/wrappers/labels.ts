/** Different optimisers for different parameters. */
import { need } from "../../ir/arguments.js";
import { describe } from "../../ir/describe.js";
import { TreeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, required, schema } from "../../ir/schema.js";
import { zerosLike } from "../../numpy/arrays/creation.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import {
  type EmptyState,
  type GradientTransformation,
  mapTensors,
  needTransformation,
  stateless,
} from "../transformations/transformation.js";
import { type Mask, masked } from "./masks.js";

/** Which optimiser a parameter belongs to: by its path and tensor, or a tree of labels (or a prefix of one). */
export type Labels = ((path: string, param: Tensor) => string) | Readonly<Record<string, unknown>> | string;

/**
 * An optimiser for each label, as optax's `partition` (once `multi_transform`): every parameter is updated by
 * the one that its label names.
 *
 * @example
 * ```ts
 * const transforms = { train: optim.sgd({ learningRate: 1 }), freeze: optim.setToZero() };
 * const step = optim.partition(transforms, (path) => (path.startsWith("encoder") ? "freeze" : "train"));
 * const grads = { encoder: np.array([1]), head: np.array([2]) };
 * step.update(grads, step.init(grads), grads)[0]; // { "encoder": [0], "head": [-2] }
 * ```
 */
export function partition<K extends string>(
  transforms: Readonly<Record<K, GradientTransformation>>,
  labels: Labels,
): GradientTransformation<Readonly<Record<K, unknown>>> {
  need("object", transforms, "the transformations", "partition");
  const known = Object.keys(transforms);
  const labelsOf = (params: unknown): unknown[] => {
    const { leaves, structure } = tree.flatten(params);
    const found =
      typeof labels === "function"
        ? tree.leaves(tree.mapWithPath((path, leaf) => labels(path, requireParam(path, leaf)), params))
        : tree.broadcastPrefix(labels, structure, "partition");
    const unknown = found.findIndex((label) => typeof label !== "string" || !known.includes(label));
    if (unknown >= 0) {
      throw new ValueError(
        `[partition] the label of leaf ${unknown} of ${leaves.length} is ${describe(found[unknown])}: use one of ${known.join(", ")}`,
      );
    }
    return found;
  };
  const entries = Object.entries<GradientTransformation>(transforms).map(([label, inner]) => {
    const chosen: Mask = (params: unknown) =>
      tree.unflatten(
        tree.structure(params),
        labelsOf(params).map((found) => found === label),
      );
    return [label, masked(inner, chosen)] as const;
  });
  const collect = (states: readonly (readonly [string, unknown])[]) =>
    Object.fromEntries(states) as Readonly<Record<K, unknown>>;
  return {
    init: (params) => collect(entries.map(([label, inner]) => [label, inner.init(params)])),
    update: (grads, state, params, extra) => {
      need("object", state, "the state", "partition");
      let updates = grads;
      const next = entries.map(([label, inner]) => {
        const [changed, after] = inner.update(updates, state[label as K], params, extra);
        updates = changed;
        return [label, after] as const;
      });
      return [updates, collect(next)];
    },
  };
}

export { partition as multiTransform };

function requireParam(path: string, leaf: unknown): Tensor {
  if (leaf instanceof Tensor) return leaf;
  throw new TreeError(`[partition] the leaf at "${path}" is not a tensor`);
}

/**
 * Updates of zero: the parameters do not change.
 *
 * @example
 * ```ts
 * const step = optim.setToZero();
 * const grads = { w: np.array([1, 2]) };
 * step.update(grads, step.init(grads))[0]; // { "w": [0, 0] }
 * ```
 */
export function setToZero(): GradientTransformation<EmptyState> {
  return stateless((grads) => mapTensors((g) => zerosLike(g), grads));
}

/**
 * Freezes the parameters that a mask selects.
 *
 * @example
 * ```ts
 * const step = optim.freeze({ encoder: true, head: false });
 * const grads = { encoder: np.array([1]), head: np.array([2]) };
 * step.update(grads, step.init(grads), grads)[0]; // { "encoder": [0], "head": [2] }
 * ```
 */
export function freeze(mask: Mask): GradientTransformation<EmptyState> {
  return masked(setToZero(), mask);
}

const selectiveOptions = schema({
  /** True for parameters that stay as they are: a tree of booleans, or a prefix of one. */
  freezeMask: required<unknown>("any"),
});

/** Options of {@link selectiveTransform}. */
export interface SelectiveTransformOptions extends OptionsOf<typeof selectiveOptions> {}

/**
 * An optimiser of the parameters that a mask does not freeze; unlike {@link freeze} it keeps no state of the others.
 *
 * @example
 * ```ts
 * const step = optim.selectiveTransform(optim.sgd({ learningRate: 1 }), { freezeMask: { encoder: true, head: false } });
 * const grads = { encoder: np.array([1]), head: np.array([2]) };
 * step.update(grads, step.init(grads), grads)[0]; // { "encoder": [0], "head": [-2] }
 * ```
 */
export function selectiveTransform(
  optimizer: GradientTransformation,
  options: SelectiveTransformOptions,
): GradientTransformation<Readonly<Record<"train" | "freeze", unknown>>> {
  needTransformation(optimizer, "selectiveTransform");
  const { freezeMask } = selectiveOptions.read(options, "selectiveTransform");
  const labels = tree.map((isFrozen) => (isFrozen ? "freeze" : "train"), freezeMask) as Labels;
  return partition({ train: optimizer, freeze: setToZero() }, labels);
}
