/**
 * Runs the StableHLO that the XLA engine prints on simulated devices of jaxlib, and compares with the interpreter
 * and with reference values:
 *
 *   SHARDWISE_PYTHON=.venv/bin/python npm run test:stablehlo [-- ops|goldens] [--only NAME]
 */
import { parseArgs } from "node:util";
import "../../src/index.js";
import { failuresOf } from "../conformance/engine/differences.js";
import { opCases } from "../conformance/engine/opCases.js";
import { programCases } from "../conformance/engine/programCases.js";
import { runConformance } from "../conformance/goldens/run.js";
import { createEngine } from "./jaxEngine.js";
import { withoutTiny, withTinyResults } from "./tiny.js";

interface Count {
  passed: number;
  failed: number;
}

/** Every op's cases and whole programs. */
async function runCases(only: string | undefined): Promise<Count> {
  const engine = createEngine();
  const count = { passed: 0, failed: 0 };
  const groups = [...Object.entries(opCases), ...programCases.map((one) => [one.name, [one]] as const)];
  for (const [group, cases] of groups) {
    if (only !== undefined && group !== only) continue;
    for (const one of cases) {
      const failures = await failuresOf(engine, withoutTiny(one), withTinyResults);
      for (const failure of failures) console.log(`FAIL ${failure}`);
      if (failures.length === 0) count.passed++;
      else count.failed++;
    }
  }
  await engine.close();
  return count;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { only: { type: "string" }, folder: { type: "string", default: "test/goldens" } },
});
const parts = positionals.length === 0 ? ["ops", "goldens"] : positionals;
const total: Count = { passed: 0, failed: 0 };
if (parts.includes("ops")) {
  const { passed, failed } = await runCases(values.only);
  console.log(`ops and programs: ${passed} passed, ${failed} failed`);
  total.passed += passed;
  total.failed += failed;
}
if (parts.includes("goldens")) {
  const { folder, only } = values;
  const print = (line: string) => console.log(line);
  const result = await runConformance({ folder, openEngine: createEngine, area: only, print });
  total.passed += result.passed;
  total.failed += result.failed;
}
console.log(`${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);
