import { integerFrom, need } from "../ir/arguments.js";
import { ShapeError } from "../ir/errors.js";
import { type OptionsOf, required, schema } from "../ir/schema.js";
import { range } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import * as np from "../numpy/index.js";
import { checkKey, split } from "../random/keys.js";
import type { Tensor } from "../trace/tensor.js";
import { leafTensor } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { scan } from "../transforms/control/scan.js";
import { valueAndGrad } from "../transforms/derivatives/grad.js";

/**
 * The loss of a minibatch with metrics to sum, such as counts, and the variables that the model changed, if any, such
 * as statistics of its activations.
 */
export type MinibatchLoss<P, B, M, V = null> = (
  params: P,
  minibatch: B,
  rng: Tensor,
) => [loss: Tensor, metrics: M] | [loss: Tensor, metrics: M, variables: V];

const accumulateOptions = schema({
  /** The number of minibatches into which the batch is split along dim 0. */
  numMinibatches: required("number"),
  /** Whether the minibatches run in a `scan` (one body in the program) or one after the other (the default). */
  useScan: false,
});

/** Options of {@link accumulateGradients}. */
export interface AccumulateOptions extends OptionsOf<typeof accumulateOptions> {}

/**
 * Gradients of a batch in the memory of a minibatch: the gradients of minibatches are averaged, their metrics summed,
 * and the variables that they changed stacked along a new dim 0. Each minibatch has its own random key.
 *
 * @example
 * ```ts
 * const loss = (w: Tensor, batch: Tensor) => [np.mean(w.mul(batch)), { count: np.array(2) }];
 * const [w, batch] = [np.array(2), np.array([1, 2, 3, 4])];
 * parallel.accumulateGradients(loss, w, batch, random.key(0), { numMinibatches: 2 }); // [2.5, { "count": 4 }, null]
 * ```
 */
export function accumulateGradients<P, B, M, V = null>(
  lossFn: MinibatchLoss<P, B, M, V>,
  params: P,
  batch: B,
  rng: Tensor,
  options: AccumulateOptions,
): [grads: P, metrics: M, variables: V | null] {
  need("function", lossFn, "lossFn", "accumulateGradients");
  checkKey(rng, "accumulateGradients");
  const { numMinibatches, useScan } = accumulateOptions.read(options, "accumulateGradients");
  const minibatches = splitBatch(batch, numMinibatches);
  const keys = split(rng, numMinibatches);
  const loss = (own: P, minibatch: B, key: Tensor): [Tensor, [M, V | null]] => {
    const [value, metrics, variables = null] = lossFn(own, minibatch, key);
    return [value, [metrics, variables]];
  };
  const step = (minibatch: B, key: Tensor): [sums: [P, M], variables: V | null] => {
    const [[, [metrics, variables]], grads] = valueAndGrad(loss, { hasAux: true })(params, minibatch, key);
    return [[grads, metrics], variables];
  };
  const parts: [B, Tensor] = [minibatches, keys];
  const slice = (i: number) => tree.map((x: Tensor) => lax.indexInDim(x, i, 0, false), parts);
  const add = (sums: [P, M], terms: [P, M]): [P, M] =>
    tree.map((a: Tensor, b: Tensor) => np.add(a, b), sums, terms);
  const [first, firstVariables] = step(...slice(0));
  const asRow = (variables: V | null) => tree.map((x: Tensor) => np.expandDims(x, 0), variables);
  const append = (rows: V | null, more: V | null) =>
    tree.map((a: Tensor, b: Tensor) => np.concatenate([a, b]), rows, more);
  let [sums, rows] = [first, asRow(firstVariables)];
  if (useScan) {
    const rest = tree.map((x: Tensor) => lax.sliceInDim(x, 1, numMinibatches), parts);
    const [all, others] = scan(
      (carry: [P, M], [minibatch, key]: [B, Tensor]): [[P, M], V | null] => {
        const [terms, variables] = step(minibatch, key);
        return [add(carry, terms), variables];
      },
      first,
      rest,
    );
    [sums, rows] = [all, append(rows, others)];
  } else {
    for (const i of range(numMinibatches).slice(1)) {
      const [terms, variables] = step(...slice(i));
      [sums, rows] = [add(sums, terms), append(rows, asRow(variables))];
    }
  }
  const [grads, metrics] = sums;
  return [tree.map((g: Tensor) => np.divide(g, numMinibatches), grads), metrics, rows];
}

function splitBatch<B>(batch: B, numMinibatches: number): B {
  need(integerFrom(1), numMinibatches, "numMinibatches", "accumulateGradients");
  return tree.mapWithPath<B, unknown, Tensor>((path, leaf) => {
    const x = leafTensor(leaf, "accumulateGradients", path);
    const [n, ...rest] = x.shape;
    if (n === undefined || n % numMinibatches !== 0) {
      const sum = n === undefined ? "it has no dim" : `${n} / ${numMinibatches} = ${n / numMinibatches}`;
      throw new ShapeError(
        `[accumulateGradients] the batch${path && ` at "${path}"`} [${x.shape}] does not split into ${numMinibatches} minibatches (${sum}): use a batch that is a multiple of ${numMinibatches}`,
      );
    }
    return np.reshape(x, [numMinibatches, n / numMinibatches, ...rest]);
  }, batch) as B;
}
