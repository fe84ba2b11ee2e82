import { at } from "../../../ir/shape.js";
import type { Vec, VecBuilder } from "../vectorProgram.js";

/** Whether the bits of an integer lane have a sign. */
export type Signedness = "signed" | "unsigned";

/** Integer division towards zero; x / 0 is all ones and the most negative number over −1 is itself. */
export function divideInteger(b: VecBuilder, x: Vec, y: Vec, kind: Signedness): Vec {
  const signed = kind === "signed";
  // A GPU divides by 0 and by −1 without a trap.
  if (b.features.gpu)
    return b.or(b.scalar(signed ? "i32.div_s" : "i32.div_u", "i32", x, y), b.op("i32x4.eq", y, b.i32(0)));
  const widen = signed ? "f64x2.convert_low_i32x4_s" : "f64x2.convert_low_i32x4_u";
  const narrow = signed ? "i32x4.trunc_sat_f64x2_s_zero" : "i32x4.trunc_sat_f64x2_u_zero";
  const [xLow, xHigh] = b.halves(widen, x);
  const [yLow, yHigh] = b.halves(widen, y);
  // A float64 quotient of 32-bit integers never rounds across an integer, so truncating it is exact.
  const quotient = b.join(
    b.op(narrow, b.op("f64x2.div", xLow, yLow)),
    b.op(narrow, b.op("f64x2.div", xHigh, yHigh)),
  );
  const minusOne = b.i32(-1);
  const wrapped = signed ? b.select(b.op("i32x4.eq", y, minusOne), b.op("i32x4.neg", x), quotient) : quotient;
  return b.or(wrapped, b.op("i32x4.eq", y, b.i32(0)));
}

/** The remainder of truncated integer division; x rem 0 is x. */
export function remainderInteger(b: VecBuilder, x: Vec, y: Vec, kind: Signedness): Vec {
  return b.isub(x, b.op("i32x4.mul", divideInteger(b, x, y, kind), y));
}

/** Shifts each lane by its own amount; amounts of 32 and more (read as unsigned) shift everything out. */
export function shiftLanes(
  b: VecBuilder,
  op: "shl" | "shrLogical" | "shrArithmetic",
  x: Vec,
  amount: Vec,
): Vec {
  if (op === "shrArithmetic") {
    return b.scalar("i32.shr_s", "i32", x, b.op("i32x4.min_u", amount, b.i32(31)));
  }
  const shifted = b.scalar(op === "shl" ? "i32.shl" : "i32.shr_u", "i32", x, amount);
  return b.and(shifted, b.op("i32x4.lt_u", amount, b.i32(32)));
}

/** x to the power y in wrapping 32-bit arithmetic; a negative exponent counts as in XLA: 0, except for ±1. */
export function powerInteger(b: VecBuilder, x: Vec, y: Vec, kind: Signedness): Vec {
  const one = b.i32(1);
  const zero = b.i32(0);
  let result = one;
  let square = x;
  for (let bit = 0; bit < 32; bit++) {
    const used = b.op("i32x4.ne", b.and(y, b.i32(2 ** bit)), zero);
    result = b.op("i32x4.mul", result, b.select(used, square, one));
    square = b.op("i32x4.mul", square, square);
  }
  if (kind === "unsigned") return result;
  const odd = b.op("i32x4.ne", b.and(y, one), zero);
  const minusOne = b.op("i32x4.eq", x, b.i32(-1));
  const reciprocal = b.or(
    b.and(b.op("i32x4.eq", x, one), one),
    b.and(minusOne, b.select(odd, b.i32(-1), one)),
  );
  return b.select(b.op("i32x4.lt_s", y, zero), reciprocal, result);
}

const ROTATIONS: readonly (readonly number[])[] = [
  [13, 15, 26, 6],
  [17, 29, 16, 24],
];

/** Threefry-2x32 with 20 rounds: the pair of counters encrypted under the pair of keys. */
export function threefry2x32(
  b: VecBuilder,
  key: readonly [Vec, Vec],
  counter: readonly [Vec, Vec],
): readonly [Vec, Vec] {
  const schedule = [key[0], key[1], b.xor(b.xor(key[0], key[1]), b.i32(0x1bd11bda))];
  const keyAt = (index: number): Vec => at(schedule, index % 3);
  let x0 = b.iadd(counter[0], key[0]);
  let x1 = b.iadd(counter[1], key[1]);
  for (let group = 0; group < 5; group++) {
    for (const distance of ROTATIONS[group % 2] ?? []) {
      x0 = b.iadd(x0, x1);
      x1 = b.xor(x0, b.or(b.ishl(x1, distance), b.ishr(x1, 32 - distance)));
    }
    x0 = b.iadd(x0, keyAt(group + 1));
    x1 = b.iadd(b.iadd(x1, keyAt(group + 2)), b.i32(group + 1));
  }
  return [x0, x1];
}
