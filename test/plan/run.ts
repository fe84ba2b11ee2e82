/**
 * The proof of the planner: `npm run test:plan` calibrates this machine, predicts time and memory of training steps
 * on 2, 4 and 8 devices, runs them, and compares. Whoever else uses the machine spoils the times, so configurations
 * take turns, each counts with its fastest step, and a busy machine is named. Takes some ten minutes.
 *
 * `--rounds 20` takes more turns, `--calibration FILE` keeps the figures or takes those of a run before, `--only pipe`
 * takes configurations that say so.
 */
import { existsSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import "../../src/index.js";
import { createThreadsEngine, type ThreadsEngine } from "../../src/engines/threads/engine.js";
import { at, formatBytes } from "../../src/ir/shape.js";
import * as np from "../../src/numpy/index.js";
import { devicePut } from "../../src/spmd/mesh/sharding.js";
import { Tensor } from "../../src/trace/tensor.js";
import * as tree from "../../src/trace/tree.js";
import { calibrate } from "../../src/train/plan/calibrate.js";
import {
  type Calibration,
  calibratedPrices,
  readCalibration,
  writeCalibration,
} from "../../src/train/plan/calibration.js";
import { type PlannedStep, priceConfig } from "../../src/train/plan/plan.js";
import { formatParts } from "../../src/train/plan/planText.js";
import { type RunConfig, readRunConfig } from "../../src/train/run/config.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../../src/train/run/setup.js";

const [timeTolerance, memoryTolerance, choiceTolerance] = [0.15, 0.05, 0.05];

/** Another model than those that the machine is calibrated with. */
const model = {
  "model.width": 192,
  "model.numLayers": 8,
  "model.numHeads": 6,
  "model.numKvHeads": 6,
  "model.mlpWidth": 512,
  "data.sequence": 96,
  "data.batch": 32,
};

type Settings = Readonly<Record<string, string | number>>;

const pipe = (mesh: Settings, schedule: string, microbatches: number, repeats = 1): Settings => ({
  ...mesh,
  "pipeline.schedule": schedule,
  "pipeline.microbatches": microbatches,
  "pipeline.repeats": repeats,
});

const configurations: readonly Settings[] = [
  { "mesh.data": 2 },
  { "mesh.data": 2, "model.remat": "dots" },
  { "mesh.data": 2, "model.remat": "full" },
  { "mesh.data": 2, "optimizer.accumulate": 4 },
  { "mesh.fsdp": 2 },
  { "mesh.fsdp": 2, "model.remat": "full" },
  { "mesh.model": 2 },
  pipe({ "mesh.pipe": 2 }, "circular", 4),
  pipe({ "mesh.pipe": 2 }, "circular", 4, 2),
  pipe({ "mesh.pipe": 2 }, "1f1b", 4),
  pipe({ "mesh.pipe": 2 }, "1f1b", 8),
  pipe({ "mesh.pipe": 2 }, "interleaved", 4, 2),
  pipe({ "mesh.pipe": 2 }, "zb-h1", 4),
  pipe({ "mesh.pipe": 2 }, "zb-v", 4),
  pipe({ "mesh.pipe": 2 }, "dualpipev", 4),
  { "mesh.data": 2, "mesh.model": 2 },
  { "mesh.fsdp": 4 },
  { "mesh.fsdp": 2, "mesh.model": 2 },
  pipe({ "mesh.data": 2, "mesh.pipe": 2 }, "1f1b", 4),
  pipe({ "mesh.pipe": 4 }, "1f1b", 8),
  pipe({ "mesh.pipe": 4 }, "zb-h1", 8),
  { "mesh.data": 8 },
  pipe({ "mesh.data": 2, "mesh.pipe": 2, "mesh.model": 2 }, "1f1b", 4),
  pipe({ "mesh.fsdp": 4, "mesh.pipe": 2 }, "zb-h1", 4),
];

const words = process.argv.slice(2);
const option = (name: string) => words[words.indexOf(`--${name}`) + 1];
const given = (name: string) => (words.includes(`--${name}`) ? option(name) : undefined);

function configOf(settings: Settings): RunConfig {
  const list = Object.entries({ ...model, ...settings }).map(([path, value]) => ({ path, value }));
  const { config, violations } = readRunConfig({}, list);
  if (violations.length > 0) throw new Error(violations.join("\n"));
  return config;
}

const devicesOf = ({ mesh }: RunConfig) => mesh.data * mesh.fsdp * mesh.pipe * mesh.model;

/** A training that is ready to run. */
interface Runner {
  /** The milliseconds of one step. */
  step(): Promise<number>;
}

async function open(engine: ThreadsEngine, config: RunConfig): Promise<Runner> {
  const mesh = runMesh(config, engine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { batch, sequence } = config.data;
  const tokens = await devicePut(np.zeros([batch, sequence + 1], { dtype: "int32" }), training.batchSharding);
  let state = training.init(0);
  return {
    step: async () => {
      const begin = performance.now();
      const [next, metrics] = training.step(state, tokens);
      state = next;
      await metrics.loss.data();
      const end = performance.now();
      for (const leaf of tree.leaves(metrics)) if (leaf instanceof Tensor) leaf.dispose();
      return end - begin;
    },
  };
}

/** The most bytes that a device of a fresh engine has while a configuration trains. */
async function peakBytes(config: RunConfig): Promise<number> {
  const numDevices = devicesOf(config);
  const engine = createThreadsEngine({ numDevices });
  try {
    const runner = await open(engine, config);
    for (let i = 0; i < 2; i++) await runner.step();
    const usages = Array.from({ length: numDevices }, (_, device) => engine.memoryUsage(device));
    return Math.max(...usages.map(({ used, peak = used, arena }) => peak + arena));
  } finally {
    await engine.close();
  }
}

interface Result {
  readonly planned: PlannedStep;
  readonly milliseconds: number;
  readonly bytes: number;
}

/** Measures all configurations of one number of devices, which take turns. */
async function measure(planned: readonly PlannedStep[], rounds: number): Promise<Result[]> {
  const bytes: number[] = [];
  for (const { config } of planned) bytes.push(await peakBytes(config));
  const engine = createThreadsEngine({ numDevices: devicesOf(at(planned, 0).config) });
  try {
    const runners: Runner[] = [];
    for (const { config } of planned) {
      const runner = await open(engine, config);
      for (let i = 0; i < 3; i++) await runner.step();
      runners.push(runner);
    }
    const best = planned.map(() => Number.POSITIVE_INFINITY);
    for (let round = 0; round < rounds; round++) {
      for (const [i, runner] of runners.entries()) {
        for (let k = 0; k < 3; k++) best[i] = Math.min(at(best, i), await runner.step());
      }
    }
    return planned.map((one, i) => ({ planned: one, milliseconds: at(best, i), bytes: at(bytes, i) }));
  } finally {
    await engine.close();
  }
}

async function calibration(): Promise<Calibration> {
  const file = given("calibration");
  if (file !== undefined && existsSync(file)) {
    const known = readCalibration(file);
    if (known) return known;
  }
  const measured = await calibrate({
    devices: [2, 4, 8],
    numRuns: 8,
    onProgress: (what) => console.error(`calibrating ${what}`),
  });
  if (file !== undefined) writeCalibration(file, measured);
  return measured;
}

function report(results: readonly Result[]): number {
  let failures = 0;
  for (const { planned, milliseconds, bytes } of results) {
    const time = (1000 * planned.seconds) / milliseconds - 1;
    const memory = planned.memoryBytes / bytes - 1;
    const isWrong = Math.abs(time) > timeTolerance || Math.abs(memory) > memoryTolerance;
    if (isWrong) failures++;
    const percent = (share: number) => `${share > 0 ? "+" : ""}${(100 * share).toFixed(1)} %`.padStart(8);
    console.log(
      [
        isWrong ? "✗" : "✓",
        planned.name.padEnd(44),
        `${(1000 * planned.seconds).toFixed(1).padStart(7)} ms for ${milliseconds.toFixed(1).padStart(7)} ms ${percent(time)}`,
        `${formatBytes(planned.memoryBytes).padStart(9)} for ${formatBytes(bytes).padStart(9)} ${percent(memory)}`,
        formatParts(planned.parts, planned.seconds),
      ].join("  "),
    );
  }
  const [fastest] = [...results].sort((a, b) => a.milliseconds - b.milliseconds);
  const [chosen] = [...results].sort((a, b) => a.planned.seconds - b.planned.seconds);
  if (!fastest || !chosen) return failures;
  const behind = chosen.milliseconds / fastest.milliseconds - 1;
  const isWrong = behind > choiceTolerance;
  console.log(
    `${isWrong ? "✗" : "✓"} first choice ${chosen.planned.name}, ${(100 * behind).toFixed(1)} % slower than the fastest, ${fastest.planned.name}\n`,
  );
  return failures + (isWrong ? 1 : 0);
}

const busy = loadavg()[0] ?? 0;
if (busy > 0.3 * availableParallelism()) {
  console.log(
    `the load of this machine is ${busy.toFixed(1)}: others use it, so measured times are too long; run this again when it is idle`,
  );
}
const only = given("only");
const figures = await calibration();
let failures = 0;
for (const numDevices of [2, 4, 8]) {
  const planned = configurations
    .map(configOf)
    .filter((config) => devicesOf(config) === numDevices)
    .map((config) => priceConfig(config, calibratedPrices(figures, numDevices)))
    .filter(({ name }) => only === undefined || name.includes(only));
  if (planned.length === 0) continue;
  console.error(`measuring ${planned.length} configurations on ${numDevices} devices`);
  failures += report(await measure(planned, Number(given("rounds") ?? 10)));
}
console.log(
  failures === 0
    ? `all within ${100 * timeTolerance} % of the time and ${100 * memoryTolerance} % of the memory that was measured`
    : `${failures} outside`,
);
process.exit(failures === 0 ? 0 : 1);
