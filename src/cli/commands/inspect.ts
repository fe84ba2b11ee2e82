import { engineInfo, hostEngine } from "../../engines/default.js";
import { describeProducts, type EngineInfo } from "../../ir/engineReports.js";
import { bytesOf, formatBytes, formatType } from "../../ir/shape.js";
import { toPartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { ShapeDtypeStruct } from "../../spmd/mesh/shapeDtypeStruct.js";
import type { Checkpoint } from "../../train/files/checkpoint.js";
import type { RunConfig } from "../../train/run/config.js";
import { memoryNeed, totalBytes } from "../../train/run/memoryNeed.js";
import { formatPlaces, placesOf, stateMemory } from "../../train/run/places.js";
import {
  expectedVocabulary,
  numParameters,
  runMesh,
  runTrainingFunctions,
  splittingAxes,
} from "../../train/run/setup.js";
import { pipelineSchedule } from "../../train/run/writeReport.js";
import { abstractTree } from "../../train/step/abstractTensor.js";
import { type Command, exitCodes } from "../command.js";
import {
  argumentsOf,
  atMost,
  configOf,
  engineOption,
  findCheckpoint,
  isRunFolder,
  readConfigFile,
  useEngine,
} from "../runArguments.js";

/** Tells what a configuration would need, or what a checkpoint holds. */
export const inspect: Command = {
  name: "inspect",
  summary: "what a configuration would need, or what a checkpoint holds",
  usage: "[config.json | run or checkpoint folder] [options]",
  options: [engineOption],
  takesFields: true,
  examples: [
    "shardwise inspect --mesh data=2,model=2",
    "shardwise inspect my.json --model.width 1024 --mesh fsdp=8",
    "shardwise inspect --engine xla --model.width 1024",
    "shardwise inspect runs/default",
  ],
  run: async (args) => {
    const parsed = argumentsOf(args, inspect);
    atMost(parsed, 1, "inspect");
    const [what] = parsed.positional;
    if (what !== undefined && isRunFolder(what)) {
      const { checkpoint } = await findCheckpoint(what, "inspect");
      await checkpoint.verify();
      process.stdout.write(describeCheckpoint(checkpoint));
      return exitCodes.ok;
    }
    await useEngine(parsed);
    const config = configOf(what === undefined ? {} : readConfigFile(what), parsed);
    const isNamed = parsed.options.has("engine");
    process.stdout.write(describeConfig(config, isNamed ? engineInfo() : undefined));
    return exitCodes.ok;
  },
};

function describeCheckpoint({ folder, manifest }: Checkpoint): string {
  const { step, mesh, leaves, files } = manifest;
  const sizes = leaves.map(bytesOf);
  const total = sizes.reduce((sum, bytes) => sum + bytes, 0);
  const width = Math.max(0, ...leaves.map(({ path }) => path.length));
  const axes = splittingAxes(mesh ?? []);
  const rows = leaves.map(
    ({ path, spec, ...type }, i) =>
      `  ${path.padEnd(width)}  ${formatType(type)} ${toPartitionSpec(spec)}  ${formatBytes(sizes[i] ?? 0)}`,
  );
  return `${[
    `${folder}: step ${step}, ${leaves.length} tensors, ${formatBytes(total)} in ${files.length} file${files.length === 1 ? "" : "s"}, all checksums right`,
    `saved on ${axes.length > 0 ? axes.join(" x ") : "one device"}; it loads on any mesh`,
    ...rows,
    "configuration:",
    JSON.stringify(manifest.config, null, 2),
  ].join("\n")}\n`;
}

/** What an engine that was asked for runs on, and whether what is needed has room there. */
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

function describeConfig(config: RunConfig, engine: EngineInfo | undefined): string {
  // The reference engine has as many devices as anyone wants, and nothing is run on it here.
  const mesh = runMesh(config, hostEngine);
  const training = runTrainingFunctions(config, expectedVocabulary(config), mesh);
  const { types, shardings } = training;
  const { batch, sequence } = config.data;
  const tokens = ShapeDtypeStruct([batch, sequence + 1], "int32");
  const cost = training.cost(abstractTree(types), tokens);
  const need = memoryNeed(training, config);
  const axes = splittingAxes(mesh.axes);
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
    ...(schedule.length > 0
      ? ["", "pipeline: which microbatch each stage works on, iteration by iteration:", ...schedule]
      : []),
  ].join("\n")}\n`;
}
