/** The Cholesky decomposition. */
import { isComplex } from "../../ir/dtype.js";
import { type OptionsOf, schema } from "../../ir/schema.js";
import { at } from "../../ir/shape.js";
import { complex } from "../../trace/complexNumber.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import {
  adjoint,
  blocksOf,
  checkSquare,
  diagonals,
  flatBatch,
  join,
  likeBatch,
  lower,
  mirroredLower,
  part,
  putColumn,
  realParts,
  times,
  transposed,
} from "./matrixOperands.js";
import { solveTriangle } from "./triangular.js";

/** The schema of {@link CholeskyOptions}. */
export const choleskyOptions = schema({
  /** Whether both triangles are read, as their mean; otherwise the lower one alone. */
  symmetrizeInput: true,
});

/** Options of {@link cholesky}. */
export interface CholeskyOptions extends OptionsOf<typeof choleskyOptions> {}

/**
 * The lower triangles L with `L Lᴴ = x`; NaN for a matrix that is not positive definite.
 *
 * @example
 * ```ts
 * lax.linalg.cholesky(np.array([[4, 2], [2, 5]])); // [[2, 0], [1, 2]]
 * ```
 */
export function cholesky(x: Tensor, options?: CholeskyOptions): Tensor {
  needTensor(x, "x", "lax.linalg.cholesky");
  const { symmetrizeInput } = choleskyOptions.read(options, "lax.linalg.cholesky");
  checkSquare(x, "lax.linalg.cholesky", "floats or complex numbers");
  const flat = flatBatch(x);
  const symmetric = symmetrizeInput ? ops.mul(ops.add(flat, adjoint(flat)), 0.5) : mirroredLower(flat);
  return likeBatch(decompose(symmetric), x);
}

const decompose = libraryVjp(factor, {
  forward: (a) => {
    const l = factor(a);
    return [l, l];
  },
  backward: (l, ct) => {
    const inner = lower(times(transposed(l), ct));
    const halved = ops.mul(ops.add(inner, lower(inner, -1)), 0.5);
    const left = solveTriangle(transposed(l), halved, false);
    const both = transposed(solveTriangle(adjoint(l), transposed(left), false));
    return [ops.mul(ops.add(both, adjoint(both)), 0.5)];
  },
});

/** Column by column inside of blocks, products between them. */
function factor(a: Tensor): Tensor {
  const [batch, n] = [at(a.shape, 0), at(a.shape, 1)];
  const columns: Tensor[] = [];
  for (const [start, stop] of blocksOf(n)) {
    const own = part(a, start, n, start, stop);
    const left = columns.length === 0 ? undefined : ops.sliceDim(ops.concatenate(columns, 2), 1, start, n);
    const rest = left ? ops.sub(own, times(left, adjoint(ops.sliceDim(left, 1, 0, stop - start)))) : own;
    const triangle = factorColumns(ops.sliceDim(rest, 1, 0, stop - start));
    const below = ops.sliceDim(rest, 1, stop - start, n - start);
    const parts = [
      ops.zeros({ ...a.type, shape: [batch, start, stop - start] }),
      triangle,
      stop < n ? adjoint(solveTriangle(triangle, adjoint(below), true)) : below,
    ];
    columns.push(join(parts, 1));
  }
  const whole = columns.length === 0 ? a : ops.concatenate(columns, 2);
  const isSound = ops.reduceMin(ops.compare("gt", realParts(diagonals(whole)), 0), [1]);
  const spread = ops.broadcastInDim(isSound, whole.shape, [0]);
  const nan = isComplex(a.dtype) ? complex(Number.NaN, Number.NaN) : Number.NaN;
  const unknown = ops.broadcastInDim(Tensor.scalar(nan, a.dtype), whole.shape, []);
  return ops.select(spread, whole, lower(unknown));
}

function factorColumns(a: Tensor): Tensor {
  const n = at(a.shape, 1);
  const zero = Tensor.scalar(0, "int32");
  const addColumn = (l: Tensor, [column, index]: readonly [Tensor, Tensor]): [Tensor, null] => {
    const row = ops.dynamicSlice(l, [zero, index, zero], [at(a.shape, 0), 1, n]);
    const known = ops.reshape(times(l, adjoint(row)), column.shape);
    const rest = ops.sub(column, known);
    const at0 = ops.dynamicSlice(rest, [zero, index], [at(a.shape, 0), 1]);
    const root = ops.convert(ops.sqrt(realParts(at0)), rest.dtype);
    const scaled = ops.div(rest, ops.broadcastInDim(root, rest.shape, [0, 1]));
    const isBelow = ops.compare(
      "ge",
      ops.iota("int32", rest.shape, 1),
      ops.broadcastInDim(index, rest.shape, []),
    );
    return [putColumn(l, ops.select(isBelow, scaled, ops.zeros(scaled.type)), index), null];
  };
  const inputs = [ops.transpose(a, [2, 0, 1]), ops.iota("int32", [n], 0)] as const;
  return scan(addColumn, ops.zeros(a.type), inputs)[0];
}
