import { writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { bytesAccepted } from "../../engines/settings.js";
import { availableMemory } from "../../engines/system/machineMemory.js";
import { importEngine, openEngine } from "../../engines/table.js";
import {
  decimal,
  flag,
  integer,
  measure,
  optionalInteger,
  optionalText,
  valueAt,
} from "../../train/config/configSchema.js";
import type { RunConfig } from "../../train/config/runConfig.js";
import { calibrate } from "../../train/plan/calibrate.js";
import {
  type Calibration,
  calibrationFile,
  readCalibration,
  writeCalibration,
  writeFigures,
} from "../../train/plan/calibration.js";
import { parseSize } from "../../train/plan/machine.js";
import {
  type MeasuredDevices,
  measureDevices,
  measuredDevicesFile,
  readMeasuredDevices,
} from "../../train/plan/measureDevices.js";
import { planTraining } from "../../train/plan/plan.js";
import { chosenFields, formatPlan } from "../../train/plan/planText.js";
import type { Prices } from "../../train/plan/prices.js";
import { type CommandArguments, defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { machineOptions, type PricedMachine, pricesOf, pricesOfDevices } from "../machineArguments.js";
import { phase } from "../phase.js";
import { configOf, engineOption, freeName, mergeConfigs, readConfigFile } from "../runArguments.js";

const planOptions = {
  devices: optionalInteger("number of devices; as many as this machine has cores by default"),
  memory: measure(`the memory of each device: ${bytesAccepted}`, `${bytesAccepted} or 80GB`, parseSize),
  ...machineOptions,
  ...engineOption,
  imbalance: decimal(1, "tokens of the fullest device along expert, as a multiple of the mean", 1),
  tries: integer(32, "number of configurations that are compiled and priced closely"),
  top: integer(10, "number of configurations that are printed"),
  choose: integer(1, "rank of the one that is written, the fastest being 1"),
  write: optionalText("the file for its configuration; the next free plan.json by default"),
  calibrate: flag(false, "measure this machine and keep the figures"),
};

/** Chooses how a model is spread over devices. */
export const plan = defineCommand({
  name: "plan",
  summary: "choose mesh, schedule, microbatches and recomputation for a number of devices",
  usage: "[config.json] [options]",
  options: planOptions,
  takesFields: true,
  examples: [
    "shardwise plan --calibrate",
    "shardwise plan --calibrate --engine xla",
    "shardwise plan config.json --devices 8",
    "shardwise plan config.json --devices 512 --memory 80GiB --network 400Gbit --intra 900GB/s --flops 989TFLOP/s",
  ],
  run: async (parsed) => {
    const { calibrate: calibrates, calibration, devices, flops } = parsed.values;
    // Worker threads are priced step by step, devices of other engines by a few figures.
    const engine = parsed.values.engine === "threads" ? undefined : parsed.values.engine;
    if (engine !== undefined && flops !== undefined)
      throw new UsageError("--flops describes another machine, --engine measures this one: use one of them");
    const file = calibration ?? (engine === undefined ? calibrationFile() : measuredDevicesFile(engine));
    if (calibrates) await (engine === undefined ? runCalibration(file) : runMeasurement(engine, file));
    const [name] = parsed.positional;
    if (name === undefined && calibrates && parsed.settings.length === 0) return exitCodes.ok;
    const json = name === undefined ? {} : readConfigFile(name);
    // The mesh is what the command looks for, so the configuration's own is ignored.
    const alone = { mesh: { data: 1, fsdp: 1, expert: 1, pipe: 1, model: 1 } };
    const config = configOf(mergeConfigs(json, alone), parsed);
    const measured =
      engine === undefined ? undefined : (readMeasuredDevices(file) ?? (await runMeasurement(engine, file)));
    const numDevices = devices ?? measured?.numDevices ?? availableParallelism();
    const { prices, note }: PricedMachine = measured
      ? pricesOfDevices(parsed.values, measured, numDevices)
      : await pricesOf(parsed.values, readCalibration(file), numDevices);
    process.stdout.write(`${describeModel(config)} on ${numDevices} devices; ${note}\n`);
    choose(parsed, json, config, numDevices, prices, measured);
    return exitCodes.ok;
  },
});

type PlanArguments = CommandArguments<typeof planOptions>;

function choose(
  args: PlanArguments,
  json: unknown,
  config: RunConfig,
  numDevices: number,
  prices: Prices,
  measured: MeasuredDevices | undefined,
): void {
  const { tries, imbalance, top, choose: number, write } = args.values;
  const memoryBytes = measured ? (args.values.memory ?? measured.memoryBytes) : memoryOf(args, numDevices);
  const found = planTraining(config, {
    numDevices,
    prices,
    tries,
    imbalance,
    memoryBytes,
    onTry: (done, all) => phase(`compiling ${done + 1} of ${all} configurations`),
  });
  phase("");
  process.stdout.write(formatPlan(found, top));
  const choice = found.choices[number - 1];
  if (!choice) {
    throw new UsageError(
      `--choose is ${number}, but ${found.choices.length} configurations fit: use 1 to ${found.choices.length}`,
    );
  }
  const target = write ?? freeName("plan", ".json");
  const paths = args.settings.map(({ path }) => path).filter((path) => !path.startsWith("mesh."));
  const given = paths.reduce(
    (tree, path) => mergeConfigs(tree, atPath(path, valueAt(choice.config, path))),
    json,
  );
  writeFileSync(target, `${JSON.stringify(mergeConfigs(given, chosenFields(choice)), null, 2)}\n`);
  process.stdout.write(`\n${target}: ${choice.name}\nshardwise train ${target} runs it\n`);
}

function atPath(path: string, value: unknown): unknown {
  return path
    .split(".")
    .reverse()
    .reduce((inner: unknown, name) => ({ [name]: inner }), value);
}

async function runCalibration(file: string): Promise<void> {
  const calibration = await calibrate({ onProgress: (what) => process.stderr.write(`measuring ${what}\n`) });
  writeCalibration(file, calibration);
  process.stdout.write(describeCalibration(calibration, file));
}

/** Measures the devices of an engine, and keeps the figures. */
async function runMeasurement(name: string, file: string): Promise<MeasuredDevices> {
  await importEngine(name);
  const engine = openEngine(name, { numDevices: 1 });
  try {
    const onProgress = (what: string) => process.stderr.write(`measuring ${what}\n`);
    const measured = await measureDevices(engine, { onProgress });
    writeFigures(file, measured);
    process.stdout.write(describeDevices(measured, file));
    return measured;
  } finally {
    await engine.close();
  }
}

function describeDevices({ deviceKind, numDevices, device, link }: MeasuredDevices, file: string): string {
  const giga = (rate: number) => `${(rate / 1e9).toPrecision(3)}`;
  const { flops, attention = 0, memoryBandwidth, launch } = device;
  return `${[
    `${numDevices} x ${deviceKind}`,
    `  products ${giga(flops)} GFLOP/s, attention ${giga(flops * attention)} GFLOP/s, memory ${giga(memoryBandwidth)} GB/s, a kernel starts in ${(1e6 * launch).toFixed(1)} µs`,
    ...(link
      ? [`  links ${giga(link.bandwidth)} GB/s, ${(1e6 * link.latency).toFixed(1)} µs a message`]
      : []),
    `kept in ${file}`,
  ].join("\n")}\n`;
}

function describeCalibration({ measured, processor, numCores, gemm }: Calibration, file: string): string {
  const rows = measured.map(({ numDevices, products, call, collectives }) => {
    const best = Math.max(
      0,
      ...products.map(({ m, n, k, batch, seconds }) => (2 * m * n * k * batch) / seconds),
    );
    const least = Math.min(...collectives.map(({ seconds }) => seconds));
    return [
      `  ${`${numDevices} device${numDevices > 1 ? "s" : ""}`.padEnd(12)}`,
      best > 0 ? `products up to ${(best / 1e9).toFixed(1)} GFLOP/s each, ` : "",
      collectives.length > 0 ? `collectives from ${(1e6 * least).toFixed(0)} µs, ` : "",
      `calls ${(1e6 * call).toFixed(0)} µs`,
    ].join("");
  });
  return `${[`${processor}, ${numCores} cores, products by ${gemm}`, ...rows, `kept in ${file}`].join("\n")}\n`;
}

function describeModel({ model, data }: RunConfig): string {
  return `${model.kind} of ${model.numLayers} layers, width ${model.width}, ${data.batch} x ${data.sequence} tokens a step`;
}

/** The memory of each device; by default that of this machine. */
function memoryOf({ values }: PlanArguments, numDevices: number): number | undefined {
  const isHere = values.network === undefined && values.intra === undefined;
  return values.memory ?? (isHere ? availableMemory().bytes / numDevices : undefined);
}
