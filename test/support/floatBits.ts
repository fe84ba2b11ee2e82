import { type DType, limits } from "../../src/ir/dtype.js";

const value = new Float64Array(1);
const words = new Uint32Array(value.buffer);
const isLittleEndian = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1;
const [low, high] = isLittleEndian ? [0, 1] : [1, 0];

const smallestNormal = (dtype: DType): number =>
  dtype === "float16" ? 2 ** -14 : dtype === "float64" ? 2 ** -1022 : 2 ** -126;

/** The exponent e of a number x ≠ 0 with 2^e ≤ |x| < 2^(e+1). */
function exponentOf(x: number): number {
  value[0] = x;
  return (((words[high] ?? 0) >>> 20) & 0x7ff) - 1023;
}

/** The distance between neighbouring numbers of a float type around a finite value. */
export function unitOfLastPlace(x: number, dtype: DType): number {
  const size = Math.max(Math.abs(x), smallestNormal(dtype));
  return limits(dtype).epsilon * 2 ** exponentOf(size);
}

/** The largest power of two that divides a finite number; that of 0 is infinite. */
export function quantumOf(x: number): number {
  if (x === 0) return Number.POSITIVE_INFINITY;
  const exponent = Math.max(exponentOf(x), -1022);
  const [lowest, highest] = [words[low] ?? 0, ((words[high] ?? 0) & 0xfffff) | 0x100000];
  const zeros = lowest !== 0 ? 31 - Math.clz32(lowest & -lowest) : 63 - Math.clz32(highest & -highest);
  return 2 ** (exponent - 52 + zeros);
}

/** How many binary digits a finite number has from its first to its last that is not zero. */
export function digitsOf(x: number): number {
  return x === 0 ? 0 : exponentOf(x) - Math.log2(quantumOf(x)) + 1;
}

/** A number in [−1, 1) that its arguments determine and that follows no pattern. */
export function scatteredBy(seed: number, place: number, index: number, x: number): number {
  value[0] = x;
  let state =
    Math.imul(seed + 1, 0x9e3779b1) ^ Math.imul(place + 1, 0x85ebca6b) ^ Math.imul(index + 1, 0xc2b2ae35);
  for (const word of words) {
    state = Math.imul(state ^ word ^ (state >>> 15), 0x2c1b3c6d);
    state = Math.imul(state ^ (state >>> 12), 0x297a2d39) + 0x7f4a7c15;
  }
  return ((state ^ (state >>> 15)) >>> 0) / 2 ** 31 - 1;
}
