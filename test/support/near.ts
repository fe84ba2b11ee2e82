import { expect } from "vitest";

/** Whether two numbers are no further apart than a bound; what is not finite must be the very same. */
export function isNear(got: number, want: number, bound: number): boolean {
  if (!Number.isFinite(got) || !Number.isFinite(want)) return Object.is(got, want);
  return Math.abs(got - want) <= bound;
}

/**
 * Expects every element to be near the wanted one, where no single program explains the roundings of both.
 *
 * @param tolerance relative to the larger of `least` and the wanted element
 */
export function expectNear(
  got: ArrayLike<number>,
  want: ArrayLike<number>,
  tolerance: number,
  what = "the result",
  least = 1,
): void {
  expect(got.length, `elements of ${what}`).toBe(want.length);
  for (let i = 0; i < want.length; i++) {
    const [value, wanted] = [Number(got[i]), Number(want[i])];
    if (isNear(value, wanted, tolerance * Math.max(least, Math.abs(wanted)))) continue;
    expect.fail(`${what}: element ${i} of ${want.length} is ${value} instead of ${wanted}`);
  }
}
