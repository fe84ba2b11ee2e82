import { readdirSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import "../../src/index.js";
import type { CompileOptions, Engine } from "../../src/ir/engine.js";
import type { Program } from "../../src/ir/program.js";
import { areas } from "../conformance/goldens/areas.js";
import { runCase } from "../conformance/goldens/runCase.js";
import { type GoldenArea, goldenFolder, goldens } from "./goldens.js";

/** An engine that counts the runs of its programs. */
function counting(engine: Engine): { readonly engine: Engine; readonly numRuns: () => number } {
  let runs = 0;
  const compile = (program: Program, options: CompileOptions) => {
    const executable = engine.compile(program, options);
    return {
      execute: (inputs: Parameters<typeof executable.execute>[0]) => {
        runs++;
        return executable.execute(inputs);
      },
      release: () => executable.release(),
    };
  };
  const counted = new Proxy(engine, {
    get: (target, key) => {
      if (key === "compile") return compile;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  return { engine: counted, numRuns: () => runs };
}

const isArea = (name: string): name is GoldenArea => areas.has(name);

/** The engines that the everyday suite runs reference values on. */
type EngineName = "reference" | "threads";

const everything = process.env.CASES === "all";

/**
 * Areas whose cases take as long as all others together, and where each of them is tried unless `CASES=all`:
 * pipelines take turns on the engines, and language models, which learn for fifty steps, are compiled.
 */
const dearAreas: Partial<Record<GoldenArea, (name: string, index: number) => EngineName | undefined>> = {
  circular_pipeline: (name, index) =>
    containedPipelines.test(name) ? undefined : index % 2 === 0 ? "reference" : "threads",
  language_model: () => "threads",
};

/** Pipelines that only go round once more, or have more or fewer microbatches, than another one with the same settings. */
const containedPipelines = /^stages4_micro(8_repeats1_size2_data|8_repeats3|8_repeats2_size2_delay|12)/;

/** Reference values, computed on an engine; that engine must be the one that computed it. */
export function describeGoldens(name: EngineName, open: (numDevices: number) => Engine): void {
  let counted: ReturnType<typeof counting> | undefined;
  const engine = () => {
    if (!counted) throw new Error("the engine is not open");
    return counted;
  };
  beforeAll(() => {
    counted = counting(open(8));
  });
  afterAll(() => counted?.engine.close());

  const names = readdirSync(goldenFolder)
    .filter((file) => file.endsWith(".json"))
    .map((file) => file.slice(0, -".json".length));

  test(`every file of reference values has an area that checks it on the ${name} engine`, () => {
    expect(names.filter((file) => !isArea(file))).toEqual([]);
  });

  const ownCases = (area: GoldenArea) => {
    const placeOf = everything ? undefined : dearAreas[area];
    return goldens(area).filter((golden, i) => !placeOf || placeOf(golden.name, i) === name);
  };
  const tried = names.filter(isArea).filter((area) => ownCases(area).length > 0);
  describe.each(tried)(`%s agrees on the ${name} engine:`, (area) => {
    test.each(ownCases(area))("$name", { timeout: 120_000 }, async (golden) => {
      const before = engine().numRuns();
      expect(engine().engine.name).toBe(name);
      await runCase(golden, engine().engine);
      expect(engine().numRuns()).toBeGreaterThan(before);
    });
  });
}
