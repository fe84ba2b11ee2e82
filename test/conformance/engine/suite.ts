import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Engine } from "../../../src/ir/engine.js";
import type { EngineCase } from "./cases.js";
import { describeContract } from "./contract.js";
import { type Allowances, failuresOf } from "./differences.js";
import { opCases } from "./opCases.js";
import { programCases } from "./programCases.js";

/** What an engine cannot do yet, and why; a skipped case that passes fails the suite, and so does a name of none. */
export interface Skip {
  readonly reason: string;
  /** Names of cases, or their beginnings. */
  readonly tests: readonly string[];
}

/** How the suite is run on an engine. */
export interface EngineSuiteOptions {
  readonly name: string;
  /** Opens an engine with at least so many devices. */
  readonly newEngine: (numDevices: number) => Engine;
  readonly skip?: readonly Skip[];
  /** What the machine that it runs on lets it do otherwise, found out by trying. */
  readonly allowances?: (engine: Engine) => Promise<Allowances>;
}

/** The most devices a case uses. */
const MAX_DEVICES = 4;

/** Runs everything that every engine must do: the contract of the interface, every op, and whole programs. */
export function runEngineSuite({ name, newEngine, skip = [], allowances }: EngineSuiteOptions): void {
  describe(`the ${name} engine conforms`, () => {
    describeContract(newEngine);
    const engine: { current: Engine | undefined } = { current: undefined };
    let allowed: Allowances = {};
    beforeAll(async () => {
      engine.current = newEngine(MAX_DEVICES);
      if (allowances) allowed = await allowances(engine.current);
    });
    afterAll(async () => {
      await engine.current?.close();
    });
    const current = (): Engine => {
      if (engine.current === undefined) throw new Error("the engine is not open");
      return engine.current;
    };
    const groups = [
      ...Object.entries(opCases),
      ...programCases.map((program) => [program.name, [program]] as const),
    ].filter(([, cases]) => cases.length > 0);
    for (const [group, cases] of groups) {
      const chosen = cases.filter((one) => !skip.some((entry) => isSkipped(one, entry)));
      if (chosen.length === 0) continue;
      test(`computes ${group}`, async () => {
        const found: string[] = [];
        for (const one of chosen) found.push(...(await failuresOf(current(), one, allowed)));
        expect(found, found.join("; ")).toEqual([]);
      });
    }
    const all = groups.flatMap(([, cases]) => cases);
    for (const entry of skip) {
      test(`cannot yet: ${entry.reason}`, async () => {
        expect(await needlessSkips(current(), entry, all)).toEqual([]);
      });
    }
  });
}

const isSkipped = (one: EngineCase, { tests }: Skip): boolean =>
  tests.some((begin) => one.name.startsWith(begin));

/** What is wrong with a list of skipped tests: names without a case, and cases that would pass. */
export async function needlessSkips(
  engine: Engine,
  { tests }: Skip,
  cases: readonly EngineCase[],
): Promise<string[]> {
  const found: string[] = [];
  for (const begin of tests) {
    const skipped = cases.filter((one) => one.name.startsWith(begin));
    if (skipped.length === 0) found.push(`"${begin}" is the beginning of no case: take it off the list`);
    for (const one of skipped) {
      const failures = await failuresOf(engine, one);
      if (failures.length === 0) found.push(`"${one.name}" passes: take it off the list`);
    }
  }
  return found;
}
