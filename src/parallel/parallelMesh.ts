import { need } from "../ir/arguments.js";
import type { Engine } from "../ir/engine.js";
import { AxisError } from "../ir/errors.js";
import { defaultEngine, Mesh } from "../spmd/mesh/mesh.js";
import { logger } from "./logger.js";

/** Sizes of the mesh axes by kind of parallelism; -1 for all remaining devices. */
export interface ParallelConfig {
  /** Copies of the model that each see a part of the batch; -1 by default. */
  readonly dataAxisSize?: number;
  /** Parts into which parameters are split, gathered where they are used; 1 by default. */
  readonly fsdpAxisSize?: number;
  /** Stages of a pipeline; 1 by default. */
  readonly pipelineAxisSize?: number;
  /** Parts into which layers are split; 1 by default. */
  readonly modelAxisSize?: number;
  /** `data` by default. */
  readonly dataAxisName?: string;
  /** `fsdp` by default. */
  readonly fsdpAxisName?: string;
  /** `pipe` by default. */
  readonly pipelineAxisName?: string;
  /** `model` by default. */
  readonly modelAxisName?: string;
}

/** Options of {@link initializeMesh}. */
export interface ParallelMeshOptions {
  /** The engine to run on; the shared engine of the process by default. */
  readonly engine?: Engine;
  /** The engine's devices to use; by default all of them, or as many of the first ones as the sizes need. */
  readonly devices?: readonly number[];
}

/**
 * The mesh of a parallel configuration: the axes data, fsdp, pipe and model, outermost first, so that the devices of a
 * layer, which communicate most, are adjacent.
 *
 * @example
 * ```ts
 * parallel.initializeMesh({ dataAxisSize: 1, fsdpAxisSize: 2 }).axisNames; // ["data", "fsdp", "pipe", "model"]
 * ```
 */
export function initializeMesh(config: ParallelConfig = {}, options: ParallelMeshOptions = {}): Mesh {
  need("object", config, "the configuration", "initializeMesh");
  need("object", options, "the options", "initializeMesh");
  const axes = [
    [config.dataAxisName ?? "data", config.dataAxisSize ?? -1],
    [config.fsdpAxisName ?? "fsdp", config.fsdpAxisSize ?? 1],
    [config.pipelineAxisName ?? "pipe", config.pipelineAxisSize ?? 1],
    [config.modelAxisName ?? "model", config.modelAxisSize ?? 1],
  ] as const;
  for (const [name, size] of axes) {
    need("string", name, "the name of an axis", "initializeMesh");
    need("number", size, `the size of ${name}`, "initializeMesh");
  }
  const text = axes.map(([name, size]) => `${name}: ${size}`).join(", ");
  if (new Set(axes.map(([name]) => name)).size !== axes.length) {
    throw new AxisError(`[initializeMesh] {${text}} names an axis twice`);
  }
  const wrong = axes.filter(([, size]) => size !== -1 && !(Number.isInteger(size) && size >= 1));
  const open = axes.filter(([, size]) => size === -1);
  if (wrong.length > 0 || open.length > 1) {
    throw new AxisError(
      `[initializeMesh] {${text}}: sizes must be integers of at least 1, and at most one -1 for the remaining devices`,
    );
  }
  const fixed = axes.reduce((product, [, size]) => (size === -1 ? product : product * size), 1);
  const engine = options.engine ?? defaultEngine(fixed);
  const available = options.devices?.length ?? engine.numDevices;
  if (open.length > 0 && !Number.isFinite(available)) {
    throw new AxisError(
      `[initializeMesh] {${text}}: the engine "${engine.name}" has any number of devices, so -1 has no meaning: give the size`,
    );
  }
  if (fixed > available || (open.length > 0 && available % fixed !== 0)) {
    throw new AxisError(
      `[initializeMesh] {${text}} needs ${open.length > 0 ? "a multiple of " : ""}${fixed} devices, there are ${available}${
        open.length > 0 ? ` (${available} / ${fixed} = ${available / fixed})` : ""
      }: use smaller axes or an engine with more devices`,
    );
  }
  const sizes = Object.fromEntries(
    axes.map(([name, size]) => [name, size === -1 ? available / fixed : size]),
  );
  const total = open.length > 0 ? available : fixed;
  const mesh = Mesh.create(sizes, {
    engine,
    ...(options.devices ? { devices: options.devices.slice(0, total) } : {}),
  });
  logger().info(`[initializeMesh] ${mesh}`);
  return mesh;
}
