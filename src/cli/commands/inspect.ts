import { existsSync } from "node:fs";
import { join } from "node:path";
import { engineInfo } from "../../engines/default.js";
import { hostEngine } from "../../engines/host.js";
import { describeProducts, type EngineInfo } from "../../ir/engineReports.js";
import { bytesOf, formatBytes, formatType } from "../../ir/shape.js";
import type { CostReport } from "../../spmd/inspect/cost.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { toPartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { evenPlaces, linkNames, linkOver } from "../../spmd/mesh/topology.js";
import { integer, optionalInteger } from "../../train/config/configSchema.js";
import { batchType, memoryNeed, totalBytes } from "../../train/config/memoryNeed.js";
import type { RunConfig } from "../../train/config/runConfig.js";
import {
  expectedVocabulary,
  numParameters,
  runMesh,
  runTrainingFunctions,
  splittingAxes,
} from "../../train/config/setup.js";
import type { Checkpoint } from "../../train/files/checkpoints/checkpoint.js";
import { calibrationFile, readCalibration } from "../../train/plan/calibration.js";
import { hostPrices } from "../../train/plan/hosts.js";
import { priceConfig } from "../../train/plan/plan.js";
import { readMetrics } from "../../train/report/metrics.js";
import { formatPlaces, placesOf, stateMemory } from "../../train/report/places.js";
import { pipelineSchedule } from "../../train/report/runReport.js";
import { abstractTree } from "../../train/step/abstractTensor.js";
import { type CommandArguments, defineCommand, exitCodes } from "../command.js";
import { UsageError } from "../commandLine.js";
import { machineOptions, pricesOf } from "../machineArguments.js";
import { phase } from "../phase.js";
import {
  configOf,
  engineOption,
  findCheckpoint,
  isRunFolder,
  readConfigFile,
  useEngine,
} from "../runArguments.js";

const { node: _, ...linkOptions } = machineOptions;

const inspectOptions = {
  ...engineOption,
  processes: optionalInteger(
    "show which axes cross between this number of processes; one per host by default",
  ),
  hosts: integer(1, "and between this number of hosts, over which the processes are spread"),
  ...linkOptions,
};

/** Reports what a configuration would need, or what a checkpoint contains. */
export const inspect = defineCommand({
  name: "inspect",
  summary: "what a configuration would need, or what a checkpoint holds",
  usage: "[config.json | run or checkpoint folder] [options]",
  options: inspectOptions,
  takesFields: true,
  examples: [
    "shardwise inspect --mesh data=2,model=2",
    "shardwise inspect my.json --model.width 1024 --mesh fsdp=8",
    "shardwise inspect --mesh data=4,model=2 --processes 4 --hosts 2",
    "shardwise inspect --mesh data=4 --hosts 4 --network 10Gbit --latency 50us",
    "shardwise inspect --engine xla --model.width 1024",
    "shardwise inspect runs/default",
  ],
  run: async (parsed) => {
    const [what] = parsed.positional;
    if (what !== undefined && isRunFolder(what)) {
      const { checkpoint, run } = await findCheckpoint(what, "inspect");
      phase("verifying the checkpoint");
      await checkpoint.verify();
      phase("");
      process.stdout.write(describeCheckpoint(checkpoint, describeExperts(run, checkpoint.manifest.step)));
      return exitCodes.ok;
    }
    await useEngine(parsed);
    const config = configOf(what === undefined ? {} : readConfigFile(what), parsed);
    const isNamed = parsed.values.engine !== undefined;
    const spread = spreadOf(parsed);
    phase("compiling the training step");
    const description = describeConfig(config, isNamed ? engineInfo() : undefined, spread);
    phase("");
    process.stdout.write(description);
    if (parsed.values.network !== undefined) process.stdout.write(await predictStep(parsed, config, spread));
    return exitCodes.ok;
  },
});

