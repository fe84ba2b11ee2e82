/** Functions of floats from what they compute, and from their derivatives. */

import { isComplex } from "../ir/dtype.js";
import type { Binary, Unary } from "../lax/elementwise.js";
import * as ops from "../trace/ops.js";
import { operandType } from "../trace/promote.js";
import type { Tensor } from "../trace/tensor.js";
import { libraryVjp } from "../transforms/derivatives/customVjp.js";
import { withComplex, withFloats } from "./operands.js";

export type { Binary, Unary };

/** A function of `scipy.special` of one float, and of a complex number if that is given, too. */
export const unary =
  (name: string, compute: (x: Tensor) => Tensor, ofComplex?: (x: Tensor) => Tensor): Unary =>
  (x) =>
    ofComplex && isComplex(operandType(x))
      ? withComplex([x] as const, `scipy.special.${name}`, ofComplex)
      : withFloats([x] as const, `scipy.special.${name}`, compute);

/** A function of `scipy.special` of two floats, and of complex numbers if that is given, too. */
export const binary =
  (
    name: string,
    compute: (x: Tensor, y: Tensor) => Tensor,
    ofComplex?: (x: Tensor, y: Tensor) => Tensor,
  ): Binary =>
  (x, y) =>
    ofComplex && isComplex(operandType(x, y))
      ? withComplex([x, y] as const, `scipy.special.${name}`, ofComplex)
      : withFloats([x, y] as const, `scipy.special.${name}`, compute);

/** A function whose derivatives by its arguments are given. */
export function withSlopes<A extends readonly Tensor[]>(
  compute: (...args: A) => Tensor,
  ...slopes: { [K in keyof A]: (value: Tensor, ...args: A) => Tensor }
): (...args: A) => Tensor {
  return libraryVjp(compute, {
    forward: (...args: A) => {
      const value = compute(...args);
      return [value, [value, args] as const];
    },
    backward: ([value, args], ct) =>
      slopes.map((slope: (value: Tensor, ...args: A) => Tensor) => ops.mul(ct, slope(value, ...args))) as {
        [K in keyof A]: Tensor;
      } as never,
  });
}
