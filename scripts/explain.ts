/**
 * Shows how the threads engine compiles every program that a file runs: its step list and its memory plan.
 *
 * `npm run explain -- examples/collectives.ts`
 */
import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { CompiledProgram } from "../src/compiler/steps.js";
import { WorkersEngine } from "../src/engines/workers/workersEngine.js";
import { explainMemory, explainProgram } from "./explainProgram.js";

/** Where the engine loads every program that it has compiled. */
interface Loading {
  loadAt(compiled: CompiledProgram, ...rest: unknown[]): unknown;
}

const [file = ""] = process.argv.slice(2);
if (!existsSync(file)) {
  console.error(
    "npm run explain -- FILE.ts, where FILE.ts is a program that uses shardwise, such as examples/fsdp.ts",
  );
  process.exit(2);
}
const prototype = WorkersEngine.prototype as unknown as Loading;
const { loadAt } = prototype;
prototype.loadAt = function (compiled, ...rest) {
  console.log(`\n${explainProgram(compiled)}\n${explainMemory(compiled)}\n`);
  return loadAt.call(this, compiled, ...rest);
};
await import(pathToFileURL(resolve(file)).href);
