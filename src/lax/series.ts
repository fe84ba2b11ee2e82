/** Series and continued fractions of tensors, whose elements converge after different numbers of terms. */

import { limits } from "../ir/dtype.js";
import { at } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { whileLoop } from "../transforms/control/whileLoop.js";

/** Maximum number of terms of a series or fraction; for reasonable arguments they end long before. */
const maxTerms = 2000;

/**
 * Repeats a step until all elements have converged. Elements that have converged keep their values.
 *
 * @param step from the number of the term, counted from 1, and the values to the next ones, and which elements need another term
 */
export function repeat(
  active: Tensor,
  start: readonly Tensor[],
  step: (n: Tensor, values: readonly Tensor[]) => readonly [values: readonly Tensor[], goesOn: Tensor],
): readonly Tensor[] {
  const [, , last] = whileLoop<[Tensor, Tensor, Tensor[]]>(
    ([n, going]) =>
      ops.and(
        ops.compare("le", n, maxTerms),
        ops.reduceMax(
          going,
          going.shape.map((_, d) => d),
        ),
      ),
    ([n, going, values]) => {
      const number = ops.broadcastInDim(ops.convert(n, at(start, 0).dtype), active.shape, []);
      const [next, goesOn] = step(number, values);
      const kept = next.map((x, i) => ops.select(going, x, at(values, i)));
      return [ops.add(n, 1), ops.and(going, goesOn), kept];
    },
    [Tensor.scalar(1, "int32"), active, [...start]],
  );
  return last;
}

/** Whether a term still changes a sum. */
export function counts(term: Tensor, sum: Tensor): Tensor {
  return ops.compare("gt", ops.abs(term), ops.mul(ops.abs(sum), limits(sum.dtype).epsilon / 2));
}

/** 1 + r₁ (1 + r₂ (1 + …)), where each rₖ is a factor times x. */
export function nested(x: Tensor, factors: readonly number[]): Tensor {
  return factors.reduceRight(
    (inner, factor) => ops.add(ops.mul(inner, ops.mul(x, factor)), 1),
    ops.full(x.shape, 1, x.dtype),
  );
}
