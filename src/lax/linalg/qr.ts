/** The QR decomposition by reflections. */
import { checkOptions } from "../../ir/options.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { customVjp } from "../../transforms/customVjp.js";
import { scan } from "../../transforms/scan.js";
import {
  checkMatrices,
  flatBatch,
  identities,
  join,
  likeBatch,
  lower,
  part,
  putColumn,
  times,
  transposed,
  upper,
} from "./matrices.js";
import { solveTriangle } from "./triangular.js";

/** Options of {@link qr}. */
export interface QrOptions {
  /** Whether Q is square; otherwise it has as many columns as rows and columns allow. True by default. */
  readonly fullMatrices?: boolean | undefined;
}

/** The decomposition `x = Q R` into orthonormal columns and an upper triangle. */
export function qr(x: Tensor, options: QrOptions = {}): [q: Tensor, r: Tensor] {
  checkOptions<QrOptions>(options, { fullMatrices: true }, "lax.linalg.qr");
  const { fullMatrices = true } = options;
  checkMatrices(x, "lax.linalg.qr");
  const flat = flatBatch(x);
  const [, m = 0, n = 0] = flat.shape;
  const [q, r] = fullMatrices && m > n ? reflect(flat, m) : thinQr(flat);
  return [likeBatch(q, x), likeBatch(r, x)];
}

/** Q [batch, m, k] and R [batch, k, n] of [batch, m, n], where k is the smaller of m and n. */
export function thinQr(a: Tensor): readonly [q: Tensor, r: Tensor] {
  const [, m = 0, n = 0] = a.shape;
  if (m >= n) return tallQr(a);
  const [q, r] = tallQr(ops.sliceDim(a, 2, 0, m));
  return [q, join([r, times(transposed(q), ops.sliceDim(a, 2, m, n))], 2)];
}

const tallQr = customVjp((a: Tensor) => reflect(a, at(a.shape, 2)), {
  forward: (a) => {
    const [q, r] = reflect(a, at(a.shape, 2));
    return [[q, r] as const, [q, r] as const];
  },
  backward: ([q, r], [ctQ, ctR]) => {
    const inner = ops.sub(times(r, transposed(ctR)), times(transposed(ctQ), q));
    const symmetric = ops.add(lower(inner), transposed(lower(inner, -1)));
    const sum = ops.add(ctQ, times(q, symmetric));
    return [transposed(solveTriangle(r, transposed(sum), false))];
  },
});

/**
 * Reflects column after column onto the axes, and the axes back.
 *
 * @param count how many columns of Q are wanted
 */
function reflect(a: Tensor, count: number): readonly [q: Tensor, r: Tensor] {
  const [batch = 0, m = 0, n = 0] = a.shape;
  const steps = Math.min(m, n);
  const zero = Tensor.scalar(0, "int32");
  const forward = (matrix: Tensor, index: Tensor): [Tensor, readonly [Tensor, Tensor]] => {
    const column = ops.reshape(ops.dynamicSlice(matrix, [zero, zero, index], [batch, m, 1]), [batch, m]);
    const { mirror, factor, target } = reflection(column, index);
    const kept = putColumn(mirrored(matrix, mirror, factor), target, index);
    return [kept, [mirror, factor]];
  };
  const [r, [mirrors, factors]] = scan(forward, a, ops.iota("int32", [steps], 0));
  const back = (q: Tensor, [mirror, factor]: readonly [Tensor, Tensor]): [Tensor, null] => [
    mirrored(q, mirror, factor),
    null,
  ];
  const [q] = scan(back, identities(a, m, count), [mirrors, factors] as const, { reverse: true });
  return [q, upper(part(r, 0, count, 0, n))];
}

/** The reflection H = I − factor · v vᵀ that leaves nothing of a column below `index`. */
function reflection(column: Tensor, index: Tensor): { mirror: Tensor; factor: Tensor; target: Tensor } {
  const place = ops.iota("int32", column.shape, 1);
  const here = ops.broadcastInDim(index, column.shape, []);
  const none = ops.zeros(column.type);
  const only = (mask: Tensor) => ops.select(mask, column, none);
  const [isHere, isBelow] = [ops.compare("eq", place, here), ops.compare("gt", place, here)];
  const spread = (x: Tensor) => ops.broadcastInDim(x, column.shape, [0]);
  const first = ops.reduceSum(only(isHere), [1]);
  const below = only(isBelow);
  // Divided by the largest element, squares neither overflow nor vanish.
  const largest = ops.stopGradient(ops.reduceMax(ops.abs(ops.add(below, only(isHere))), [1]));
  const unit = ops.select(ops.compare("eq", largest, 0), ops.ones(largest.type), largest);
  const [a, b] = [ops.div(first, unit), ops.div(below, spread(unit))];
  const rest = ops.reduceSum(ops.mul(b, b), [1]);
  const isDone = ops.compare("eq", rest, 0);
  const one = ops.ones(first.type);
  const norm = ops.sqrt(ops.select(isDone, one, ops.add(ops.mul(a, a), rest)));
  const signed = ops.select(ops.compare("ge", a, 0), ops.neg(norm), norm);
  const factor = ops.select(isDone, ops.zeros(first.type), ops.div(ops.sub(signed, a), signed));
  const divisor = ops.select(isDone, one, ops.sub(a, signed));
  const mirror = ops.add(ops.div(b, spread(divisor)), ops.select(isHere, ops.ones(column.type), none));
  const end = ops.select(isDone, first, ops.mul(signed, unit));
  const target = ops.select(isHere, spread(end), ops.select(isBelow, none, column));
  return { mirror, factor, target };
}

/** x − factor · v (vᵀ x). */
function mirrored(x: Tensor, mirror: Tensor, factor: Tensor): Tensor {
  const dims = { lhsBatch: [0], rhsBatch: [0] };
  const along = ops.dotGeneral(mirror, x, { ...dims, lhsContract: [1], rhsContract: [1] });
  const scaled = ops.mul(along, ops.broadcastInDim(factor, along.shape, [0]));
  return ops.sub(x, ops.dotGeneral(mirror, scaled, { ...dims, lhsContract: [], rhsContract: [] }));
}
