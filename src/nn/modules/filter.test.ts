import { describe, expect, test } from "vitest";
import {
  type CollectionFilter,
  DenyList,
  inFilter,
  intersectFilters,
  isEmptyFilter,
  subtractFilters,
  unionFilters,
} from "./filter.js";

const names = ["a", "b", "c", "other"];
const filters: readonly CollectionFilter[] = [
  true,
  false,
  "a",
  [],
  ["a", "b"],
  new DenyList("a"),
  new DenyList(["b", "c"]),
  new DenyList(true),
  new DenyList(false),
  new DenyList(new DenyList("b")),
];

describe("filters", () => {
  test.each([
    ["union", unionFilters, (a: boolean, b: boolean) => a || b],
    ["intersection", intersectFilters, (a: boolean, b: boolean) => a && b],
    ["difference", subtractFilters, (a: boolean, b: boolean) => a && !b],
  ])("combine name by name: %s", (_, combine, logic) => {
    for (const a of filters) {
      for (const b of filters) {
        for (const name of names) {
          expect(inFilter(combine(a, b), name)).toBe(logic(inFilter(a, name), inFilter(b, name)));
        }
      }
    }
  });

  test("are empty when they choose no name whatever", () => {
    for (const filter of filters) {
      expect(isEmptyFilter(filter)).toBe(!names.some((name) => inFilter(filter, name)));
    }
  });
});
