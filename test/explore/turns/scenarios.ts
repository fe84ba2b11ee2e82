/** What is run in every order: how a seed is run, and the bugs that are planted in it. */
import type { Change } from "../load.js";
import type { Failure } from "../machine.js";
import { loadGenerator, runBatching } from "./batching.js";
import { loadCompiler, runCompiling } from "./compiling.js";
import type { TurnsResult } from "./turns.js";
import { batchingMutants, compilingMutants, type TurnsMutant } from "./turnsMutants.js";

export interface TurnsScenario {
  readonly name: string;
  readonly mutants: readonly TurnsMutant[];
  /** Loads the code with changes; gives what runs a seed. */
  load(changes?: readonly Change[]): Promise<(seed: number) => Promise<TurnsResult<unknown>>>;
}

export const scenarios: readonly TurnsScenario[] = [
  {
    name: "texts",
    mutants: batchingMutants,
    load: async (changes) => {
      const code = await loadGenerator(changes);
      return (seed) => runBatching(code, seed);
    },
  },
  {
    name: "compilers",
    mutants: compilingMutants,
    load: async (changes) => {
      const code = await loadCompiler(changes);
      return (seed) => runCompiling(code, seed);
    },
  },
];

/** Plants a bug and looks for a seed that finds it. */
export async function findTurnsBug(
  scenario: TurnsScenario,
  mutant: TurnsMutant,
  first: number,
  count: number,
): Promise<{ readonly seed: number; readonly failure: Failure } | undefined> {
  const run = await scenario.load([mutant]);
  for (let seed = first; seed < first + count; seed++) {
    const { failure } = await run(seed);
    if (failure) return { seed, failure };
  }
  return undefined;
}
