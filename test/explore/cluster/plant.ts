/** Plants a bug and looks for a seed that finds it. */
import type { Fault } from "./faults.js";
import type { Mutant } from "./mutants.js";
import type { Jobs, Result } from "./search.js";
import { loadJob } from "./setting.js";

export interface FoundBug {
  readonly seed: number;
  readonly result: Result;
}

export async function findBug(
  jobs: Jobs,
  mutant: Mutant,
  numSeeds: number,
  first = 1,
): Promise<FoundBug | undefined> {
  const code = await loadJob([mutant]);
  const isOf = ({ kind }: Fault) => kind === mutant.fault;
  for (let seed = first, tried = 0; tried < numSeeds; seed++) {
    if (mutant.fault !== undefined && !jobs.plan(seed).faults.some(isOf)) continue;
    tried++;
    const result = jobs.run(code, seed);
    if (result.failure === undefined) continue;
    const sound = jobs.run(jobs.sound, seed).failure;
    if (sound) throw new Error(`seed ${seed} fails without a planted bug, too: ${sound.message}`);
    return { seed, result };
  }
  return undefined;
}
