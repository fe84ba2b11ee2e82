import { need } from "../../ir/arguments.js";
import { TreeError } from "../../ir/errors.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import {
  type ExtraArgs,
  type GradientTransformation,
  needTransformation,
  type StateOfPart,
  type StepState,
  type TypedTransformation,
} from "../transformations/transformation.js";

/** Which parameters a transformation applies to: a tree of booleans (or a prefix of one), or a function to one. */
export type Mask = unknown | ((params: unknown) => unknown);

/**
 * A tree of booleans: true where the path and the tensor of a parameter satisfy the condition.
 *
 * @example
 * ```ts
 * const params = { kernel: np.ones([2, 2]), bias: np.ones([2]) };
 * optim.maskByPath(params, (path, param) => param.ndim > 1); // { "kernel": true, "bias": false }
 * ```
 */
export function maskByPath<T>(params: T, condition: (path: string, param: Tensor) => boolean): unknown {
  need("function", condition, "the condition", "maskByPath");
  return tree.mapWithPath<T, unknown, unknown>((path, leaf) => {
    if (!(leaf instanceof Tensor)) throw new TreeError(`[maskByPath] the leaf at "${path}" is not a tensor`);
    return condition(path, leaf);
  }, params);
}

/** Names of parameters, or of the modules they are in, that belong to norms and biases. */
const withoutDecay = /(^|\/)(bias|scale|[^/]*norm(_?\d+)?|norm_[^/]*)($|\/)/i;

/**
 * The parameters that usually decay: matrices, but no biases and nothing of a norm.
 *
 * @example
 * ```ts
 * optim.decayMask({ kernel: np.ones([2, 2]), bias: np.ones([2]) }); // { "kernel": true, "bias": false }
 * ```
 */
export function decayMask(params: unknown): unknown {
  return maskByPath(params, (path) => !withoutDecay.test(path));
}

/**
 * A transformation of some of the parameters; the gradients of the others pass unchanged.
 *
 * @example
 * ```ts
 * const step = optim.masked(optim.addDecayedWeights(0.1), optim.decayMask);
 * const params = { kernel: np.array([[1]]), bias: np.array([1]) };
 * step.update(params, step.init(params), params)[0]; // { "kernel": [[1.1]], "bias": [1] }
 * ```
 */
export function masked<G extends GradientTransformation>(
  inner: G,
  mask: Mask,
): TypedTransformation<StateOfPart<StepState<G>, "some">> {
  needTransformation(inner, "masked");
  const chosen = (params: unknown): boolean[] => {
    const made: unknown = typeof mask === "function" ? mask(params) : mask;
    const flags = tree.broadcastPrefix(made, tree.structure(params), "masked");
    return flags.map((flag, i) => {
      if (typeof flag === "boolean") return flag;
      throw new TreeError(`[masked] the mask of leaf ${i} is ${String(flag)}, not true or false`);
    });
  };
  // Excluded leaves become null, so that neither the inner state nor its sums contain them.
  const keep = (values: unknown, flags: readonly boolean[]): unknown => {
    const { leaves, structure } = tree.flatten(values);
    return tree.unflatten(
      structure,
      leaves.map((leaf, i) => (flags[i] ? leaf : null)),
    );
  };
  const step: GradientTransformation = {
    init: (params) => inner.init(keep(params, chosen(params))),
    update: <T>(grads: T, state: unknown, params?: T, extra?: ExtraArgs<T>): [T, unknown] => {
      const flags = chosen(params ?? grads);
      const part = (values: T | undefined) => (values === undefined ? undefined : keep(values, flags));
      const loss = extra && partOf(extra, params, flags, part);
      const [changed, next] = inner.update(keep(grads, flags), state, part(params), loss);
      return [merged(grads, changed, flags), next];
    },
  };
  return step as TypedTransformation<StateOfPart<StepState<G>, "some">>;
}

/** The leaves of one tree, and in the place of the chosen ones those of another that has no others. */
function merged<T>(values: T, part: unknown, flags: readonly boolean[]): T {
  const { leaves, structure } = tree.flatten(values);
  const results = tree.leaves(part);
  let used = 0;
  return tree.unflatten<T>(
    structure,
    leaves.map((leaf, i) => (flags[i] ? results[used++] : leaf)),
  );
}

/** The loss as a function of the chosen parameters; the others stay as they are. */
function partOf<T>(
  { grad, valueFn, ...rest }: ExtraArgs<T>,
  params: T | undefined,
  flags: readonly boolean[],
  part: (values: T | undefined) => unknown,
): ExtraArgs {
  return {
    ...rest,
    ...(grad === undefined ? {} : { grad: part(grad) }),
    ...(valueFn && params !== undefined
      ? { valueFn: (some: unknown) => valueFn(merged(params, some, flags)) }
      : {}),
  };
}
