import { ValueError } from "../ir/errors.js";
import { axisSizeIn } from "../ir/mesh.js";
import type { RematPolicy } from "../ir/ops.js";
import { getLogicalAxisRules, type LogicalRules, type ModuleInstance } from "../nn/index.js";
import type { Mesh } from "../spmd/mesh/mesh.js";
import type { SpecEntry } from "../spmd/mesh/partitionSpec.js";
import type { Tensor } from "../trace/tensor.js";

/**
 * What one stage of a circular pipeline computes. Its result is like `inputs`; a result that is a list, as that
 * of scanned layers, counts with its first entry.
 */
export type StageFunction = (
  inputs: Tensor,
  segmentIds: Tensor | null,
  positions: Tensor | null,
  deterministic: boolean,
  modelMode: string,
) => Tensor | readonly [Tensor, ...unknown[]];

/** Configuration of {@link CircularPipeline}. */
export interface CircularPipelineConfig {
  /** What each stage runs: one layer, or a module that runs several. Its variables are found under `layers`. */
  readonly layers: ModuleInstance<StageFunction>;
  /** The devices; without a mesh nothing is constrained, and everything runs in one place. */
  readonly mesh?: Mesh;
  /** The number of stages; that of the mesh's stage axis by default. It may be a multiple of it. */
  readonly numStages?: number;
  /** Into how many microbatches a batch is split: a multiple of the number of stages. */
  readonly numPipelineMicrobatches: number;
  /** How often every microbatch goes round all stages; by default what `numLayers` needs, else once. */
  readonly numPipelineRepeats?: number;
  /** The number of all layers, to check that stages and repeats cover them. */
  readonly numLayers?: number;
  /** How many layers `layers` runs; 1 by default. */
  readonly numLayersPerStage?: number;
  /**
   * Whether results wait one iteration before they move on, so that sending them and computing the next ones
   * may overlap: twice the bubble.
   */
  readonly pipelineDelayActivationForwarding?: boolean;
  /** Whether the iterations are a loop of the program (default) or are written out one after the other. */
  readonly scanPipelineIterations?: boolean;
  /** Whether the backward pass computes iterations again (default) instead of keeping their values. */
  readonly setRematPolicyOnPipelineIterations?: boolean;
  /** What to keep of an iteration besides its inputs; nothing by default. */
  readonly rematPolicy?: RematPolicy;
  /** Whether `rematPolicy` stands alone, without keeping the inputs of iterations and layers. */
  readonly customRematPolicy?: boolean;
  /** Whether the weights are gathered over the fsdp axes once before the iterations, not again in each. */
  readonly pipelineFsdpAgOnce?: boolean;
  /** Which mesh axes split which logical dims; those of `nn.logicalAxisRules` around the call by default. */
  readonly logicalAxisRules?: LogicalRules;
  /** The mesh axis of the stages; `stage` by default. */
  readonly stageAxisName?: string;
  /** The mesh axes over which weights are only stored split; `fsdp` and `fsdp_transpose` by default. */
  readonly fsdpAxisNames?: readonly string[];
  /** The logical names of the dims of activations; `activation_batch`, `activation_length`, `activation_embed` by default. */
  readonly activationNames?: readonly (string | null)[];
}

/** A {@link CircularPipelineConfig} with its defaults filled in. */
export interface PipelineSettings {
  readonly config: CircularPipelineConfig;
  readonly mesh: Mesh | undefined;
  readonly numStages: number;
  readonly numMicrobatches: number;
  readonly numRepeats: number;
  /** How many iterations pass from one stage to the next. */
  readonly forwardingDelay: number;
  readonly stageAxisName: string;
  readonly fsdpAxisNames: readonly string[];
  readonly activationNames: readonly (string | null)[];
}

const isCount = (n: number) => Number.isInteger(n) && n >= 1;

