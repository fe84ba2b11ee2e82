/** Complex numbers and their parts. */
import { isComplex } from "../../ir/dtype.js";
import * as ops from "../../trace/ops.js";
import { operandType, type TensorLike } from "../../trace/promote.js";
import { Tensor } from "../../trace/tensor.js";
import { asTensor, partsOf } from "../operands.js";

/**
 * The real part; real numbers are unchanged.
 *
 * @example
 * ```ts
 * np.real(lax.complex(np.array([1]), np.array([2]))); // [1]
 * ```
 */
export function real(x: TensorLike): Tensor {
  const tensor = asTensor(x, "real");
  return tensor.parts?.[0] ?? tensor;
}

/**
 * The imaginary part; zeros for real numbers.
 *
 * @example
 * ```ts
 * np.imag(lax.complex(np.array([1]), np.array([2]))); // [2]
 * ```
 */
export function imag(x: TensorLike): Tensor {
  const tensor = asTensor(x, "imag");
  return tensor.parts?.[1] ?? ops.zeros(tensor.type);
}

/**
 * The complex conjugate; real numbers are unchanged.
 *
 * @example
 * ```ts
 * np.imag(np.conj(lax.complex(np.array([1]), np.array([2])))); // [-2]
 * ```
 */
export function conj(x: TensorLike): Tensor {
  const tensor = asTensor(x, "conj");
  return tensor.parts ? Tensor.complex(tensor.parts[0], ops.neg(tensor.parts[1])) : tensor;
}

/**
 * The angle of complex numbers in radians; 0 or π for real ones.
 *
 * @example
 * ```ts
 * np.angle(lax.complex(np.array([1, 0]), np.array([0, 1]))); // [0, 1.571]
 * ```
 */
export function angle(x: TensorLike): Tensor {
  const [re, im] = partsOf(x, "angle");
  return ops.atan2(im ?? ops.zeros(re.type), re);
}

/**
 * Where the imaginary part is not 0.
 *
 * @example
 * ```ts
 * np.iscomplex(lax.complex(np.array([1, 1]), np.array([0, 2]))); // [false, true]
 * ```
 */
export function iscomplex(x: TensorLike): Tensor {
  const tensor = asTensor(x, "iscomplex");
  return tensor.parts ? ops.compare("ne", tensor.parts[1], 0) : ops.full(tensor.shape, false, "bool");
}

/**
 * Where the imaginary part is 0.
 *
 * @example
 * ```ts
 * np.isreal(lax.complex(np.array([1, 1]), np.array([0, 2]))); // [true, false]
 * ```
 */
export function isreal(x: TensorLike): Tensor {
  return ops.not(iscomplex(x));
}

/**
 * Whether a tensor or number is of a complex type, whatever its values are.
 *
 * @example
 * ```ts
 * np.iscomplexobj(np.array([1, 2])); // false
 * ```
 */
export function iscomplexobj(x: TensorLike): boolean {
  return isComplex(operandType(x));
}

/**
 * Whether a tensor or number is of a type that is not complex.
 *
 * @example
 * ```ts
 * np.isrealobj(np.array([1, 2])); // true
 * ```
 */
export function isrealobj(x: TensorLike): boolean {
  return !iscomplexobj(x);
}
