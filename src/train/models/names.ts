import {
  type LogicalRules,
  logicalAxisRules,
  withLogicalConstraint,
  withLogicalPartitioning,
} from "../../nn/modules/logicalPartitioning.js";
import type { ParamInitializer } from "../../nn/modules/partitioned.js";
import { initializers } from "../../random/index.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { axesOf } from "../../spmd/mesh/partitionSpec.js";
import { withMesh } from "../../spmd/run/constraint.js";
import type { Tensor } from "../../trace/tensor.js";

/** The logical names of the dims of parameters. */
export type ParamDim =
  | "vocab"
  | "embed"
  | "heads"
  | "kvHeads"
  | "headSize"
  | "mlp"
  | "norm"
  | "conv"
  | "gates"
  | "positions"
  | "experts";

/** The logical names of the dims of activations. */
export type ActivationDim =
  | "batch"
  | "length"
  | "streamLength"
  | "activationEmbed"
  | "activationHeads"
  | "activationMlp"
  | "activationVocab"
  | null;

/**
 * How tensor parallel devices exchange activations. `sync`: each has the whole residual stream, and the outputs of
 * blocks are summed over the devices. `async`: each has some features of the stream; they travel in rings while they
 * are multiplied.
 */
export type TensorParallelism = "sync" | "async" | "sequence";

/**
 * Which mesh axes split which dims: the batch over `data` and `fsdp`, parameters over `fsdp` along the
 * residual stream's width, heads, MLP and vocabulary over `model`, stages and layers of a pipeline over `pipe`, experts
 * and the batch over `expert`, where the mesh has it.
 *
 * @param axisNames the axes of the mesh; there are no rules for others
 * @param splitsLength whether sequences are split over `context`
 */
export function languageModelRules(
  tensor: TensorParallelism,
  axisNames: readonly string[],
  splitsLength = false,
): LogicalRules {
  const stream = tensor === "async" ? splitStream : wholeStream;
  const context = splitsLength ? ["context"] : [];
  const rules: LogicalRules = [
    ...stream,
    ["length", context],
    ["streamLength", tensor === "sequence" ? [...context, "model"] : context],
  ];
  return rules.flatMap(([name, axes]) => {
    const own = axesOf(axes).filter((axis) => axisNames.includes(axis));
    const [only] = own;
    return only === undefined ? [] : [[name, own.length === 1 ? only : own] as const];
  });
}

/** The axes that split the batch: devices with experts have parts of their own. */
export function batchAxes(axisNames: readonly string[]): string[] {
  return ["data", "fsdp", "expert"].filter((axis) => axisNames.includes(axis));
}

/** Makes functions of whole tensors run with a mesh and the rules of its axes. */
export function inMeshContext(mesh: Mesh, rules: LogicalRules) {
  return <A extends readonly unknown[], R>(fn: (...args: A) => R) =>
    (...args: A): R =>
      withMesh(mesh, () => logicalAxisRules(rules, () => fn(...args)));
}

const wholeStream: LogicalRules = [
  ["batch", ["data", "fsdp", "expert"]],
  ["experts", "expert"],
  ["vocab", "model"],
  ["heads", "model"],
  ["kvHeads", "model"],
  ["mlp", "model"],
  ["embed", ["fsdp", "context"]],
  ["activationHeads", "model"],
  ["activationMlp", "model"],
  ["activationVocab", "model"],
  ["layers", "pipe"],
  ["activation_stage", "pipe"],
];

const splitStream: LogicalRules = [...wholeStream, ["activationEmbed", "model"], ["norm", "model"]];

/** An initialiser of weights whose dims have logical names. */
export function weight(
  names: readonly (ParamDim | null)[],
  init: ParamInitializer = kernelInit,
): ParamInitializer {
  return withLogicalPartitioning(init, names);
}

/** Normally distributed weights with the standard deviation that keeps the scale of activations. */
const kernelInit: ParamInitializer = (key, shape, dtype) =>
  initializers.normal(1 / Math.sqrt(shape.at(-2) ?? 1))(key, shape, dtype);

/** Names the dims of an activation, so that the partitioner splits them by the rules. */
export function activation(x: Tensor, ...names: readonly ActivationDim[]): Tensor {
  return withLogicalConstraint(x, names);
}

/** Gathers all features of the stream on every device, once for the several products that follow. */
export function whole(stream: Tensor): Tensor {
  return activation(stream, "batch", "length", null);
}
