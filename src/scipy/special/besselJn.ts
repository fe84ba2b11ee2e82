/** Bessel functions of the first kind and of whole orders. */

import { integerFrom } from "../../ir/arguments.js";
import { type OptionsOf, required, schema } from "../../ir/schema.js";
import { at, range } from "../../ir/shape.js";
import { stack } from "../../numpy/arrays/joining.js";
import * as ops from "../../trace/ops.js";
import type { TensorLike } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import { libraryVjp } from "../../transforms/derivatives/customVjp.js";
import { is, like, pick, resultsOfFloats } from "../operands.js";

const besselOptions = schema({
  /** The highest order. */
  v: required(integerFrom(0)),
  /** The order from which the recurrence runs down, which must be larger than z and v; 50 by default. */
  nIter: 50,
});

/** Options of {@link besselJn}. */
export interface BesselJnOptions extends OptionsOf<typeof besselOptions> {}

/**
 * J₀ … Jᵥ by Miller's recurrence Jₖ₋₁ = 2k/z Jₖ − Jₖ₊₁ downwards from any start; J₀ + 2 J₂ + 2 J₄ … = 1 gives the scale.
 * Each step divides by what it found, so that neither small z nor many steps overflow.
 */
function recurrence(z: Tensor, v: number, numSteps: number): Tensor[] {
  const isZero = is(z, "eq", 0);
  const inverse = ops.div(like(z, 2), pick(isZero, 1, z));
  let [above, value, total] = [like(z, 0), like(z, 1), like(z, 0)];
  let found: Tensor[] = [];
  for (let k = numSteps; k >= 0; k--) {
    const next = ops.sub(ops.mul(ops.mul(inverse, k + 1), value), above);
    const scale = ops.div(like(z, 1), ops.max(ops.abs(next), like(z, 1)));
    [above, value, total] = [ops.mul(value, scale), ops.mul(next, scale), ops.mul(total, scale)];
    if (k % 2 === 0) total = ops.add(total, k === 0 ? value : ops.mul(value, 2));
    found = found.map((one) => ops.mul(one, scale));
    if (k <= v) found.unshift(value);
  }
  return found.map((one, k) => pick(isZero, k === 0 ? 1 : 0, ops.div(one, total)));
}

const besselRule = (v: number, numSteps: number) =>
  libraryVjp((z: Tensor) => recurrence(z, v, numSteps), {
    forward: (z) => {
      const values = recurrence(z, v + 1, numSteps);
      return [values.slice(0, v + 1), values];
    },
    // Jₖ' = (Jₖ₋₁ − Jₖ₊₁) / 2, and J₀' = −J₁
    backward: (values, cts) => {
      const slopes = range(v + 1).map((k) =>
        k === 0 ? ops.neg(at(values, 1)) : ops.mul(ops.sub(at(values, k - 1), at(values, k + 1)), 0.5),
      );
      return [slopes.map((slope, k) => ops.mul(slope, at(cts, k))).reduce(ops.add)];
    },
  });

/**
 * The Bessel functions J₀ … Jᵥ of the first kind, along a new first dim.
 *
 * @example
 * ```ts
 * scipy.special.besselJn(np.array([0, 1]), { v: 1 }); // [[1, 0.7652], [0, 0.4401]]
 * ```
 */
export function besselJn(z: TensorLike, options: BesselJnOptions): Tensor {
  const caller = "scipy.special.besselJn";
  const { v, nIter } = besselOptions.read(options, caller);
  return stack(resultsOfFloats([z] as const, caller, besselRule(v, Math.max(nIter, v + 1))));
}
