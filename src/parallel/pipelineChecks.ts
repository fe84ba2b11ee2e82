import { axisSizeIn } from "../ir/mesh.js";
import { formatType, isTyped, type TensorType } from "../ir/shape.js";
import { getLogicalAxisRules, type ModuleInstance } from "../nn/index.js";
import { nameOfModule } from "../nn/modules/module.js";
import { axesOf, isSpec, PartitionSpec } from "../spmd/mesh/partitionSpec.js";
import { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { type PipelineSettings, report, rulesOf, rulesProblems } from "./pipelineConfig.js";
import type { SpecTree } from "./pipelineSpecs.js";

/** The arguments of a call that are checked. */
interface CallShapes {
  readonly inputs: Tensor;
  readonly segmentIds: Tensor | null;
  readonly positions: Tensor | null;
}

/** Throws one error with everything that is wrong with a call's arguments and the rules around it. */
export function checkCall(settings: PipelineSettings, { inputs, segmentIds, positions }: CallShapes): void {
  const [batch] = inputs.shape;
  const around = settings.config.logicalAxisRules ? [] : rulesProblems(settings, getLogicalAxisRules());
  const layers = nameOfModule(settings.config.layers);
  const ids = Object.entries({ segmentIds, positions }).flatMap(([name, given]) =>
    given && given.shape[0] !== batch
      ? [`${name} [${given.shape}] must have the batch of the inputs, ${batch}, in dim 0`]
      : [],
  );
  report([
    ...around.map((text) => `of ${layers}, with the rules around the call: ${text}`),
    ...(around.length > 0 ? [] : batchProblems(settings, batch)),
    ...ids,
  ]);
}

function batchProblems(settings: PipelineSettings, batch: number | undefined): string[] {
  const { numMicrobatches, mesh } = settings;
  if (batch === undefined) return ["the inputs have no dim 0 to split into microbatches"];
  const size = batch / numMicrobatches;
  if (!Number.isInteger(size)) {
    return [
      `batch ${batch} does not split into ${numMicrobatches} microbatches (${batch} / ${numMicrobatches} = ${size}): use a batch that is a multiple of ${numMicrobatches}`,
    ];
  }
  if (!mesh) return [];
  const rule = rulesOf(settings).find(([name]) => name === settings.activationNames[0]);
  const axes = axesOf(rule?.[1] ?? null);
  const parts = axes.reduce((n, axis) => n * (axisSizeIn(mesh, axis) ?? 1), 1);
  if (size % parts === 0) return [];
  return [
    `microbatches of ${size} (${batch} / ${numMicrobatches}) do not split over ${axes.map((a) => `"${a}"`).join(", ")} (${size} / ${parts} = ${size / parts}): use a batch that is a multiple of ${numMicrobatches * parts}`,
  ];
}

/** Rejects layers whose result differs from their input in type, because it is the input of the next stage. */
export function checkStage(layers: ModuleInstance, input: TensorType, result: unknown): void {
  const given = formatType(input);
  const made = isTyped(result) ? formatType(result) : undefined;
  if (made === given) return;
  const what = made ?? "a result that is not a tensor";
  report([
    `layers ${nameOfModule(layers)} turn ${given} into ${what}: the result of a stage is the input of the next one, so keep its shape and data type`,
  ]);
}

/** Rejects weights that were not made for this many repeats and stages. */
export function checkWeights({ numRepeats, numStages }: PipelineSettings, weights: unknown): void {
  const lead = numRepeats > 1 ? [numRepeats, numStages] : [numStages];
  const what = numRepeats > 1 ? "repeats, stages" : "stages";
  report(
    tree.flattenWithPath(weights).flatMap(({ path, leaf }) => {
      if (!(leaf instanceof Tensor) || lead.every((n, d) => leaf.shape[d] === n)) return [];
      return [
        `the weight ${path} is [${leaf.shape}], but must start with [${what}] = [${lead}]: use weights that this pipeline made`,
      ];
    }),
  );
}

/** Rejects a tree of specs whose structure differs from the weights'. */
export function checkSpecs(weights: unknown, specs: SpecTree): void {
  if (specs === null || specs === undefined) return;
  const given = tree.flattenWithPath(specs, isSpec);
  const wanted = new Set(tree.flattenWithPath(weights).map(({ path }) => path));
  const known = new Set(given.map(({ path }) => path));
  report([
    ...[...wanted]
      .filter((path) => !known.has(path))
      .map((path) => `logicalPartitionSpec has no spec for the weight ${path}`),
    ...given.flatMap(({ path, leaf }) => {
      if (!wanted.has(path))
        return [`logicalPartitionSpec has ${path}, which is not a weight: use what getWeightSharding gives`];
      return leaf instanceof PartitionSpec
        ? []
        : [`logicalPartitionSpec has a ${typeof leaf} at ${path}, not a spec`];
    }),
  ]);
}

/** Throws if weights to gather have dims without names. */
export function requireSpecs(specs: SpecTree): void {
  if (specs !== null && specs !== undefined) return;
  report([
    "weights can be gathered over fsdp only where their dims have names: give logicalPartitionSpec (see getWeightSharding), or the boxed variables that init made",
  ]);
}
