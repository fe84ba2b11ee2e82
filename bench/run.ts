/**
 * The benchmarks: `npm run bench`, or some of them by name: `npm run bench -- lm matmul`. With `--json FILE`
 * the tables are also written as JSON. Every figure stands beside what the machine itself can do, or beside
 * another library's on the same work, measured in the same run.
 */
import { collectives } from "./collectives.js";
import { communication } from "./communication.js";
import { eager } from "./eager.js";
import { kernels } from "./kernels.js";
import { lm } from "./lm.js";
import { matmul } from "./matmul.js";
import { publish, type Report } from "./measure.js";
import { pipeline } from "./pipeline.js";

const benchmarks: Readonly<Record<string, () => Promise<Report>>> = {
  matmul,
  kernels,
  eager,
  collectives,
  communication,
  pipeline,
  lm,
};

const place = process.argv.indexOf("--json");
const names = process.argv.slice(2).filter((name, i) => !name.startsWith("--") && i + 2 !== place + 1);
const unknown = names.filter((name) => !(name in benchmarks));
if (unknown.length > 0) {
  console.error(`unknown benchmark ${unknown.join(", ")}: choose from ${Object.keys(benchmarks).join(", ")}`);
  process.exit(2);
}
let report: Report = {};
for (const name of names.length > 0 ? names : Object.keys(benchmarks)) {
  const benchmark = benchmarks[name];
  console.error(`${name} …`);
  if (benchmark) report = { ...report, ...(await benchmark()) };
}
publish(report);
process.exit(0);
