/** Connectionist temporal classification. */

import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { logSoftmax, oneHot } from "../../nn/functions/functions.js";
import { full } from "../../numpy/arrays/creation.js";
import { concatenate } from "../../numpy/arrays/joining.js";
import { expandDims, moveaxis } from "../../numpy/arrays/shaping.js";
import { pad } from "../../numpy/composed/pad.js";
import { add, logaddexp, multiply, subtract } from "../../numpy/elementwise/arithmetic.js";
import { astype, negative } from "../../numpy/elementwise/elementwise.js";
import { equal } from "../../numpy/elementwise/logic.js";
import { s } from "../../numpy/indexing/indexing.js";
import { einsum } from "../../numpy/linalg/einsum.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";

const ctcOptions = schema({
  /** The class that stands for no label; 0 by default. */
  blankId: 0,
  /** The logarithm that stands for zero; −1e5 by default. */
  logEpsilon: -1e5,
});

/** Options of {@link ctcLoss}. */
export interface CtcOptions extends OptionsOf<typeof ctcOptions> {}

/**
 * How unlikely label sequences are under the logits of a longer input: minus the logarithm of the sum over all
 * ways to stretch the labels with repetitions and blanks.
 *
 * @param logits [batch, time, classes]
 * @param logitPaddings [batch, time], 1 where the input is over
 * @param labels [batch, length], class numbers
 * @param labelPaddings [batch, length], 1 where the labels are over
 * @returns [batch]
 *
 * @example
 * ```ts
 * const logits = np.zeros([1, 2, 2]);
 * const [padding, labels] = [np.zeros([1, 2]), np.array([[1]], "int32")];
 * optim.ctcLoss(logits, padding, labels, np.zeros([1, 1])); // [0.2877]
 * ```
 */
export function ctcLoss(
  logits: Tensor,
  logitPaddings: Tensor,
  labels: Tensor,
  labelPaddings: Tensor,
  options?: CtcOptions,
): Tensor {
  return ctcLossWithForwardProbs(logits, logitPaddings, labels, labelPaddings, options)[0];
}

/**
 * {@link ctcLoss}, and the logarithms of the probabilities of having come to each place of the labels, step by step.
 *
 * @returns the loss [batch], then the probabilities before each label and at the end [time, batch, length + 1], and in
 *   each label [time, batch, length]
 *
 * @example
 * ```ts
 * const logits = np.zeros([1, 2, 2]);
 * const [padding, labels] = [np.zeros([1, 2]), np.array([[1]], "int32")];
 * optim.ctcLossWithForwardProbs(logits, padding, labels, np.zeros([1, 1]))[2].reshape(2); // [-0.6931, -0.6931]
 * ```
 */
export function ctcLossWithForwardProbs(
  logits: Tensor,
  logitPaddings: Tensor,
  labels: Tensor,
  labelPaddings: Tensor,
  options?: CtcOptions,
): [loss: Tensor, logAlphaPhi: Tensor, logAlphaEmit: Tensor] {
  const { blankId, logEpsilon } = ctcOptions.read(options, "ctcLoss");
  const { batch, length, classes } = sizesOf(logits, logitPaddings, labels, labelPaddings);
  const logProbs = logSoftmax(logits);
  const repeats = pad(astype(equal(labels.get(s(), s(0, -1)), labels.get(s(), s(1))), logits.dtype), [
    [0, 0],
    [0, 1],
  ]);
  const emits = einsum("btk,bnk->tbn", logProbs, oneHot(labels, classes, { dtype: logits.dtype }));
  const blanks = moveaxis(logProbs.get(s(), s(), s(blankId, blankId + 1)), 1, 0);
  // Before label n (phi) and in it (emit), as logarithms of the probability of having come there.
  const start = {
    phi: concatenate([full([batch, 1], 0), full([batch, length], logEpsilon)], 1),
    emit: full([batch, length], logEpsilon),
  };
  const join = (phi: Tensor, more: Tensor) =>
    concatenate([phi.get(s(), s(0, 1)), logaddexp(phi.get(s(), s(1)), more)], 1);
  type Paths = typeof start;
  const [last, all] = scan(
    (paths: Paths, x: { emit: Tensor; blank: Tensor; over: Tensor }): [Paths, Paths] => {
      // A label that repeats the one before needs a blank between.
      const phi = join(paths.phi, add(paths.emit, multiply(repeats, logEpsilon)));
      const emit = add(logaddexp(phi.get(s(), s(0, -1)), paths.emit), x.emit);
      const blanked = join(
        add(phi, x.blank),
        add(add(paths.emit, x.blank), multiply(subtract(1, repeats), logEpsilon)),
      );
      const over = expandDims(x.over, 1);
      const keep = (old: Tensor, next: Tensor) => add(multiply(over, old), multiply(subtract(1, over), next));
      const next = { phi: keep(paths.phi, blanked), emit: keep(paths.emit, emit) };
      return [next, next];
    },
    start,
    { emit: emits, blank: blanks, over: moveaxis(astype(logitPaddings, logits.dtype), 1, 0) },
  );
  const ends = join(last.phi, last.emit);
  const lengths = subtract(length, astype(sum(labelPaddings, 1), "int32"));
  const loss = negative(sum(multiply(ends, oneHot(lengths, length + 1, { dtype: logits.dtype })), 1));
  return [loss, concatenate([all.phi.get(s(0, -1)), expandDims(ends, 0)]), all.emit];
}

/** The sizes that the four tensors have in common. */
function sizesOf(logits: Tensor, logitPaddings: Tensor, labels: Tensor, labelPaddings: Tensor) {
  for (const [name, x] of Object.entries({ logits, logitPaddings, labels, labelPaddings }))
    needTensor(x, name, "ctcLoss");
  const [batch = 0, time = 0, classes = 0] = logits.shape;
  const length = labels.shape[1] ?? 0;
  checkShape("logitPaddings", logitPaddings, [batch, time]);
  checkShape("labels", labels, [batch, length]);
  checkShape("labelPaddings", labelPaddings, [batch, length]);
  return { batch, length, classes };
}

function checkShape(name: string, x: Tensor, shape: readonly number[]): void {
  if (x.shape.join() === shape.join()) return;
  throw new ShapeError(
    `[ctcLoss] ${name} has shape [${x.shape.join(", ")}] where the logits and labels want [${shape.join(", ")}]`,
  );
}
