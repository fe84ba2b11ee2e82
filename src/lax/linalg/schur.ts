/** The decomposition `a = z t zᴴ` of complex matrices into a unitary matrix and an upper triangle. */
import { limits } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import {
  adjoint,
  conjugates,
  diagonals,
  identities,
  part,
  positionsIn,
  squaredLengths,
  times,
  upper,
} from "./matrixOperands.js";

/** The triangle and the unitary matrix. */
export type Schur = readonly [triangle: Tensor, unitary: Tensor];

/** Maximum number of sweeps per row; two or three are needed. */
const maxSweeps = 40;

const complexOf = (x: Tensor, like: Tensor) => ops.convert(x, like.dtype);
/** Values of the first dims, the same along the others of another tensor. */
export const spread = (x: Tensor, like: Tensor) => ops.broadcastInDim(x, like.shape, range(x.ndim));
/** Zeros where a condition does not hold. */
export const keptWhere = (condition: Tensor, x: Tensor) => ops.select(condition, x, ops.zeros(x.type));

/** x / size where that is not 0, else `otherwise`. */
function overSize(x: Tensor, size: Tensor, otherwise: number): Tensor {
  const isZero = ops.compare("eq", size, 0);
  const safe = complexOf(ops.select(isZero, ops.ones(size.type), size), x);
  return ops.select(isZero, ops.full(x.shape, otherwise, x.dtype), ops.div(x, safe));
}

/** Complex matrices [batch, n, n] to their triangles, by shifted QR sweeps on what reflections leave of them. */
export function schur(a: Tensor): Schur {
  const windowOf = (h: Tensor) => {
    const [under, least] = underDiagonal(h);
    const isJoined = afterFirst(ops.not(ops.compare("le", under, least)));
    return windowUpTo(isJoined, isJoined, h);
  };
  const step: Sweep = (state, low, high, quiet) =>
    sweepThrough(state, low, high, shiftFor(state[0], high, quiet));
  const [triangle, unitary] = sweeps(a, windowOf, step);
  return [upper(triangle), unitary];
}

/** A sweep through the windows from `low` to `high`; `quiet` counts the sweeps since `high` has changed. */
export type Sweep = (state: Schur, low: Tensor, high: Tensor, quiet: Tensor) => Schur;

/** Sweeps through what reflections leave of matrices [batch, n, n] until no window is left. */
export function sweeps(a: Tensor, windowOf: (h: Tensor) => SchurWindow, step: Sweep): Schur {
  const n = at(a.shape, 1);
  const start = hessenberg(a);
  if (n < 2) return start;
  const first = windowOf(start[0]);
  type State = readonly [h: Tensor, z: Tensor, low: Tensor, high: Tensor, quiet: Tensor, sweep: Tensor];
  const [h, z] = whileLoop<State>(
    ([, , , high, , sweep]) =>
      ops.and(ops.compare("gt", ops.reduceMax(high, [0]), 0), ops.compare("lt", sweep, maxSweeps * n)),
    ([matrix, unitary, low, high, quiet, sweep]) => {
      const [turned, nextZ] = step([matrix, unitary], low, high, quiet);
      const next = windowOf(upper(turned, -1));
      const waited = keptWhere(ops.compare("eq", next.high, high), ops.add(quiet, 1));
      return [next.matrix, nextZ, next.low, next.high, waited, ops.add(sweep, 1)];
    },
    [first.matrix, start[1], first.low, first.high, ops.zeros(first.high.type), Tensor.scalar(0, "int32")],
  );
  return [h, z];
}

/**
 * The decomposition `a = z h zᴴ` of matrices [batch, n, n] where h has nothing below the first diagonal under the main one,
 * by reflections whose signs and angles are LAPACK's: elements on that diagonal are real.
 */
