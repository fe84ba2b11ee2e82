/**
 * Checks a folder of reference values:
 *
 *   npm run conformance -- DIR [--engine NAME] [--area AREA]
 */
import { parseArgs } from "node:util";
import "../../../src/index.js";
import { createReferenceEngine, createThreadsEngine } from "../../../src/engines/index.js";
import type { Engine } from "../../../src/ir/engine.js";
import { ShardwiseError } from "../../../src/ir/errors.js";
import { runConformance } from "./run.js";

const engines: Readonly<Record<string, (numDevices: number) => Engine>> = {
  reference: (numDevices) => createReferenceEngine({ numDevices }),
  threads: (numDevices) => createThreadsEngine({ numDevices }),
};

const usage = `usage: npm run conformance -- DIR [--engine ${Object.keys(engines).join("|")}] [--area AREA]`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { engine: { type: "string", default: "threads" }, area: { type: "string" } },
  });
  const [folder, ...more] = positionals;
  const openEngine = Object.hasOwn(engines, values.engine) ? engines[values.engine] : undefined;
  if (folder === undefined || more.length > 0 || !openEngine) {
    console.error(usage);
    return 2;
  }
  const print = (line: string) => console.log(line);
  const { passed, failed } = await runConformance({ folder, openEngine, area: values.area, print });
  return failed > 0 || passed === 0 ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof TypeError && "code" in error;
  console.error(
    error instanceof ShardwiseError ? error.message : isUsage ? `${error.message}\n${usage}` : error,
  );
  process.exitCode = 2;
}
