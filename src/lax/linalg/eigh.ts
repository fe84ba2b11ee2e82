/** Eigenvalues and eigenvectors of symmetric matrices, of complex ones those that are their own adjoints. */

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
  checkSquare,
  conjugates,
  diagonalMatrices,
  diagonals,
  flatBatch,
  identities,
  likeBatch,
  mirroredLower,
  positionsIn,
  realParts,
  squaredSizes,
  takeRows,
  times,
  transposed,
} from "./matrixOperands.js";

const eighOptions = schema({
  /** Whether the lower triangle is read where the input is not made symmetric; true by default. */
  lower: true,
  /** Whether both triangles are read, as their mean; true by default. */
  symmetrizeInput: true,
});

/** Options of {@link eigh}. */
export interface EighOptions extends OptionsOf<typeof eighOptions> {}

/**
 * The eigenvectors, as columns, and eigenvalues of symmetric (of complex ones Hermitian) matrices, the smallest first.
 * The sign (the direction) of an eigenvector is not determined.
 *
 * @example
 * ```ts
 * lax.linalg.eigh(np.array([[2, 1], [1, 2]]))[1]; // [1, 3]
 * ```
 */
export function eigh(x: Tensor, options?: EighOptions): [vectors: Tensor, values: Tensor] {
  needTensor(x, "x", "lax.linalg.eigh");
  checkSquare(x, "lax.linalg.eigh", "floats or complex numbers");
  const { lower, symmetrizeInput } = eighOptions.read(options, "lax.linalg.eigh");
  const flat = flatBatch(x);
  const symmetric = symmetrizeInput
    ? ops.mul(ops.add(flat, adjoint(flat)), 0.5)
    : mirroredLower(lower ? flat : adjoint(flat));
  const [vectors, values] = (symmetric.parts ? decomposeComplex : decompose)(symmetric);
  return [likeBatch(vectors, x), likeBatch(values, x)];
}

type Eigenpairs = readonly [vectors: Tensor, values: Tensor];

/** The eigenvalue of each column without that of each row, 1 on the diagonal; and where that is. */
function gapsOf(values: Tensor): { gaps: Tensor; isDiagonal: Tensor } {
  const shape = [...values.shape, at(values.shape, 1)];
  const all = ops.sub(ops.broadcastInDim(values, shape, [0, 2]), ops.broadcastInDim(values, shape, [0, 1]));
  const [rows, columns] = positionsIn(all);
  const isDiagonal = ops.compare("eq", rows, columns);
  return { gaps: ops.select(isDiagonal, ops.ones(all.type), all), isDiagonal };
}

const decomposeComplex = libraryVjp(rotate, {
  forward: (a) => {
    const found = rotate(a);
    return [found, found];
  },
  backward: ([vectors, values], ct) => {
    const { gaps, isDiagonal } = gapsOf(values);
    const change = (tangent: Tensor): Eigenpairs => {
      const inner = times(times(adjoint(vectors), tangent), vectors);
      const turned = ops.div(inner, ops.convert(gaps, inner.dtype));
      const moved = times(vectors, ops.select(isDiagonal, ops.zeros(inner.type), turned));
      return [moved, realParts(diagonals(inner))];
    };
    return vjp(change, [ops.zeros(vectors.type)])[1](ct);
  },
});

const decompose = libraryVjp(rotate, {
  forward: (a) => {
    const [vectors, values] = rotate(a);
    return [[vectors, values] as const, [vectors, values] as const];
  },
  backward: ([vectors, values], [ctVectors, ctValues]) => {
    const { gaps, isDiagonal } = gapsOf(values);
    const turned = ops.div(times(transposed(vectors), ctVectors), gaps);
    const inner = ops.select(isDiagonal, diagonalMatrices(ctValues), turned);
    const whole = times(times(vectors, inner), transposed(vectors));
    return [ops.mul(ops.add(whole, transposed(whole)), 0.5)];
  },
});

/** Rotates rows and columns of [batch, n, n] until only the diagonal is left. */
function rotate(a: Tensor): Eigenpairs {
  const n = at(a.shape, 1);
  if (n < 2) return [identities(a, n, n), realParts(diagonals(a))];
  const even = madeEven(a, [1, 2]);
  const size = at(even.shape, 1);
  const half = size / 2;
  const { epsilon } = limits(a.dtype);
  const nothing = ops.mul(ops.sqrt(ops.reduceSum(squaredSizes(a), [1, 2])), epsilon);
  // Turned vectors are kept as rows.
  type State = readonly [matrix: Tensor, vectors: Tensor];
  const round = ([matrix, vectors]: State): readonly [State, Tensor] => {
    const diagonal = realParts(diagonals(matrix));
    const between = diagonals(ops.sliceDim(ops.sliceDim(matrix, 1, 0, half), 2, half, size));
    const sizes = ops.abs(between);
    const rotations = rotationsFor(
      ops.sliceDim(diagonal, 1, 0, half),
      ops.sliceDim(diagonal, 1, half, size),
      between.parts ? sizes : between,
    );
    const along = directions(between);
    const rotateAll = (rows: Tensor) => rotateRows(alignRows(rows, along), rotations);
    const rotated = adjoint(rotateAll(adjoint(rotateAll(matrix))));
    const next = [goRound(goRound(rotated, 1), 2), goRound(rotateAll(vectors), 1)] as const;
    return [next, ops.div(ops.reduceMax(sizes, [1]), nothing)];
  };
  const [, turned] = sweepUntilDone<State>(size, [even, identities(even, size, size)], round);
  const vectors = orthonormalized(ops.sliceDim(ops.sliceDim(turned, 1, 0, n), 2, 0, n));
  // Of the matrix itself, not of the turned one, which has gathered the roundings of all rounds.
  const products = ops.mul(times(vectors, a), conjugates(vectors));
  const values = ops.reduceSum(realParts(products), [2]);
  const [sorted = values, order = values] = ops.sort([values, ops.iota("int32", values.shape, 1)], 1);
  return [adjoint(takeRows(vectors, order)), sorted];
}
