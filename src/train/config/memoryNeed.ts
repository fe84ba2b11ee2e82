import { OutOfMemoryError } from "../../engines/errors.js";
import { hostEngine } from "../../engines/host.js";
import { formatBytes } from "../../ir/shape.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { ShapeDtypeStruct } from "../../spmd/mesh/shapeDtypeStruct.js";
import { abstractTree } from "../step/abstractTensor.js";
import type { TokenInput } from "../step/tokenBatch.js";
import type { StepMemory, Training } from "../step/training.js";
import type { RunConfig } from "./runConfig.js";
import { runMesh, runTrainingFunctions, splittingAxes } from "./setup.js";

/** The memory that one step of a run needs on each device. */
export function memoryNeed(training: Training, config: RunConfig): StepMemory {
  return training.memory(abstractTree(training.types), batchType(config));
}

/** The sum of all parts of a memory need, in bytes. */
export function totalBytes({ inputs, outputs, intermediate }: StepMemory): number {
  return inputs + outputs + intermediate;
}

/** The memory limit of each device of a mesh in bytes; undefined if its engine has none. */
function bytesPerDevice(mesh: Mesh): number | undefined {
  const { engine, deviceIds } = mesh;
  const limits = deviceIds.flatMap((device) => {
    const usage = engine.isAddressable(device) ? engine.memoryUsage?.(device) : undefined;
    if (usage === undefined) return [];
    return Math.min(usage.capacity + usage.arena, (usage.together ?? Number.POSITIVE_INFINITY) / mesh.size);
  });
  return limits.length === 0 ? undefined : Math.min(...limits);
}

/**
 * Rejects a run whose steps need more memory than its devices have, before anything is allocated: the error compares
 * the two, and lists what changed settings would need.
 *
 * @param vocabSize the vocabulary size of the tokeniser
 */
export function checkMemory(config: RunConfig, vocabSize: number, training: Training, mesh: Mesh): void {
  const limit = bytesPerDevice(mesh);
  if (limit === undefined) return;
  // An estimate from types alone is enough for nearly all runs, and several times faster than a memory plan.
  const bound = training.cost(abstractTree(training.types), batchType(config)).peakBytes;
  if (1.1 * bound <= limit) return;
  const need = memoryNeed(training, config);
  if (totalBytes(need) <= limit) return;
  const ways = alternatives(config).map(({ option, changed }) => {
    const onChanged = runTrainingFunctions(changed, vocabSize, runMesh(changed, hostEngine));
    const bytes = totalBytes(memoryNeed(onChanged, changed));
    return `  ${option.padEnd(32)} ${formatBytes(bytes)}${bytes <= limit ? "" : ", still too much"}`;
  });
  const raise =
    config.engine.memory === "auto"
      ? "or a machine with more memory"
      : `or a larger --engine.memory than ${formatBytes(config.engine.memory)}`;
  throw new OutOfMemoryError(
    [
      `[train] a step needs ${formatBytes(totalBytes(need))} on each device (state and batch ${formatBytes(need.inputs)}, intermediate values ${formatBytes(need.intermediate)}, results ${formatBytes(need.outputs)}), but a device can have ${formatBytes(limit)}; each device would need with`,
      ...ways,
      `a smaller model, ${raise}; shardwise inspect tells more`,
    ].join("\n"),
  );
}

/** The type of the tokens of a step; documents that the data decides about are left out. */
export function batchType({ data: { batch, sequence, packing }, dpo }: RunConfig): TokenInput {
  const rows = dpo.beta > 0 ? [batch, 2] : [batch];
  const tokens = ShapeDtypeStruct([...rows, sequence + 1], "int32");
  if (dpo.beta === 0 && packing !== "separate" && packing !== "whole") return tokens;
  const ids = ShapeDtypeStruct([...rows, sequence], "int32");
  const lossMask = ShapeDtypeStruct([...rows, sequence], "bool");
  const reference = dpo.beta > 0 ? { reference: ShapeDtypeStruct(rows, "float32") } : {};
  return { tokens, segmentIds: ids, positions: ids, lossMask, ...reference };
}

interface Alternative {
  /** As written on the command line. */
  readonly option: string;
  readonly changed: RunConfig;
}

/** Changes of one setting each that reduce memory. */
function alternatives(config: RunConfig): Alternative[] {
  const { model, mesh, data, optimizer } = config;
  const parts = mesh.data * mesh.fsdp * mesh.expert * (mesh.pipe > 1 ? config.pipeline.microbatches : 1);
  const found: Alternative[] = [];
  if (model.remat !== "full") {
    found.push({ option: "--model.remat full", changed: { ...config, model: { ...model, remat: "full" } } });
  }
  const accumulate = optimizer.accumulate * 2;
  if (data.batch % (parts * accumulate) === 0) {
    const changed = { ...config, optimizer: { ...optimizer, accumulate } };
    found.push({ option: `--optimizer.accumulate ${accumulate}`, changed });
  }
  const batch = data.batch / 2;
  if (batch % (parts * optimizer.accumulate) === 0) {
    found.push({ option: `--data.batch ${batch}`, changed: { ...config, data: { ...data, batch } } });
  }
  const fsdp = mesh.data * mesh.fsdp;
  if (mesh.data > 1 && model.width % fsdp === 0) {
    const changed = { ...config, mesh: { ...mesh, data: 1, fsdp } };
    found.push({ option: `--mesh ${splittingAxes(changed.mesh).join(",")}`, changed });
  }
  return found;
}
