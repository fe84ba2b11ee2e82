/** Eigenvalues and eigenvectors of matrices that need not be symmetric. */
import { limits } from "../../ir/dtype.js";
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjp } from "../../transforms/derivatives/grad.js";
import { decompose, solveWith } from "./lu.js";
import {
  checkSquare,
  conjugates,
  diagonals,
  flatBatch,
  identities,
  likeBatch,
  positionsIn,
  putRow,
  scaleColumns,
  squaredLengths,
  times,
  transposed,
  upper,
} from "./matrixOperands.js";
import { type Schur, schur } from "./schur.js";

/** Eigenvalues [batch, n], and eigenvectors as columns. */
export type Eigenpairs = readonly [values: Tensor, vectors: Tensor];

/**
 * The eigenvalues of square matrices and their eigenvectors as columns, all complex. Vectors have length 1 and a positive
 * largest element. Derivatives are those of matrices whose eigenvalues differ.
 *
 * @example
 * ```ts
 * np.real(lax.linalg.eig(np.array([[2, 1], [0, 3]]))[0]); // [2, 3]
 * ```
 */
export function eig(x: Tensor): Eigenpairs {
  checkSquare(x, "lax.linalg.eig", "floats or complex numbers");
  const [values, vectors] = pairs(wide(x));
  const isReal = areReal(values, x);
  const ofColumns = isReal && ops.broadcastInDim(isReal, vectors.shape, [0, 2]);
  return [narrow(values, isReal, x), narrow(vectors, ofColumns, x)];
}

/**
 * The eigenvalues of square matrices.
 *
 * @example
 * ```ts
 * np.imag(lax.linalg.eigenvalues(np.array([[0, 2], [-2, 0]]))); // [2, -2]
 * ```
 */
export function eigenvalues(x: Tensor): Tensor {
  checkSquare(x, "lax.linalg.eigenvalues", "floats or complex numbers");
  const values = valuesAlone(wide(x));
  return narrow(values, areReal(values, x), x);
}

/** Eigenvalues react to roundings more than anything else, so that they are found in complex128 whatever x is. */
function wide(x: Tensor): Tensor {
  return ops.convert(flatBatch(x), "complex128");
}

/** Which eigenvalues [batch, n] of real matrices are real but for roundings; nothing is said of complex ones. */
function areReal(values: Tensor, x: Tensor): Tensor | undefined {
  if (x.parts || !values.parts) return undefined;
  const largest = ops.reduceMax(ops.abs(values), [1]);
  const bound = ops.mul(largest, 64 * Math.max(1, at(values.shape, 1)) * limits(values.dtype).epsilon);
  return ops.compare("le", ops.abs(values.parts[1]), ops.broadcastInDim(bound, values.shape, [0]));
}

/** Results in the type that goes with an operand's, without imaginary parts where there are none. */
function narrow(result: Tensor, isReal: Tensor | undefined, x: Tensor): Tensor {
  const [real, imag] = result.parts ?? [result, result];
  const cleared = isReal ? ops.select(isReal, ops.zeros(imag.type), imag) : imag;
  const isDouble = x.dtype === "float64" || x.dtype === "complex128";
  const own = isDouble ? "complex128" : "complex64";
  return likeBatch(ops.convert(Tensor.complex(real, cleared), own), x);
}

const pairs = libraryVjp(pairsOf, {
  forward: (a) => {
    const found = pairsOf(a);
    return [found, found];
  },
  backward: (found, ct) => {
    const change = (tangent: Tensor): Eigenpairs => {
      const [values, moved] = changes(found, tangent);
      return [values, changeOfVectors(found, moved)];
    };
    return vjp(change, [ops.zeros(found[1].type)])[1](ct);
  },
});

const valuesAlone = libraryVjp((a: Tensor) => diagonals(at(a.shape, 1) === 0 ? a : schur(a)[0]), {
  forward: (a) => {
    const found = pairsOf(a);
    return [found[0], found];
  },
  backward: (found, ct) => {
    const change = (tangent: Tensor) => changes(found, tangent)[0];
    return vjp(change, [ops.zeros(found[1].type)])[1](ct);
  },
});

function pairsOf(a: Tensor): Eigenpairs {
  if (at(a.shape, 1) === 0) return [diagonals(a), a];
  const found = schur(a);
  return [diagonals(found[0]), vectorsOf(found)];
}

