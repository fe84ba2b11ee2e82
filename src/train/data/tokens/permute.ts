/** Pseudo-random orders that are not stored. */
import { at } from "../../../ir/shape.js";

/**
 * Where a pseudo-random permutation of `size` elements maps `index`, without storing the permutation: a Feistel network
 * over the next power of four, applied again to results outside of the range.
 */
export function permute(index: number, size: number, seed: number, epoch: number): number {
  let halfBits = 1;
  while (4 ** halfBits < size) halfBits++;
  const mask = 2 ** halfBits - 1;
  const keys = Array.from({ length: 6 }, (_, round) =>
    mix(mix(mix(mix(seed >>> 0) ^ Math.floor(seed / 2 ** 32)) ^ epoch) + Math.imul(round + 1, 0x9e3779b9)),
  );
  let value = index;
  do {
    let left = Math.floor(value / (mask + 1));
    let right = value % (mask + 1);
    for (let round = 0; round < keys.length; round++) {
      const next = (left ^ mix(right ^ at(keys, round))) & mask;
      left = right;
      right = next;
    }
    value = (left >>> 0) * (mask + 1) + (right >>> 0);
  } while (value >= size);
  return value;
}

/** Mixes the bits of a number to a pseudo-random 32-bit one. */
export function mix(value: number): number {
  let x = value | 0;
  x = Math.imul(x ^ (x >>> 16), 0x7feb352d);
  x = Math.imul(x ^ (x >>> 15), 0x846ca68b);
  return (x ^ (x >>> 16)) >>> 0;
}
