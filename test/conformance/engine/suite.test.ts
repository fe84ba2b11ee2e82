import { expect, test } from "vitest";
import { createReferenceEngine } from "../../../src/engines/reference/engine.js";
import type { Engine } from "../../../src/ir/engine.js";
import { opCase, sample } from "./cases.js";
import { differences } from "./differences.js";
import { needlessSkips } from "./suite.js";

const cases = [
  opCase("exp", [sample("float32", [5], "any", 1)], {}),
  opCase("neg", [sample("int32", [5], "any", 1)], {}),
];

/** The reference engine, but every float32 that comes back has its last element changed. */
function faulty(change: (x: number) => number): Engine {
  const engine = createReferenceEngine();
  const download: Engine["download"] = async (buffer) => {
    const data = await engine.download(buffer);
    const last = data.length - 1;
    if (data instanceof Float32Array) data[last] = change(data[last] ?? 0);
    return data;
  };
  return new Proxy(engine, {
    get: (target, key) => {
      if (key === "download") return download;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

test.each([
  ["is infinite", () => Infinity],
  ["is no number", () => Number.NaN],
  ["has the other sign", (x: number) => -x],
  ["is a little off", (x: number) => x * (1 + 1e-5)],
])("a case is wrong when one element %s", async (_, change) => {
  for (const one of cases) {
    const found = await differences(faulty(change), one);
    expect(found.length).toBe(one.name.startsWith("exp") ? 1 : 0);
  }
});

test("a skip is needed as long as each of its cases fails", async () => {
  const skip = { reason: "float32 is not there", tests: ["exp float32"] };
  expect(
    await needlessSkips(
      faulty(() => 0),
      skip,
      cases,
    ),
  ).toEqual([]);
});

test("a skip of a case that passes is found, and one that names no case", async () => {
  const skip = { reason: "for no reason", tests: ["exp", "neg", "negate"] };
  expect(
    await needlessSkips(
      faulty(() => 0),
      skip,
      cases,
    ),
  ).toEqual([
    '"neg int32[5] int32[5]" passes: take it off the list',
    '"negate" is the beginning of no case: take it off the list',
  ]);
});
