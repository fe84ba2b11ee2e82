/** The QR decomposition by reflections. */
import { type OptionsOf, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjp } from "../../transforms/derivatives/grad.js";
import {
  adjoint,
  checkMatrices,
  conjugates,
  flatBatch,
  identities,
  join,
  likeBatch,
  lower,
  part,
  positionsIn,
  putColumn,
  realParts,
  squaredSizes,
  times,
  transposed,
  upper,
} from "./matrixOperands.js";
import { solveTriangle } from "./triangular.js";

const qrOptions = schema({
  /** Whether Q is square; otherwise it has as many columns as rows and columns allow. True by default. */
  fullMatrices: true,
});

/** Options of {@link qr}. */
export interface QrOptions extends OptionsOf<typeof qrOptions> {}

/**
 * The decomposition `x = Q R` into orthonormal columns and an upper triangle.
 *
 * @example
 * ```ts
 * const [q, r] = lax.linalg.qr(np.array([[3, 1], [4, 2]]));
 * np.matmul(q, r); // [[3, 1], [4, 2]]
 * ```
 */
export function qr(x: Tensor, options?: QrOptions): [q: Tensor, r: Tensor] {
  const { fullMatrices } = qrOptions.read(options, "lax.linalg.qr");
  checkMatrices(x, "lax.linalg.qr", "floats or complex numbers");
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
  return [q, join([r, times(adjoint(q), ops.sliceDim(a, 2, m, n))], 2)];
}

type Factors = readonly [q: Tensor, r: Tensor];

const reflectTall = (a: Tensor) => reflect(a, at(a.shape, 2));

const tallQr = (a: Tensor): Factors => (a.parts ? complexTallQr : realTallQr)(a);

const complexTallQr = libraryVjp(reflectTall, {
  forward: (a) => {
    const factors = reflectTall(a);
    return [factors, factors];
  },
  backward: (factors, ct) => {
    const change = (tangent: Tensor) => changesOf(factors, tangent);
    return vjp(change, [ops.zeros(factors[0].type)])[1](ct);
  },
});

/** How both factors change with their product, so that the columns stay orthonormal and the diagonal of R real. */
function changesOf([q, r]: Factors, change: Tensor): Factors {
  const divided = transposed(solveTriangle(transposed(r), transposed(change), true));
  const inner = times(adjoint(q), divided);
  const below = lower(inner, -1);
  const turned = ops.sub(below, adjoint(below));
  const [i, j] = positionsIn(inner);
  const angles = ops.mul(ops.sub(inner, conjugates(inner)), 0.5);
  const skew = ops.select(ops.compare("eq", i, j), angles, turned);
  const dq = ops.add(times(q, ops.sub(skew, inner)), divided);
  return [dq, times(ops.sub(inner, skew), r)];
}

const realTallQr = libraryVjp(reflectTall, {
  forward: (a) => {
    const [q, r] = reflectTall(a);
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
    const kept = putColumn(mirrored(matrix, mirror, conjugates(factor)), target, index);
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

/** The reflection H = I − factor · v vᴴ whose adjoint leaves of a column a real number at `index` and nothing below. */
function reflection(column: Tensor, index: Tensor): { mirror: Tensor; factor: Tensor; target: Tensor } {
  const place = ops.iota("int32", column.shape, 1);
  const here = ops.broadcastInDim(index, column.shape, []);
  const none = ops.zeros(column.type);
  const only = (mask: Tensor) => ops.select(mask, column, none);
  const [isHere, isBelow] = [ops.compare("eq", place, here), ops.compare("gt", place, here)];
  const own = (x: Tensor) => ops.convert(x, column.dtype);
  const spread = (x: Tensor) => ops.broadcastInDim(own(x), column.shape, [0]);
  const first = ops.reduceSum(only(isHere), [1]);
  const below = only(isBelow);
  // Divided by the largest element, squares neither overflow nor vanish.
  const largest = ops.stopGradient(ops.reduceMax(ops.abs(ops.add(below, only(isHere))), [1]));
  const unit = ops.select(ops.compare("eq", largest, 0), ops.ones(largest.type), largest);
  const [a, b] = [ops.div(first, own(unit)), ops.div(below, spread(unit))];
  const rest = ops.reduceSum(squaredSizes(b), [1]);
  const isDone = ops.compare("eq", a.parts ? ops.add(rest, ops.abs(a.parts[1])) : rest, 0);
  const norm = ops.sqrt(ops.select(isDone, ops.ones(rest.type), ops.add(squaredSizes(a), rest)));
  const signed = own(ops.select(ops.compare("ge", realParts(a), 0), ops.neg(norm), norm));
  const factor = ops.select(isDone, ops.zeros(first.type), ops.div(ops.sub(signed, a), signed));
  const divisor = ops.select(isDone, ops.ones(first.type), ops.sub(a, signed));
  const mirror = ops.add(ops.div(b, spread(divisor)), ops.select(isHere, ops.ones(column.type), none));
  const end = ops.select(isDone, first, ops.mul(signed, own(unit)));
  const target = ops.select(isHere, spread(end), ops.select(isBelow, none, column));
  return { mirror, factor, target };
}

/** x − factor · v (vᴴ x). */
function mirrored(x: Tensor, mirror: Tensor, factor: Tensor): Tensor {
  const dims = { lhsBatch: [0], rhsBatch: [0] };
  const along = ops.dotGeneral(conjugates(mirror), x, { ...dims, lhsContract: [1], rhsContract: [1] });
  const scaled = ops.mul(along, ops.broadcastInDim(factor, along.shape, [0]));
  return ops.sub(x, ops.dotGeneral(mirror, scaled, { ...dims, lhsContract: [], rhsContract: [] }));
}
