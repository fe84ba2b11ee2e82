/** Spherical harmonics. */

import { integerFrom } from "../../ir/arguments.js";
import { isFloat } from "../../ir/dtype.js";
import { DTypeError, ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { array } from "../../numpy/arrays/creation.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { is, like, pick, resultsOfFloats } from "../operands.js";

const harmonicOptions = schema({
  /** The highest degree; needed where n is a tensor, whose values are not known when a function is traced. */
  nMax: optional(integerFrom(0)),
});

/** Options of {@link sphHarmY}. */
export interface SphHarmOptions extends OptionsOf<typeof harmonicOptions> {}

/** Degrees or orders: an integer, several, or a tensor of them. */
export type Integers = number | readonly number[] | Tensor;

/**
 * The associated Legendre function of cos θ with the factor of spherical harmonics, for elements of different degree n
 * and order m ≥ 0: the diagonal n = m first, then degree by degree.
 */
function legendre(n: Tensor, m: Tensor, theta: Tensor, nMax: number): Tensor {
  const [signed, cos] = [ops.sin(theta), ops.cos(theta)];
  // √(1 − cos²), with a derivative at 0.
  const sin = pick(is(signed, "lt", 0), ops.neg(signed), signed);
  let value = like(theta, Math.sqrt(1 / (4 * Math.PI)));
  for (let k = 1; k <= nMax; k++) {
    const next = ops.mul(ops.mul(value, sin), -Math.sqrt((2 * k + 1) / (2 * k)));
    value = pick(is(m, "ge", k), next, value);
  }
  let before = like(theta, 0);
  const square = ops.mul(m, m);
  for (let l = 1; l <= nMax; l++) {
    const isNext = ops.and(is(m, "lt", l), is(n, "ge", l));
    const room = pick(isNext, ops.sub(like(m, l * l), square), like(m, 1));
    const factor = ops.sqrt(ops.div(like(m, 4 * l * l - 1), room));
    const below = ops.max(ops.sub(like(m, (l - 1) ** 2), square), like(m, 0));
    const share = ops.sqrt(ops.div(below, like(m, Math.max(4 * (l - 1) ** 2 - 1, 1))));
    const next = ops.mul(factor, ops.sub(ops.mul(cos, value), ops.mul(share, before)));
    [before, value] = [pick(isNext, value, before), pick(isNext, next, value)];
  }
  return value;
}

function wholeTensor(value: Integers, name: string): Tensor {
  const x = value instanceof Tensor ? value : array(value, "int32");
  if (!isFloat(x.dtype)) return x;
  throw new DTypeError(
    `[scipy.special.sphHarmY] ${name} must be integers, got ${formatType(x.type)}: convert with astype("int32")`,
  );
}

/**
 * The spherical harmonic of degree n and order m, −n ≤ m ≤ n, at the colatitude θ and the longitude φ: complex numbers.
 *
 * @example
 * ```ts
 * np.real(scipy.special.sphHarmY([1, 2], [0, 1], np.array([0.5, 1]), np.array([0, 2]))); // [0.4288, 0.1462]
 * ```
 */
export function sphHarmY(
  n: Integers,
  m: Integers,
  theta: TensorLike,
  phi: TensorLike,
  options?: SphHarmOptions,
): Tensor {
  const caller = "scipy.special.sphHarmY";
  const { nMax } = harmonicOptions.read(options, caller);
  if (n instanceof Tensor && nMax === undefined) {
    throw new ValueError(`[${caller}] needs nMax, the highest degree, where n is a tensor`);
  }
  const highest = nMax ?? Math.max(0, ...(n instanceof Tensor ? [] : [n].flat()));
  const inputs = [theta, phi, wholeTensor(n, "n"), wholeTensor(m, "m")] as const;
  const parts = resultsOfFloats(inputs, caller, (colatitude, longitude, degree, order) => {
    const size = ops.abs(order);
    const value = legendre(ops.min(degree, like(degree, highest)), size, colatitude, highest);
    const angle = ops.mul(order, longitude);
    const isOdd = ops.compare("ne", ops.mul(ops.floor(ops.mul(size, 0.5)), 2), size);
    const sign = pick(ops.and(is(order, "lt", 0), isOdd), -1, like(order, 1));
    const signed = ops.mul(value, sign);
    return [ops.mul(signed, ops.cos(angle)), ops.mul(signed, ops.sin(angle))];
  });
  const wide = parts.map((part) => (part.dtype === "float64" ? part : ops.convert(part, "float32")));
  return lax.complex(at(wide, 0), at(wide, 1));
}
