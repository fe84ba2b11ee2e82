/** The page of `npm run test:browsers`: the suite of every engine, reference values, training and random programs. */
import { createInlineEngine } from "../../src/engines/inline/engine.js";
import { createOneThreadEngine } from "../../src/engines/oneThread/engine.js";
import { createReferenceEngine } from "../../src/engines/reference/engine.js";
import { createThreadsEngine } from "../../src/engines/threads/engine.js";
import { createWebGpuEngine } from "../../src/engines/webgpu/engine.js";
import { Mesh } from "../../src/index.js";
import { dtypes } from "../../src/ir/dtype.js";
import type { Engine } from "../../src/ir/engine.js";
import { at } from "../../src/ir/shape.js";
import { caseOf } from "../compare/cases.js";
import { differenceOn } from "../compare/compare.js";
import { leftToDriver } from "../conformance/engine/leftToDriver.js";
import { runEngineSuite } from "../conformance/engine/suite.js";
import { parseCases } from "../conformance/goldens/cases.js";
import { numDevices, runCase } from "../conformance/goldens/runCase.js";
import { withoutFloat64 } from "../support/withoutFloat64.js";
import { lossesOn } from "./training.js";
import { runTests, type TestReport } from "./vitest.js";

const engines: Readonly<Record<string, (numDevices: number) => Engine>> = {
  threads: (numDevices) => createThreadsEngine({ numDevices, deadlineMs: 60_000 }),
  inline: (numDevices) => createInlineEngine({ numDevices }),
  oneThread: (numDevices) => createOneThreadEngine({ numDevices, deadlineMs: 60_000 }),
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

/** Trains a small language model on two devices, and compares its losses with those of the interpreter. */
async function training(name: string): Promise<TestReport> {
  const on = (engine: Engine) => lossesOn(Mesh.create({ data: 2, fsdp: 1, pipe: 1, model: 1 }, { engine }));
  const engine = open(name)(2);
  const [got, want] = [await on(engine), await on(createReferenceEngine())];
  await engine.close();
  // Sums are taken in another order.
  const isSame = want.every((loss, i) => Math.abs(loss - (got[i] ?? Number.NaN)) < 2e-5 * loss);
  if (isSame && at(want, want.length - 1) < at(want, 0)) return { passed: 1, failures: [] };
  return { passed: 0, failures: [`losses ${got.join(", ")}, not ${want.join(", ")}`] };
}

/** The number of random programs: they take a few seconds. */
const NUM_PROGRAMS = 24;

/** Compares random programs with the interpreter, always the same ones. */
async function programs(name: string): Promise<TestReport> {
  const engine = open(name)(4);
  const isGpu = name === "webgpu";
  const allowances = isGpu ? await leftToDriver(engine) : {};
  const types = isGpu ? dtypes.filter((dtype) => dtype !== "float64") : dtypes;
  const report = { passed: 0, failures: [] as string[] };
  for (let seed = 1; seed <= NUM_PROGRAMS; seed++) {
    const difference = await differenceOn(engine, caseOf(seed, { callbacks: "all", types }), allowances);
    if (difference === undefined) report.passed++;
    else report.failures.push(difference);
  }
  await engine.close();
  return report;
}

Object.assign(globalThis, { conformance, goldens, training, programs });
