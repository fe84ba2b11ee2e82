import { need } from "../ir/arguments.js";
import { dtypeKind } from "../ir/dtype.js";
import { ShapeError } from "../ir/errors.js";
import { type OptionsOf, optional, schema } from "../ir/schema.js";
import { at, sizeOf } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import { Tensor } from "../trace/tensor.js";
import { scan } from "../transforms/control/scan.js";
import { normal } from "./floats.js";
import { atOnce, checkKey, drawnShape } from "./keys.js";

const orthogonalOptions = schema({
  /** The number of columns; as many as rows by default. */
  m: optional("number"),
  /** How many matrices, as dims in front of the rows. */
  shape: optional("integers", []),
  /** The data type of the result; float32 by default. */
  dtype: optional(dtypeKind, "float32"),
});

/** Options of {@link orthogonal}. */
export interface OrthogonalOptions extends OptionsOf<typeof orthogonalOptions> {}

/**
 * Uniformly distributed orthogonal matrices. Where rows and columns differ in number, the fewer of them are
 * orthonormal.
 *
 * @param n the number of rows
 *
 * @example
 * ```ts
 * const q = random.orthogonal(random.key(0), 2);
 * np.allclose(np.matmul(q, q.T), np.eye(2), { atol: 1e-6 }); // true
 * ```
 */
export function orthogonal(key: Tensor, n: number, options?: OrthogonalOptions): Tensor {
  need("number", n, "n", "random.orthogonal");
  const { m = n, shape, dtype } = orthogonalOptions.read(options, "random.orthogonal");
  checkKey(key, "random.orthogonal");
  drawnShape([...shape, n, m], "random.orthogonal");
  if (n === 0 || m === 0) throw new ShapeError(`[random.orthogonal] a matrix of ${n} × ${m} is empty`);
  const [rows, columns] = [Math.max(n, m), Math.min(n, m)];
  return atOnce([key], (words) => {
    const drawn = normal(words, [...shape, rows, columns], { dtype });
    const wide = dtype === "float64" ? drawn : ops.convert(drawn, "float32");
    const q = orthonormalColumns(ops.reshape(wide, [sizeOf(shape), rows, columns]));
    const upright = n < m ? ops.transpose(q, [0, 2, 1]) : q;
    return ops.convert(ops.reshape(upright, [...shape, n, m]), dtype);
  });
}

/**
 * The Q of `x = QR` with a positive diagonal of R, for each matrix of a batch. The
 * components along the previous columns are subtracted from every column in turn; twice, so that the columns are
 * orthogonal to the last digits.
 */
function orthonormalColumns(x: Tensor): Tensor {
  const [batch, rows, columns] = [at(x.shape, 0), at(x.shape, 1), at(x.shape, 2)];
  const zero = Tensor.scalar(0, "int32");
  const batched = { lhsBatch: [0], rhsBatch: [0] };
  const addColumn = (q: Tensor, [column, index]: [Tensor, Tensor]): [Tensor, null] => {
    const free = (v: Tensor) => {
      const parts = ops.dotGeneral(q, v, { ...batched, lhsContract: [1], rhsContract: [1] });
      return ops.sub(v, ops.dotGeneral(q, parts, { ...batched, lhsContract: [2], rhsContract: [1] }));
    };
    const rest = free(free(column));
    const norm = ops.sqrt(ops.reduceSum(ops.mul(rest, rest), [1]));
    const unit = ops.div(rest, ops.broadcastInDim(norm, [batch, rows], [0]));
    const block = ops.reshape(unit, [batch, rows, 1]);
    return [ops.dynamicUpdateSlice(q, block, [zero, zero, index]), null];
  };
  const inputs: [Tensor, Tensor] = [ops.transpose(x, [2, 0, 1]), ops.iota("int32", [columns], 0)];
  const [q] = scan(addColumn, ops.zeros(x.type), inputs);
  return q;
}
