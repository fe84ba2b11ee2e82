import type { OpParams } from "../../ir/ops.js";
import type { Atom, Var } from "../../ir/program.js";
import { at, range, sizeOf, tensorType } from "../../ir/shape.js";
import type { Rewriter } from "./rewriter.js";

/** Matrices of fewer elements are multiplied by rows like others. */
const LEAST_ELEMENTS = 2 ** 14;

/** Maximum number of terms, which a kernel may add one after the other. */
const LONGEST = 2 ** 16;

/** Which operand is a single row that the other, a large matrix, is multiplied by; undefined if there is none. */
function rowOf(x: Atom, y: Atom, p: OpParams["dotGeneral"]): 0 | 1 | undefined {
  const count = (dims: readonly number[]) => sizeOf(dims.map((d) => at(x.type.shape, d)));
  const [length, batch] = [count(p.lhsContract), count(p.lhsBatch)];
  const [left, right] = [x, y].map(({ type }) => sizeOf(type.shape));
  if (length === 1 || length > LONGEST) return undefined;
  if (left === batch * length && (right ?? 0) >= LEAST_ELEMENTS) return 0;
  return right === batch * length && (left ?? 0) >= LEAST_ELEMENTS ? 1 : undefined;
}

/** Whether a product has one row or one column, as that of a model that writes a text. */
export function isRowProduct(x: Atom, y: Atom, params: OpParams["dotGeneral"]): boolean {
  return rowOf(x, y, params) !== undefined;
}

/**
 * The product of a row and a matrix as elementwise products and their sums. Such a product is as fast as the memory
 * delivers the matrix: a kernel reads it once, in its own type, where a matrix product would first copy it in another
 * order.
 */
export function rowProduct(r: Rewriter, x: Atom, y: Atom, p: OpParams["dotGeneral"], out: Var): void {
  const isLeft = rowOf(x, y, p) === 0;
  const [row, matrix] = isLeft ? [x, y] : [y, x];
  const pairs = [p.lhsBatch, p.lhsContract].flat().map((d, i) => {
    const other = at([p.rhsBatch, p.rhsContract].flat(), i);
    return isLeft ? ([d, other] as const) : ([other, d] as const);
  });
  // The row in the order in which its dims are in the matrix.
  const ordered = [...pairs].sort(([, a], [, b]) => a - b);
  const rest = range(row.type.shape.length).filter((d) => !pairs.some(([own]) => own === d));
  const turned = r.transpose(row, [...rest, ...ordered.map(([own]) => own)]);
  const dims = ordered.map(([, d]) => d);
  const { shape } = matrix.type;
  const flat = r.reshape(
    turned,
    dims.map((d) => at(shape, d)),
  );
  const spread = r.make("broadcastInDim", [flat], tensorType("float32", shape), { shape, dims });
  const products = r.make("mul", [spread, matrix], tensorType("float32", shape), {});
  const [batch, contract] = isLeft ? [p.rhsBatch, p.rhsContract] : [p.lhsBatch, p.lhsContract];
  const kept = range(shape.length).filter((d) => !contract.includes(d));
  const type = tensorType(
    "float32",
    kept.map((d) => at(shape, d)),
  );
  const sums = r.make("reduceSum", [products], type, { dims: contract });
  const free = kept.filter((d) => !batch.includes(d));
  const inOrder = r.transpose(
    sums,
    [...batch, ...free].map((d) => kept.indexOf(d)),
  );
  r.emit("reshape", [inOrder], [out], { shape: out.type.shape });
}
