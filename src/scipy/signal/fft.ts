/** JAX's `scipy.fft`: discrete cosine transforms of type 2 and their inverses. */

import { integerFrom, oneOf } from "../../ir/arguments.js";
import { ShapeError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, normalizeDim, normalizeDims, range, type Shape } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { asInexact } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";

const norms = oneOf("backward", "ortho");

const dctOptions = schema({
  /** The number of elements; the dim is cut, or filled with zeros. */
  n: optional(integerFrom(1)),
  /** The last dim by default. */
  dim: -1,
  /** Whether the inverse is divided by 2 n (`"backward"`, the default), or both directions are orthonormal (`"ortho"`). */
  norm: optional(norms, "backward"),
});

/** Options of cosine transforms along one dim. */
export interface DctOptions extends OptionsOf<typeof dctOptions> {}

const dctnOptions = schema({
  /** The number of elements along each of the dims. */
  s: optional<Shape>("integers"),
  /** The dims: the last ones, as many as `s` has numbers, or all by default. */
  dims: optional<readonly number[]>("integers"),
  /** Whether the inverse is divided by 2 n (`"backward"`, the default), or both directions are orthonormal (`"ortho"`). */
  norm: optional(norms, "backward"),
});

/** Options of cosine transforms along several dims. */
export interface DctnOptions extends OptionsOf<typeof dctnOptions> {}

type Norm = "backward" | "ortho";

/** A transform along the last dim of a real tensor. */
type Transform = (x: Tensor, norm: Norm) => Tensor;

/** The elements of a row in every row of x. */
const rowLike = (x: Tensor, row: readonly number[]) => np.array([...row], x.dtype);

/** The factors that make the rows of the transform orthonormal. */
function orthonormal(x: Tensor): Tensor {
  const n = at(x.shape, x.ndim - 1);
  return rowLike(
    x,
    range(n).map((k) => 1 / Math.sqrt((k === 0 ? 4 : 2) * n)),
  );
}

/** The angles π k / 2 n as complex numbers of length 1, turned one way or the other. */
function turns(x: Tensor, sign: 1 | -1): Tensor {
  const n = at(x.shape, x.ndim - 1);
  const angles = range(n).map((k) => (sign * Math.PI * k) / (2 * n));
  return Tensor.complex(rowLike(x, angles.map(Math.cos)), rowLike(x, angles.map(Math.sin)));
}

/** Even elements in order, then odd ones from the last: a cosine transform is the Fourier transform of these, turned. */
const forward: Transform = (x, norm) => {
  const last = x.ndim - 1;
  const n = at(x.shape, last);
  const even = ops.sliceDim(x, last, 0, n, 2);
  const folded =
    n === 1 ? x : ops.concatenate([even, ops.reverse(ops.sliceDim(x, last, 1, n, 2), [last])], last);
  const spectrum = np.fft.fft(folded);
  const y = np.multiply(np.real(np.multiply(spectrum, turns(np.real(spectrum), -1))), 2);
  return norm === "ortho" ? np.multiply(y, orthonormal(y)) : y;
};

const inverse: Transform = (given, norm) => {
  // Complex numbers have no parts of half width.
  const x = given.dtype === "float64" ? given : given.astype("float32");
  const last = x.ndim - 1;
  const n = at(x.shape, last);
  const plain = norm === "ortho" ? np.divide(x, orthonormal(x)) : x;
  const halved = np.multiply(
    plain,
    rowLike(
      plain,
      range(n).map((k) => (k === 0 ? 0.5 : 1)),
    ),
  );
  const folded = np.real(np.fft.ifft(np.multiply(halved, turns(plain, 1))));
  // Element 2 i is the i-th one, element 2 i + 1 the i-th one from the end.
  const order = range(n).map((i) => (i % 2 === 0 ? i / 2 : n - (i + 1) / 2));
  return np.take(folded, np.array(order, "int32"), last);
};

/** A transform of both parts along one dim, cut or filled with zeros. */
function along(x: Tensor, transform: Transform, n: number | undefined, dim: number, norm: Norm): Tensor {
  if (x.parts) {
    const [re, im] = x.parts;
    return Tensor.complex(along(re, transform, n, dim, norm), along(im, transform, n, dim, norm));
  }
  const moved = ops.moveDim(x, dim, x.ndim - 1);
  const size = at(x.shape, dim);
  const wanted = n ?? size;
  const cut = wanted < size ? ops.sliceDim(moved, x.ndim - 1, 0, wanted) : moved;
  const sized =
    wanted > size
      ? np.pad(
          cut,
          moved.shape.map((_, d) => [0, d === x.ndim - 1 ? wanted - size : 0]),
        )
      : cut;
  return ops.moveDim(transform(sized, norm), x.ndim - 1, dim);
}

function oneDim(
  value: TensorLike,
  transform: Transform,
  options: DctOptions | undefined,
  caller: string,
): Tensor {
  const { n, dim, norm } = dctOptions.read(options, caller);
  const x = asInexact(value, caller);
  return along(x, transform, n, normalizeDim(dim, x.ndim, caller), norm);
}

function severalDims(
  value: TensorLike,
  transform: Transform,
  options: DctnOptions | undefined,
  caller: string,
): Tensor {
  const { s, dims, norm } = dctnOptions.read(options, caller);
  const x = asInexact(value, caller);
  const chosen = dims ? normalizeDims(dims, x.ndim, caller) : range(x.ndim).slice(s ? -s.length : 0);
  if (s && s.length !== chosen.length) {
    throw new ShapeError(`[${caller}] s has ${s.length} sizes for ${chosen.length} dims: give one for each`);
  }
  return chosen.reduce((y, dim, i) => along(y, transform, s?.[i], dim, norm), x);
}

/**
 * The discrete cosine transform of type 2 along a dim: `2 Σ x[i] cos(π k (2 i + 1) / 2 n)`.
 *
 * @example
 * ```ts
 * scipy.fft.dct(np.array([1, 2, 3])); // [12, -3.464, 0]
 * ```
 */
export function dct(x: TensorLike, options?: DctOptions): Tensor {
  return oneDim(x, forward, options, "scipy.fft.dct");
}

/**
 * The inverse of {@link dct}.
 *
 * @example
 * ```ts
 * scipy.fft.idct(scipy.fft.dct(np.array([1, 2, 3]), { norm: "ortho" }), { norm: "ortho" }); // [1, 2, 3]
 * ```
 */
export function idct(x: TensorLike, options?: DctOptions): Tensor {
  return oneDim(x, inverse, options, "scipy.fft.idct");
}

/**
 * {@link dct} along several dims, by default all.
 *
 * @example
 * ```ts
 * scipy.fft.dctn(np.array([[1, 2], [3, 5]])); // [[44, -8.485], [-14.14, 2]]
 * ```
 */
export function dctn(x: TensorLike, options?: DctnOptions): Tensor {
  return severalDims(x, forward, options, "scipy.fft.dctn");
}

/**
 * The inverse of {@link dctn}.
 *
 * @example
 * ```ts
 * scipy.fft.idctn(np.array([[16, 0], [0, 0]])); // [[1, 1], [1, 1]]
 * ```
 */
export function idctn(x: TensorLike, options?: DctnOptions): Tensor {
  return severalDims(x, inverse, options, "scipy.fft.idctn");
}
