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
 * Matrices whose rows are added have this many parts, which threads share; each reads a contiguous piece of memory. The
 * number is the same for any number of threads, and so are the sums.
 */
const PARTS = 16;

/** Minimum number of elements of such a part. */
const LEAST_PART = 2 ** 12;

/**
 * The product of a row and a matrix as elementwise products and their sums. Such a product is as fast as the memory
 * delivers the matrix: a kernel reads it once, in its own type and in the order in which it lies, where a matrix product
 * would first copy it in another order.
 */
export function rowProduct(r: Rewriter, x: Atom, y: Atom, p: OpParams["dotGeneral"], out: Var): void {
  const isLeft = rowOf(x, y, p) === 0;
  const [row, turned] = isLeft ? [x, y] : [y, x];
  const { matrix, permutation } = inMemoryOrder(r, turned);
  const dimsOf = (dims: readonly number[]) => dims.map((d) => at(permutation, d));
  const [rowDims, matrixDims] = [
    [p.lhsBatch, p.lhsContract],
    [p.rhsBatch, p.rhsContract],
  ].map((lists) => lists.flat()) as [number[], number[]];
  const [own, others] = isLeft ? [rowDims, dimsOf(matrixDims)] : [matrixDims, dimsOf(rowDims)];
  const numBatch = p.lhsBatch.length;
  const [batch, contract] = [others.slice(0, numBatch), others.slice(numBatch)];
  // The row in the order in which its dims are in the matrix.
  const pairs = own.map((d, i) => [d, at(others, i)] as const).sort(([, a], [, b]) => a - b);
  const rest = range(row.type.shape.length).filter((d) => !own.includes(d));
  const ordered = r.transpose(row, [...rest, ...pairs.map(([d]) => d)]);
  const dims = pairs.map(([, d]) => d);
  const { shape } = matrix.type;
  const flat = r.reshape(
    ordered,
    dims.map((d) => at(shape, d)),
  );
  const kept = range(shape.length).filter((d) => !contract.includes(d));
  const isOfRows = numBatch === 0 && contract.every((d) => d < contract.length);
  const sums = isOfRows
    ? sumOfRows(r, flat, matrix, contract.length)
    : sumOfProducts(r, flat, matrix, dims, contract);
  const free = range(shape.length)
    .map((d) => at(permutation, d))
    .filter((d) => !others.includes(d));
  const inOrder = r.transpose(
    sums,
    [...batch, ...free].map((d) => kept.indexOf(d)),
  );
  r.emit("reshape", [inOrder], [out], { shape: out.type.shape });
}

/** A matrix as it lies in memory, and the dim of it that each dim of a value, perhaps a transpose of it, is. */
function inMemoryOrder(
  r: Rewriter,
  value: Atom,
): { readonly matrix: Atom; readonly permutation: readonly number[] } {
  const eqn = r.definitionOf(value);
  if (eqn?.op === "transpose") {
    const inner = inMemoryOrder(r, at(eqn.ins, 0));
    return { ...inner, permutation: eqn.params.permutation.map((d) => at(inner.permutation, d)) };
  }
  if (eqn?.op === "convert") {
    const inner = inMemoryOrder(r, at(eqn.ins, 0));
    const isTurned = inner.matrix !== at(eqn.ins, 0);
    return isTurned
      ? { ...inner, matrix: r.convert(inner.matrix, eqn.params.dtype) }
      : { ...inner, matrix: value };
  }
  return { matrix: value, permutation: range(value.type.shape.length) };
}

/** The sums over some dims of the products of a matrix and a row, which lies along its `dims`. */
function sumOfProducts(
  r: Rewriter,
  row: Atom,
  matrix: Atom,
  dims: readonly number[],
  contract: readonly number[],
): Var {
  const { shape } = matrix.type;
  const spread = r.make("broadcastInDim", [row], tensorType("float32", shape), { shape, dims });
  const products = r.make("mul", [spread, matrix], tensorType("float32", shape), {});
  const kept = shape.filter((_, d) => !contract.includes(d));
  return r.make("reduceSum", [products], tensorType("float32", kept), { dims: contract });
}

/** The sum of the rows of a matrix, each times an element of a row; rows are its first `numDims` dims. */
function sumOfRows(r: Rewriter, row: Atom, matrix: Atom, numDims: number): Var {
  const length = sizeOf(row.type.shape);
  const rest = matrix.type.shape.slice(numDims);
  const dims = range(numDims);
  if (length % PARTS !== 0 || sizeOf(matrix.type.shape) < PARTS * LEAST_PART) {
    return sumOfProducts(r, row, matrix, dims, dims);
  }
  const parts = [PARTS, length / PARTS];
  const sums = sumOfProducts(r, r.reshape(row, parts), r.reshape(matrix, [...parts, ...rest]), [0, 1], [1]);
  const pieces = range(PARTS).map((i) => {
    const ends = { starts: [i, ...rest.map(() => 0)], limits: [i + 1, ...rest] };
    const params = { ...ends, strides: [1, ...rest.map(() => 1)] };
    return r.reshape(r.make("slice", [sums], tensorType("float32", [1, ...rest]), params), rest);
  });
  const type = tensorType("float32", rest);
  return pieces.reduce((sum, piece) => r.make("add", [sum, piece], type, {}));
}
