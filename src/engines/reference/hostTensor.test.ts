import { expect, test } from "vitest";
import { hostTensor, numbersOf } from "./hostTensor.js";

test("tensors are made of arrays, typed arrays and whatever can be iterated", () => {
  const values = [3, 1, 2];
  for (const list of [values, Float32Array.from(values), new Set(values), values.values()]) {
    expect(numbersOf(hostTensor("float32", [3], list))).toEqual(values);
  }
});

test.each([null, undefined, 7, "123", {}, [1, "2", 3]])("tensors are not made of %j", (values) => {
  expect(() => hostTensor("float32", [3], values as number[])).toThrow("[hostTensor] the values");
});
