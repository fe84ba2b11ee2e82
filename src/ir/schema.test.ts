import { describe, expect, expectTypeOf, test } from "vitest";
import { arrayOf, either, instanceOf, integerFrom, keyOf, oneOf, recordOf } from "./arguments.js";
import { type OptionsOf, omit, optional, pick, required, type Schema, schema } from "./schema.js";

const rider = schema({
  name: required("string"),
  age: required(integerFrom(1)),
  bikes: optional("strings"),
  gear: optional(oneOf("low", "high"), "low"),
  speed: 20,
  helmet: true,
});
class Wheel {
  readonly size = 3;
}
const given = { name: "Ada", age: 36 };
const read = (options: unknown) => rider.read(options, "ride");

describe("reading options", () => {
  test("fills in defaults", () => {
    expect(read(given)).toEqual({
      name: "Ada",
      age: 36,
      bikes: undefined,
      gear: "low",
      speed: 20,
      helmet: true,
    });
    expect(read({ ...given, speed: 0, helmet: false, bikes: ["city"] })).toMatchObject({
      speed: 0,
      helmet: false,
      bikes: ["city"],
    });
  });

  test("takes undefined for an option that is not given", () => {
    expect(read({ ...given, speed: undefined, gear: undefined })).toMatchObject({ speed: 20, gear: "low" });
  });

  test("reads options that an object inherits", () => {
    expect(read(Object.assign(Object.create({ speed: 3 }), given))).toMatchObject({ speed: 3 });
  });

  test("gives calls without options the same frozen object", () => {
    const plain = schema({ speed: 20 });
    expect(plain.read(undefined, "ride")).toBe(plain.read(undefined, "ride"));
    expect(Object.isFrozen(plain.read(undefined, "ride"))).toBe(true);
    expect(plain.read({}, "ride")).toEqual({ speed: 20 });
  });

  test.each([
    ["an unknown name", { ...given, spede: 3 }, /unknown option "spede": .*helmet; did you mean speed\?/],
    ["several unknown names", { ...given, x: 1, y: 2 }, /unknown option "x", "y": the options are name, age/],
    ["a name of every object", { ...given, toString: 3 }, /unknown option "toString"/],
    ["a missing option", { name: "Ada" }, "[ride] age must be an integer of at least 1, got undefined"],
    ["a number below the least", { ...given, age: 0 }, "[ride] age must be an integer of at least 1, got 0"],
    ["a fraction", { ...given, age: 1.5 }, "[ride] age must be an integer of at least 1, got 1.5"],
    [
      "a different kind from the default",
      { ...given, helmet: 1 },
      "[ride] helmet must be true or false, got 1",
    ],
    ["not a number", { ...given, speed: Number.NaN }, "[ride] speed must be a number, got NaN"],
    ["an unknown word", { ...given, gear: "top" }, '[ride] gear must be "low" or "high", got "top"'],
    ["null", null, /the options must be an object of name, age, .*, got null/],
    ["an array", [given], /the options must be an object of .*, got a list of 1/],
    ["nothing, where options are required", undefined, /the options must be an object of .*, got undefined/],
    ["an instance of a class", new Wheel(), /the options must be an object of .*, got a Wheel/],
  ])("refuses %s", (_, options, message) => {
    expect(() => read(options)).toThrow(message);
  });

  test("knows the fields of other schemas", () => {
    const racer = schema({ ...omit(rider.fields, "age", "bikes"), speed: 40, team: optional("string") });
    expect(racer.read({ name: "Ada" }, "race")).toMatchObject({ speed: 40, team: undefined });
    expect(() => racer.read(given, "race")).toThrow(/unknown option "age"/);
    expect(schema(pick(rider.fields, "speed", "helmet")).read({}, "rest")).toEqual({
      speed: 20,
      helmet: true,
    });
  });
});

describe("kinds of options", () => {
  const trip = schema({
    route: optional(arrayOf("integers", "pairs of integers")),
    days: optional(either(integerFrom(1), "null"), 1),
    bike: optional(instanceOf(Wheel, "a wheel", "make one with new Wheel()")),
    speeds: optional(recordOf("number"), {}),
    season: optional(keyOf({ dry: 1, wet: 2 }), "dry"),
    stops: optional("stringOrStrings"),
    legs: optional("integerOrIntegers"),
  });

  test("accept what is of them", () => {
    const values = {
      route: [[1, 2], []],
      days: null,
      bike: new Wheel(),
      speeds: { Ada: 3 },
      season: "wet",
      stops: ["a"],
      legs: 3,
    };
    expect(trip.read(values, "ride")).toEqual(values);
    expect(trip.read({ stops: "a", legs: [1, 2] }, "ride")).toMatchObject({ days: 1, season: "dry" });
    expectTypeOf<OptionsOf<typeof trip>["days"]>().toEqualTypeOf<number | null | undefined>();
    expectTypeOf<OptionsOf<typeof trip>["season"]>().toEqualTypeOf<"dry" | "wet" | undefined>();
    expectTypeOf<OptionsOf<typeof trip>["route"]>().toEqualTypeOf<
      readonly (readonly number[])[] | undefined
    >();
  });

  test.each([
    [{ route: [[1, 2], "x"] }, "route must be an array of pairs of integers, got a list of 2"],
    [{ route: new Array(2) }, "route must be an array of pairs of integers, got a list of 2"],
    [{ days: 0 }, "days must be an integer of at least 1 or null, got 0"],
    [{ bike: {} }, "bike must be a wheel, got an object: make one with new Wheel()"],
    [{ speeds: { Ada: "3" } }, "speeds must be an object in which each value is a number, got an object"],
    [{ season: "toString" }, 'season must be "dry" or "wet", got "toString"'],
    [{ stops: ["a", 1] }, "stops must be a string or an array of strings, got a list of 2"],
    [{ legs: [1.5] }, "legs must be an integer or an array of integers, got a list of 1"],
  ])("refuse %j", (options, message) => {
    expect(() => trip.read(options, "ride")).toThrow(`[ride] ${message}`);
  });
});

describe("the types of options", () => {
  test("follow from the schema", () => {
    expectTypeOf<OptionsOf<typeof rider>>().branded.toEqualTypeOf<{
      readonly name: string;
      readonly age: number;
      readonly bikes?: readonly string[] | undefined;
      readonly gear?: "low" | "high" | undefined;
      readonly speed?: number | undefined;
      readonly helmet?: boolean | undefined;
    }>();
    expectTypeOf<ReturnType<(typeof rider)["read"]>>().branded.toEqualTypeOf<{
      readonly name: string;
      readonly age: number;
      readonly bikes: readonly string[] | undefined;
      readonly gear: "low" | "high";
      readonly speed: number;
      readonly helmet: boolean;
    }>();
    expectTypeOf(rider).toExtend<Schema>();
  });
});
