const twoOverSqrtPi = 2 / Math.sqrt(Math.PI);
const sqrtPi = Math.sqrt(Math.PI);

/** exp(−x²) without the rounding error of x² in the exponent. */
function expMinusSquare(x: number): number {
  const high = Math.fround(x);
  return Math.exp(-high * high) * Math.exp((high - x) * (high + x));
}

/** erf by its series of positive terms: 2/√π · exp(−x²) · Σ 2ⁿ x²ⁿ⁺¹ / (1·3·…·(2n+1)). */
function erfSeries(x: number): number {
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > Math.abs(sum) * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return twoOverSqrtPi * expMinusSquare(x) * sum;
}

/** erfc of a large x by the continued fraction exp(−x²)/√π · 1/(x + ½/(x + 1/(x + 1½/(x + …)))). */
function erfcFraction(x: number): number {
  let fraction = x;
  for (let n = Math.ceil(8 + 180 / (x * x)); n >= 1; n--) fraction = x + n / 2 / fraction;
  return expMinusSquare(x) / (sqrtPi * fraction);
}

/** The error function, to a few units in the last place of float64. */
export function erf(x: number): number {
  const size = Math.abs(x);
  if (size < 1.5 || Number.isNaN(x)) return erfSeries(x);
  return Math.sign(x) * (size > 6 ? 1 : 1 - erfcFraction(size));
}

/** 1 − erf(x) for x ≥ 0; from 1 on the subtraction would lose digits that the fraction keeps, if slowly. */
function erfc(x: number): number {
  return x < 1 ? 1 - erfSeries(x) : erfcFraction(x);
}

/** The inverse of {@link erf}: a closed-form guess of three digits and three steps of Halley's method. */
export function erfInv(y: number): number {
  const size = Math.abs(y);
  if (!(size < 1)) return size === 1 ? y * Number.POSITIVE_INFINITY : Number.NaN;
  if (size < 1e-8) return y / twoOverSqrtPi;
  // Near 1 the distance to 1 is exact and holds all the digits.
  const rest = 1 - size;
  const log = Math.log(rest * (1 + size));
  const a = 0.147;
  const b = 2 / (Math.PI * a) + log / 2;
  let x = Math.sqrt(Math.sqrt(b * b - log / a) - b);
  for (let step = 0; step < 3; step++) {
    const error = size < 0.5 ? erf(x) - size : rest - erfc(x);
    x -= error / (twoOverSqrtPi * expMinusSquare(x) + x * error);
  }
  return Math.sign(y) * x;
}

/** x to the power y as C defines it; JavaScript gives NaN for 1 to NaN and ±1 to ±infinity. */
export function power(x: number, y: number): number {
  if (x === 1 || (x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY)) return 1;
  return x ** y;
}

/** x to the power y modulo 2³²; a negative power is the truncated true value: 0 unless x is 1 or −1. */
export function integerPower(x: number, y: number): number {
  if (y < 0) {
    if (x === 1) return 1;
    if (x === -1) return y % 2 === 0 ? 1 : -1;
    return 0;
  }
  let result = 1;
  let square = x;
  for (let rest = y; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = Math.imul(result, square);
    square = Math.imul(square, square);
  }
  return result;
}

/** Integer division toward zero; by zero all bits are set. */
export function integerDivide(x: number, y: number): number {
  return y === 0 ? -1 : Math.trunc(x / y);
}

/** Integer remainder with the sign of the dividend; by zero it is the dividend. */
export function integerRemainder(x: number, y: number): number {
  return y === 0 ? x : x % y;
}

/** Shift amounts are unsigned: negative ones are large. */
const isLargeShift = (amount: number): boolean => amount < 0 || amount > 31;

/** Bits to the left; by 32 or more nothing is left. */
export function shiftLeft(x: number, amount: number): number {
  return isLargeShift(amount) ? 0 : x << amount;
}

/** Bits to the right, filled with zeros. */
export function shiftRightLogical(x: number, amount: number): number {
  return isLargeShift(amount) ? 0 : x >>> amount;
}

/** Bits to the right, filled with the top bit. */
export function shiftRightArithmetic(x: number, amount: number): number {
  return x >> (isLargeShift(amount) ? 31 : amount);
}

const rotations = [13, 15, 26, 6, 17, 29, 16, 24];

/**
 * The Threefry 2x32 block cipher, of 20 rounds: after every four rounds the keys are added in turn.
 *
 * @param bits receives the two results, so that no array is made for every element
 */
export function threefry(
  key0: number,
  key1: number,
  counter0: number,
  counter1: number,
  bits: Int32Array,
): void {
  let [now, next, last] = [key0 | 0, key1 | 0, key0 ^ key1 ^ 0x1bd11bda];
  let a = (counter0 + now) | 0;
  let b = (counter1 + next) | 0;
  for (let round = 0; round < 20; round++) {
    const rotation = rotations[round % 8] as number;
    a = (a + b) | 0;
    b = ((b << rotation) | (b >>> (32 - rotation))) ^ a;
    if (round % 4 !== 3) continue;
    [now, next, last] = [next, last, now];
    a = (a + now) | 0;
    b = (b + next + (round + 1) / 4) | 0;
  }
  bits[0] = a;
  bits[1] = b;
}
