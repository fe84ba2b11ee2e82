/** One of several processes that run seeds. */
import { Jobs } from "./search.js";
import { loadJob } from "./setting.js";
import type { Portion } from "./sideBySide.js";
import { runSeeds } from "./summary.js";

const loaded = loadJob();
let jobs: Jobs | undefined;

process.on("message", async ({ first, count, until }: Portion) => {
  jobs ??= new Jobs(await loaded);
  process.send?.(runSeeds(jobs, first, count, until));
});
