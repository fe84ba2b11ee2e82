/**
 * Lets simulated pages compute on devices that take turns in one worker, whose messages are late.
 *
 *   npm run explore:oneThread                    # 2,000 seeds; --from 2001 begins with another one, --seeds takes more
 *   npm run explore:oneThread -- --seed 17       # one again
 *   npm run explore:oneThread -- --mutants       # plants every bug and looks for it; --update writes oneThreadSeeds.json
 */
import { writeFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { pageMutants } from "./oneThreadMutants.js";
import { faultKinds, findPageBug, loadPage, runPagePlan } from "./oneThreadRuns.js";

const { values: options } = parseArgs({
  options: {
    seed: { type: "string" },
    from: { type: "string", default: "1" },
    seeds: { type: "string", default: "2000" },
    mutants: { type: "boolean", default: false },
    update: { type: "boolean", default: false },
  },
});

async function exploreMutants(): Promise<void> {
  const seeds: Record<string, number> = {};
  for (const mutant of pageMutants) {
    const found = await findPageBug(mutant, 1, 2000);
    if (found) seeds[mutant.name] = found.seed;
    const how = found ? `seed ${found.seed}, ${found.failure.kind}: ${found.failure.message}` : "NOT FOUND";
    console.log(`${mutant.file}: ${mutant.name}: ${how.slice(0, 200)}`);
  }
  const numFound = Object.keys(seeds).length;
  console.log(`${numFound} of ${pageMutants.length} found`);
  if (options.update)
    writeFileSync(new URL("oneThreadSeeds.json", import.meta.url), `${JSON.stringify(seeds, null, 2)}\n`);
  if (numFound < pageMutants.length) process.exitCode = 1;
}

/** Runs seeds from one on. */
async function exploreSeeds(first: number, count: number): Promise<void> {
  const code = await loadPage();
  const [faults, errors] = [new Map<string, number>(), new Map<string, number>()];
  const add = (counts: Map<string, number>, key: string) => counts.set(key, (counts.get(key) ?? 0) + 1);
  let numFailures = 0;
  for (let seed = first; seed < first + count; seed++) {
    const { plan, happened, errors: texts, failure } = runPagePlan(code, seed);
    for (const kind of happened) add(faults, kind);
    for (const text of texts) add(errors, kindOf(text));
    if (failure === undefined) continue;
    numFailures++;
    console.log(`seed ${seed}: ${failure.kind}: ${failure.message}\n${JSON.stringify(plan)}`);
  }
  const list = (counts: ReadonlyMap<string, number>) =>
    [...counts].map(([key, times]) => `${key} ${times}`).join(", ") || "none";
  console.log(`${count} schedules from seed ${first}, ${numFailures} failures`);
  console.log(`faults: ${list(faults)}`);
  console.log(`errors, all of them promised: ${list(errors)}`);
  console.log(
    `coverage: ${faults.size} of ${faultKinds.length} kinds of faults; kinds of promised errors: ${errors.size}`,
  );
  if (numFailures > 0) process.exitCode = 1;
}

/** An error without what differs from seed to seed. */
function kindOf(text: string): string {
  const kinds = ["a host callback threw", "came to different collectives", "its worker exited", "closed"];
  return kinds.find((kind) => text.includes(kind)) ?? text;
}

if (options.mutants) await exploreMutants();
else if (options.seed === undefined) await exploreSeeds(Number(options.from), Number(options.seeds));
else {
  await exploreSeeds(Number(options.seed), 1);
  console.log(JSON.stringify(runPagePlan(await loadPage(), Number(options.seed)), null, 1));
}
