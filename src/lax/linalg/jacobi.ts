/** Jacobi's method: pairs of rows are rotated until all are orthogonal. */
import { limits } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { adjoint, scaleRows, times } from "./matrixOperands.js";

/** The angles of rotations [batch, pairs]. */
export interface Rotations {
  readonly sine: Tensor;
  /** The tangent of half the angle, with which small rotations keep lengths to the last digit. */
  readonly halfTangent: Tensor;
}

/** Maximum number of sweeps; about ten are needed for a thousand rows. */
const maxSweeps = 30;

/**
 * The rotations that make two rows independent.
 *
 * @param first the squares (or diagonal elements) of the first rows of the pairs [batch, pairs]
 * @param between what is between the two, which is to vanish
 */
export function rotationsFor(first: Tensor, second: Tensor, between: Tensor): Rotations {
  const { epsilon } = limits(first.dtype);
  const scale = ops.sqrt(ops.mul(ops.abs(first), ops.abs(second)));
  const isSmall = ops.compare("le", ops.abs(between), ops.mul(scale, epsilon / 8));
  const one = ops.ones(first.type);
  const divisor = ops.select(isSmall, one, ops.mul(between, 2));
  const ratio = ops.div(ops.sub(second, first), divisor);
  const size = ops.abs(ratio);
  const root = ops.sqrt(ops.add(ops.mul(ratio, ratio), 1));
  const sign = ops.select(ops.compare("ge", ratio, 0), one, ops.neg(one));
  const tangent = ops.select(isSmall, ops.zeros(first.type), ops.div(sign, ops.add(size, root)));
  const cosine = ops.div(one, ops.sqrt(ops.add(ops.mul(tangent, tangent), 1)));
  const sine = ops.mul(tangent, cosine);
  return { sine, halfTangent: ops.div(sine, ops.add(cosine, 1)) };
}

/** The directions [batch, pairs] of complex numbers, 1 for 0; undefined where there are none but signs. */
export function directions(x: Tensor): Tensor | undefined {
  if (!x.parts) return undefined;
  const size = ops.abs(x);
  const isZero = ops.compare("eq", size, 0);
  const safe = ops.convert(ops.select(isZero, ops.ones(size.type), size), x.dtype);
  return ops.select(isZero, ops.ones(x.type), ops.div(x, safe));
}

/** Multiplies the second row of each pair of [batch, n, k] by a number, after which real rotations do for complex rows. */
export function alignRows(x: Tensor, factors: Tensor | undefined): Tensor {
  if (!factors) return x;
  const half = at(x.shape, 1) / 2;
  const second = scaleRows(ops.sliceDim(x, 1, half, 2 * half), factors);
  return ops.concatenate([ops.sliceDim(x, 1, 0, half), second], 1);
}

/** Rotates the rows of [batch, n, k] in pairs: row i with row n / 2 + i. */
export function rotateRows(x: Tensor, { sine, halfTangent }: Rotations): Tensor {
  const half = at(x.shape, 1) / 2;
  const [p, q] = [ops.sliceDim(x, 1, 0, half), ops.sliceDim(x, 1, half, 2 * half)];
  const spread = (t: Tensor) => ops.broadcastInDim(ops.convert(t, x.dtype), p.shape, [0, 1]);
  const [s, tangent] = [spread(sine), spread(halfTangent)];
  const low = ops.sub(p, ops.mul(s, ops.add(q, ops.mul(tangent, p))));
  const high = ops.add(q, ops.mul(s, ops.sub(p, ops.mul(tangent, q))));
  return ops.concatenate([low, high], 1);
}

/**
 * Permutes rows (or columns) so that every row gets a new partner, as in a round-robin tournament: the first one stays,
 * the others rotate. After n − 1 moves all pairs have occurred and the original order is restored.
 */
export function goRound(x: Tensor, dim: number): Tensor {
  const half = at(x.shape, dim) / 2;
  if (half === 1) return x;
  const take = (start: number, stop: number) => ops.sliceDim(x, dim, start, stop);
  const [top, bottom] = [half, 2 * half];
  return ops.concatenate(
    [take(0, 1), take(top, top + 1), take(1, half - 1), take(top + 1, bottom), take(half - 1, half)].filter(
      (part) => at(part.shape, dim) > 0,
    ),
    dim,
  );
}

/**
 * Repeats sweeps over all pairs of rows until what is left between them is negligible.
 *
 * @param round one round on the state, with all rows moved on, and what it found, relative to nothing: [batch]
 */
export function sweepUntilDone<S extends readonly Tensor[]>(
  n: number,
  state: S,
  round: (state: S) => readonly [S, found: Tensor],
): S {
  const [, , last] = whileLoop<readonly [Tensor, Tensor, S]>(
    ([sweep, isOpen]) => ops.and(isOpen, ops.compare("lt", sweep, maxSweeps)),
    ([sweep, , current]) => {
      const [next, found] = scan<S, null, Tensor>(round, current, null, { length: n - 1 });
      const isOpen = ops.reduceMax(ops.compare("gt", found, 1), [0, 1]);
      return [ops.add(sweep, 1), isOpen, next] as const;
    },
    [Tensor.scalar(0, "int32"), Tensor.scalar(true, "bool"), state],
  );
  return last;
}

/** Makes rows [batch, n, n] that are nearly orthonormal so to the last digits. */
export function orthonormalized(rows: Tensor): Tensor {
  const overlaps = times(rows, adjoint(rows));
  return ops.sub(ops.mul(rows, 1.5), ops.mul(times(overlaps, rows), 0.5));
}

/** Appends a row (and column) of zeros to an odd number of rows, so that all of them have partners. */
export function madeEven(x: Tensor, dims: readonly number[]): Tensor {
  const odd = at(x.shape, 1) % 2;
  const none = x.shape.map(() => 0);
  const high = x.shape.map((_, d) => (dims.includes(d) ? odd : 0));
  return ops.pad(x, Tensor.scalar(0, x.dtype), { low: none, high, interior: none });
}
