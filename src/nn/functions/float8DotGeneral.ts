import { isFloat } from "../../ir/dtype.js";
import { DTypeError } from "../../ir/errors.js";
import { float8Facts } from "../../ir/expansions/float8.js";
import type { Float8 } from "../../ir/ops.js";
import { formatType, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import { needTensor } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { vjpHere } from "../../transforms/derivatives/grad.js";

/** A power of two that a tensor is divided by before it is rounded, and its reciprocal: scalars of the tensor's type. */
interface Scale {
  readonly scale: Tensor;
  readonly reciprocal: Tensor;
}

/** One in the exponent of a float32. */
const oneExponent = 2 ** 23;

/** Tensors without larger values than this are not scaled up further, so that the reciprocal stays finite. */
const least = 2 ** -80;

/**
 * The smallest power of two by which the largest value of a tensor fits a float8 type. As a power of two it is exact in
 * every type, and so are the quotients and products with it: only the rounding to float8 loses digits.
 */
function scaleOf(x: Tensor, format: Float8): Scale {
  const largest = ops.convert(ops.reduceMax(ops.abs(x), range(x.ndim)), "float32");
  const int = (value: number) => ops.full([], value, "int32");
  const bits = ops.bitcast(ops.max(largest, ops.full([], least, "float32")), "int32");
  // Both float8 types end at 1.75 times a power of two: larger fractions carry into the exponent.
  const power = ops.and(ops.add(bits, int(oneExponent / 4 - 1)), int(255 * oneExponent));
  const scale = ops.sub(power, int(Math.floor(Math.log2(float8Facts[format].max)) * oneExponent));
  const reciprocal = ops.sub(int(254 * oneExponent), scale);
  const asFloat = (exponent: Tensor) => ops.convert(ops.bitcast(exponent, "float32"), x.dtype);
  return { scale: asFloat(scale), reciprocal: asFloat(reciprocal) };
}

/** The values of a tensor that a float8 type and a scale can represent. */
function rounded(x: Tensor, { scale, reciprocal }: Scale, format: Float8): Tensor {
  const spread = (value: Tensor) => ops.broadcastInDim(value, x.shape, []);
  return ops.mul(ops.roundFloat8(ops.mul(x, spread(reciprocal)), format), spread(scale));
}

/**
 * A product whose factors are rounded to float8, each divided by a scale for the whole tensor: to e4m3 in the forward
 * pass, where the backward pass multiplies the same factors by cotangents rounded to e5m2, which has more exponents.
 * Products are summed in float32. Scales are powers of two by which the largest value just fits. GPUs with float8
 * products use them through XLA; all other devices multiply the rounded factors in their own type, with the same
 * results but for the order of sums. Its name in Flax is `Fp8DotGeneralOp`; this one needs no state.
 *
 * @example
 * ```ts
 * const layer = nn.Dense({ features: 3, dotGeneral: nn.float8DotGeneral });
 * layer.apply(layer.init(random.key(0), np.ones([2, 4])), np.ones([2, 4])).shape; // [2, 3]
 * ```
 */
export function float8DotGeneral(x: Tensor, y: Tensor, dims: ops.DotDims): Tensor {
  needTensor(x, "x", "nn.float8DotGeneral");
  needTensor(y, "y", "nn.float8DotGeneral");
  const wrong = [x, y].find(({ dtype }) => !isFloat(dtype) || dtype === "float16");
  if (wrong) {
    throw new DTypeError(
      `[nn.float8DotGeneral] cannot scale ${formatType(wrong.type)}: use bfloat16 or float32, whose exponents have 8 bits`,
    );
  }
  const multiply = (a: Tensor, b: Tensor) => ops.dotGeneral(a, b, dims);
  const factors = (a: Tensor, b: Tensor, scales: readonly [Scale, Scale]) =>
    [rounded(a, scales[0], "e4m3fn"), rounded(b, scales[1], "e4m3fn")] as const;
  const scalesOf = (a: Tensor, b: Tensor) => [scaleOf(a, "e4m3fn"), scaleOf(b, "e4m3fn")] as const;
  const product = libraryVjp((a: Tensor, b: Tensor) => multiply(...factors(a, b, scalesOf(a, b))), {
    // Only operands and scales are kept: what is rounded from them again is the same, and takes no memory meanwhile.
    forward: (a, b) => {
      const scales = scalesOf(a, b);
      return [multiply(...factors(a, b, scales)), { a, b, scales }];
    },
    backward: ({ a, b, scales }, cotangent) => {
      const [, pullback] = vjpHere(multiply, factors(a, b, scales));
      return pullback(rounded(cotangent, scaleOf(cotangent, "e5m2"), "e5m2"));
    },
  });
  return product(x, y);
}
