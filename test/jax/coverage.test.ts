import { readFileSync } from "node:fs";
import { lax, np, random, scipy } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import { expect, test } from "vitest";
import { gridRecords, namesInTable } from "./grid.js";
import { Draw } from "./random.js";
import { exemptions } from "./table.js";

/** The functions of a module and of the modules inside it, by path. */
function functionsOf(path: string, module: object): string[] {
  return Object.entries(module).flatMap(([key, value]: [string, unknown]) => {
    const own = `${path}.${key}`;
    if (typeof value === "function") return [own];
    if (typeof value !== "object" || value === null) return [];
    // Modules have no prototype; distributions are plain objects.
    return [null, Object.prototype].includes(Object.getPrototypeOf(value)) ? functionsOf(own, value) : [];
  });
}

const exported = Object.entries({ np, lax, nn, random, optim, scipy }).flatMap(([name, module]) =>
  functionsOf(name, module),
);

/** The functions that the random programs name. */
const inPrograms = new Set(
  readFileSync(new URL("functions.ts", import.meta.url), "utf8").match(/\b(np|lax|nn)(\.\w+)+/g),
);

const exempt = Object.values(exemptions).flatMap((names) => names.split(" "));

test("every exported function is compared with JAX, or is exempt for a reason", () => {
  const covered = new Set([...namesInTable, ...inPrograms, ...exempt]);
  expect(exported.filter((name) => !covered.has(name))).toEqual([]);
});

test("the table and the exemptions name exported functions only, and none twice", () => {
  const names = [...namesInTable, ...exempt];
  expect(names.filter((name) => !exported.includes(name))).toEqual([]);
  expect(exempt.filter((name) => namesInTable.has(name))).toEqual([]);
});

test("the grid gives the same programs for the same seed, and others for another one", () => {
  const callsOf = (seed: number) =>
    gridRecords(new Draw(seed)).map(({ name, py, call }) => [name, py, call(new Draw(seed)).operands]);
  expect(callsOf(1)).toEqual(callsOf(1));
  expect(callsOf(1)).not.toEqual(callsOf(2));
});
