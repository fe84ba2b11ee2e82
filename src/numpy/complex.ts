/** Complex numbers, as a pair of tensors. */
import { ShapeError } from "../ir/errors.js";
import { formatType, sameType } from "../ir/shape.js";
import * as ops from "../trace/ops.js";
import type { TensorLike } from "../trace/promote.js";
import { Tensor } from "../trace/tensor.js";
import { asFloat, asTensor } from "./operands.js";

/** Complex numbers: their real and their imaginary parts. There is no complex data type; functions take trees. */
export interface Complex {
  readonly real: Tensor;
  readonly imag: Tensor;
}

/** Whether an operand is a pair of real and imaginary parts. */
export function isComplex(x: unknown): x is Complex {
  return (
    typeof x === "object" &&
    x !== null &&
    !(x instanceof Tensor) &&
    "real" in x &&
    "imag" in x &&
    x.real instanceof Tensor &&
    x.imag instanceof Tensor
  );
}

/** Both parts of an operand, of one type. */
export function partsOf(x: TensorLike | Complex, caller: string): { real: Tensor; imag: Tensor | undefined } {
  if (!isComplex(x)) return { real: asFloat(x, caller), imag: undefined };
  if (!sameType(x.real.type, x.imag.type)) {
    throw new ShapeError(
      `[${caller}] real and imaginary parts need one type, got ${formatType(x.real.type)} and ${formatType(x.imag.type)}`,
    );
  }
  return { real: asFloat(x.real, caller), imag: asFloat(x.imag, caller) };
}

/** The real part; a tensor is its own. */
export function real(x: TensorLike | Complex): Tensor {
  return isComplex(x) ? x.real : asTensor(x, "real");
}

/** The imaginary part; zeros for a tensor. */
export function imag(x: TensorLike | Complex): Tensor {
  return isComplex(x) ? x.imag : ops.zeros(asTensor(x, "imag").type);
}

/** The number with the other sign of its imaginary part; a tensor stays what it is. */
export function conj<T extends TensorLike | Complex>(x: T): T extends Complex ? Complex : Tensor;
export function conj(x: TensorLike | Complex): Tensor | Complex {
  return isComplex(x) ? { real: x.real, imag: ops.neg(x.imag) } : asTensor(x, "conj");
}

/** The angle of complex numbers in radians; 0 or π for a tensor. */
export function angle(x: TensorLike | Complex): Tensor {
  const { real: re, imag: im } = partsOf(x, "angle");
  return ops.atan2(im ?? ops.zeros(re.type), re);
}
