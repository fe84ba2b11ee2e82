import { existsSync } from "node:fs";
import { expect, test } from "vitest";
import { mutantsOf } from "./mutate.js";
import { targets } from "./targets.js";

const changes = (source: string) => mutantsOf("rules.ts", source).map(({ after }) => after);

test("operators, constants, signs and twins among functions are changed one at a time", () => {
  expect(changes("const y = -x + 2 * Math.max(x, 0.5);\n")).toEqual([
    "const y = -x - 2 * Math.max(x, 0.5);",
    "const y = (x) + 2 * Math.max(x, 0.5);",
    "const y = -x + 2 / Math.max(x, 0.5);",
    "const y = -x + 3 * Math.max(x, 0.5);",
    "const y = -x + 2 * Math.min(x, 0.5);",
    "const y = -x + 2 * Math.max(x, 0.5005);",
  ]);
  expect(changes("const ok = !a && b < true;\n")).toEqual([
    "const ok = !a || b < true;",
    "const ok = (a) && b < true;",
    "const ok = !a && b <= true;",
    "const ok = !a && b < false;",
  ]);
});

test("types, imports and messages stay as they are", () => {
  expect(changes('import { a } from "b";\ntype T = 1 | 2;\nif (a) throw new Error("x" + 1);\n')).toEqual([]);
});

test("a mutant replaces exactly its place", () => {
  const source = "const a = 1;\nconst b = a * 2;\n";
  for (const { start, end, text, before, after } of mutantsOf("rules.ts", source)) {
    const mutated = source.slice(0, start) + text + source.slice(end);
    expect(mutated.split("\n")).toContain(after);
    expect(source.split("\n")).toContain(before);
  }
});

test("every source to be mutated and every test that proves it is there", () => {
  const paths = targets.flatMap(({ sources, tests }) => [...sources, ...tests]);
  expect(paths.filter((path) => !existsSync(path))).toEqual([]);
});
