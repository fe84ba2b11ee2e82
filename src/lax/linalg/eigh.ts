/** Eigenvalues and eigenvectors of symmetric matrices. */

import { limits } from "../../ir/dtype.js";
import { checkOptions } from "../../ir/options.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { customVjp } from "../../transforms/customVjp.js";
import { goRound, madeEven, orthonormalized, sweepUntilDone, turnRows, turnsFor } from "./jacobi.js";
import {
  checkSquare,
  diagonalMatrices,
  diagonals,
  flatBatch,
  identities,
  likeBatch,
  lower,
  positionsIn,
  takeRows,
  times,
  transposed,
  upper,
} from "./matrices.js";

/** Options of {@link eigh}. */
export interface EighOptions {
  /** Whether the lower triangle is read where the input is not made symmetric; true by default. */
  readonly lower?: boolean | undefined;
  /** Whether both triangles are read, as their mean; true by default. */
  readonly symmetrizeInput?: boolean | undefined;
}

/**
 * The eigenvectors, as columns, and eigenvalues of symmetric matrices, the smallest first. The sign of an eigenvector
 * is not determined.
 */
export function eigh(x: Tensor, options: EighOptions = {}): [vectors: Tensor, values: Tensor] {
  needTensor(x, "x", "lax.linalg.eigh");
  checkOptions<EighOptions>(options, { lower: true, symmetrizeInput: true }, "lax.linalg.eigh");
  checkSquare(x, "lax.linalg.eigh");
  const { symmetrizeInput = true } = options;
  const flat = flatBatch(x);
  const half = options.lower === false ? transposed(upper(flat)) : lower(flat);
  const symmetric = symmetrizeInput
    ? ops.mul(ops.add(flat, transposed(flat)), 0.5)
    : ops.add(half, transposed(lower(half, -1)));
  const [vectors, values] = decompose(symmetric);
  return [likeBatch(vectors, x), likeBatch(values, x)];
}

const decompose = customVjp(rotate, {
  forward: (a) => {
    const [vectors, values] = rotate(a);
    return [[vectors, values] as const, [vectors, values] as const];
  },
  backward: ([vectors, values], [ctVectors, ctValues]) => {
    const n = at(values.shape, 1);
    const shape = [...values.shape, n];
    const gaps = ops.sub(
      ops.broadcastInDim(values, shape, [0, 2]),
      ops.broadcastInDim(values, shape, [0, 1]),
    );
    const [rows, columns] = positionsIn(gaps);
    const isDiagonal = ops.compare("eq", rows, columns);
    const turned = ops.div(
      times(transposed(vectors), ctVectors),
      ops.select(isDiagonal, ops.ones(gaps.type), gaps),
    );
    const inner = ops.select(isDiagonal, diagonalMatrices(ctValues), turned);
    const whole = times(times(vectors, inner), transposed(vectors));
    return [ops.mul(ops.add(whole, transposed(whole)), 0.5)];
  },
});

/** Turns rows and columns of [batch, n, n] until only the diagonal is left. */
function rotate(a: Tensor): readonly [vectors: Tensor, values: Tensor] {
  const n = at(a.shape, 1);
  if (n < 2) return [identities(a, n, n), diagonals(a)];
  const even = madeEven(a, [1, 2]);
  const size = at(even.shape, 1);
  const half = size / 2;
  const { epsilon } = limits(a.dtype);
  const nothing = ops.mul(ops.sqrt(ops.reduceSum(ops.mul(a, a), [1, 2])), epsilon);
  // Turned vectors are kept as rows.
  type State = readonly [matrix: Tensor, vectors: Tensor];
  const round = ([matrix, vectors]: State): readonly [State, Tensor] => {
    const diagonal = diagonals(matrix);
    const between = diagonals(ops.sliceDim(ops.sliceDim(matrix, 1, 0, half), 2, half, size));
    const turns = turnsFor(
      ops.sliceDim(diagonal, 1, 0, half),
      ops.sliceDim(diagonal, 1, half, size),
      between,
    );
    const turned = transposed(turnRows(transposed(turnRows(matrix, turns)), turns));
    const next = [goRound(goRound(turned, 1), 2), goRound(turnRows(vectors, turns), 1)] as const;
    return [next, ops.div(ops.reduceMax(ops.abs(between), [1]), nothing)];
  };
  const [, turned] = sweepUntilDone<State>(size, [even, identities(even, size, size)], round);
  const vectors = orthonormalized(ops.sliceDim(ops.sliceDim(turned, 1, 0, n), 2, 0, n));
  // Of the matrix itself, not of the turned one, which has gathered the roundings of all rounds.
  const values = ops.reduceSum(ops.mul(times(vectors, a), vectors), [2]);
  const [sorted = values, order = values] = ops.sort([values, ops.iota("int32", values.shape, 1)], 1);
  return [transposed(takeRows(vectors, order)), sorted];
}
