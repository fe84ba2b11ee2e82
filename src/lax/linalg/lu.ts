/** The LU decomposition with partial pivoting. */
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import {
  blocksOf,
  checkMatrices,
  flatBatch,
  identities,
  join,
  likeBatch,
  lower,
  part,
  positionsIn,
  takeRows,
  times,
  transposed,
  upper,
} from "./matrixOperands.js";
import { solveTriangle } from "./triangular.js";

/** Both triangles in one matrix, the rows that were exchanged in turn, and the order they end up in. */
export type LuFactors = readonly [lu: Tensor, pivots: Tensor, permutation: Tensor];

/**
 * The decomposition `x[permutation] = L U`: below the diagonal of the first result stands L, whose diagonal is ones,
 * and from the diagonal on U. In step i row i was exchanged with row `pivots[i]`.
 *
 * @example
 * ```ts
 * lax.linalg.lu(np.array([[1, 2], [4, 2]]))[0]; // [[4, 2], [0.25, 1.5]]
 * ```
 */
export function lu(x: Tensor): LuFactors {
  checkMatrices(x, "lax.linalg.lu", "floats or complex numbers");
  const [both, pivots, order] = decompose(flatBatch(x));
  return [likeBatch(both, x), likeBatch(pivots, x), likeBatch(order, x)];
}

/** The two triangles of a decomposition: [batch, m, k] and [batch, k, n]. */
export function luTriangles(both: Tensor): [l: Tensor, u: Tensor] {
  const [, m = 0, n = 0] = both.shape;
  const k = Math.min(m, n);
  const l = ops.add(lower(ops.sliceDim(both, 2, 0, k), -1), identities(both, m, k));
  return [l, upper(ops.sliceDim(both, 1, 0, k))];
}

/** {@link lu} of [batch, m, n]. */
export const decompose = libraryVjp(factor, {
  forward: (a) => {
    const factors = factor(a);
    return [factors, factors];
  },
  backward: ([both, , order], [ct]) => {
    const [, m = 0, n = 0] = both.shape;
    const [l, u] = luTriangles(both);
    // Completed to squares by ones on the diagonal, both have inverses.
    const square = (x: Tensor, size: number) => {
      const [, rows = 0, columns = 0] = x.shape;
      const padded = ops.pad(x, Tensor.scalar(0, x.dtype), {
        low: [0, 0, 0],
        high: [0, size - rows, size - columns],
        interior: [0, 0, 0],
      });
      const [i, j] = positionsIn(padded);
      const isNew = ops.and(ops.compare("eq", i, j), ops.compare("ge", i, Math.min(rows, columns)));
      return ops.select(isNew, ops.ones(padded.type), padded);
    };
    const [left, right] = [square(l, m), square(u, n)];
    const inner = ops.add(lower(times(transposed(left), ct), -1), upper(times(ct, transposed(right))));
    const solved = solveTriangle(transposed(left), inner, false, true);
    const both2 = transposed(solveTriangle(right, transposed(solved), false));
    const back = ops.scatter(ops.zeros(both2.type), order, both2, { dim: 1, batchDims: 1, combine: "set" });
    return [back];
  },
});

/** Columns one by one inside of blocks; between them a triangle is solved and a product subtracted. */
function factor(a: Tensor): LuFactors {
  const [batch = 0, m = 0, n = 0] = a.shape;
  const k = Math.min(m, n);
  let rest = a;
  let order = ops.iota("int32", [batch, m], 1);
  const pivots: Tensor[] = [];
  for (const [start, stop] of blocksOf(k)) {
    const panel = factorColumns(part(rest, start, m, start, stop));
    const turn = (x: Tensor) =>
      join([ops.sliceDim(x, 1, 0, start), takeRows(ops.sliceDim(x, 1, start, m), panel.order)], 1);
    order = turn(order);
    pivots.push(ops.add(panel.pivots, start));
    rest = turn(rest);
    const right = stop < n ? besidePanel(rest, panel.columns, start, stop) : part(rest, start, m, n, n);
    const rows = join([part(rest, start, m, 0, start), panel.columns, right], 2);
    rest = join([ops.sliceDim(rest, 1, 0, start), rows], 1);
  }
  const none = ops.iota("int32", [batch, 0], 1);
  return [rest, pivots.length === 0 ? none : ops.concatenate(pivots, 1), order];
}

