import type { Vec, VecBuilder } from "../vectorProgram.js";
import { copySign } from "./exponential.js";

/** The largest integer not above x. */
export function floor(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.floor", x);
}

/** The smallest integer not below x. */
export function ceil(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.ceil", x);
}

/** The nearest integer, ties to even. */
export function roundEven(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.nearest", x);
}

/** The nearest integer, ties away from zero. */
export function roundAway(b: VecBuilder, x: Vec): Vec {
  // The float just below one half: adding one half itself would round 0.49999997 up to 1.
  const almostHalf = copySign(b, b.f32(0.49999997), x);
  return copySign(b, b.op("f32x4.trunc", b.add(x, almostHalf)), x);
}

/** −1, 0 (with its sign), 1 or NaN. */
export function sign(b: VecBuilder, x: Vec): Vec {
  const moves = b.op("f32x4.gt", b.abs(x), b.f32(0));
  return b.select(moves, copySign(b, b.f32(1), x), x);
}

/** A mask of the lanes that are neither infinite nor NaN. */
export function finiteMask(b: VecBuilder, x: Vec): Vec {
  return b.op("f32x4.lt", b.abs(x), b.f32(Infinity));
}
