/**
 * The benchmarks: `npm run bench`, or some of them by name: `npm run bench -- lm matmul`. With `--json FILE`
 * the tables are also written as JSON, of which `npm run performance` makes a page; `options.ts` lists the other
 * options. Every figure is compared with the peak of the machine, or with another library on the same work, measured
 * in the same run.
 */

import { publish, type Report } from "./measure.js";
import { benchmarkNames, checkOptions } from "./options.js";

/** Each loads only what it needs: a machine for measurements may lack a browser, for example. */
const benchmarks: Readonly<Record<string, () => Promise<Report>>> = {
  matmul: async () => (await import("./matmul.js")).matmul(),
  attention: async () => (await import("./attention.js")).attention(),
  kernels: async () => (await import("./kernels.js")).kernels(),
  eager: async () => (await import("./eager.js")).eager(),
  dispatch: async () => (await import("./dispatch.js")).dispatch(),
  collectives: async () => (await import("./collectives.js")).collectives(),
  communication: async () => (await import("./communication.js")).communication(),
  checkpoint: async () => (await import("./checkpoint.js")).checkpoint(),
  pipeline: async () => (await import("./pipeline.js")).pipeline(),
  bubbles: async () => (await import("./schedules.js")).bubbles(),
  context: async () => (await import("./context.js")).context(),
  moe: async () => (await import("./moe.js")).moe(),
  generate: async () => (await import("./generate.js")).generate(),
  lm: async () => (await import("./lm.js")).lm(),
  profile: async () => (await import("./profile.js")).profile(),
  firstStep: async () => (await import("./firstStep.js")).firstStep(),
  growth: async () => (await import("./growth.js")).growth(),
  webgpu: async () => (await import("./webgpu.js")).webgpu(),
  browser: async () => (await import("./browser/browser.js")).browser(),
};

checkOptions();
const names = benchmarkNames();
const unknown = names.filter((name) => !(name in benchmarks));
if (unknown.length > 0) {
  console.error(`unknown benchmark ${unknown.join(", ")}: choose from ${Object.keys(benchmarks).join(", ")}`);
  process.exit(2);
}
let report: Report = {};
// Not every machine has a GPU.
const everywhere = Object.keys(benchmarks).filter((name) => name !== "webgpu" && name !== "firstStep");
for (const name of names.length > 0 ? names : everywhere) {
  const benchmark = benchmarks[name];
  console.error(`${name} …`);
  if (benchmark) report = { ...report, ...(await benchmark()) };
}
publish(report);
process.exit(0);
