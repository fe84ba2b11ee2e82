import { arrayOf, either, need } from "../ir/arguments.js";
import { describe } from "../ir/describe.js";
import { ValueError } from "../ir/errors.js";
import { axisSizeIn } from "../ir/mesh.js";
import type { RematPolicy } from "../ir/ops.js";
import { type OptionsOf, optional, required, schema } from "../ir/schema.js";
import {
  getLogicalAxisRules,
  type LogicalRules,
  logicalToMeshAxes,
  type ModuleInstance,
} from "../nn/index.js";
import { definitionOf, isModule } from "../nn/modules/module.js";
import { type Mesh, meshKind } from "../spmd/mesh/mesh.js";
import { axesOf } from "../spmd/mesh/partitionSpec.js";
import type { Tensor } from "../trace/tensor.js";

/**
 * What one stage of a circular pipeline computes. Its result has the type of `inputs`; of an array, as scanned layers
 * return it, the first entry counts.
 */
export type StageFunction = (
  inputs: Tensor,
  segmentIds: Tensor | null,
  positions: Tensor | null,
  deterministic: boolean,
  modelMode: string,
) => Tensor | readonly [Tensor, ...unknown[]];

/** The schema of {@link CircularPipelineConfig}. */
export const circularPipelineConfig = schema({
  /** What each stage runs: one layer, or a module that runs several. Its variables are found under `layers`. */
  layers: required<ModuleInstance<StageFunction>>("function"),
  /** The devices; without a mesh nothing is constrained, and everything runs on one device. */
  mesh: optional(meshKind),
  /** The number of stages; that of the mesh's stage axis by default. It may be a multiple of it. */
  numStages: optional("number"),
  /**
   * Into how many microbatches a batch is split: a multiple of the number of stages. By default the fewest that keep
   * every stage busy: the number of stages, twice that with delayed forwarding.
   */
  numPipelineMicrobatches: optional("number"),
  /** How often every microbatch passes through all stages; by default what `numLayers` needs, else once. */
  numPipelineRepeats: optional("number"),
  /** The number of all layers, to check that stages and repeats cover them. */
  numLayers: optional("number"),
  /** How many layers `layers` runs; 1 by default. */
  numLayersPerStage: optional("number"),
  /**
   * Whether results wait one iteration before they move on, so that sending them and computing the next ones
   * may overlap: twice the bubble.
   */
  pipelineDelayActivationForwarding: optional("flag"),
  /** Whether the iterations are a loop of the program (default) or are unrolled. */
  scanPipelineIterations: optional("flag"),
  /** Whether the backward pass recomputes iterations (default) instead of keeping their values. */
  setRematPolicyOnPipelineIterations: optional("flag"),
  /** What to keep of an iteration besides its inputs; nothing by default. */
  rematPolicy: optional<RematPolicy>("object"),
  /** Whether to use only `rematPolicy`, without keeping the inputs of iterations and layers. */
  customRematPolicy: optional("flag"),
  /** Whether the weights are gathered over the fsdp axes once before the iterations, not again in each. */
  pipelineFsdpAgOnce: optional("flag"),
  /**
   * Whether the weights of a repeat are gathered over the fsdp axes once, before its iterations: fewer gathers than one
   * per iteration, and only the weights of two repeats are gathered at a time.
   */
  pipelineFsdpAgPerRepeat: optional("flag"),
  /** Which mesh axes split which logical dims; those of `nn.logicalAxisRules` around the call by default. */
  logicalAxisRules: optional<LogicalRules>("list"),
  /** The mesh axis of the stages; `stage` by default. */
  stageAxisName: optional("string"),
  /** The mesh axes over which weights are stored split and gathered for use; `fsdp` and `fsdp_transpose` by default. */
  fsdpAxisNames: optional("strings"),
  /** The logical names of the dims of activations; `activation_batch`, `activation_length`, `activation_embed` by default. */
  activationNames: optional(arrayOf(either("string", "null"), "strings or null")),
});

/** Configuration of {@link CircularPipeline}. */
export interface CircularPipelineConfig extends OptionsOf<typeof circularPipelineConfig> {}

/** A {@link CircularPipelineConfig} with its defaults filled in. */
export interface PipelineSettings {
  readonly config: CircularPipelineConfig;
  readonly mesh: Mesh | undefined;
  readonly numStages: number;
  readonly numMicrobatches: number;
  readonly numRepeats: number;
  /** The number of iterations from one stage to the next. */
  readonly forwardingDelay: number;
  readonly stageAxisName: string;
  readonly fsdpAxisNames: readonly string[];
  readonly activationNames: readonly (string | null)[];
}

/** Fills in defaults; throws one error with everything that is wrong. */
export function readConfig(config: CircularPipelineConfig): PipelineSettings {
  need("object", config, "the configuration", "CircularPipeline");
  const { mesh, stageAxisName = "stage", numLayers, numLayersPerStage = 1 } = config;
  const numStages = config.numStages ?? (mesh && axisSizeIn(mesh, stageAxisName)) ?? 1;
  const forwardingDelay = config.pipelineDelayActivationForwarding ? 2 : 1;
  const settings: PipelineSettings = {
    config,
    mesh,
    numStages,
    numMicrobatches: config.numPipelineMicrobatches ?? numStages * forwardingDelay,
    numRepeats:
      config.numPipelineRepeats ??
      (numLayers === undefined ? 1 : Math.max(1, Math.ceil(numLayers / (numStages * numLayersPerStage)))),
    forwardingDelay,
    stageAxisName,
    fsdpAxisNames: config.fsdpAxisNames ?? ["fsdp", "fsdp_transpose"],
    activationNames: config.activationNames ?? ["activation_batch", "activation_length", "activation_embed"],
  };
  report([
    ...layersProblems(config.layers),
    ...countProblems(settings),
    ...meshProblems(settings),
    ...(config.logicalAxisRules ? rulesProblems(settings, config.logicalAxisRules) : []),
    ...(config.pipelineFsdpAgOnce && config.pipelineFsdpAgPerRepeat
      ? ["pipelineFsdpAgOnce and pipelineFsdpAgPerRepeat exclude each other: choose one"]
      : []),
  ]);
  return settings;
}

