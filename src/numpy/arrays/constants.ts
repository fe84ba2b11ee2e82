/** Numbers and names that NumPy users expect. */
import { type DType, isFloat, isInteger, limits } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";

export const pi = Math.PI;
export const e = Math.E;
/** Euler and Mascheroni's constant. */
export const eulerGamma = 0.5772156649015329;
export const inf = Number.POSITIVE_INFINITY;
export const nan = Number.NaN;
/** As an index: a new dim of size 1. */
export const newaxis = null;

export const float32 = "float32";
export const bfloat16 = "bfloat16";
export const float16 = "float16";
export const float64 = "float64";
export const int8 = "int8";
export const int16 = "int16";
export const int32 = "int32";
export const uint8 = "uint8";
export const uint16 = "uint16";
export const uint32 = "uint32";
export const bool = "bool";
export const complex64 = "complex64";
export const complex128 = "complex128";

/**
 * The limits of a floating-point type: `min` and `max` are finite, `eps` is the spacing at 1.
 *
 * @example
 * ```ts
 * np.finfo("float16").max; // 65504
 * ```
 */
export function finfo(dtype: DType): { readonly min: number; readonly max: number; readonly eps: number } {
  if (!isFloat(dtype)) throw new DTypeError(`[finfo] ${dtype} is not a floating-point type: use iinfo`);
  const { min, max, epsilon } = limits(dtype);
  return { min, max, eps: epsilon };
}

/**
 * The limits of an integer type.
 *
 * @example
 * ```ts
 * np.iinfo("int8"); // { "min": -128, "max": 127 }
 * ```
 */
export function iinfo(dtype: DType): { readonly min: number; readonly max: number } {
  if (!isInteger(dtype)) throw new DTypeError(`[iinfo] ${dtype} is not an integer type: use finfo`);
  const { min, max } = limits(dtype);
  return { min, max };
}
