import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Engine } from "../../../src/ir/engine.js";
import { ValueError } from "../../../src/ir/errors.js";
import { areas } from "./areas.js";
import { type GoldenCase, parseCases } from "./cases.js";
import { Mismatch } from "./compare.js";
import { numDevices, runCase } from "./runCase.js";

/** What to check, and how to tell about it. */
export interface ConformanceOptions {
  /** A folder with `AREA.json` and `AREA.safetensors` for every area. */
  readonly folder: string;
  /** Opens the engine to run on. */
  readonly openEngine: (numDevices: number) => Engine;
  /** The one area to check; all of the folder by default. */
  readonly area?: string | undefined;
  /** Gets one line for every failing case, and the closing line. */
  readonly print: (line: string) => void;
}

/** How many cases agreed and how many did not. */
export interface ConformanceResult {
  readonly passed: number;
  readonly failed: number;
}

/** Computes all cases of a folder and compares them with its values. */
export async function runConformance(options: ConformanceOptions): Promise<ConformanceResult> {
  const { folder, area, print } = options;
  let [passed, failed] = [0, 0];
  const fail = (what: string, error: unknown) => {
    failed++;
    print(`FAIL ${what}: ${describe(error)}`);
  };
  const cases: GoldenCase[] = [];
  for (const name of await areasIn(folder, area)) {
    try {
      cases.push(...(await readCases(folder, name)));
    } catch (error) {
      fail(name, error);
    }
  }
  const engine = options.openEngine(Math.max(1, ...cases.map(numDevices)));
  const fitting = cases.filter((golden) => numDevices(golden) <= engine.numDevices);
  if (fitting.length < cases.length) {
    print(
      `${cases.length - fitting.length} cases need more devices than the ${engine.numDevices} of this engine`,
    );
  }
  try {
    for (const golden of fitting) {
      try {
        await runCase(golden, engine);
        passed++;
      } catch (error) {
        fail(`${golden.area}/${golden.name}`, error);
      }
    }
  } finally {
    await engine.close();
  }
  print(`${passed} passed, ${failed} failed`);
  return { passed, failed };
}

/** The cases of an area: `AREA.json` with the tensors of `AREA.safetensors` in place of their names. */
async function readCases(folder: string, area: string): Promise<GoldenCase[]> {
  const [json, bytes] = await Promise.all([
    readFile(join(folder, `${area}.json`), "utf8"),
    readFile(join(folder, `${area}.safetensors`)),
  ]);
  return parseCases(area, json, bytes);
}

/** The areas of a folder, those with a runner in their usual order first. */
async function areasIn(folder: string, only: string | undefined): Promise<string[]> {
  const files = await readdir(folder).catch((cause: unknown) => {
    throw new ValueError(`the folder "${folder}" cannot be read: ${describe(cause)}`);
  });
  const names = files.filter((file) => file.endsWith(".json")).map((file) => file.slice(0, -".json".length));
  const found = names.filter((name) => (only === undefined ? areas.has(name) : name === only));
  const unknown =
    only === undefined
      ? names.filter((name) => !areas.has(name) && files.includes(`${name}.safetensors`))
      : [];
  if (found.length + unknown.length === 0) {
    const wanted = only === undefined ? `any of ${[...areas.keys()].join(", ")}` : `"${only}"`;
    throw new ValueError(
      `the folder "${folder}" has no area ${wanted}: it has ${names.join(", ") || "none"}`,
    );
  }
  return [...areas.keys()]
    .filter((name) => found.includes(name))
    .concat(
      unknown,
      found.filter((name) => !areas.has(name)),
    );
}

/** An error on one line. */
function describe(error: unknown): string {
  const text = error instanceof Mismatch ? error.message : String(error);
  return text.replaceAll(/\s*\n\s*/g, " | ");
}