/** How eigenvalues change with their matrix, and the change of the matrix as the eigenvectors see it. */
function changes([, vectors]: Eigenpairs, change: Tensor): [values: Tensor, moved: Tensor] {
  const moved = times(solveWith(decompose(vectors), change), vectors);
  return [diagonals(moved), moved];
}

/** How eigenvectors change that keep their length, and the largest element of each its angle. */
function changeOfVectors([values, vectors]: Eigenpairs, moved: Tensor): Tensor {
  const shape = vectors.shape;
  const gaps = ops.sub(ops.broadcastInDim(values, shape, [0, 2]), ops.broadcastInDim(values, shape, [0, 1]));
  const [rows, columns] = positionsIn(vectors);
  const isDiagonal = ops.compare("eq", rows, columns);
  const ratios = ops.div(moved, ops.select(isDiagonal, ops.ones(gaps.type), gaps));
  const free = times(vectors, ops.select(isDiagonal, ops.zeros(ratios.type), ratios));
  const along = ops.reduceSum(ops.mul(conjugates(vectors), free), [1]);
  const turns = ops.div(atLargest(free, vectors), atLargest(vectors, vectors));
  const [growth, angle] = [along.parts?.[0] ?? along, turns.parts?.[1] ?? turns];
  const back = Tensor.complex(ops.neg(growth), ops.neg(angle));
  return ops.add(free, scaleColumns(vectors, back));
}

/** The elements [batch, n] of x where those of each column of `like` are largest. */
function atLargest(x: Tensor, like: Tensor): Tensor {
  const largest = ops.argmax(ops.abs(like), 1);
  const rows = ops.iota("int32", like.shape, 1);
  const isHere = ops.compare("eq", rows, ops.broadcastInDim(largest, like.shape, [0, 2]));
  return ops.reduceSum(ops.select(isHere, x, ops.zeros(x.type)), [1]);
}

/** Back substitution for all eigenvalues at once, from the last row of the triangle up. */
function vectorsOf([triangle, unitary]: Schur): Tensor {
  const [batch = 0, n = 0] = triangle.shape;
  const values = diagonals(triangle);
  const size = ops.sqrt(ops.reduceSum(squaredLengths(triangle), [1]));
  const { epsilon } = limits(triangle.dtype);
  const smallest = ops.broadcastInDim(
    ops.max(ops.mul(size, epsilon), Number.MIN_VALUE * 2 ** 100),
    [batch, n],
    [0],
  );
  const step = (
    known: Tensor,
    [row, value, unit, index]: readonly [Tensor, Tensor, Tensor, Tensor],
  ): [Tensor, null] => {
    const sums = ops.reshape(times(ops.reshape(row, [batch, 1, n]), known), [batch, n]);
    const gap = ops.sub(values, ops.broadcastInDim(value, [batch, n], [0]));
    // Equal eigenvalues have gaps as small as roundings, and so nearly equal vectors.
    const isEqual = ops.compare("lt", ops.abs(gap), smallest);
    const safe = ops.select(isEqual, ops.convert(smallest, gap.dtype), gap);
    const place = ops.iota("int32", [batch, n], 1);
    const isRight = ops.compare("gt", place, ops.broadcastInDim(index, [batch, n], []));
    const solved = ops.select(isRight, ops.div(sums, safe), unit);
    return [putRow(known, solved, index), null];
  };
  const rows = (x: Tensor) => ops.transpose(x, [1, 0, 2]);
  const inputs = [
    rows(upper(triangle, 1)),
    ops.transpose(values, [1, 0]),
    rows(identities(triangle, n, n)),
    ops.iota("int32", [n], 0),
  ] as const;
  const [inner] = scan(step, ops.zeros(triangle.type), inputs, { reverse: true });
  return normalized(times(unitary, inner));
}

/** Columns of length 1, whose largest element is positive. */
function normalized(columns: Tensor): Tensor {
  const length = ops.sqrt(squaredLengths(transposed(columns)));
  const largest = atLargest(columns, columns);
  const turn = ops.div(conjugates(largest), ops.convert(ops.mul(ops.abs(largest), length), largest.dtype));
  return scaleColumns(columns, turn);
}
