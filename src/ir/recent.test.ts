import { expect, test } from "vitest";
import { Recent } from "./recent.js";

test("the values asked for most recently are kept", () => {
  const dropped: string[] = [];
  const recent = new Recent<string>(2, (value) => dropped.push(value));
  const made: string[] = [];
  const get = (key: string) =>
    recent.get(key, () => {
      made.push(key);
      return key.toUpperCase();
    });
  expect(["a", "b", "a", "c", "a", "b"].map(get)).toEqual(["A", "B", "A", "C", "A", "B"]);
  expect(made).toEqual(["a", "b", "c", "b"]);
  expect(dropped).toEqual(["B", "C"]);
});
