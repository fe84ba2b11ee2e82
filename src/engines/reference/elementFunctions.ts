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

/** Integer division toward zero; division by zero gives all bits set. */
export function integerDivide(x: number, y: number): number {
  return y === 0 ? -1 : Math.trunc(x / y);
}

/** Integer remainder with the sign of the dividend; the remainder by zero is the dividend. */
export function integerRemainder(x: number, y: number): number {
  return y === 0 ? x : x % y;
}

/** Shift amounts are unsigned: negative ones are large. */
const isLargeShift = (amount: number): boolean => amount < 0 || amount > 31;

/** Left shift; 32 or more give 0. */
export function shiftLeft(x: number, amount: number): number {
  return isLargeShift(amount) ? 0 : x << amount;
}

/** Right shift, filled with zeros. */
export function shiftRightLogical(x: number, amount: number): number {
  return isLargeShift(amount) ? 0 : x >>> amount;
}

/** Right shift, filled with the sign bit. */
export function shiftRightArithmetic(x: number, amount: number): number {
  return x >> (isLargeShift(amount) ? 31 : amount);
}

const rotations = [13, 15, 26, 6, 17, 29, 16, 24];

/**
 * The Threefry 2x32 block cipher, of 20 rounds: after every four rounds the keys are added in turn.
 *
 * @param bits receives the two results, to avoid allocating an array for every element
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
