/** All scenarios, and which of them find a planted bug. */
import { exploreSeed, type Found } from "./explore.js";
import { loadSimulated, type SimulatedCode } from "./load.js";
import type { Mutant } from "./mutants.js";
import type { Scenario } from "./scenario.js";

/** Scenarios begin with the name of their file. */
const fileOf = (name: string): string => `test/explore/scenarios/${name}.ts`;

export const scenarioFiles: readonly string[] = ["crew", "commands", "collectives", "engine"].map(fileOf);

export function scenariosOf({ exports }: SimulatedCode): readonly Scenario[] {
  return exports.scenarios as readonly Scenario[];
}

/** How a planted bug was found. */
export interface FoundMutant {
  readonly scenario: string;
  readonly seed: number;
  readonly kind: string;
  readonly code: SimulatedCode;
  readonly run: Scenario;
  readonly found: Found;
}

/**
 * Plants a bug and runs the scenarios that use the code, under one seed after the other.
 *
 * @param only the name of a scenario, where not all are to be tried
 */
export async function findMutant(
  mutant: Mutant,
  numSeeds: number,
  first = 1,
  only?: string,
): Promise<FoundMutant | undefined> {
  const files = mutant.scenarios.filter((name) => only?.startsWith(`${name}: `) ?? true);
  const codes = await Promise.all(files.map((name) => loadSimulated(fileOf(name), [mutant])));
  for (let seed = first; seed < first + numSeeds; seed++) {
    for (const code of codes) {
      for (const run of scenariosOf(code)) {
        if (only !== undefined && run.name !== only) continue;
        const { found } = exploreSeed(code, run, seed);
        if (found) return { scenario: run.name, seed, kind: found.failure.kind, code, run, found };
      }
    }
  }
  return undefined;
}