/** Fills in defaults and reports everything that does not fit, all at once. */
export function readConfig(config: CircularPipelineConfig): PipelineSettings {
  const { mesh, stageAxisName = "stage", numLayers, numLayersPerStage = 1 } = config;
  const axisSize = mesh && (axisSizeIn(mesh, stageAxisName) ?? 1);
  const numStages = config.numStages ?? axisSize ?? 1;
  const numRepeats =
    config.numPipelineRepeats ??
    (numLayers === undefined ? 1 : Math.max(1, Math.ceil(numLayers / (numStages * numLayersPerStage))));
  const forwardingDelay = config.pipelineDelayActivationForwarding ? 2 : 1;
  const micro = config.numPipelineMicrobatches;
  const problems: string[] = [];
  const count = (name: string, n: number) => {
    if (!isCount(n)) problems.push(`${name} must be a whole number of at least 1, got ${n}`);
  };
  count("numStages", numStages);
  count("numPipelineMicrobatches", micro);
  count("numPipelineRepeats", numRepeats);
  count("numLayersPerStage", numLayersPerStage);
  if (problems.length === 0) {
    if (micro % numStages !== 0) {
      problems.push(
        `numPipelineMicrobatches ${micro} is not a multiple of the ${numStages} stages (${micro} / ${numStages} = ${micro / numStages}): use ${Math.ceil(micro / numStages) * numStages}`,
      );
    }
    if (axisSize !== undefined && numStages % axisSize !== 0) {
      problems.push(
        `${numStages} stages do not spread over the ${axisSize} devices of mesh axis "${stageAxisName}" (${numStages} / ${axisSize} = ${numStages / axisSize}): use a multiple of ${axisSize}`,
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
  }
  if (mesh) problems.push(...unknownAxes(mesh, config));
  report(problems);
  return {
    config,
    mesh,
    numStages,
    numMicrobatches: micro,
    numRepeats,
    forwardingDelay,
    stageAxisName,
    fsdpAxisNames: config.fsdpAxisNames ?? ["fsdp", "fsdp_transpose"],
    activationNames: config.activationNames ?? ["activation_batch", "activation_length", "activation_embed"],
  };
}

const axesOf = (entry: SpecEntry): readonly string[] =>
  typeof entry === "string" ? [entry] : Array.isArray(entry) ? entry : [];

function unknownAxes(mesh: Mesh, { logicalAxisRules = [] }: CircularPipelineConfig): string[] {
  return logicalAxisRules.flatMap(([name, entry]) =>
    axesOf(entry)
      .filter((axis) => axisSizeIn(mesh, axis) === undefined)
      .map((axis) => `the rule for "${name}" names axis "${axis}", which is not in ${mesh}`),
  );
}

/** The rules of the configuration or around the call; by default only stages and the batch are split. */
export function rulesOf({ config, mesh, stageAxisName, fsdpAxisNames }: PipelineSettings): LogicalRules {
  const around = config.logicalAxisRules ?? getLogicalAxisRules();
  if (around.length > 0 || !mesh) return around;
  const batch = ["data", ...fsdpAxisNames].filter((axis) => axisSizeIn(mesh, axis) !== undefined);
  const stage = axisSizeIn(mesh, stageAxisName) === undefined ? null : stageAxisName;
  return [
    ["activation_stage", stage],
    ["layers", stage],
    ["activation_batch", batch],
  ];
}

/** The arguments of a call, as far as they can be wrong. */
interface CallShapes {
  readonly inputs: Tensor;
  readonly segmentIds: Tensor | null;
  readonly positions: Tensor | null;
}

/** Reports everything about a call's arguments that does not fit the pipeline, all at once. */
export function checkCall(settings: PipelineSettings, { inputs, segmentIds, positions }: CallShapes): void {
  const { numMicrobatches, mesh } = settings;
  const problems: string[] = [];
  const [batch] = inputs.shape;
  if (batch === undefined) {
    problems.push("the inputs have no dim 0 to split into microbatches");
  } else if (batch % numMicrobatches !== 0) {
    problems.push(
      `batch ${batch} does not split into ${numMicrobatches} microbatches (${batch} / ${numMicrobatches} = ${batch / numMicrobatches}): use a batch that is a multiple of ${numMicrobatches}`,
    );
  } else if (mesh) {
    const size = batch / numMicrobatches;
    const rule = rulesOf(settings).find(([name]) => name === settings.activationNames[0]);
    const axes = axesOf(rule?.[1] ?? null);
    const parts = axes.reduce((n, axis) => n * (axisSizeIn(mesh, axis) ?? 1), 1);
    if (size % parts !== 0) {
      problems.push(
        `microbatches of ${size} (${batch} / ${numMicrobatches}) do not split over ${axes.map((a) => `"${a}"`).join(", ")} (${size} / ${parts} = ${size / parts}): use a batch that is a multiple of ${numMicrobatches * parts}`,
      );
    }
  }
  for (const [name, ids] of [
    ["segmentIds", segmentIds],
    ["positions", positions],
  ] as const) {
    if (ids && ids.shape[0] !== batch) {
      problems.push(`${name} [${ids.shape}] must have the batch of the inputs, ${batch}, in dim 0`);
    }
  }
  report(problems);
}

function report(problems: readonly string[]): void {
  if (problems.length === 0) return;
  const list = problems.length === 1 ? ` ${problems[0]}` : problems.map((text) => `\n  ${text}`).join("");
  throw new ValueError(`[CircularPipeline]${list}`);
}
