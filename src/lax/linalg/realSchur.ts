/**
 * The decomposition `a = z t zᵀ` of real matrices into an orthogonal matrix and one with blocks of one or two rows on its
 * diagonal, by Francis's double steps. Blocks of two have equal diagonals and stand for two conjugate eigenvalues.
 */
import { limits } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { scan } from "../../transforms/control/scan.js";
import { whileLoop } from "../../transforms/control/whileLoop.js";
import { diagonals, part, positionsIn, squaredLengths, times, upper } from "./matrices.js";
import { hessenberg, type Schur } from "./schur.js";

/** Maximum number of sweeps per row; two or three are needed. */
const mostSweeps = 40;

const spread = (x: Tensor, like: Tensor) => ops.broadcastInDim(x, like.shape, range(x.ndim));
const keptWhere = (condition: Tensor, x: Tensor) => ops.select(condition, x, ops.zeros(x.type));

/** x / y, and 0 where y is 0. */
function over(x: Tensor, y: Tensor): Tensor {
  const isZero = ops.compare("eq", y, 0);
  return keptWhere(ops.not(isZero), ops.div(x, ops.select(isZero, ops.ones(y.type), y)));
}

/** Real matrices [batch, n, n] to their blocks. */
export function realSchur(a: Tensor): Schur {
  const n = at(a.shape, 1);
  const start = hessenberg(a);
  if (n < 2) return start;
  const zero = Tensor.scalar(0, "int32");
  const first = windowOf(start[0]);
  type State = readonly [h: Tensor, z: Tensor, low: Tensor, high: Tensor, quiet: Tensor, sweep: Tensor];
  const [h, z] = whileLoop<State>(
    ([, , , high, , sweep]) =>
      ops.and(ops.compare("gt", ops.reduceMax(high, [0]), 0), ops.compare("lt", sweep, mostSweeps * n)),
    ([matrix, orthogonal, low, high, quiet, sweep]) => {
      const [turned, nextZ] = doubleStep([matrix, orthogonal], low, high, quiet);
      const next = windowOf(upper(turned, -1));
      const waited = keptWhere(ops.compare("eq", next.high, high), ops.add(quiet, 1));
      return [next.matrix, nextZ, next.low, next.high, waited, ops.add(sweep, 1)];
    },
    [first.matrix, start[1], first.low, first.high, ops.zeros(first.high.type), zero],
  );
  return standardized([h, z]);
}

interface Window {
  /** The matrix, with zeros where elements under the diagonal count as nothing. */
  readonly matrix: Tensor;
  /** The first and the last row [batch] of the lowest block of three rows or more; both 0 if there is none. */
  readonly low: Tensor;
  readonly high: Tensor;
}

function windowOf(h: Tensor): Window {
  const [batch = 0, n = 0] = h.shape;
  const under = ops.abs(diagonals(part(h, 1, n, 0, n - 1)));
  const size = ops.abs(diagonals(h));
  const beside = ops.add(ops.sliceDim(size, 1, 0, n - 1), ops.sliceDim(size, 1, 1, n));
  const whole = spread(ops.sqrt(ops.reduceSum(squaredLengths(h), [1])), beside);
  const scale = ops.select(ops.compare("eq", beside, 0), whole, beside);
  const none = ops.full([batch, 1], false, "bool");
  const isJoined = ops.concatenate(
    [none, ops.compare("gt", under, ops.mul(scale, limits(h.dtype).epsilon))],
    1,
  );
  // A row that is joined with the one before, which is joined with another one, ends a block of three.
  const isThird = ops.and(isJoined, ops.concatenate([none, ops.sliceDim(isJoined, 1, 0, n - 1)], 1));
  const row = ops.iota("int32", isJoined.shape, 1);
  const high = ops.reduceMax(keptWhere(isThird, row), [1]);
  const isAbove = ops.compare("le", row, spread(high, row));
  const low = ops.reduceMax(keptWhere(ops.and(ops.not(isJoined), isAbove), row), [1]);
  const [rows, columns] = positionsIn(h);
  const isCleared = ops.and(ops.compare("eq", rows, ops.add(columns, 1)), ops.not(spread(isJoined, h)));
  return { matrix: keptWhere(ops.not(isCleared), h), low, high };
}

/** The elements [batch] at rows and columns of the matrices; 0 outside. */
function elementsOf(h: Tensor): (row: Tensor, column: Tensor) => Tensor {
  const [rows, columns] = positionsIn(h);
  return (row, column) => {
    const isHere = ops.and(
      ops.compare("eq", rows, spread(row, rows)),
      ops.compare("eq", columns, spread(column, columns)),
    );
    return ops.reduceSum(keptWhere(isHere, h), [1, 2]);
  };
}

/** The sum and the product of the two shifts: the eigenvalues of the last two rows, at times others, to break cycles. */
function shiftsFor(h: Tensor, high: Tensor, quiet: Tensor): [sum: Tensor, product: Tensor] {
  const of = elementsOf(h);
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
  const of = elementsOf(h);
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
    const unit = over(normal, spread(ops.sqrt(squaredLengths(normal)), normal));
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
    const share = over(ops.abs(sum), width);
    const cosine = ops.sqrt(ops.mul(ops.add(share, 1), 0.5));
    const sine = ops.neg(signed(over(half, ops.mul(width, cosine)), sum));
    const isBlock = ops.compare("ne", c, 0);
    const isTurned = ops.and(isBlock, ops.compare("ne", ops.select(isReal, length, width), 0));
    const cos = ops.select(isTurned, ops.select(isReal, over(root, length), cosine), ops.ones(c.type));
    const sin = keptWhere(isTurned, ops.select(isReal, over(c, length), sine));
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
