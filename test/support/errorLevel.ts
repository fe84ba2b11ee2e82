import { digitsOf } from "./floatBits.js";

/**
 * How far the float results of an op may lie from the true value of its operands:
 *
 * - `exact`: not at all, the result is one of the operands' values or needs no rounding;
 * - `nearest`: the true value rounded to the nearest number, wherever the op stands;
 * - `rounded`: the nearest number too, unless who computes may join ops (a product and a sum, a division by one number
 *   over and over), as XLA does;
 * - `ulps`: so many units in the last place, as the kernels of the function promise; XLA composes some functions of 16-bit
 *   floats of ops that are each rounded to 16 bits, which takes them off by `composed` units of that type;
 * - `sum`: the rounding of each addition, in any order;
 * - `body`: what its inner programs' ops do.
 */
export type ErrorLevel =
  | { readonly kind: "exact" | "nearest" | "sum" | "body" }
  | {
      readonly kind: "rounded";
      readonly ulps: number;
      readonly isExact: (result: number, x: number, y: number) => boolean;
    }
  | { readonly kind: "ulps"; readonly ulps: number; readonly composed: number };

export const exact: ErrorLevel = { kind: "exact" };
export const nearest: ErrorLevel = { kind: "nearest" };
export const sum: ErrorLevel = { kind: "sum" };
export const body: ErrorLevel = { kind: "body" };
export const ulps = (count: number, composed = 0): ErrorLevel => ({ kind: "ulps", ulps: count, composed });

export const rounded = (
  isExact: (result: number, x: number, y: number) => boolean,
  count = 0.5,
): ErrorLevel => ({
  kind: "rounded",
  ulps: count,
  isExact,
});

/** Whether the product of two numbers has no more digits than a float64. */
export const multipliesExactly = (x: number, y: number): boolean => digitsOf(x) + digitsOf(y) <= 53;
