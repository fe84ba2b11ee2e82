import type { Variables } from "../../nn/scope.js";
import type { LossScaleState } from "../../optim/index.js";
import type { Tensor } from "../../trace/tensor.js";

/** Everything a run changes: parameters, what the optimiser remembers, and the number of updates made. */
export interface LanguageModelState {
  readonly params: Variables;
  readonly optimizer: unknown;
  /** The number of updates made; a step that is skipped makes none. */
  readonly step: Tensor;
  /** What the loss is multiplied by, when something is computed or kept in float16. */
  readonly lossScale?: LossScaleState;
}

/** What a step tells about itself, in float32. */
export interface StepMetrics {
  readonly loss: Tensor;
  readonly crossEntropy: Tensor;
  readonly gradientNorm: Tensor;
  /** The sum of squares of every gradient, a vector in the order of the parameters; tells which one went bad. */
  readonly gradientSquares: Tensor;
  /** How many updates were made before this step, an int32; the learning rate goes by it. */
  readonly numUpdates: Tensor;
  /** What the loss was multiplied by; the step was skipped where the norm of its gradients is not finite. */
  readonly lossScale?: Tensor;
  /** Whether neither this step nor one before it went wrong; those that did, and all after them, change nothing. */
  readonly isGood: Tensor;
}
