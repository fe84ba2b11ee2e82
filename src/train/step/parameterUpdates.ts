import { type Kind, oneOf } from "../../ir/arguments.js";
import { TreeError } from "../../ir/errors.js";
import type { Variables } from "../../nn/modules/scope.js";
import {
  applyUpdates,
  type GradientTransformation,
  type MasterState,
  masterWeights,
  roundedMaster,
} from "../../optim/index.js";

/** The dtypes that parameters can have. */
export type ParamDtype = "float32" | "bfloat16" | "float16";

/** The kind of options that are a {@link ParamDtype}. */
export const paramDtypeKind: Kind<ParamDtype> = oneOf("float32", "bfloat16", "float16");

/** An optimiser that returns new parameters instead of updates. */
export interface ParameterUpdates {
  /** The state before the first step. @param params in float32, whatever dtype they are stored in */
  init(params: Variables): unknown;
  update(grads: Variables, state: unknown, params: Variables): [params: Variables, state: unknown];
}

/**
 * Applies an optimiser to parameters of a dtype. If it is narrower than float32, the state holds float32 master weights
 * and the parameters are those, rounded, so that updates that are small relative to a weight are not lost.
 */
export function parameterUpdates(optimizer: GradientTransformation, dtype: ParamDtype): ParameterUpdates {
  if (dtype === "float32") {
    return {
      init: (params) => optimizer.init(params),
      update: (grads, state, params) => {
        const [updates, next] = optimizer.update(grads, state, params);
        return [applyUpdates(params, updates), next];
      },
    };
  }
  const withMaster = masterWeights(optimizer);
  return {
    init: (params) => withMaster.init(params),
    update: (grads, state, params) => {
      const [, next] = withMaster.update(grads, masterState(state), params);
      return [roundedMaster(params, next), next];
    },
  };
}

function masterState(state: unknown): MasterState<unknown> {
  if (typeof state === "object" && state !== null && "master" in state && "inner" in state) {
    return { master: state.master, inner: state.inner };
  }
  throw new TreeError("[train] the optimiser's state has no master weights: use the state that init made");
}
