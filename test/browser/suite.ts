/** The page of `npm run test:browsers`: the suite of every engine and the reference values, on an engine of this page. */
import "../../src/index.js";
import { createInlineEngine } from "../../src/engines/inline/engine.js";
import { createReferenceEngine } from "../../src/engines/reference/engine.js";
import { createThreadsEngine } from "../../src/engines/threads/engine.js";
import { createWebGpuEngine } from "../../src/engines/webgpu/engine.js";
import type { Engine } from "../../src/ir/engine.js";
import { leftToDriver } from "../conformance/engine/leftToDriver.js";
import { runEngineSuite } from "../conformance/engine/suite.js";
import { parseCases } from "../conformance/goldens/cases.js";
import { numDevices, runCase } from "../conformance/goldens/runCase.js";
import { withoutFloat64 } from "../support/withoutFloat64.js";
import { runTests, type TestReport } from "./vitest.js";

const engines: Readonly<Record<string, (numDevices: number) => Engine>> = {
  threads: (numDevices) => createThreadsEngine({ numDevices, deadlineMs: 60_000 }),
  inline: (numDevices) => createInlineEngine({ numDevices }),
  reference: (numDevices) => createReferenceEngine({ numDevices }),
  webgpu: (numDevices) => createWebGpuEngine({ numDevices }),
};

function open(name: string): (numDevices: number) => Engine {
  const found = engines[name];
  if (found === undefined) throw new Error(`there is no engine ${name}`);
  return found;
}

/** Runs the suite that every engine passes. */
async function conformance(name: string): Promise<TestReport> {
  const newEngine = open(name);
  if (name === "webgpu")
    runEngineSuite({ name, newEngine, skip: [withoutFloat64], allowances: leftToDriver });
  else runEngineSuite({ name, newEngine });
  return runTests();
}

/** Computes the reference values of an area, which the page's server has. */
async function goldens(name: string, area: string): Promise<TestReport> {
  const [json, bytes] = await Promise.all([
    fetch(`goldens/${area}.json`).then((response) => response.text()),
    fetch(`goldens/${area}.safetensors`).then((response) => response.arrayBuffer()),
  ]);
  const cases = parseCases(area, json, new Uint8Array(bytes));
  const engine = open(name)(Math.max(1, ...cases.map(numDevices)));
  const report = { passed: 0, failures: [] as string[] };
  for (const golden of cases) {
    try {
      await runCase(golden, engine);
      report.passed++;
    } catch (error) {
      report.failures.push(`${area}/${golden.name}: ${String(error)}`);
    }
  }
  await engine.close();
  return report;
}

Object.assign(globalThis, { conformance, goldens });
