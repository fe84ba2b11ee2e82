/** Chooses how to spread a model over devices: estimates many configurations, and compiles and prices the best. */

import { hostEngine } from "../../engines/host.js";
import { need } from "../../ir/arguments.js";
import { ConfigError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import { bytesOfAll, formatBytes } from "../../ir/shape.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import { batchType, totalBytes } from "../config/memoryNeed.js";
import { modelConfig, needRunConfig, type RunConfig } from "../config/runConfig.js";
import { expectedVocabulary, numParameters, runMesh, runTrainingFunctions } from "../config/setup.js";
import { scheduleOfRun } from "../models/scheduled.js";
import { stepFlops } from "../report/peak.js";
import { abstractTree } from "../step/abstractTensor.js";
import type { StepMemory, Training } from "../step/training.js";
import { candidatesOf, describeChoice, nearestCounts, type SearchSpace } from "./candidates.js";
import { type Estimate, estimateStep, type ModelSizes } from "./estimate.js";
import { type ExpertLoad, expertLoad } from "./expertLoad.js";
import { fusedPeakBytes } from "./fusedMemory.js";
import { fusedSteps } from "./fusedSteps.js";
import { type Prices, partNames } from "./prices.js";
import { type ProgramSetting, type StepTime, stepTime, type TimeParts, timeOf } from "./stepCost.js";

/** What allocators take beyond the values that are stored at the same time: a share that fits published totals. */
const allocatorOverhead = 1.12;

const planOptions = schema({
  /** The number of devices to train on. */
  numDevices: required("number"),
  /** The memory of each device in bytes; without limit by default. */
  memoryBytes: optional("number", Number.POSITIVE_INFINITY),
  /** The prices of steps, from `calibratedPrices` or `machinePrices`. */
  prices: required<Prices>("object"),
  /** The settings to vary. */
  space: optional<SearchSpace>("object"),
  /** How many configurations are compiled and priced step by step, the most promising first; 32 by default. */
  tries: 32,
  /** How many tokens the fullest device along `expert` has, as a multiple of the mean; 1 by default. */
  imbalance: 1,
  /** Called after each of these. */
  onTry: optional<(done: number, all: number) => void>("function"),
});

/** Options of {@link planTraining}. */
export interface PlanOptions extends OptionsOf<typeof planOptions> {}

/** A configuration with the predicted time and memory of a step. */
export interface PlannedStep {
  readonly config: RunConfig;
  /** A short description of its parallelism. */
  readonly name: string;
  readonly seconds: number;
  /** Where the seconds go. */
  readonly parts: TimeParts;
  /** The memory of a step on each device. */
  readonly memory: StepMemory;
  readonly memoryBytes: number;
  /** Model FLOPs utilisation: the share of the devices' peak speed that the model's operations reach. */
  readonly shareOfPeak: number;
  readonly tokensPerSecond: number;
}

/** The result of {@link planTraining}. */
export interface TrainingPlan {
  /** Configurations that fit in memory, fastest first. */
  readonly choices: readonly PlannedStep[];
  /** How many configurations there are, and how many were compiled and priced. */
  readonly numCandidates: number;
  readonly numTried: number;
  /** The number of rejected configurations by reason. */
  readonly refused: ReadonlyMap<string, number>;
}

/**
 * Prices one configuration step by step: it is traced, partitioned and compiled, and nothing is run.
 *
 * @param imbalance how many tokens the fullest device along `expert` has, as a multiple of the mean
 *
 * @example
 * ```ts
 * const device = { flops: 1e15, efficiency: 0.5, memoryBandwidth: 3e12, launch: 5e-6 };
 * const link = { bandwidth: 1e11, latency: 1e-5 };
 * const prices = train.machinePrices(device, { network: link, intra: link, nodeSize: 8 });
 * const { config } = train.readRunConfig({ model: { numLayers: 1, width: 64 } }, [], 2);
 * train.priceConfig(config, prices).seconds > 0; // true
 * ```
 */
export function priceConfig(config: RunConfig, prices: Prices, imbalance = 1): PlannedStep {
  needRunConfig(config, "priceConfig");
  need("object", prices, "prices", "priceConfig");
  if (!(imbalance >= 1)) throw new ConfigError(`[priceConfig] imbalance is ${imbalance}: use 1 or more`);
  const { data, mesh: axes, pipeline } = config;
  const numDevices = Object.values(axes).reduce((product, size) => product * size, 1);
  // The reference engine has any number of devices, and nothing is run on it here.
  const mesh = runMesh(config, hostEngine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { layout } = training;
  const schedule = scheduleOfRun(pipeline, layout);
  const load = expertLoad(config, imbalance);
  const { seconds, parts, memory } = pricedStep(training, config, prices, { numDevices, schedule, load });
  const atWork = Math.min(numDevices, prices.numCores);
  return {
    config,
    name: describeChoice(config),
    seconds,
    parts: layout && !schedule ? withSweepBubble(parts, config) : parts,
    memory,
    memoryBytes: totalBytes(memory),
    shareOfPeak: stepFlops(training.types, config) / (seconds * atWork * prices.peakFlops),
    tokensPerSecond: (data.batch * data.sequence) / seconds,
  };
}

/** The time and memory of a step: of what the threads engine runs, or of the kernels of a compiler that fuses. */
function pricedStep(
  training: Training,
  config: RunConfig,
  prices: Prices,
  setting: ProgramSetting & { readonly load: ExpertLoad },
): StepTime & { readonly memory: StepMemory } {
  const [state, batch] = [abstractTree(training.types), batchType(config)];
  const { device } = prices;
  if (!device) {
    const { program, memory } = training.compile(state, batch);
    return { ...stepTime(program, prices, setting), memory };
  }
  const { program: whole, mesh, donated } = training.lower(state, batch);
  const program = simplify(whole);
  const vocabulary = modelConfig(config, expectedVocabulary(config)).vocabSize / config.mesh.model;
  const steps = fusedSteps(program, {
    device,
    mesh: mesh ?? { axes: [] },
    collective: prices.collective,
    vocabulary,
    load: setting.load,
  });
  const inputs = bytesOfAll(program.inputs);
  const peak = allocatorOverhead * fusedPeakBytes(program, donated);
  return {
    ...timeOf(steps, prices, setting),
    memory: { inputs, outputs: 0, intermediate: peak - inputs },
  };
}

/**
 * In pipelines that run forward and then backward, stages without a microbatch compute anyway: that is their bubble.
 */
function withSweepBubble(parts: TimeParts, { mesh, pipeline }: RunConfig): TimeParts {
  const { pipe } = mesh;
  const share = (pipe - 1) / (pipeline.microbatches * pipeline.repeats + pipe - 1);
  const busy = partNames.map((part) => [part, parts[part] * (1 - share)] as const);
  const work = partNames.reduce((sum, part) => sum + parts[part], 0);
  return { ...parts, ...Object.fromEntries(busy), bubble: parts.bubble + share * work };
}

/**
 * Searches for the fastest way to train a model on a machine: meshes, pipeline schedules, microbatches,
 * rematerialisation, and how parameters are sharded. Configurations are estimated from their sizes first; the most
 * promising ones are compiled as `train` would, and their time and memory are computed from the list of steps.
 *
 * @param config the model, its data and its optimiser; its mesh is replaced
 *
 * @example
 * ```ts
 * const device = { flops: 1e15, efficiency: 0.5, memoryBandwidth: 3e12, launch: 5e-6 };
 * const link = { bandwidth: 1e11, latency: 1e-5 };
 * const prices = train.machinePrices(device, { network: link, intra: link, nodeSize: 8 });
 * const { config } = train.readRunConfig({ model: { numLayers: 1, width: 64 } }, [], 2);
 * train.planTraining(config, { numDevices: 2, prices, tries: 1 }).choices.length > 0; // true
 * ```
 */
export function planTraining(config: RunConfig, options: PlanOptions): TrainingPlan {
  needRunConfig(config, "planTraining");
  const { numDevices, prices, memoryBytes, tries, imbalance, onTry } = planOptions.read(
    options,
    "planTraining",
  );
  if (!Number.isInteger(numDevices) || numDevices < 1) {
    throw new ConfigError(`[planTraining] numDevices is ${numDevices}: use an integer of at least 1`);
  }
  const { configs, refused } = candidatesOf(config, numDevices, options.space);
  if (configs.length === 0) {
    const nearest = nearestCounts(config, numDevices);
    const advice = nearest.length > 0 ? `: use ${nearest.join(" or ")}, or other sizes` : "";
    throw new ConfigError(
      `[planTraining] no configuration splits over ${numDevices} devices${advice}\n${formatReasons(refused)}`,
    );
  }
  const sizes = modelSizes(config);
  const guessed = configs
    .map((one) => ({ config: one, guess: estimateStep(one, sizes, prices) }))
    .sort((a, b) => rank(a.guess, memoryBytes) - rank(b.guess, memoryBytes));
  const promising = pick(guessed, tries);
  const reasons = new Map(refused);
  const choices: PlannedStep[] = [];
  let least: PlannedStep | undefined;
  promising.forEach(({ config: one }, i) => {
    onTry?.(i, promising.length);
    const priced = priceConfig(one, prices, imbalance);
    if (!least || priced.memoryBytes < least.memoryBytes) least = priced;
    if (priced.memoryBytes <= memoryBytes) choices.push(priced);
    else {
      const reason = `a step needs more than ${formatBytes(memoryBytes)} on each device`;
      reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
    }
  });
  if (choices.length === 0 && least) {
    throw new ConfigError(
      `[planTraining] nothing fits into ${formatBytes(memoryBytes)} on each of ${numDevices} devices; the least of ${promising.length} configurations needs ${formatBytes(least.memoryBytes)} (${least.name}): use more devices, a smaller batch or sequence, or a smaller model`,
    );
  }
  choices.sort((a, b) => a.seconds - b.seconds);
  return { choices, numCandidates: configs.length, numTried: promising.length, refused: reasons };
}

/** The estimated time, multiplied by the cube of the excess for configurations that will hardly fit in memory. */
function rank({ seconds, bytes }: Estimate, limit: number): number {
  const excess = Math.max(1, bytes / limit);
  return seconds * excess ** 3;
}

/**
 * The first of every kind of parallelism, then the first of the others, with at most a quarter on the same mesh, so
 * that one wrong estimate does not decide the search.
 */
function pick<T extends { readonly config: RunConfig }>(sorted: readonly T[], count: number): T[] {
  const most = Math.max(2, Math.ceil(count / 4));
  const seen = new Map<string, number>();
  const isAmong = (key: string, limit: number) => {
    seen.set(key, (seen.get(key) ?? 0) + 1);
    return (seen.get(key) ?? 0) <= limit;
  };
  const kinds = ({ mesh }: RunConfig) =>
    [mesh.fsdp > 1, mesh.expert > 1, mesh.pipe > 1, mesh.model > 1].join(" ");
  const firsts = sorted.filter(({ config }) => isAmong(kinds(config), 1));
  const next = sorted.filter(({ config }) => isAmong(Object.values(config.mesh).join("x"), most));
  return [...new Set([...firsts, ...next, ...sorted])].slice(0, count);
}

function modelSizes(config: RunConfig): ModelSizes {
  const alone: RunConfig = {
    ...config,
    mesh: { data: 1, fsdp: 1, expert: 1, pipe: 1, context: 1, model: 1 },
  };
  const training = runTrainingFunctions(alone, expectedVocabulary(alone), runMesh(alone, hostEngine));
  return {
    numParameters: numParameters(training.types),
    flops: stepFlops(training.types, alone),
    vocabSize: expectedVocabulary(alone),
  };
}

/** Reasons with their counts, most frequent first. */
export function formatReasons(refused: ReadonlyMap<string, number>): string {
  return [...refused]
    .sort((a, b) => b[1] - a[1])
    .map(([reason, count]) => `  ${count.toLocaleString("en-US")} ${reason}`)
    .join("\n");
}
