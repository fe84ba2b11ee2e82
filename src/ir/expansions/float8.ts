/**
 * Rounding to the values of a float8 type. It is written twice: the reference engine rounds numbers, all other engines
 * but XLA, which has the types, run the equations of the program.
 */
import { roundHalfEven } from "../dtype.js";
import type { Float8, OpParams } from "../ops.js";
import { newLiteral, type Program } from "../program.js";
import { at, type TensorType } from "../shape.js";
import { writeProgram } from "./programBuilder.js";

/** What a float8 type can represent. */
interface Float8Facts {
  /** Bits after the point of a normal number. */
  readonly mantissaBits: number;
  /** The exponent of the smallest normal number, below which the spacing stays the same. */
  readonly minExponent: number;
  /** The largest finite value. */
  readonly max: number;
  /** What larger values become, as a factor. */
  readonly overflow: number;
}

/** The float8 types: e4m3fn has no infinities, so that what is too large becomes NaN. */
export const float8Facts: { readonly [F in Float8]: Float8Facts } = {
  e4m3fn: { mantissaBits: 3, minExponent: -6, max: 448, overflow: Number.NaN },
  e5m2: { mantissaBits: 2, minExponent: -14, max: 57_344, overflow: Number.POSITIVE_INFINITY },
};

/** The value of a float8 type nearest to a number, which is rounded to float32 first, ties to even. */
export function roundToFloat8(value: number, format: Float8): number {
  const { mantissaBits, minExponent, max, overflow } = float8Facts[format];
  const x = Math.fround(value);
  if (x === 0) return x;
  if (!Number.isFinite(x)) return x * overflow;
  const exponent = Math.max(Math.floor(Math.log2(Math.abs(x))), minExponent);
  const spacing = 2 ** (exponent - mantissaBits);
  const rounded = roundHalfEven(x / spacing) * spacing;
  return Math.abs(rounded) > max ? rounded * overflow : rounded;
}

/** One in the exponent of a float32. */
const oneExponent = 2 ** 23;

/**
 * The program of smaller ops: the exponent bits of a float32 give the spacing of float8 values near it and its
 * reciprocal, both powers of two, so that all but the rounding to an integer is exact.
 */
export function float8Program({ format }: OpParams["roundFloat8"], types: readonly TensorType[]): Program {
  const { mantissaBits, minExponent, max, overflow } = float8Facts[format];
  return writeProgram(types, (b, inputs) => {
    const given = at(inputs, 0);
    const x = b.convert(given, "float32");
    const int = (value: number) => newLiteral(value, "int32");
    const float = (value: number) => newLiteral(value, "float32");
    const bits = b.add("bitcast", [x], { dtype: "int32" });
    const exponent = b.add("and", [bits, int(255 * oneExponent)], {});
    const power = b.add("max", [exponent, int((127 + minExponent) * oneExponent)], {});
    const spacing = b.add("sub", [power, int(mantissaBits * oneExponent)], {});
    const reciprocal = b.add("sub", [int(254 * oneExponent), spacing], {});
    const [unit, scale] = [spacing, reciprocal].map((i) => b.add("bitcast", [i], { dtype: "float32" }));
    if (!unit || !scale) return [];
    const count = b.add("round", [b.add("mul", [x, scale], {})], {});
    const rounded = b.add("mul", [count, unit], {});
    const isLarge = b.add("compare", [b.add("abs", [rounded], {}), float(max)], { direction: "gt" });
    const large = b.add("mul", [rounded, float(overflow)], {});
    return [b.convert(b.add("select", [isLarge, large, rounded], {}), given.type.dtype)];
  });
}
