/**
 * The decomposition `a = z t zᵀ` of real matrices into an orthogonal matrix and one with blocks of one or two rows on its
 * diagonal, by Francis's double steps. Blocks of two have equal diagonals and stand for two conjugate eigenvalues.
 */
import { at } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { diagonals, part, positionsIn, squaredLengths, times } from "./matrixOperands.js";
import {
  afterFirst,
  keptWhere,
  overZero,
  pick,
  type Schur,
  type SchurWindow,
  spread,
  sweeps,
  underDiagonal,
  windowUpTo,
} from "./schur.js";

/** Real matrices [batch, n, n] to their blocks. */
export function realSchur(a: Tensor): Schur {
  const [h, z] = sweeps(a, windowOf, doubleStep);
  return at(a.shape, 1) < 2 ? [h, z] : standardized([h, z]);
}

/** The window up to the lowest block of three rows or more. */
function windowOf(h: Tensor): SchurWindow {
  const [under, least] = underDiagonal(h);
  const isJoined = afterFirst(ops.compare("gt", under, least));
  // A row that is joined with the one before, which is joined with another one, ends a block of three.
  const isThird = ops.and(isJoined, afterFirst(ops.sliceDim(isJoined, 1, 0, at(h.shape, 1) - 1)));
  return windowUpTo(isThird, isJoined, h);
}

/** The sum and the product of the two shifts: the eigenvalues of the last two rows, at times others, to break cycles. */
function shiftsFor(h: Tensor, high: Tensor, quiet: Tensor): [sum: Tensor, product: Tensor] {
  const of = (row: Tensor, column: Tensor) => pick(h, row, column);
  const [before, first] = [ops.sub(high, 1), ops.sub(high, 2)];
  const [a, b, c, d] = [of(before, before), of(before, high), of(high, before), of(high, high)];
  const size = ops.add(ops.abs(c), ops.abs(of(before, first)));
  const isStuck = ops.compare("eq", ops.rem(quiet, ops.full(quiet.shape, 10, "int32")), 9);
  return [
    ops.select(isStuck, ops.mul(size, 1.5), ops.add(a, d)),
    ops.select(isStuck, ops.mul(size, size), ops.sub(ops.mul(a, d), ops.mul(b, c))),
  ];
}

/** The first column of `h² − sum · h + product` of the blocks: three elements [batch, 3]. */
function firstColumn(h: Tensor, low: Tensor, sum: Tensor, product: Tensor): Tensor {
  const of = (row: Tensor, column: Tensor) => pick(h, row, column);
  const [second, third] = [ops.add(low, 1), ops.add(low, 2)];
  const [a, b, c, d] = [of(low, low), of(low, second), of(second, low), of(second, second)];
  const top = ops.add(ops.add(ops.mul(a, ops.sub(a, sum)), ops.mul(b, c)), product);
  const column = [top, ops.mul(c, ops.sub(ops.add(a, d), sum)), ops.mul(c, of(third, second))];
  return ops.concatenate(
    column.map((x) => ops.reshape(x, [...x.shape, 1])),
    1,
  );
}

/** Two QR steps with conjugate shifts, in real numbers: a bulge of three rows moves from `low` down to `high`. */
function doubleStep([matrix, orthogonal]: Schur, low: Tensor, high: Tensor, quiet: Tensor): Schur {
  const [batch = 0, n = 0] = matrix.shape;
  const zero = Tensor.scalar(0, "int32");
  const start = firstColumn(matrix, low, ...shiftsFor(matrix, high, quiet));
  // One more row and column, so that three can be taken at the last ones.
  const padded = (x: Tensor, rows: number) =>
    ops.pad(x, Tensor.scalar(0, x.dtype), { low: [0, 0, 0], high: [0, rows, 1], interior: [0, 0, 0] });
  const reflect = ([h, z]: Schur, index: Tensor): [Schur, null] => {
    const k = ops.broadcastInDim(index, [batch], []);
    const rows = ops.dynamicSlice(h, [zero, index, zero], [batch, 3, n + 1]);
    const isBefore = ops.compare("eq", ops.iota("int32", rows.shape, 2), spread(ops.sub(k, 1), rows));
    const column = ops.reduceSum(keptWhere(isBefore, rows), [2]);
    const isFirst = spread(ops.compare("eq", k, low), column);
    const place = ops.add(ops.iota("int32", column.shape, 1), spread(k, column));
    const isInside = ops.and(
      ops.compare("le", place, spread(high, column)),
      spread(ops.and(ops.compare("ge", k, low), ops.compare("lt", k, high)), column),
    );
    const x = keptWhere(isInside, ops.select(isFirst, start, column));
    const head = ops.reshape(ops.sliceDim(x, 1, 0, 1), [batch]);
    const length = ops.sqrt(squaredLengths(x));
    const longer = ops.select(ops.compare("lt", head, 0), ops.neg(length), length);
    const isHead = ops.compare("eq", ops.iota("int32", x.shape, 1), 0);
    const normal = ops.add(x, keptWhere(isHead, spread(longer, x)));
    const unit = overZero(normal, spread(ops.sqrt(squaredLengths(normal)), normal));
    const side = ops.reshape(unit, [batch, 3, 1]);
    const across = ops.reshape(unit, [batch, 1, 3]);
    const left = ops.sub(rows, ops.mul(times(side, times(across, rows)), 2));
    const right = (m: Tensor) => {
      const three = ops.dynamicSlice(m, [zero, zero, index], [batch, at(m.shape, 1), 3]);
      const mirrored = ops.sub(three, ops.mul(times(times(three, side), across), 2));
      return ops.dynamicUpdateSlice(m, mirrored, [zero, zero, index]);
    };
    return [[right(ops.dynamicUpdateSlice(h, left, [zero, index, zero])), right(z)], null];
  };
  const [[h, z]] = scan(
    reflect,
    [padded(matrix, 1), padded(orthogonal, 0)] as const,
    ops.iota("int32", [n - 1], 0),
  );
  return [part(h, 0, n, 0, n), part(z, 0, n, 0, n)];
}

