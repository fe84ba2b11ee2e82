/**
 * The benchmarks: `npm run bench`, or some of them by name: `npm run bench -- lm matmul`. With `--json FILE`
 * the tables are also written as JSON, of which `npm run performance` makes a page; `options.ts` lists the other
 * options. Every figure is compared with the peak of the machine, or with another library on the same work, measured
 * in the same run.
 */

import { attention } from "./attention.js";
import { browser } from "./browser/browser.js";
import { checkpoint } from "./checkpoint.js";
import { collectives } from "./collectives.js";
import { communication } from "./communication.js";
import { context } from "./context.js";
import { dispatch } from "./dispatch.js";
import { eager } from "./eager.js";
import { generate } from "./generate.js";
import { growth } from "./growth.js";
import { kernels } from "./kernels.js";
import { lm } from "./lm.js";
import { matmul } from "./matmul.js";
import { publish, type Report } from "./measure.js";
import { moe } from "./moe.js";
import { benchmarkNames, checkOptions } from "./options.js";
import { pipeline } from "./pipeline.js";
import { profile } from "./profile.js";
import { bubbles } from "./schedules.js";
import { webgpu } from "./webgpu.js";

const benchmarks: Readonly<Record<string, () => Promise<Report>>> = {
  matmul,
  attention,
  kernels,
  eager,
  dispatch,
  collectives,
  communication,
  checkpoint,
  pipeline,
  bubbles,
  context,
  moe,
  generate,
  lm,
  profile,
  growth,
  webgpu,
  browser,
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
const everywhere = Object.keys(benchmarks).filter((name) => name !== "webgpu");
for (const name of names.length > 0 ? names : everywhere) {
  const benchmark = benchmarks[name];
  console.error(`${name} …`);
  if (benchmark) report = { ...report, ...(await benchmark()) };
}
publish(report);
process.exit(0);
