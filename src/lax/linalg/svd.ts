/** The singular value decomposition. */

import { limits } from "../../ir/dtype.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjp } from "../../transforms/derivatives/grad.js";
import {
  alignRows,
  directions,
  goRound,
  madeEven,
  orthonormalized,
  rotateRows,
  rotationsFor,
  sweepUntilDone,
} from "./jacobi.js";
import {
  adjoint,
  checkMatrices,
  conjugates,
  diagonalMatrices,
  diagonals,
  flatBatch,
  identities,
  likeBatch,
  positionsIn,
  realParts,
  scaleColumns,
  scaleRows,
  squaredSizes,
  takeRows,
  times,
  transposed,
} from "./matrixOperands.js";
import { qr, thinQr } from "./qr.js";

const svdOptions = schema({
  /** Whether U and V are square; true by default. */
  fullMatrices: true,
});

/** Options of {@link svd}. */
export interface SvdOptions extends OptionsOf<typeof svdOptions> {}

/**
 * The decomposition `x = U diag(s) Vᴴ` with orthonormal columns in U and V, the largest singular value first. The
 * signs (the directions) of a pair of columns are not determined.
 *
 * @returns U, s and Vᴴ
 *
 * @example
 * ```ts
 * lax.linalg.svd(np.array([[3, 0], [0, -4]]))[1]; // [4, 3]
 * ```
 */
export function svd(x: Tensor, options?: SvdOptions): [u: Tensor, s: Tensor, vh: Tensor] {
  const { fullMatrices } = svdOptions.read(options, "lax.linalg.svd");
  checkMatrices(x, "lax.linalg.svd", "floats or complex numbers");
  const flat = flatBatch(x);
  const [, m = 0, n = 0] = flat.shape;
  const [u, s, v] = factorsOf(flat);
  const [left, right] = [fullMatrices && m > n ? completed(u) : u, fullMatrices && n > m ? completed(v) : v];
  return [likeBatch(left, x), likeBatch(s, x), likeBatch(adjoint(right), x)];
}

/**
 * The singular values alone, the largest first.
 *
 * @example
 * ```ts
 * lax.linalg.singularValues(np.array([[3, 0], [0, -4]])); // [4, 3]
 * ```
 */
export function singularValues(x: Tensor): Tensor {
  needTensor(x, "x", "lax.linalg.singularValues");
  checkMatrices(x, "lax.linalg.singularValues", "floats or complex numbers");
  return likeBatch(factorsOf(flatBatch(x))[1], x);
}

/** Adds orthonormal columns until the matrices are square. */
function completed(u: Tensor): Tensor {
  const [, m = 0, n = 0] = u.shape;
  const [q] = qr(u);
  return ops.concatenate([u, ops.sliceDim(q, 2, n, m)], 2);
}

type Factors = readonly [u: Tensor, s: Tensor, v: Tensor];

const factorsOf = (a: Tensor): Factors => (a.parts ? decomposeComplex : decompose)(a);

/** The squared singular value of each column without that of each row, infinite where they are equal. */
function gapsOf(s: Tensor): Tensor {
  const shape = [...s.shape, at(s.shape, 1)];
  const squares = ops.mul(s, s);
  const gaps = ops.sub(
    ops.broadcastInDim(squares, shape, [0, 2]),
    ops.broadcastInDim(squares, shape, [0, 1]),
  );
  const infinite = ops.full(shape, Number.POSITIVE_INFINITY, gaps.dtype);
  return ops.select(ops.compare("eq", gaps, 0), infinite, gaps);
}

const decomposeComplex = libraryVjp(rotate, {
  forward: (a) => {
    const factors = rotate(a);
    return [factors, factors];
  },
  backward: (factors, ct) => {
    const [u, , v] = factors;
    const type = { ...u.type, shape: [at(u.shape, 0), at(u.shape, 1), at(v.shape, 1)] };
    return vjp((tangent: Tensor) => changesOf(factors, tangent), [ops.zeros(type)])[1](ct);
  },
});

/** How the factors change with their product; a change of the angles of a pair of columns is that of U. */
function changesOf([u, s, v]: Factors, change: Tensor): Factors {
  const inner = times(times(adjoint(u), change), v);
  const ratios = ops.div(ops.ones(inner.type), ops.convert(gapsOf(s), inner.dtype));
  const both = (x: Tensor) => ops.mul(ratios, ops.add(x, adjoint(x)));
  const inverse = ops.select(ops.compare("eq", s, 0), s, ops.div(ops.ones(s.type), s));
  const angles = ops.mul(ops.sub(diagonals(inner), conjugates(diagonals(inner))), 0.5);
  const turns = diagonalMatrices(ops.mul(angles, ops.convert(inverse, angles.dtype)));
  // What leaves the space of the columns moves them by 1 / s.
  const beyond = (vectors: Tensor, images: Tensor) =>
    scaleColumns(ops.sub(images, times(vectors, times(adjoint(vectors), images))), inverse);
  const [, m = 0, k = 0] = u.shape;
  const inU = times(u, ops.add(both(scaleColumns(inner, s)), turns));
  const inV = times(v, both(scaleRows(inner, s)));
  return [
    m > k ? ops.add(inU, beyond(u, times(change, v))) : inU,
    realParts(diagonals(inner)),
    at(v.shape, 1) > k ? ops.add(inV, beyond(v, times(adjoint(change), u))) : inV,
  ];
}

