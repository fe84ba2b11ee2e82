import { describe, expect, test } from "vitest";
import { getKnown, getOrInsert, zip } from "./collections.js";

describe("zip", () => {
  test("pairs elements at the same places", () => {
    expect(zip([1, 2], ["a", "b"])).toEqual([
      [1, "a"],
      [2, "b"],
    ]);
    expect(zip([], [])).toEqual([]);
  });

  test("refuses lists of different lengths", () => {
    expect(() => zip([1, 2], [3])).toThrow("lists of 2 and 1 elements");
    expect(() => zip([1], [2, 3])).toThrow("lists of 1 and 2 elements");
  });
});

describe("getOrInsert", () => {
  test("makes a value once for every key, whatever the value is", () => {
    const map = new Map<string, number>();
    const made: string[] = [];
    const get = (key: string) =>
      getOrInsert(map, key, () => {
        made.push(key);
        return 0;
      });
    expect([get("a"), get("b"), get("a")]).toEqual([0, 0, 0]);
    expect(made).toEqual(["a", "b"]);
  });

  test("keeps nothing if the value cannot be made", () => {
    const map = new WeakMap<object, number>();
    const key = {};
    expect(() =>
      getOrInsert(map, key, () => {
        throw new RangeError("no");
      }),
    ).toThrow("no");
    expect(map.has(key)).toBe(false);
  });
});

describe("getKnown", () => {
  test("names the key that a map does not have", () => {
    const map = new Map([["a", 0]]);
    expect(getKnown(map, "a")).toBe(0);
    expect(() => getKnown(map, "b")).toThrow("there is no value for b");
  });
});