/** How even the load of experts was up to a step, from the metrics of a run. */
function describeExperts(run: string, step: number): string[] {
  const file = join(run, "metrics.jsonl");
  const records = existsSync(file) ? readMetrics(file) : [];
  const last = records.findLast((record) => record.step <= step && "routerImbalance" in record);
  if (!last) return [];
  const { routerImbalance, routerDeviceImbalance, routerDropped = 0 } = last;
  const times = (value: unknown) => `${Number(Number(value).toPrecision(3))} times the mean load`;
  const devices =
    routerDeviceImbalance === undefined ? "" : `, the fullest device ${times(routerDeviceImbalance)}`;
  const dropped = Number((100 * Number(routerDropped)).toPrecision(3));
  return [
    `experts at step ${last.step}: the fullest has ${times(routerImbalance)}${devices}; ${dropped} % dropped`,
  ];
}

function describeCheckpoint({ folder, manifest }: Checkpoint, notes: readonly string[]): string {
  const { step, mesh, leaves, files } = manifest;
  const sizes = leaves.map(bytesOf);
  const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
  const width = Math.max(0, ...leaves.map(({ path }) => path.length));
  const axes = splittingAxes(Object.fromEntries((mesh ?? []).map(({ name, size }) => [name, size])));
  const rows = leaves.map(
    ({ path, spec, ...type }, i) =>
      `  ${path.padEnd(width)}  ${formatType(type)} ${toPartitionSpec(spec)}  ${formatBytes(sizes[i] ?? 0)}`,
  );
  return `${[
    `${folder}: step ${step}, ${leaves.length} tensors, ${formatBytes(total)} in ${files.length} file${files.length === 1 ? "" : "s"}, all checksums right`,
    `saved on ${axes.length > 0 ? axes.join(" x ") : "one device"}; it loads on any mesh`,
    ...notes,
    ...rows,
    "configuration:",
    JSON.stringify(manifest.config, null, 2),
  ].join("\n")}\n`;
}

/** The devices of the chosen engine, and whether the run fits into their memory. */
function describeEngine(info: EngineInfo, bytes: number): string[] {
  const { engine, numDevices, memoryBytes } = info;
  const room = memoryBytes === undefined ? "" : `, ${formatBytes(memoryBytes)} of memory each`;
  const devices = `engine ${engine}: ${numDevices} device${numDevices === 1 ? "" : "s"}${room}`;
  const lines = [[devices, describeProducts(info) ?? []].flat().join("; ")];
  if (memoryBytes !== undefined && bytes > memoryBytes) {
    lines.push(
      `that is less than the ${formatBytes(bytes)} needed: use a smaller batch, remat, or more devices`,
    );
  }
  return ["", ...lines];
}

type InspectArguments = CommandArguments<typeof inspectOptions>;

/** Over how many processes and hosts the devices are spread. */
interface Spread {
  readonly processes: number;
  readonly hosts: number;
}

function spreadOf({ values: { hosts, processes = hosts } }: InspectArguments): Spread {
  if (processes < hosts) {
    throw new UsageError(`--processes is "${processes}": use an integer of at least ${hosts}, the hosts`);
  }
  return { processes, hosts };
}

/** Default speed of memory inside a host. */
const insideHost = { bandwidth: 10e9, latency: 3e-6 };

/** How long a step takes on hosts that are joined by a network. */
async function predictStep({ values }: InspectArguments, config: RunConfig, spread: Spread): Promise<string> {
  const numDevices = Object.values(config.mesh).reduce((product, n) => product * n, 1);
  checkSpread(numDevices, spread);
  const calibration = readCalibration(values.calibration ?? calibrationFile());
  const usual = { nodeSize: numDevices / spread.hosts, intra: insideHost };
  const { prices, note, network } = await pricesOf(values, calibration, numDevices, usual);
  if (network === undefined) return "";
  const places = evenPlaces(numDevices, spread.processes, spread.hosts);
  const collective = hostPrices(network, places, prices.collective);
  const { seconds, parts } = priceConfig(config, { ...prices, collective, takesTurns: true });
  const milliseconds = (time: number) => `${(1000 * time).toFixed(time < 0.1 ? 1 : 0)} ms`;
  const sent = Object.entries(parts.communication).filter(([, time]) => time > 0);
  const waits = sent.map(([axes, time]) => `, ${milliseconds(time)} of it for what crosses ${axes}`).join("");
  return `\na step on this network: ${milliseconds(seconds)}${waits} (${note})\n`;
}

