/** Direct preference optimisation: a model learns which of two answers is better, without a model of rewards. */
import { need, numberFrom } from "../../ir/arguments.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { logSigmoid } from "../../nn/functions/functions.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";

const dpoOptions = schema({
  /** How strongly the model is held to its reference; 0.1 by default. */
  beta: optional(numberFrom(0), 0.1),
  /** The share of pairs that are taken to be the wrong way round; 0 by default. */
  labelSmoothing: optional(numberFrom(0, 0.5), 0),
});

/** Options of {@link dpoLoss}. */
export interface DpoOptions extends OptionsOf<typeof dpoOptions> {}

/** Log-probabilities of answers, each the sum over its tokens, under the model and under its reference. */
export interface PairLogProbabilities {
  readonly chosen: Tensor;
  readonly rejected: Tensor;
  readonly referenceChosen: Tensor;
  readonly referenceRejected: Tensor;
}

/**
 * The loss of pairs by direct preference optimisation (Rafailov et al. 2023): `-log σ(β · ((log π(chosen) − log
 * π(rejected)) − (log π_ref(chosen) − log π_ref(rejected))))`, one number for each pair.
 *
 * @example
 * ```ts
 * const zero = np.zeros([1]);
 * const pairs = { chosen: np.array([-1]), rejected: np.array([-3]), referenceChosen: zero, referenceRejected: zero };
 * train.dpoLoss(pairs, { beta: 0.5 }); // [0.3133]
 * ```
 */
export function dpoLoss(pairs: PairLogProbabilities, options: DpoOptions = {}): Tensor {
  const { beta, labelSmoothing } = dpoOptions.read(options, "dpoLoss");
  need("object", pairs, "pairs", "dpoLoss");
  const { chosen, rejected, referenceChosen, referenceRejected } = pairs;
  for (const [name, x] of Object.entries({ chosen, rejected, referenceChosen, referenceRejected })) {
    needTensor(x, name, "dpoLoss");
  }
  const margin = chosen.sub(rejected).sub(referenceChosen.sub(referenceRejected)).mul(beta);
  const loss = logSigmoid(margin).mul(labelSmoothing - 1);
  return labelSmoothing === 0 ? loss : loss.sub(logSigmoid(margin.mul(-1)).mul(labelSmoothing));
}