export function hessenberg(a: Tensor): Schur {
  const [batch = 0, n = 0] = a.shape;
  const unitary = identities(a, n, n);
  // The last reflection of complex matrices turns a single element.
  const count = a.parts ? n - 1 : n - 2;
  if (count < 1) return [a, unitary];
  const zero = Tensor.scalar(0, "int32");
  const reflect = ([h, z]: Schur, k: Tensor): [Schur, null] => {
    const place = ops.iota("int32", [batch, n], 1);
    const below = ops.broadcastInDim(ops.add(k, 1), place.shape, []);
    const column = ops.reshape(ops.dynamicSlice(h, [zero, zero, k], [batch, n, 1]), [batch, n]);
    const kept = (direction: "ge" | "gt" | "eq", x: Tensor) =>
      ops.select(ops.compare(direction, place, below), x, ops.zeros(x.type));
    const pivot = ops.reduceSum(kept("eq", column), [1]);
    const [real, imag] = pivot.parts ?? [pivot];
    const length = ops.sqrt(squaredLengths(kept("ge", column)));
    const target = ops.select(ops.compare("lt", real, 0), length, ops.neg(length));
    const rest = squaredLengths(kept("gt", column));
    const isDone = ops.compare("eq", imag ? ops.add(rest, ops.mul(imag, imag)) : rest, 0);
    const wide = complexOf(target, column);
    const factor = ops.select(isDone, ops.zeros(pivot.type), overSize(ops.sub(wide, pivot), target, 0));
    const divisor = ops.select(isDone, ops.ones(pivot.type), ops.sub(pivot, wide));
    const normal = ops.add(
      kept("gt", ops.div(column, spread(divisor, column))),
      kept("eq", ops.ones(column.type)),
    );
    const side = ops.reshape(normal, [batch, n, 1]);
    const across = adjoint(side);
    const scaled = (x: Tensor, by: Tensor) => ops.mul(x, spread(by, x));
    const left = ops.sub(h, scaled(times(side, times(across, h)), conjugates(factor)));
    const right = (m: Tensor) => ops.sub(m, scaled(times(times(m, side), across), factor));
    return [[right(left), right(z)], null];
  };
  const [[h, z]] = scan(reflect, [a, unitary] as const, ops.iota("int32", [count], 0));
  return [upper(h, -1), z];
}

/** What is left to do of matrices. */
export interface SchurWindow {
  /** The matrix, with zeros where elements under the diagonal count as nothing. */
  readonly matrix: Tensor;
  /** The first and the last row [batch] of the lowest part that is not done yet; both 0 if there is none. */
  readonly low: Tensor;
  readonly high: Tensor;
}

/** The sizes [batch, n − 1] of the elements under the diagonal, and how large they have to be to count. */
export function underDiagonal(h: Tensor): [size: Tensor, least: Tensor] {
  const n = at(h.shape, 1);
  const size = ops.abs(diagonals(h));
  const beside = ops.add(ops.sliceDim(size, 1, 0, n - 1), ops.sliceDim(size, 1, 1, n));
  const whole = spread(ops.sqrt(ops.reduceSum(squaredLengths(h), [1])), beside);
  const scale = ops.select(ops.compare("eq", beside, 0), whole, beside);
  return [ops.abs(diagonals(part(h, 1, n, 0, n - 1))), ops.mul(scale, limits(h.dtype).epsilon)];
}

/** What is known about all rows but the first, which has none before it. */
export function afterFirst(known: Tensor): Tensor {
  return ops.concatenate([ops.full([at(known.shape, 0), 1], false, "bool"), known], 1);
}

/**
 * The window that ends at the last row of some.
 *
 * @param isJoined whether a row [batch, n] is joined with the one before it
 */
export function windowUpTo(isEnd: Tensor, isJoined: Tensor, h: Tensor): SchurWindow {
  const row = ops.iota("int32", isJoined.shape, 1);
  const high = ops.reduceMax(keptWhere(isEnd, row), [1]);
  const isAbove = ops.compare("le", row, spread(high, row));
  const low = ops.reduceMax(keptWhere(ops.and(ops.not(isJoined), isAbove), row), [1]);
  const [rows, columns] = positionsIn(h);
  const isCleared = ops.and(ops.compare("eq", rows, ops.add(columns, 1)), ops.not(spread(isJoined, h)));
  return { matrix: keptWhere(ops.not(isCleared), h), low, high };
}

/** The elements [batch] at a row and a column of each matrix; 0 outside. */
export function pick(h: Tensor, row: Tensor, column: Tensor): Tensor {
  const [rows, columns] = positionsIn(h);
  const isHere = ops.and(
    ops.compare("eq", rows, spread(row, rows)),
    ops.compare("eq", columns, spread(column, columns)),
  );
  return ops.reduceSum(keptWhere(isHere, h), [1, 2]);
}

