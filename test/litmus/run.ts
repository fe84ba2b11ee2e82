/**
 * Runs litmus tests on threads of this machine, and counts what they see.
 *
 *   npm run litmus                         # a second each
 *   npm run litmus -- --seconds 60         # longer
 *   npm run litmus -- --test coherence     # those whose names contain a text
 */
import { parseArgs } from "node:util";
import { LitmusThreads } from "./litmus.js";
import { allTests, planted } from "./programs.js";

const { values: options } = parseArgs({
  options: { seconds: { type: "string", default: "1" }, test: { type: "string", default: "" } },
});

const number = new Intl.NumberFormat("en");
const threads = await LitmusThreads.start();
let [total, numWrong] = [0, 0];
for (const litmus of allTests.filter(({ name }) => name.includes(options.test))) {
  const { numTimes, outcomes, numForbidden } = await threads.run(litmus, 1000 * Number(options.seconds));
  const isPlanted = planted.includes(litmus);
  const isWrong = isPlanted ? numForbidden === 0 : numForbidden > 0;
  total += numTimes;
  if (isWrong) numWrong++;
  console.log(
    `${litmus.name}: ${isPlanted ? (isWrong ? "NOT FOUND" : "found") : isWrong ? "FORBIDDEN" : "right"}`,
  );
  const counts = [...outcomes].map(([outcome, times]) => `${outcome}: ${number.format(times)}`);
  console.log(`  ${counts.join("; ")}`);
}
console.log(`${number.format(total)} iterations, ${numWrong} wrong`);
await threads.close();
process.exit(numWrong > 0 ? 1 : 0);
