/** Starts parts of benchmarks in several processes. */
import { fileURLToPath } from "node:url";
import { ended, findLaunchers, launch, noLauncher } from "../../test/support/launchers.js";

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));

/** What process 0 of a job prints, which is one line of JSON; undefined if there is no MPI. */
export async function runJob<T>(script: string, settings: object, processes: number): Promise<T | undefined> {
  const [launcher] = findLaunchers();
  if (launcher === undefined) {
    console.error(noLauncher);
    return undefined;
  }
  const typescript = ["--import", path("../../scripts/typescript.mjs")];
  const args = [...typescript, path(script), JSON.stringify(settings)];
  const { code, out, err } = await ended(launch(launcher, processes, args), 1_200_000);
  if (code !== 0) throw new Error(`${script} ended with code ${code}: ${err}`);
  const answer: T = JSON.parse(out.trim().split("\n").at(-1) ?? "null");
  return answer;
}
