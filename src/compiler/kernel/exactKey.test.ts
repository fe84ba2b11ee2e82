import { expect, test } from "vitest";
import { exactKey } from "./exactKey.js";

test("numbers that JSON takes for each other have keys of their own", () => {
  const values = [0, -0, 1, -1, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, null];
  expect(values.map((value) => exactKey({ value }))).toEqual([
    '{"value":0}',
    '{"value":"-0"}',
    '{"value":1}',
    '{"value":-1}',
    '{"value":"NaN"}',
    '{"value":"Infinity"}',
    '{"value":"-Infinity"}',
    '{"value":null}',
  ]);
});

test("values deep inside count", () => {
  expect(exactKey({ nodes: [{ value: -0 }] })).not.toBe(exactKey({ nodes: [{ value: 0 }] }));
  expect(exactKey({ nodes: [{ value: 2 }] })).toBe(exactKey({ nodes: [{ value: 2 }] }));
});
