/**
 * Runs the StableHLO that the XLA engine prints on simulated devices of jaxlib, and compares with the interpreter
 * and with reference values:
 *
 *   SHARDWISE_PYTHON=.venv/bin/python npm run test:stablehlo [-- ops|programs|goldens|attention|pretend|faults] [--only NAME] [--engine xla]
 *
 * With `--engine` the same runs on the devices of another engine. `attention` compares kernels of this machine's GPU
 * with what they stand for; `pretend` compiles there what 4 and 8 devices would run;
 * `faults` runs out of memory and so on.
 */
import { parseArgs } from "node:util";
import "../../src/index.js";
import { openEngine } from "../../src/engines/index.js";
import type { Engine } from "../../src/ir/engine.js";
import { axesSize } from "../../src/ir/mesh.js";
import { type Program, someEqn } from "../../src/ir/program.js";
import { failuresOf } from "../conformance/engine/differences.js";
import { writtenCases } from "../conformance/engine/opCases.js";
import { programCases } from "../conformance/engine/programCases.js";
import { runConformance } from "../conformance/goldens/run.js";
import { runAttention } from "./attention.js";
import { runFaults } from "./faults.js";
import { createEngine } from "./jaxEngine.js";
import { runPretended } from "./pretend.js";
import { runWholePrograms } from "./wholePrograms.js";

interface Count {
  passed: number;
  failed: number;
}

/** Every op's cases and whole programs, those that need more devices than there are left out. */
async function runCases(
  engine: Engine,
  only: string | undefined,
  isSimulated: boolean,
  suits: (program: Program) => boolean = () => true,
): Promise<Count> {
  const count = { passed: 0, failed: 0 };
  const groups = [...Object.entries(writtenCases), ...programCases.map((one) => [one.name, [one]] as const)];
  for (const [group, cases] of groups) {
    if (only !== undefined && group !== only) continue;
    for (const one of cases) {
      if (axesSize(one.mesh.axes) > engine.numDevices || !suits(one.program)) continue;
      const failures = await failuresOf(engine, one, { flushesTiny: isSimulated, joinsOps: true });
      for (const failure of failures) console.log(`FAIL ${failure}`);
      if (failures.length === 0) count.passed++;
      else count.failed++;
    }
  }
  await engine.close();
  return count;
}

function hasLoop(program: Program): boolean {
  return someEqn(program, ({ op }) => op === "scan");
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    engine: { type: "string" },
    only: { type: "string" },
    folder: { type: "string", default: "test/goldens" },
  },
});
const { engine: name } = values;
const open = () => (name === undefined ? createEngine() : openEngine(name, { numDevices: 1 }));
const parts = positionals.length === 0 ? ["ops", "programs", "goldens"] : positionals;
const total: Count = { passed: 0, failed: 0 };
if (parts.includes("ops")) {
  const { passed, failed } = await runCases(open(), values.only, name === undefined);
  console.log(`ops and programs: ${passed} passed, ${failed} failed`);
  total.passed += passed;
  total.failed += failed;
}
if (parts.includes("ops") && name === undefined) {
  const everyLoop = { unrolling: { minBytes: 0, maxEqns: Number.POSITIVE_INFINITY } };
  const { passed, failed } = await runCases(createEngine(everyLoop), values.only, true, hasLoop);
  console.log(`loops written out: ${passed} passed, ${failed} failed`);
  total.passed += passed;
  total.failed += failed;
}
if (parts.includes("programs") && name === undefined && values.only === undefined) {
  const { passed, failed } = await runWholePrograms(open(), (line) => console.log(line));
  total.passed += passed;
  total.failed += failed;
}
if (parts.includes("goldens")) {
  const { folder, only } = values;
  const print = (line: string) => console.log(line);
  const result = await runConformance({ folder, openEngine: open, area: only, print });
  total.passed += result.passed;
  total.failed += result.failed;
}
const onGpu = { attention: runAttention, pretend: runPretended, faults: runFaults };
for (const [part, run] of Object.entries(onGpu)) {
  if (!parts.includes(part)) continue;
  const result = await run((line) => console.log(line));
  total.passed += result.passed;
  total.failed += result.failed;
}
console.log(`${total.passed} passed, ${total.failed} failed`);
process.exit(total.failed > 0 || total.passed === 0 ? 1 : 0);
