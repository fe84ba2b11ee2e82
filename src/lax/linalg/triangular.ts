/** Systems of equations whose matrix is a triangle. */

import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { at, formatType, sameNumbers } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import {
  blocksOf,
  checkMatrices,
  checkSquare,
  diagonals,
  flatBatch,
  likeBatch,
  lower,
  part,
  putRow,
  times,
  transposed,
} from "./matrixOperands.js";

const triangularSolveOptions = schema({
  /** Whether the triangle stands left of the unknowns; false by default. */
  leftSide: false,
  /** Whether the triangle is the lower one; false by default. */
  lower: false,
  /** Whether the triangle is transposed before. */
  transposeA: false,
  /** Whether the diagonal is taken for ones. */
  unitDiagonal: false,
});

/** Options of {@link triangularSolve}. */
export interface TriangularSolveOptions extends OptionsOf<typeof triangularSolveOptions> {}

/**
 * Solves `x a = b`, or `a x = b` with `leftSide`, where of each matrix of `a` one triangle is read.
 *
 * @example
 * ```ts
 * lax.linalg.triangularSolve(np.array([[2, 0], [1, 4]]), np.array([[4], [6]]), { leftSide: true, lower: true }); // [[2], [1]]
 * ```
 */
export function triangularSolve(a: Tensor, b: Tensor, options?: TriangularSolveOptions): Tensor {
  const caller = "lax.linalg.triangularSolve";
  const { leftSide, lower, transposeA, unitDiagonal } = triangularSolveOptions.read(options, caller);
  checkSquare(a, caller, "floats or complex numbers");
  checkMatrices(b, caller, "floats or complex numbers");
  const side = leftSide ? -2 : -1;
  if (b.ndim !== a.ndim || !sameNumbers(a.shape.slice(0, -2), b.shape.slice(0, -2))) {
    throw new ShapeError(
      `[${caller}] needs equal batch dims, got ${formatType(a.type)} and ${formatType(b.type)}`,
    );
  }
  if (a.shape.at(-1) !== b.shape.at(side)) {
    throw new ShapeError(
      `[${caller}] ${a.shape.at(-1)} unknowns, but the right side ${formatType(b.type)} has ${b.shape.at(side)} ${leftSide ? "rows" : "columns"}`,
    );
  }
  const [triangle, right] = [flatBatch(a), flatBatch(b)];
  // x a = b is aᵀ xᵀ = bᵀ.
  const turned = leftSide === transposeA;
  const matrix = turned ? transposed(triangle) : triangle;
  const isLower = lower !== turned;
  const x = solveTriangle(matrix, leftSide ? right : transposed(right), isLower, unitDiagonal);
  return likeBatch(leftSide ? x : transposed(x), b);
}

/** Solves `a x = b` for batches [batch, n, n] and [batch, n, k]. */
export function solveTriangle(a: Tensor, b: Tensor, isLower: boolean, unit = false): Tensor {
  if (isLower) return (unit ? solveUnitLower : solveLower)(a, b);
  // Upside down, the upper triangle is a lower one.
  const x = (unit ? solveUnitLower : solveLower)(ops.reverse(a, [1, 2]), ops.reverse(b, [1]));
  return ops.reverse(x, [1]);
}

const solveLower = withRule(false);
const solveUnitLower = withRule(true);

function withRule(unit: boolean): (a: Tensor, b: Tensor) => Tensor {
  return libraryVjp((a: Tensor, b: Tensor) => substitute(a, b, unit), {
    forward: (a, b) => {
      const x = substitute(a, b, unit);
      return [x, [a, x] as const];
    },
    backward: ([a, x], ct) => {
      const back = solveTriangle(transposed(a), ct, false, unit);
      return [ops.neg(lower(times(back, transposed(x)), unit ? -1 : 0)), back];
    },
  });
}

/** Forward substitution: row by row inside of blocks, products between them. */
function substitute(a: Tensor, b: Tensor, unit: boolean): Tensor {
  const n = at(a.shape, 1);
  const solved: Tensor[] = [];
  for (const [start, stop] of blocksOf(n)) {
    const right = ops.sliceDim(b, 1, start, stop);
    const rest =
      solved.length === 0
        ? right
        : ops.sub(right, times(part(a, start, stop, 0, start), ops.concatenate(solved, 1)));
    solved.push(substituteRows(part(a, start, stop, start, stop), rest, unit));
  }
  return solved.length === 0 ? b : ops.concatenate(solved, 1);
}

function substituteRows(a: Tensor, b: Tensor, unit: boolean): Tensor {
  const n = at(a.shape, 1);
  const rows = (x: Tensor) => ops.transpose(x, [1, 0, 2]);
  const pivots = ops.transpose(unit ? ops.ones(diagonals(a).type) : diagonals(a), [1, 0]);
  const solveRow = (
    x: Tensor,
    [coefficients, right, pivot, index]: readonly [Tensor, Tensor, Tensor, Tensor],
  ): [Tensor, null] => {
    const known = ops.dotGeneral(coefficients, x, {
      lhsBatch: [0],
      rhsBatch: [0],
      lhsContract: [1],
      rhsContract: [1],
    });
    const row = ops.div(ops.sub(right, known), ops.broadcastInDim(pivot, right.shape, [0]));
    return [putRow(x, row, index), null];
  };
  const inputs = [rows(lower(a, -1)), rows(b), pivots, ops.iota("int32", [n], 0)] as const;
  return scan(solveRow, ops.zeros(b.type), inputs)[0];
}