const decompose = libraryVjp(rotate, {
  forward: (a) => {
    const factors = rotate(a);
    return [factors, factors];
  },
  backward: ([u, s, v], [ctU, ctS, ctV]) => {
    const safe = gapsOf(s);
    const turned = (vectors: Tensor, ct: Tensor) => {
      const inner = times(transposed(vectors), ct);
      return ops.div(ops.sub(inner, transposed(inner)), safe);
    };
    const inner = ops.add(
      ops.add(scaleColumns(turned(u, ctU), s), scaleRows(turned(v, ctV), s)),
      diagonalMatrices(ctS),
    );
    const inside = times(times(u, inner), transposed(v));
    // What leaves the space of the columns moves them by 1 / s.
    const inverse = ops.div(ops.ones(s.type), s);
    const beyond = (vectors: Tensor, ct: Tensor) =>
      scaleColumns(ops.sub(ct, times(vectors, times(transposed(vectors), ct))), inverse);
    const [, m = 0, k = 0] = u.shape;
    const withRows = m > k ? ops.add(inside, times(beyond(u, ctU), transposed(v))) : inside;
    const hasColumns = at(v.shape, 1) > k;
    return [hasColumns ? ops.add(withRows, times(u, transposed(beyond(v, ctV)))) : withRows];
  },
});

/** U, s and V of [batch, m, n]. */
function rotate(a: Tensor): Factors {
  const [, m = 0, n = 0] = a.shape;
  if (m < n) {
    const [v, s, u] = rotate(adjoint(a));
    return [u, s, v];
  }
  if (n === 0) return [a, realParts(diagonals(a)), identities(a, n, n)];
  const [q, r] = m > n ? thinQr(a) : [undefined, a];
  const [u, s, v] = rotateSquare(r);
  return [q ? times(q, u) : u, s, v];
}

/** Rotates the columns of [batch, n, n] until they are orthogonal; they are kept as rows. */
function rotateSquare(a: Tensor): Factors {
  const n = at(a.shape, 1);
  const even = madeEven(transposed(a), [1]);
  const size = at(even.shape, 1);
  const half = size / 2;
  const { epsilon } = limits(a.dtype);
  // What two columns have in common can be told from rounding only above this share of their lengths.
  const nothing = epsilon * (4 + Math.sqrt(n));
  const squares = ops.reduceSum(squaredSizes(a), [1, 2]);
  const smallest = ops.broadcastInDim(ops.mul(squares, epsilon ** 2), [at(a.shape, 0), half], [0]);
  const square = (x: Tensor) => ops.reduceSum(squaredSizes(x), [2]);
  type State = readonly [columns: Tensor, vectors: Tensor];
  const round = ([columns, vectors]: State): readonly [State, Tensor] => {
    const [p, q] = [ops.sliceDim(columns, 1, 0, half), ops.sliceDim(columns, 1, half, size)];
    const [first, second] = [square(p), square(q)];
    const between = ops.reduceSum(ops.mul(p, conjugates(q)), [2]);
    const sizes = ops.abs(between);
    const rotations = rotationsFor(first, second, between.parts ? sizes : between);
    const along = directions(between);
    const rotateAll = (rows: Tensor) => rotateRows(alignRows(rows, along), rotations);
    const product = ops.sqrt(ops.mul(first, second));
    const counts = ops.compare("gt", product, smallest);
    const share = ops.div(sizes, ops.select(counts, product, ops.ones(product.type)));
    const found = ops.reduceMax(ops.select(counts, share, ops.zeros(share.type)), [1]);
    const next = [goRound(rotateAll(columns), 1), goRound(rotateAll(vectors), 1)] as const;
    return [next, ops.mul(found, 1 / nothing)];
  };
  const [, turned] = sweepUntilDone<State>(size, [even, identities(even, size, size)], round);
  const vectors = orthonormalized(ops.sliceDim(ops.sliceDim(turned, 1, 0, n), 2, 0, n));
  return sortedFactors(times(vectors, transposed(a)), vectors);
}

/** Sorts orthogonal columns by their lengths, and makes orthonormal ones of them where these vanish too. */
function sortedFactors(columns: Tensor, vectors: Tensor): Factors {
  const largest = ops.reduceMax(ops.abs(columns), [2]);
  const unit = ops.select(ops.compare("eq", largest, 0), ops.ones(largest.type), largest);
  const spread = ops.broadcastInDim(ops.convert(unit, columns.dtype), columns.shape, [0, 1]);
  const scaled = ops.div(columns, spread);
  const lengths = ops.mul(unit, ops.sqrt(ops.reduceSum(squaredSizes(scaled), [2])));
  const [negative = lengths, order = lengths] = ops.sort(
    [ops.neg(lengths), ops.iota("int32", lengths.shape, 1)],
    1,
  );
  const s = ops.neg(negative);
  const safe = ops.select(ops.compare("eq", s, 0), ops.ones(s.type), s);
  const units = scaleRows(takeRows(columns, order), ops.div(ops.ones(s.type), safe));
  const [q, r] = thinQr(transposed(units));
  const [rows, ends] = positionsIn(r);
  const diagonal = realParts(diagonals(ops.select(ops.compare("eq", rows, ends), r, ops.zeros(r.type))));
  const signs = ops.select(ops.compare("lt", diagonal, 0), ops.full(s.shape, -1, s.dtype), ops.ones(s.type));
  return [scaleColumns(q, signs), s, transposed(takeRows(vectors, order))];
}
