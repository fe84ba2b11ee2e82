/**
 * Checks a folder of reference values:
 *
 *   npm run conformance -- DIR [--engine NAME|PACKAGE|PATH] [--area AREA]
 */
import { parseArgs } from "node:util";
import "../../../src/index.js";
import { engineNames, importEngine, openEngine } from "../../../src/engines/index.js";
import { ShardwiseError } from "../../../src/ir/errors.js";
import { runConformance } from "./run.js";

const usage = `usage: npm run conformance -- DIR [--engine ${engineNames.join("|")}|PACKAGE|PATH] [--area AREA]`;

async function main(): Promise<number> {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: { engine: { type: "string", default: "threads" }, area: { type: "string" } },
  });
  const [folder, ...more] = positionals;
  if (folder === undefined || more.length > 0) {
    console.error(usage);
    return 2;
  }
  const { engine, area } = values;
  await importEngine(engine);
  const print = (line: string) => console.log(line);
  const { passed, failed } = await runConformance({
    folder,
    openEngine: (numDevices) => openEngine(engine, { numDevices }),
    area,
    print,
  });
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
