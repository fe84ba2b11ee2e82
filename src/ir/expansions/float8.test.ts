import { expect, test } from "vitest";
import { hostTensor, numbersOf } from "../../engines/reference/hostTensor.js";
import { interpret } from "../../engines/reference/interpret.js";
import { fromBfloat16Bits } from "../dtype.js";
import { type Float8, float8Types } from "../ops.js";
import { range, tensorType } from "../shape.js";
import { float8Program, roundToFloat8 } from "./float8.js";

/** The non-negative finite values of a float8 type in the order of their bits, which are the indices. */
function valuesOf(format: Float8): number[] {
  const [mantissaBits, bias, count] = format === "e5m2" ? [2, 15, 0x7c] : [3, 7, 0x7f];
  return range(count).map((bits) => {
    const [exponent, mantissa] = [bits >> mantissaBits, (bits % 2 ** mantissaBits) / 2 ** mantissaBits];
    return exponent === 0 ? mantissa * 2 ** (1 - bias) : (1 + mantissa) * 2 ** (exponent - bias);
  });
}

/** The nearest value by search; of two that are equally near, that with the even bits. */
function nearest(x: number, values: readonly number[], overflow: number): number {
  const size = Math.abs(x);
  const [top = 0, below = 0] = values.slice(-2).reverse();
  // What would round to the value that would follow the last one is too large; its bits are odd or even as they are.
  const limit = top + (top - below) / 2;
  const isTopEven = values.length % 2 === 1;
  if (size > limit || (size === limit && !isTopEven)) return Math.sign(x) * overflow;
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((values[middle] ?? 0) <= size) low = middle;
    else high = middle;
  }
  const [a = 0, b = 0] = [values[low], values[high]];
  const isLower = size - a === b - size ? low % 2 === 0 : size - a < b - size;
  return (Object.is(Math.sign(x), -0) || x < 0 ? -1 : 1) * (isLower ? a : b);
}

/** All values of bfloat16, and values of float32 between them: next to ties, and next to the ends. */
const inputs = [
  ...range(2 ** 16).map(fromBfloat16Bits),
  ...float8Types
    .flatMap(valuesOf)
    .flatMap((x) => range(9).map((i) => Math.fround(x * (1 + (i - 4) * 2 ** -6 + 2 ** -23)))),
  ...[464.00003, 61_440.004, 61_439.996, 2 ** -149].flatMap((x) => [x, -x]).map(Math.fround),
];

test.each(float8Types)("numbers are rounded to the nearest value of %s, ties to even", (format) => {
  const values = valuesOf(format);
  const overflow = format === "e5m2" ? Number.POSITIVE_INFINITY : Number.NaN;
  const expected = inputs.map((x) => (Number.isNaN(x) ? x : nearest(x, values, overflow)));
  expect(inputs.map((x) => roundToFloat8(x, format))).toEqual(expected);

  const program = float8Program({ format }, [tensorType("float32", [inputs.length])]);
  const [result] = interpret(program, [hostTensor("float32", [inputs.length], inputs)]);
  expect(result && [...numbersOf(result)]).toEqual(expected);
});