/** Updates the columns to the right of a panel. */
function besidePanel(rest: Tensor, panel: Tensor, start: number, stop: number): Tensor {
  const [, m = 0, n = 0] = rest.shape;
  const width = stop - start;
  const across = solveTriangle(
    ops.sliceDim(panel, 1, 0, width),
    part(rest, start, stop, stop, n),
    true,
    true,
  );
  if (stop === m) return across;
  const below = times(ops.sliceDim(panel, 1, width, m - start), across);
  return ops.concatenate([across, ops.sub(part(rest, stop, m, stop, n), below)], 1);
}

/** The decomposition of a few columns of all remaining rows. */
function factorColumns(a: Tensor): { columns: Tensor; pivots: Tensor; order: Tensor } {
  const [batch = 0, m = 0, n = 0] = a.shape;
  const count = Math.min(m, n);
  const zero = Tensor.scalar(0, "int32");
  const eliminate = (
    [matrix, order]: readonly [Tensor, Tensor],
    index: Tensor,
  ): [readonly [Tensor, Tensor], Tensor] => {
    const place = ops.iota("int32", [batch, m], 1);
    const here = ops.broadcastInDim(index, place.shape, []);
    const column = ops.reshape(ops.dynamicSlice(matrix, [zero, zero, index], [batch, m, 1]), [batch, m]);
    const sizes = ops.abs(column);
    const size = ops.select(ops.compare("ge", place, here), sizes, ops.full([batch, m], -1, sizes.dtype));
    const pivot = ops.argmax(size, 1);
    const chosen = ops.broadcastInDim(pivot, place.shape, [0]);
    // Row `index` comes from `pivot` and the other way round.
    const source = ops.select(
      ops.compare("eq", place, here),
      chosen,
      ops.select(ops.compare("eq", place, chosen), here, place),
    );
    const turned = takeRows(matrix, source);
    const row = ops.dynamicSlice(turned, [zero, index, zero], [batch, 1, n]);
    const own = ops.dynamicSlice(turned, [zero, zero, index], [batch, m, 1]);
    const divisor = ops.dynamicSlice(row, [zero, zero, index], [batch, 1, 1]);
    const safe = ops.select(ops.compare("eq", divisor, 0), ops.ones(divisor.type), divisor);
    const ratio = ops.div(own, ops.broadcastInDim(safe, own.shape, [0, 1, 2]));
    const isBelow = ops.compare(
      "gt",
      ops.reshape(place, [batch, m, 1]),
      ops.broadcastInDim(index, own.shape, []),
    );
    const factors = ops.select(isBelow, ratio, ops.zeros(ratio.type));
    const isRight = ops.compare(
      "gt",
      ops.iota("int32", row.shape, 2),
      ops.broadcastInDim(index, row.shape, []),
    );
    const reduced = ops.sub(turned, times(factors, ops.select(isRight, row, ops.zeros(row.type))));
    const kept = ops.select(isBelow, ratio, own);
    const next = ops.dynamicUpdateSlice(reduced, kept, [zero, zero, index]);
    return [[next, ops.gather(order, source, { dim: 1, batchDims: 1 })], pivot];
  };
  const start = [a, ops.iota("int32", [batch, m], 1)] as const;
  const [[columns, order], pivots] = scan(eliminate, start, ops.iota("int32", [count], 0));
  return { columns, order, pivots: ops.transpose(pivots, [1, 0]) };
}

/** Solves `a x = b` of a decomposition of square a, or `aᵀ x = b`: [batch, n, n] and [batch, n, k]. */
export function solveWith([both, , order]: LuFactors, b: Tensor, transpose = false): Tensor {
  if (!transpose) {
    const middle = solveTriangle(both, takeRows(b, order), true, true);
    return solveTriangle(upper(both), middle, false);
  }
  const middle = solveTriangle(transposed(upper(both)), b, true);
  const turned = solveTriangle(transposed(lower(both)), middle, false, true);
  return ops.scatter(ops.zeros(turned.type), order, turned, { dim: 1, batchDims: 1, combine: "set" });
}