function layersProblems(layers: unknown): string[] {
  if (isModule(layers)) return [];
  const made = definitionOf(layers);
  if (!made) return [`layers must be a module, got ${typeof layers}`];
  return [`layers is the class ${made.name}: give an instance, ${made.name}({ parent: null })`];
}

const isCount = (n: number) => Number.isInteger(n) && n >= 1;

function countProblems(settings: PipelineSettings): string[] {
  const { config, numStages, numRepeats, forwardingDelay, numMicrobatches: micro } = settings;
  const { numLayers, numLayersPerStage = 1 } = config;
  const counts = {
    numStages,
    numPipelineMicrobatches: micro,
    numPipelineRepeats: numRepeats,
    numLayersPerStage,
  };
  const wrong = Object.entries(counts).filter(([, n]) => !isCount(n));
  if (wrong.length > 0) {
    return wrong.map(([name, n]) => `${name} must be an integer of at least 1, got ${describe(n)}`);
  }
  const problems: string[] = [];
  if (micro % numStages !== 0) {
    problems.push(
      `numPipelineMicrobatches ${micro} is not a multiple of the ${numStages} stages (${micro} / ${numStages} = ${micro / numStages}): use ${Math.ceil(micro / numStages) * numStages}`,
    );
  }
  if (numRepeats > 1 && micro < numStages * forwardingDelay) {
    problems.push(
      `${micro} microbatches are too few to go round ${numStages} stages ${numRepeats} times${
        forwardingDelay > 1 ? " with delayed forwarding" : ""
      }: the first comes back after ${numStages} x ${forwardingDelay} = ${numStages * forwardingDelay} iterations, use at least that many`,
    );
  }
  if (numLayers !== undefined && numLayers !== numStages * numRepeats * numLayersPerStage) {
    problems.push(
      `numLayers ${numLayers} is not stages x repeats x layers per stage (${numStages} x ${numRepeats} x ${numLayersPerStage} = ${numStages * numRepeats * numLayersPerStage})`,
    );
  }
  return problems;
}

function meshProblems({ mesh, stageAxisName, numStages }: PipelineSettings): string[] {
  if (!mesh) return [];
  const size = axisSizeIn(mesh, stageAxisName);
  if (size === undefined) {
    return [
      `${mesh} has no axis "${stageAxisName}" for the stages: add it to the mesh (size 1 will do), or name another with stageAxisName`,
    ];
  }
  if (!isCount(numStages) || numStages % size === 0) return [];
  return [
    `${numStages} stages do not spread over the ${size} devices of mesh axis "${stageAxisName}" (${numStages} / ${size} = ${numStages / size}): use a multiple of ${size}`,
  ];
}

/** What is wrong with rules for a pipeline's mesh: axes that it lacks, and stages that they do not split. */
export function rulesProblems({ mesh, stageAxisName }: PipelineSettings, rules: LogicalRules): string[] {
  if (!mesh) return [];
  const unknown = rules.flatMap(([name, entry]) =>
    axesOf(entry)
      .filter((axis) => axisSizeIn(mesh, axis) === undefined)
      .map((axis) => `the rule for "${name}" names axis "${axis}", which is not in ${mesh}`),
  );
  if (unknown.length > 0 || rules.length === 0 || (axisSizeIn(mesh, stageAxisName) ?? 1) === 1)
    return unknown;
  const reaches = (name: string) =>
    logicalToMeshAxes([name], rules).entries.some((entry) => axesOf(entry).includes(stageAxisName));
  return ["activation_stage", "layers"]
    .filter((name) => !reaches(name))
    .map(
      (name) =>
        `no rule splits "${name}" over "${stageAxisName}", the axis of the stages: add ["${name}", "${stageAxisName}"]`,
    );
}

/** The rules of the configuration or around the call; by default only stages and the batch are split. */
export function rulesOf({ config, mesh, stageAxisName, fsdpAxisNames }: PipelineSettings): LogicalRules {
  const around = config.logicalAxisRules ?? getLogicalAxisRules();
  if (around.length > 0 || !mesh) return around;
  const batch = ["data", ...fsdpAxisNames].filter((axis) => axisSizeIn(mesh, axis) !== undefined);
  return [
    ["activation_stage", stageAxisName],
    ["layers", stageAxisName],
    ["activation_batch", batch],
  ];
}

/** Throws one error that lists all problems, unless there are none. */
export function report(problems: readonly string[]): void {
  if (problems.length === 0) return;
  const list = problems.length === 1 ? ` ${problems[0]}` : problems.map((text) => `\n  ${text}`).join("");
  throw new ValueError(`[CircularPipeline]${list}`);
}