/** Throws unless all processes have the same number of devices, and all hosts of processes. */
function checkSpread(numDevices: number, { processes, hosts }: Spread): void {
  if (numDevices % processes === 0 && processes % hosts === 0) return;
  throw new UsageError(
    `${numDevices} devices over ${processes} processes on ${hosts} hosts is not an equal share for all (${numDevices} / ${processes} = ${numDevices / processes}, ${processes} / ${hosts} = ${processes / hosts}): use other numbers`,
  );
}

/** By which link the devices along every set of axes reach each other, and what each sends over it in a step. */
function describeLinks(mesh: Mesh, { collectives }: CostReport, spread: Spread): string[] {
  const { processes, hosts } = spread;
  if (processes === 1) return [];
  checkSpread(mesh.size, spread);
  const places = evenPlaces(mesh.size, processes, hosts);
  const bytes = new Map<string, number>();
  for (const { axes, bytes: sent } of collectives) {
    const key = axes.filter((name) => mesh.axisSize(name) > 1).join(", ");
    bytes.set(key, (bytes.get(key) ?? 0) + sent);
  }
  const silent = mesh.axes.filter(({ name, size }) => size > 1 && !bytes.has(name));
  const rows = [...bytes, ...silent.map(({ name }) => [name, 0] as const)].map(([key, sent]) => {
    const link = linkNames[linkOver(mesh.axes, places, key.split(", "))];
    return `  ${key.padEnd(14)} ${link.padEnd(28)} ${formatBytes(sent)}`;
  });
  const where = `${processes} processes on ${hosts} host${hosts === 1 ? "" : "s"}`;
  return ["", `links between ${where}, and what each device sends over them in a step:`, ...rows];
}

function describeConfig(config: RunConfig, engine: EngineInfo | undefined, spread: Spread): string {
  // The reference engine simulates any number of devices, and nothing runs on it here.
  const mesh = runMesh(config, hostEngine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { types, shardings } = training;
  const { batch, sequence } = config.data;
  const cost = training.cost(abstractTree(types), batchType(config));
  const need = memoryNeed(training, config);
  const axes = splittingAxes(mesh.shape);
  const schedule = pipelineSchedule(training.layout, config.pipeline).map(
    (cells, stage) => `  stage ${stage}  ${cells.map((cell) => (cell ?? "").padStart(4)).join("")}`,
  );
  return `${[
    `${config.model.kind}, ${numParameters(types).toLocaleString("en-US")} parameters on ${axes.length > 0 ? axes.join(" x ") : "one device"}`,
    "",
    "parameters (type, how they are split, bytes on each device):",
    formatPlaces(placesOf(types.params, shardings.params, mesh)),
    "",
    "memory of each device:",
    ...[
      ...stateMemory(training, mesh),
      { what: "a step's intermediate values", bytesPerDevice: need.intermediate + need.outputs },
      { what: "needed in all", bytesPerDevice: totalBytes(need) },
    ].map(({ what, bytesPerDevice }) => `  ${what.padEnd(30)}${formatBytes(bytesPerDevice)}`),
    ...(engine ? describeEngine(engine, totalBytes(need)) : []),
    "",
    `one step of ${batch} x ${sequence} tokens, each device:`,
    ...String(cost)
      .split("\n")
      .map((line) => `  ${line}`),
    ...describeLinks(mesh, cost, spread),
    ...(schedule.length > 0
      ? ["", "pipeline: which microbatch each stage works on, iteration by iteration:", ...schedule]
      : []),
  ].join("\n")}\n`;
}
