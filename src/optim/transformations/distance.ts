/** Steps whose length follows from how far parameters have come, without a learning rate. */

import { type DType, dtypeKind } from "../../ir/dtype.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { zeros } from "../../numpy/arrays/creation.js";
import { add, divide, maximum, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype, sqrt, square } from "../../numpy/elementwise/elementwise.js";
import { mapWholes } from "./blocks.js";
import { keptIn } from "./moments.js";
import {
  mapTensors,
  requireParams,
  type TypedTransformation,
  typedTransformation,
} from "./transformation.js";

const distanceOptions = schema({
  /** The first distance, relative to 1 plus the norm of the parameter; 1e-6 by default, 1e-4 for models with batch norm. */
  repsRel: 1e-6,
  /** Added to the sum of squares; 1e-8 by default. */
  eps: 1e-8,
  /** The type in which the first parameters are kept; float32 by default. */
  paramDtype: optional(dtypeKind, "float32" as DType),
  /** The factor of all updates: −1 to descend. 1 by default. */
  globalScale: 1,
});

/** Options of {@link scaleByDistanceOverGradients}. */
export interface DistanceOptions extends OptionsOf<typeof distanceOptions> {}

/** The state of {@link scaleByDistanceOverGradients}. */
export interface DistanceState {
  /** The largest distance of each parameter from where it began. */
  readonly maxDist: unknown;
  /** The sum of the squares of all its gradients. */
  readonly gradSumOfSquares: unknown;
  readonly initParams: unknown;
}

/**
 * Multiplies the gradient of each parameter by its largest distance from where it began, over the root of the sum of the
 * squares of its gradients (layer-wise DoG).
 *
 * @example
 * ```ts
 * const step = optim.scaleByDistanceOverGradients({ repsRel: 0.1 });
 * const params = { w: np.array([3, 4]) };
 * step.update({ w: np.array([0, 2]) }, step.init(params), params)[0]; // { "w": [0, 0.6] }
 * ```
 */
export function scaleByDistanceOverGradients(options?: DistanceOptions): TypedTransformation<DistanceState> {
  const { repsRel, eps, paramDtype, globalScale } = distanceOptions.read(
    options,
    "scaleByDistanceOverGradients",
  );
  return typedTransformation<DistanceState>(
    "scaleByDistanceOverGradients",
    { maxDist: "tree", gradSumOfSquares: "tree", initParams: "tree" },
    {
      init: (params) => ({
        maxDist: mapWholes((whole, p) => multiply(add(whole.norm(p), 1), repsRel), params),
        gradSumOfSquares: mapTensors(() => zeros([]), params),
        initParams: keptIn(params, paramDtype),
      }),
      update: <T>(grads: T, state: DistanceState, params?: T): [T, DistanceState] => {
        const maxDist = mapWholes(
          (whole, p, first, d) => maximum(d, whole.norm(subtract(p, first))),
          requireParams(params, "scaleByDistanceOverGradients"),
          state.initParams,
          state.maxDist,
        );
        const gradSumOfSquares = mapWholes(
          (whole, g, total) => add(total, square(whole.norm(g))),
          grads,
          state.gradSumOfSquares,
        );
        const updates = mapTensors(
          (g, d, total) => {
            const size = multiply(divide(d, sqrt(add(total, eps))), globalScale);
            return multiply(g, astype(size, g.dtype));
          },
          grads,
          maxDist,
          gradSumOfSquares,
        );
        return [updates, { maxDist, gradSumOfSquares, initParams: state.initParams }];
      },
    },
  );
}
