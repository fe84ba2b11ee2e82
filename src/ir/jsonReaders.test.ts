import { describe, expect, test } from "vitest";
import { arrayOf, count, ifGiven, type JsonReader, matching, object, orNull, string } from "./jsonReaders.js";

const read = <T>(reader: JsonReader<T>, value: unknown): T =>
  reader(value, "", (where, rule, got) => new Error(`${where} ${rule}, got ${JSON.stringify(got)}`));

describe("readers of JSON", () => {
  const axis = object({ name: string, size: count, note: ifGiven(string) });
  const mesh = object({ axes: arrayOf(axis), parent: orNull(string) });

  test("return what they have checked, without fields that are not given and others", () => {
    const value = { axes: [{ name: "data", size: 2, colour: 3 }], parent: null };
    expect(read(mesh, value)).toEqual({ axes: [{ name: "data", size: 2 }], parent: null });
    expect(read(axis, { name: "a", size: 0, note: "b" })).toEqual({ name: "a", size: 0, note: "b" });
  });

  test.each([
    [[], "it must be an object, got []"],
    [{ axes: {}, parent: null }, "axes must be an array, got {}"],
    [{ axes: [{ name: "a", size: 1 }, 5], parent: null }, "axes[1] must be an object, got 5"],
    [
      { axes: [{ name: "a", size: -1 }], parent: null },
      "axes[0].size must be an integer of at least 0, got -1",
    ],
    [{ axes: [], parent: 4 }, "parent must be a string, got 4"],
  ])("name the place and the rule that %j breaks", (value, message) => {
    expect(() => read(mesh, value)).toThrow(message);
  });

  test("take only strings that match a pattern", () => {
    const digits = matching(/^\d+$/, "must be digits");
    expect(read(digits, "12")).toBe("12");
    for (const wrong of ["1a", 12, null]) expect(() => read(digits, wrong)).toThrow("must be digits");
  });
});
