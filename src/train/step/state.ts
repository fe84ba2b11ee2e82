import type { Variables } from "../../nn/modules/scope.js";
import type { LossScaleState } from "../../optim/index.js";
import type { Tensor } from "../../trace/tensor.js";

/** The state of a run: parameters, the optimiser's state, and the number of updates. */
export interface LanguageModelState {
  /** What is trained: the parameters, or adapters beside them. */
  readonly params: Variables;
  /** The frozen parameters, if adapters are trained. */
  readonly base?: Variables;
  readonly optimizer: unknown;
  /** The number of updates; a skipped step makes none. */
  readonly step: Tensor;
  /** The loss scale, if anything is computed or stored in float16. */
  readonly lossScale?: LossScaleState;
}

/** The metrics of a step, in float32. */
export interface StepMetrics {
  readonly loss: Tensor;
  readonly crossEntropy: Tensor;
  readonly gradientNorm: Tensor;
  /** The sum of squares of every gradient, a vector in the order of the parameters; shows which one is not finite. */
  readonly gradientSquares: Tensor;
  /** The number of updates before this step, an int32, which determines the learning rate. */
  readonly numUpdates: Tensor;
  /** What the routers of experts did, if there are any. */
  readonly router?: Tensor;
  /** The loss scale; the step was skipped if the norm of its gradients is not finite. */
  readonly lossScale?: Tensor;
  /**
   * Whether this step and all before it were finite; the first that is not, and all after it, do not change the state.
   */
  readonly isGood: Tensor;
}