/** The eigenvalue of the last two rows that is nearer to the last element; at times another, to break cycles. */
function shiftFor(h: Tensor, high: Tensor, quiet: Tensor): Tensor {
  const before = ops.sub(high, 1);
  const [a, b] = [pick(h, before, before), pick(h, before, high)];
  const [c, d] = [pick(h, high, before), pick(h, high, high)];
  const half = ops.mul(ops.sub(a, d), 0.5);
  const product = ops.mul(b, c);
  const root = ops.sqrt(ops.add(ops.mul(half, half), product));
  const [plus, minus] = [ops.add(half, root), ops.sub(half, root)];
  const isLarger = ops.compare("ge", ops.abs(plus), ops.abs(minus));
  const divisor = ops.select(isLarger, plus, minus);
  const step = overZero(product, divisor);
  const isStuck = ops.compare("eq", ops.rem(quiet, ops.full(quiet.shape, 10, "int32")), 9);
  return ops.select(isStuck, ops.add(d, complexOf(ops.abs(c), d)), ops.sub(d, step));
}

/** x / y, and 0 where y is 0. */
export function overZero(x: Tensor, y: Tensor): Tensor {
  const isZero = ops.compare("eq", y, 0);
  const safe = ops.select(isZero, ops.ones(y.type), y);
  return ops.select(isZero, ops.zeros(x.type), ops.div(x, safe));
}

/** Turns rows and columns in pairs, so that the part from `low` to `high` comes nearer to a triangle. */
function sweepThrough(start: Schur, low: Tensor, high: Tensor, shift: Tensor): Schur {
  const [batch = 0, n = 0] = start[0].shape;
  const zero = Tensor.scalar(0, "int32");
  const turn = ([h, z]: Schur, index: Tensor): [Schur, null] => {
    const k = ops.broadcastInDim(index, [batch], []);
    const pair = ops.dynamicSlice(h, [zero, index, zero], [batch, 2, n]);
    const isFirst = ops.compare("eq", k, low);
    const column = ops.select(isFirst, k, ops.sub(k, 1));
    const isHere = ops.compare("eq", ops.iota("int32", pair.shape, 2), spread(column, pair));
    const both = ops.reduceSum(ops.select(isHere, pair, ops.zeros(pair.type)), [2]);
    const one = (i: number) => ops.reshape(ops.sliceDim(both, 1, i, i + 1), [batch]);
    const x = ops.sub(one(0), ops.select(isFirst, shift, ops.zeros(shift.type)));
    const y = one(1);
    const length = ops.sqrt(squaredLengths(ops.concatenate([column1(x), column1(y)], 1)));
    const isInside = ops.and(ops.compare("ge", k, low), ops.compare("lt", k, high));
    const cosine = ops.select(isInside, overSize(x, length, 1), ops.ones(x.type));
    const sine = ops.select(isInside, overSize(y, length, 0), ops.zeros(y.type));
    const [c, s, cc, sc] = [cosine, sine, conjugates(cosine), conjugates(sine)];
    const rows = times(matrix2(cc, sc, ops.neg(s), c), pair);
    const across = ops.dynamicUpdateSlice(h, rows, [zero, index, zero]);
    const back = matrix2(c, ops.neg(sc), s, cc);
    const columns = (m: Tensor) => {
      const two = ops.dynamicSlice(m, [zero, zero, index], [batch, n, 2]);
      return ops.dynamicUpdateSlice(m, times(two, back), [zero, zero, index]);
    };
    return [[columns(across), columns(z)], null];
  };
  return scan(turn, start, ops.iota("int32", [n - 1], 0))[0];
}

const column1 = (x: Tensor) => ops.reshape(x, [...x.shape, 1]);

/** The matrices [batch, 2, 2] of elements [batch]. */
function matrix2(a: Tensor, b: Tensor, c: Tensor, d: Tensor): Tensor {
  const flat = ops.concatenate([a, b, c, d].map(column1), 1);
  return ops.reshape(flat, [at(a.shape, 0), 2, 2]);
}
