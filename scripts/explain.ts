/**
 * Shows what the threads engine makes of every program that a file runs: its step list and its memory plan.
 *
 * `npm run explain -- examples/collectives.ts`
 */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { explainMemory, explainProgram } from "../src/compiler/explain.js";
import { ThreadsEngine } from "../src/engines/threads/engine.js";

const [file = ""] = process.argv.slice(2);
if (!existsSync(file)) {
  console.error(
    "npm run explain -- FILE.ts, where FILE.ts is a program that uses shardwise, such as examples/fsdp.ts",
  );
  process.exit(2);
}
const { load } = ThreadsEngine.prototype;
ThreadsEngine.prototype.load = function (compiled, options) {
  console.log(`\n${explainProgram(compiled)}\n${explainMemory(compiled)}\n`);
  return load.call(this, compiled, options);
};
await import(pathToFileURL(resolve(file)).href);