/** Turns blocks of two rows: to a triangle if their eigenvalues are real, else to equal diagonals. */
function standardized(start: Schur): Schur {
  const [batch = 0, n = 0] = start[0].shape;
  const zero = Tensor.scalar(0, "int32");
  const turn = ([h, z]: Schur, index: Tensor): [Schur, null] => {
    const next = ops.add(index, 1);
    const one = (row: Tensor, column: Tensor) =>
      ops.reshape(ops.dynamicSlice(h, [zero, row, column], [batch, 1, 1]), [batch]);
    const [a, b, c, d] = [one(index, index), one(index, next), one(next, index), one(next, next)];
    const half = ops.mul(ops.sub(a, d), 0.5);
    const square = ops.add(ops.mul(half, half), ops.mul(b, c));
    const isReal = ops.compare("ge", square, 0);
    const signed = (size: Tensor, sign: Tensor) =>
      ops.select(ops.compare("lt", sign, 0), ops.neg(size), size);
    const root = ops.add(half, signed(ops.sqrt(keptWhere(isReal, square)), half));
    const length = ops.sqrt(ops.add(ops.mul(c, c), ops.mul(root, root)));
    const sum = ops.add(b, c);
    const width = ops.sqrt(ops.add(ops.mul(sum, sum), ops.mul(ops.mul(half, half), 4)));
    const share = overZero(ops.abs(sum), width);
    const cosine = ops.sqrt(ops.mul(ops.add(share, 1), 0.5));
    const sine = ops.neg(signed(overZero(half, ops.mul(width, cosine)), sum));
    const isBlock = ops.compare("ne", c, 0);
    const isTurned = ops.and(isBlock, ops.compare("ne", ops.select(isReal, length, width), 0));
    const cos = ops.select(isTurned, ops.select(isReal, overZero(root, length), cosine), ops.ones(c.type));
    const sin = keptWhere(isTurned, ops.select(isReal, overZero(c, length), sine));
    const [across, back] = [rotation(cos, sin), rotation(cos, ops.neg(sin))];
    const rows = times(across, ops.dynamicSlice(h, [zero, index, zero], [batch, 2, n]));
    const columns = (m: Tensor) => {
      const two = ops.dynamicSlice(m, [zero, zero, index], [batch, n, 2]);
      return ops.dynamicUpdateSlice(m, times(two, back), [zero, zero, index]);
    };
    const turned = columns(ops.dynamicUpdateSlice(h, rows, [zero, index, zero]));
    return [
      [exactly(turned, index, ops.and(isBlock, isReal), ops.and(isBlock, ops.not(isReal))), columns(z)],
      null,
    ];
  };
  return scan(turn, start, ops.iota("int32", [n - 1], 0))[0];
}

/** The rotations [batch, 2, 2] of cosines and sines. */
function rotation(cos: Tensor, sin: Tensor): Tensor {
  const flat = [cos, sin, ops.neg(sin), cos].map((x) => ops.reshape(x, [...x.shape, 1]));
  return ops.reshape(ops.concatenate(flat, 1), [at(cos.shape, 0), 2, 2]);
}

/** Blocks at a row without what roundings left of a triangle, and with diagonals that are equal to the last digit. */
function exactly(h: Tensor, index: Tensor, isTriangle: Tensor, isPair: Tensor): Tensor {
  const batch = at(h.shape, 0);
  const zero = Tensor.scalar(0, "int32");
  const block = ops.dynamicSlice(h, [zero, index, index], [batch, 2, 2]);
  const [rows, columns] = positionsIn(block);
  const isUnder = ops.compare("gt", rows, columns);
  const mean = ops.mul(ops.reduceSum(diagonals(block), [1]), 0.5);
  const isDiagonal = ops.compare("eq", rows, columns);
  const evened = ops.select(ops.and(isDiagonal, spread(isPair, block)), spread(mean, block), block);
  const cleared = keptWhere(ops.not(ops.and(isUnder, spread(isTriangle, block))), evened);
  return ops.dynamicUpdateSlice(h, cleared, [zero, index, index]);
}
