/**
 * The proof of the planner: `npm run test:plan` calibrates this machine, predicts time and memory of training steps
 * on 2, 4 and 8 devices, runs them, and compares. It is a test of the prediction, not of who else uses the machine: the
 * programs of the calibration and the steps take turns in rounds, both count only where a product that is always the
 * same took about as long as at its best before and behind, and steps with their fastest run. Takes some ten minutes.
 *
 * `--rounds 12` takes more turns, `--minutes 8` begins none after so many, `--calibration FILE` keeps the figures or
 * takes those of a run before, `--only pipe` takes configurations that say so.
 */
import { existsSync } from "node:fs";
import { availableParallelism, loadavg } from "node:os";
import "../../src/index.js";
import { createThreadsEngine, type ThreadsEngine } from "../../src/engines/threads/engine.js";
import { formatBytes } from "../../src/ir/shape.js";
import * as np from "../../src/numpy/index.js";
import { devicePut } from "../../src/spmd/mesh/sharding.js";
import { Tensor } from "../../src/trace/tensor.js";
import * as tree from "../../src/trace/tree.js";
import { type RunConfig, readRunConfig } from "../../src/train/config/runConfig.js";
import { expectedVocabulary, runMesh, runTrainingFunctions } from "../../src/train/config/setup.js";
import { Calibrator, calibrationOf } from "../../src/train/plan/calibrate.js";
import {
  type Calibration,
  calibratedPrices,
  readCalibration,
  writeCalibration,
} from "../../src/train/plan/calibration.js";
import { describeChoice } from "../../src/train/plan/candidates.js";
import type { MachineLoad, Observed } from "../../src/train/plan/machineLoad.js";
import { type PlannedStep, priceConfig } from "../../src/train/plan/plan.js";
import { formatParts } from "../../src/train/plan/planText.js";

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

/** A configuration that takes its turn in every round. */
class Contender {
  private readonly steps: Observed<number>[] = [];

  constructor(
    readonly config: RunConfig,
    private readonly runner: Runner,
    private readonly load: MachineLoad,
  ) {}

  /** Compiles a configuration and warms it up. */
  static async open({ engine, load }: Calibrator, config: RunConfig): Promise<Contender> {
    const runner = await open(engine, config);
    for (let i = 0; i < 3; i++) await runner.step();
    return new Contender(config, runner, load);
  }

  /** Runs two steps, of which the faster one counts. */
  async round(): Promise<void> {
    const twice = async () => Math.min(await this.runner.step(), await this.runner.step());
    this.steps.push(await this.load.observe(twice));
  }

  get numUndisturbed(): number {
    return this.load.numUndisturbed(this.steps);
  }

  get milliseconds(): number {
    return Math.min(...this.load.undisturbed(this.steps));
  }
}

/** Rounds that are run at most, for each that is wanted. */
const maxTries = 2;

/** The milliseconds since this process began after which no round begins. */
const latest = 60_000 * Number(given("minutes") ?? 30);

/** Calibrates and runs steps by turns, and gives the calibration. */
async function takeTurns(
  calibrators: readonly Calibrator[],
  contenders: readonly Contender[],
  rounds: number,
): Promise<Calibration> {
  const file = given("calibration");
  const known = file !== undefined && existsSync(file) ? readCalibration(file) : undefined;
  for (let round = 1; round <= maxTries * rounds; round++) {
    const late = contenders.filter(({ numUndisturbed }) => numUndisturbed < rounds);
    const rough = known ? [] : calibrators.filter((one) => one.needs(rounds));
    if (late.length + rough.length === 0 || performance.now() > latest) break;
    console.error(`round ${round}: ${late.length} configurations, ${rough.length} calibrations`);
    for (const one of rough) await one.round(rounds);
    for (const contender of late) await contender.round();
  }
  const undisturbed = Math.min(...contenders.map(({ numUndisturbed }) => numUndisturbed));
  if (undisturbed < rounds) {
    console.log(
      `others used this machine: some configuration ran undisturbed in ${undisturbed} of ${rounds} rounds; run this again when it is idle`,
    );
  }
  const measured = known ?? calibrationOf(calibrators);
  if (file !== undefined && !known) writeCalibration(file, measured);
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
if (busy > 0.3 * availableParallelism()) console.log(`the load of this machine is ${busy.toFixed(1)}`);
const only = given("only");
const configs = configurations
  .map(configOf)
  .filter((config) => only === undefined || describeChoice(config).includes(only));
const deviceCounts = [2, 4, 8].filter((count) => configs.some((config) => devicesOf(config) === count));
// Figures of fewer devices serve for more where there are fewer cores.
const calibrated = [2, 4, 8].filter((count) => count <= Math.max(...deviceCounts));
console.error(`measuring the memory of ${configs.length} configurations`);
const bytes = new Map<RunConfig, number>();
for (const config of configs) bytes.set(config, await peakBytes(config));
console.error("compiling");
const calibrators: Calibrator[] = [];
for (const count of calibrated) calibrators.push(await Calibrator.open(count));
const contenders: Contender[] = [];
for (const config of configs) {
  const calibrator = calibrators.find(({ engine }) => engine.numDevices === devicesOf(config));
  if (calibrator) contenders.push(await Contender.open(calibrator, config));
}
const figures = await takeTurns(calibrators, contenders, Number(given("rounds") ?? 8));
for (const calibrator of calibrators) await calibrator.close();
let failures = 0;
for (const count of deviceCounts) {
  const own = contenders.filter(({ config }) => devicesOf(config) === count);
  const prices = calibratedPrices(figures, count);
  console.log(`${count} devices`);
  failures += report(
    own.map(({ config, milliseconds }) => ({
      planned: priceConfig(config, prices),
      milliseconds,
      bytes: bytes.get(config) ?? 0,
    })),
  );
}
console.log(
  failures === 0
    ? `all within ${100 * timeTolerance} % of the time and ${100 * memoryTolerance} % of the memory that was measured`
    : `${failures} outside`,
);
process.exit(failures === 0 ? 0 : 1);
