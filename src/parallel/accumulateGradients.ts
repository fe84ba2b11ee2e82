import { ShapeError, ValueError } from "../ir/errors.js";
import { range } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import * as np from "../numpy/index.js";
import { split } from "../random/index.js";
import type { Tensor } from "../trace/tensor.js";
import { leafTensor } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { valueAndGrad } from "../transforms/grad.js";
import { scan } from "../transforms/scan.js";

/** The loss of a minibatch with whatever is summed beside it, such as counts. */
export type MinibatchLoss<P, B, M> = (params: P, minibatch: B, rng: Tensor) => [loss: Tensor, metrics: M];

/** Options of {@link accumulateGradients}. */
export interface AccumulateOptions {
  /** Into how many minibatches the batch is split along dim 0. */
  readonly numMinibatches: number;
  /** Whether the minibatches run in a `scan` (one body in the program) or one after the other (the default). */
  readonly useScan?: boolean;
}

/**
 * Gradients of a batch in the memory of a minibatch: the gradients of minibatches are averaged, their metrics
 * added up. Each minibatch has a random key of its own.
 *
 * ```ts
 * const [grads, metrics] = accumulateGradients(loss, state.params, batch, rng, { numMinibatches: 4 });
 * ```
 */
export function accumulateGradients<P, B, M>(
  lossFn: MinibatchLoss<P, B, M>,
  params: P,
  batch: B,
  rng: Tensor,
  { numMinibatches, useScan = false }: AccumulateOptions,
): [grads: P, metrics: M] {
  const minibatches = splitBatch(batch, numMinibatches);
  const keys = split(rng, numMinibatches);
  const step = (minibatch: B, key: Tensor): [P, M] => {
    const [[, metrics], grads] = valueAndGrad(lossFn, { hasAux: true })(params, minibatch, key);
    return [grads, metrics];
  };
  const slice = (i: number): [B, Tensor] =>
    rowsOf([minibatches, keys], (x) => lax.indexInDim(x, i, 0, false));
  const first = step(...slice(0));
  const add = (sums: [P, M], terms: [P, M]): [P, M] => mapTensors((a, b) => np.add(a, b), sums, terms);
  let sums = first;
  if (useScan) {
    const rest = rowsOf([minibatches, keys] as [B, Tensor], (x) => lax.sliceInDim(x, 1, numMinibatches));
    [sums] = scan(
      (carry: [P, M], [minibatch, key]: [B, Tensor]): [[P, M], null] => [
        add(carry, step(minibatch, key)),
        null,
      ],
      first,
      rest,
    );
  } else {
    for (const i of range(numMinibatches).slice(1)) sums = add(sums, step(...slice(i)));
  }
  const [grads, metrics] = sums;
  return [mapTensors((g) => np.divide(g, numMinibatches), grads), metrics];
}

function splitBatch<B>(batch: B, numMinibatches: number): B {
  if (!Number.isInteger(numMinibatches) || numMinibatches < 1) {
    throw new ValueError(
      `[accumulateGradients] numMinibatches must be a whole number of at least 1, got ${numMinibatches}`,
    );
  }
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

function rowsOf<T>(values: T, fn: (x: Tensor) => Tensor): T {
  return mapTensors(fn, values);
}

function mapTensors<T>(fn: (a: Tensor, b: Tensor) => Tensor, first: T, second: T = first): T {
  return tree.map<T, Tensor, Tensor>((a, b = a) => fn(a, b), first, second) as T;
}
