import { hostEngine } from "../../engines/default.js";
import { OutOfMemoryError } from "../../engines/errors.js";
import { formatBytes } from "../../ir/shape.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { ShapeDtypeStruct } from "../../spmd/mesh/shapeDtypeStruct.js";
import { abstractTree } from "../step/abstractTensor.js";
import type { StepMemory, Training } from "../step/training.js";
import type { RunConfig } from "./runConfig.js";
import { runMesh, runTrainingFunctions, splittingAxes } from "./setup.js";

/** What one step of a run takes of each device's memory. */
export function memoryNeed(training: Training, config: RunConfig): StepMemory {
  return training.memory(abstractTree(training.types), batchType(config));
}

/** All bytes of a need. */
export function totalBytes({ inputs, outputs, intermediate }: StepMemory): number {
  return inputs + outputs + intermediate;
}

/** How many bytes each device of a mesh can have; nothing where its engine does not say. */
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
 * Refuses a run whose steps need more memory than its devices can have, before anything is made there: the error
 * compares the two, and tells what changed settings would need.
 *
 * @param vocabSize that of the tokeniser
 */
export function checkMemory(config: RunConfig, vocabSize: number, training: Training, mesh: Mesh): void {
  const limit = bytesPerDevice(mesh);
  if (limit === undefined) return;
  // An estimate from types alone is enough for nearly all runs, and several times quicker than a plan.
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

/** The type of the tokens of a step. */
export function batchType({ data: { batch, sequence } }: RunConfig) {
  return ShapeDtypeStruct([batch, sequence + 1], "int32");
}

interface Alternative {
  /** As it is written on the command line. */
  readonly option: string;
  readonly changed: RunConfig;
}

/** Settings that need less memory, one change at a time. */
function alternatives(config: RunConfig): Alternative[] {
  const { model, mesh, data, optimizer } = config;
  const parts = mesh.data * mesh.fsdp * (mesh.pipe > 1 ? config.pipeline.microbatches : 1);
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
