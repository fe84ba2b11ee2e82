import { expect, test } from "vitest";
import { expectNear, isNear } from "./near.js";

const { NaN: nan, POSITIVE_INFINITY: infinity } = Number;

test.each([
  [1, infinity],
  [-infinity, infinity],
  [infinity, 1],
  [nan, 1],
  [1, nan],
  [nan, infinity],
])("%d is not near %d", (got, want) => {
  expect(isNear(got, want, infinity)).toBe(false);
  expect(() => expectNear([got], [want], 1e-3)).toThrow(/element 0 of 1 is/);
});

test("what is not finite is near itself, and numbers within the bound of their own element", () => {
  expectNear([infinity, -infinity, nan, 1, 1e13], [infinity, -infinity, nan, 1.0005, 1.0005e13], 1e-3);
});

test("one element of many that is off is found beside a large one", () => {
  expect(() => expectNear([1e13, 1.001], [1e13, 1], 1e-4)).toThrow("element 1 of 2 is 1.001 instead of 1");
  expect(() => expectNear([1], [1, 2], 1)).toThrow(/elements of the result/);
});
