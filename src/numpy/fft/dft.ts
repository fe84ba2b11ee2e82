/** The discrete Fourier transform along the last dim, by matrix products. */
import type { DType } from "../../ir/dtype.js";
import { at, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import { array } from "../arrays/creation.js";

/** Real and imaginary parts; `undefined` stands for zeros. */
export type ComplexPair = readonly [real: Tensor, imag: Tensor | undefined];

/** Maximum length of transforms that are one product with the matrix of the transform. */
const largestMatrix = 32;

/** exp(± 2πi · k / n) for every k, exact to the last digit of the type. */
function roots(
  exponents: readonly number[],
  n: number,
  sign: number,
  shape: readonly number[],
  dtype: DType,
): ComplexPair {
  const angles = exponents.map((k) => ((k % n) / n) * 2 * Math.PI);
  const table = (values: readonly number[]) => ops.reshape(array([...values], dtype), shape);
  return [table(angles.map(Math.cos)), table(angles.map((a) => sign * Math.sin(a)))];
}

/** Transforms the last dim of [batch, n]. @param sign −1 forward, 1 backward; nothing is scaled */
export function transform([re, im]: ComplexPair, sign: number): ComplexPair {
  const n = at(re.shape, 1);
  if (n === 1) return [re, im];
  const factor = balancedFactor(n);
  if (n <= largestMatrix) return byMatrix([re, im], sign);
  return factor === 1 ? byChirp([re, im], sign) : byFactors([re, im], factor, sign);
}

/** The divisor of n next below its root; 1 for a prime. */
function balancedFactor(n: number): number {
  let factor = Math.floor(Math.sqrt(n));
  while (n % factor !== 0) factor--;
  return factor;
}

function byMatrix([re, im]: ComplexPair, sign: number): ComplexPair {
  const n = at(re.shape, 1);
  const exponents = range(n).flatMap((j) => range(n).map((k) => j * k));
  const [c, s] = roots(exponents, n, sign, [n, n], re.dtype);
  const dot = (x: Tensor, y: Tensor | undefined) =>
    y ? ops.dotGeneral(x, y, { lhsContract: [1], rhsContract: [0] }) : undefined;
  return complexSum(dot(re, c), dot(re, s), im && dot(im, c), im && dot(im, s));
}

/** (a + ib) + i (c + id), where c and d may be missing. */
function complexSum(
  a: Tensor | undefined,
  b: Tensor | undefined,
  c: Tensor | undefined,
  d: Tensor | undefined,
): ComplexPair {
  if (!a) throw new TypeError("a transform has real parts");
  if (!c || !d) return [a, b];
  return [ops.sub(a, d), b ? ops.add(b, c) : c];
}

/** Multiplies elementwise with a table repeated over the batch. */
function timesTable([re, im]: ComplexPair, [c, s]: ComplexPair): ComplexPair {
  const spread = (table: Tensor) =>
    ops.broadcastInDim(
      table,
      re.shape,
      range(table.ndim).map((d) => d + re.ndim - table.ndim),
    );
  const by = (x: Tensor, table: Tensor | undefined) => (table ? ops.mul(x, spread(table)) : undefined);
  return complexSum(by(re, c), by(re, s), im && by(im, c), im && by(im, s));
}

/**
 * For n = p · q: transforms of p numbers that lie q apart, a turn of each result, and transforms of q numbers.
 */
function byFactors(x: ComplexPair, p: number, sign: number): ComplexPair {
  const [batch = 0, n = 0] = x[0].shape;
  const q = n / p;
  const each = (parts: ComplexPair, fn: (t: Tensor) => Tensor): ComplexPair => [
    fn(parts[0]),
    parts[1] && fn(parts[1]),
  ];
  // [batch, j1, j2] to rows over j1.
  const apart = each(x, (t) =>
    ops.reshape(ops.transpose(ops.reshape(t, [batch, p, q]), [0, 2, 1]), [batch * q, p]),
  );
  const first = each(transform(apart, sign), (t) => ops.reshape(t, [batch, q, p]));
  const exponents = range(q).flatMap((j) => range(p).map((k) => j * k));
  const turned = timesTable(first, roots(exponents, n, sign, [q, p], x[0].dtype));
  // [batch, j2, k1] to rows over j2.
  const rows = each(turned, (t) => ops.reshape(ops.transpose(t, [0, 2, 1]), [batch * p, q]));
  return each(transform(rows, sign), (t) =>
    ops.reshape(ops.transpose(ops.reshape(t, [batch, p, q]), [0, 2, 1]), [batch, n]),
  );
}

/** For primes, by Bluestein: j k = (j² + k² − (k − j)²) / 2 makes a convolution of the transform. */
function byChirp(x: ComplexPair, sign: number): ComplexPair {
  const [batch = 0, n = 0] = x[0].shape;
  const { dtype } = x[0];
  let size = 1;
  while (size < 2 * n - 1) size *= 2;
  // Squares modulo 2n stay exact.
  const squares = range(n).map((j) => (j * j) % (2 * n));
  const chirp = roots(squares, 2 * n, sign, [n], dtype);
  const padded = ([re, im]: ComplexPair): ComplexPair => {
    const pad = (t: Tensor) =>
      ops.pad(t, Tensor.scalar(0, dtype), { low: [0, 0], high: [0, size - n], interior: [0, 0] });
    return [pad(re), im && pad(im)];
  };
  const around = range(size)
    .map((j) => (j < n ? j : size - j))
    .map((j) => (j < n ? (j * j) % (2 * n) : -1));
  const turns = around.map((e) => (e < 0 ? 0 : e));
  const mask = array(
    around.map((e) => (e < 0 ? 0 : 1)),
    dtype,
  );
  const filter = timesTable(
    [ops.reshape(mask, [1, size]), undefined],
    roots(turns, 2 * n, -sign, [size], dtype),
  );
  const spectrum = transform(filter, -1);
  const product = timesTable(transform(padded(timesTable(x, chirp)), -1), [
    ops.reshape(spectrum[0], [size]),
    spectrum[1] && ops.reshape(spectrum[1], [size]),
  ]);
  const [re, im] = transform(product, 1);
  const cut = (t: Tensor) => ops.mul(ops.sliceDim(ops.reshape(t, [batch, size]), 1, 0, n), 1 / size);
  return timesTable([cut(re), im && cut(im)], chirp);
}
