/** The function of Faddeeva, a rational function of complex numbers above the real axis (Weideman 1994). */

import { complexType, isComplex } from "../../ir/dtype.js";
import { range } from "../../ir/shape.js";
import * as lax from "../../lax/index.js";
import { asTensor, inexactType, wideType } from "../../numpy/operands.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { is, like } from "../operands.js";
import { withSlopes } from "../rules.js";

/** The scale L and the coefficients of powers of (L + i z) / (L − i z): the Fourier series of exp(−t²) (L² + t²). */
function coefficients(numTerms: number): { readonly scale: number; readonly numbers: readonly number[] } {
  const scale = Math.sqrt(numTerms / Math.SQRT2);
  const half = 2 * numTerms;
  const samples = range(2 * half - 1).map((i) => {
    const angle = ((i - half + 1) * Math.PI) / half;
    const t = scale * Math.tan(angle / 2);
    return { angle, value: Math.exp(-t * t) * (scale * scale + t * t) };
  });
  const numbers = range(numTerms).map(
    (n) => samples.reduce((sum, { angle, value }) => sum + value * Math.cos((n + 1) * angle), 0) / (2 * half),
  );
  return { scale, numbers };
}

/** w(z) for z above the real axis or on it. */
function above(z: Tensor): Tensor {
  const { scale, numbers } = coefficients(z.dtype === "complex128" ? 40 : 24);
  const [real, imag] = [lax.real(z), lax.imag(z)];
  const turned = lax.complex(ops.neg(imag), real);
  const inverse = ops.div(like(z, 1), ops.sub(like(z, scale), turned));
  const ratio = ops.mul(ops.add(like(z, scale), turned), inverse);
  const series = numbers.reduceRight((sum, c) => ops.add(ops.mul(sum, ratio), like(z, c)), like(z, 0));
  const value = ops.mul(
    ops.add(ops.mul(ops.mul(series, inverse), like(z, 2)), like(z, 1 / Math.sqrt(Math.PI))),
    inverse,
  );
  // On the axis the real part is exp(−x²), which far out is smaller than the error of the series.
  const onAxis = ops.exp(ops.neg(ops.mul(real, real)));
  return lax.complex(ops.select(is(imag, "eq", 0), onAxis, lax.real(value)), lax.imag(value));
}

/** exp(−z²) · erfc(−i z), of complex numbers. */
export const faddeeva: (z: Tensor) => Tensor = /* @__PURE__ */ withSlopes(
  (z: Tensor) => {
    const isAbove = is(lax.imag(z), "ge", 0);
    const upper = above(ops.select(isAbove, z, ops.neg(z)));
    const below = ops.select(isAbove, like(z, 0), z);
    const mirrored = ops.sub(ops.mul(ops.exp(ops.neg(ops.mul(below, below))), like(z, 2)), upper);
    return ops.select(isAbove, upper, mirrored);
  },
  (value, z) => {
    const shift = lax.complex(like(lax.real(z), 0), like(lax.real(z), 2 / Math.sqrt(Math.PI)));
    return ops.sub(shift, ops.mul(ops.mul(z, value), like(z, 2)));
  },
);

/**
 * The function of Faddeeva, exp(−z²) · erfc(−i z), of real or complex numbers; its values are complex.
 *
 * @example
 * ```ts
 * np.real(scipy.special.wofz(np.array([0, 1]))); // [1, 0.3679]
 * ```
 */
export function wofz(z: TensorLike): Tensor {
  const x = asTensor(z, "scipy.special.wofz");
  const dtype = wideType(inexactType(x.dtype));
  return faddeeva(ops.convert(x, isComplex(dtype) ? dtype : complexType(dtype)));
}
