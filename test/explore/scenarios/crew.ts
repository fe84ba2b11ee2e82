/** A device shares jobs with its helpers. */
import { Crew, dismissHelpers, help, JOB_FIELD, newCrewMemory } from "../../../src/engines/protocol/crew.js";
import { label, mayRace } from "../runtime.js";
import { type Scenario, type ScenarioRun, same } from "../scenario.js";

/** A number that describes a job, as a kernel's address would; the parts of the job read it. */
const ARGUMENT = JOB_FIELD.size;

function crew(numHelpers: number, counts: readonly number[]): () => ScenarioRun {
  return () => {
    const memory = newCrewMemory(true);
    label(memory.words, "crew");
    label(memory.job, "job");
    // A thread that is late compares the part with the number of parts of a newer or older job; its claim fails then.
    mayRace(memory.job, JOB_FIELD.count);
    const results = new Int32Array(new SharedArrayBuffer(4 * 8 * counts.length));
    label(results, "results");
    const runPart = (part: number) => {
      const number = memory.job[ARGUMENT] ?? 0;
      const at = 8 * (number - 1) + part;
      results[at] = (results[at] ?? 0) + 100 * number + part;
    };
    const device = () => {
      const crew = new Crew(memory, 1 + numHelpers);
      counts.forEach((count, i) => {
        const describe = (job: Float64Array) => {
          job[ARGUMENT] = i + 1;
        };
        crew.share(count, describe, runPart);
        // All parts are done once the job is, and their results can be read.
        for (let part = 0; part < count; part++)
          same(results[8 * i + part], 100 * (i + 1) + part, `part ${part}`);
      });
      dismissHelpers(memory);
    };
    const threads: Record<string, () => void> = { device };
    for (let i = 0; i < numHelpers; i++) threads[`helper ${i}`] = () => help(memory, runPart, () => {});
    const check = () => {
      counts.forEach((count, i) => {
        for (let part = 0; part < 8; part++) {
          same(
            results[8 * i + part],
            part < count ? 100 * (i + 1) + part : 0,
            `part ${part} of job ${i + 1}`,
          );
        }
      });
    };
    return { threads, check };
  };
}

export const scenarios: readonly Scenario[] = [
  { name: "crew: one part, one helper", isSmall: true, setUp: crew(1, [1]) },
  { name: "crew: one job, one helper", isSmall: true, setUp: crew(1, [2]) },
  { name: "crew: two jobs, one helper", isSmall: true, setUp: crew(1, [1, 2]) },
  { name: "crew: two jobs, two helpers", setUp: crew(2, [2, 3]) },
  { name: "crew: four jobs, three helpers", setUp: crew(3, [3, 1, 4, 2]) },
];
