import { ValueError } from "../../ir/errors.js";
import { logicalAxisRules, logicalToMeshSharding } from "../../nn/logicalPartitioning.js";
import { getPartitionSpec } from "../../nn/partitioned.js";
import type { Variables } from "../../nn/scope.js";
import * as np from "../../numpy/index.js";
import {
  accumulateGradients,
  allFinite,
  applyIfFinite,
  castFloats,
  dynamicLossScale,
  type GradientTransformation,
  globalNorm,
  type LossScaleOptions,
  type LossScaleState,
} from "../../optim/index.js";
import * as random from "../../random/index.js";
import { type CostReport, costAnalysis } from "../../spmd/inspect/cost.js";
import { findNonFinite, type NonFinite } from "../../spmd/inspect/nonFinite.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import { withMesh } from "../../spmd/run/constraint.js";
import { jit } from "../../spmd/run/jit.js";
import * as ops from "../../trace/ops.js";
import { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { valueAndGrad } from "../../transforms/grad.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { fromCanonical, type LayerLayout, toCanonical } from "../models/canonical.js";
import type { ModelConfig } from "../models/config.js";
import { LanguageModel } from "../models/languageModel.js";
import { crossEntropy } from "../models/loss.js";
import { languageModelRules, type TensorParallelism } from "../models/names.js";
import { pipelinedLayers } from "../models/pipelined.js";
import { leastLossScale } from "./health.js";
import { type ParamDtype, parameterUpdates } from "./parameterUpdates.js";

/** Everything a run changes: parameters, what the optimiser remembers, and the number of updates made. */
export interface LanguageModelState {
  readonly params: Variables;
  readonly optimizer: unknown;
  /** The number of updates made; a step that is skipped makes none. */
  readonly step: Tensor;
  /** What the loss is multiplied by, when something is computed or kept in float16. */
  readonly lossScale?: LossScaleState;
}

/** What a step tells about itself, in float32. */
export interface StepMetrics {
  readonly loss: Tensor;
  readonly crossEntropy: Tensor;
  readonly gradientNorm: Tensor;
  /** The sum of squares of every gradient, a vector in the order of the parameters; tells which one went bad. */
  readonly gradientSquares: Tensor;
  /** How many updates were made before this step, an int32; the learning rate goes by it. */
  readonly numUpdates: Tensor;
  /** What the loss was multiplied by; the step was skipped where the norm of its gradients is not finite. */
  readonly lossScale?: Tensor;
  /** Whether neither this step nor one before it went wrong; those that did, and all after them, change nothing. */
  readonly isGood: Tensor;
}

/** What {@link createTraining} needs. */
export interface TrainingOptions {
  readonly model: ModelConfig;
  readonly optimizer: GradientTransformation;
  readonly mesh: Mesh;
  /** The weight of the z-loss; 0 by default. */
  readonly zLoss?: number;
  /** How the devices of the mesh's axis `model` exchange activations; `sync` by default. */
  readonly tensor?: TensorParallelism;
  /** How a batch goes through the stages when the mesh's axis `pipe` is larger than 1. */
  readonly pipeline?: { readonly microbatches: number; readonly repeats: number };
  /** Into how many parts a batch is split, which run one after the other; 1 by default. */
  readonly accumulate?: number;
  /** The type that parameters are kept in. The optimiser of narrow ones keeps float32 copies. */
  readonly paramDtype?: ParamDtype;
  /** How the loss is scaled when something is computed or kept in float16. */
  readonly lossScale?: LossScaleOptions;
}

/** The compiled functions of a training run. */
export interface Training {
  /** The state before the first step, made on the devices. */
  init(seed: number): LanguageModelState;
  /**
   * One step on int32 tokens [batch, length + 1]; the old state's memory is reused. A step whose loss or gradients
   * are not finite returns the state as it was.
   *
   * @param before what the step before told, if nobody has looked at it: when that one went wrong, this one leaves
   * the state alone too
   */
  step(state: LanguageModelState, tokens: Tensor, before?: StepMetrics): [LanguageModelState, StepMetrics];
  /** The first tensor of a step's forward and backward pass that is not finite; slow, for finding what went wrong. */
  findNonFinite(state: LanguageModelState, tokens: Tensor): Promise<NonFinite | undefined>;
  /** Whether all numbers of a state are finite, a bool scalar. */
  isFinite(state: LanguageModelState): Tensor;
  /** The mean cross-entropy of tokens under the state's parameters. */
  evaluate(state: LanguageModelState, tokens: Tensor): Tensor;
  /** The logits of the next token after every position of tokens [batch, length]. */
  logits(state: LanguageModelState, tokens: Tensor): Tensor;
  /** What a step costs every device; nothing is run, only types and places are looked at. */
  cost(state: LanguageModelState, tokens: Tensor): CostReport;
  /** How the layers are spread over stages; undefined without a pipeline. */
  readonly layout: LayerLayout | undefined;
  /** The type of every leaf of the state. */
  readonly types: unknown;
  /** The sharding of every leaf of the state. */
  readonly shardings: unknown;
  /** How batches of tokens are split. */
  readonly batchSharding: NamedSharding;
}

/**
 * Compiles a language model's training for a mesh with axes data, fsdp, pipe and model. The model and the
 * optimiser are written over whole tensors; the partitioner splits them by the model's logical names.
 */
export function createTraining(options: TrainingOptions): Training {
  const { model, mesh, zLoss = 0, pipeline = { microbatches: 1, repeats: 1 } } = options;
  const { accumulate = 1, paramDtype = "float32" } = options;
  const optimizer = parameterUpdates(options.optimizer, paramDtype);
  const isHalf = model.dtype === "float16" || paramDtype === "float16";
  const scaling = isHalf ? dynamicLossScale(options.lossScale) : undefined;
  const leastScale = options.lossScale?.min ?? leastLossScale;
  const { tensor = "sync" } = options;
  const rules = languageModelRules(tensor);
  const overlap = tensor === "async" ? ["model"] : [];
  const layout = layerLayout(model.numLayers, mesh.shape.pipe ?? 1, pipeline.repeats);
  const inTurn = LanguageModel(model);
  const network = layout
    ? LanguageModel({ ...model, runLayers: pipelinedLayers(mesh, pipeline.microbatches, layout) })
    : inTurn;
  const inContext = <T>(fn: () => T): T => withMesh(mesh, () => logicalAxisRules(rules, fn));
  const example = ops.zeros({ dtype: "int32", shape: [mesh.size, 2] });

  const create = (key: Tensor): LanguageModelState =>
    inContext(() => {
      // The same parameters on every mesh: they are made in their order and then spread.
      const params = fromCanonical(inTurn.init(key, example), layout);
      return {
        params: castFloats(params, paramDtype),
        optimizer: optimizer.init(params),
        step: np.zeros([], { dtype: "int32" }),
        ...(scaling ? { lossScale: scaling.init() } : {}),
      };
    });
  const types = evalShape(create)(random.key(0));
  const specs = getPartitionSpec(types);
  const shardings = logicalToMeshSharding(specs, mesh, rules);
  const batchSharding = new NamedSharding(mesh, new PartitionSpec([["data", "fsdp"]]));
  const everywhere = new NamedSharding(mesh, new PartitionSpec([]));

  const losses = (params: Variables, tokens: Tensor) => {
    const length = (tokens.shape[1] ?? 1) - 1;
    const inputs = ops.sliceDim(tokens, 1, 0, length);
    const logits = network.apply(params, inputs);
    return crossEntropy(logits, ops.sliceDim(tokens, 1, 1, length + 1), zLoss);
  };
  const gradients = ({ params: current, lossScale }: LanguageModelState, tokens: Tensor) =>
    inContext(() => {
      const differentiate = valueAndGrad(
        (params: Variables, rows: Tensor) => {
          const { loss, crossEntropy: entropy } = losses(params, rows);
          return [scaling && lossScale ? scaling.scale(lossScale, loss) : loss, [loss, entropy]] as const;
        },
        { hasAux: true },
      );
      const [[, [loss, entropy]], scaled] = accumulateGradients(differentiate, accumulate)(current, tokens);
      const grads = scaling && lossScale ? scaling.unscale(lossScale, scaled) : scaled;
      return { loss, entropy, grads, gradientNorm: globalNorm(grads) };
    });
  const step = (
    state: LanguageModelState,
    tokens: Tensor,
    wasGood: Tensor,
  ): [LanguageModelState, StepMetrics] =>
    inContext(() => {
      const { lossScale } = state;
      const { loss, entropy, grads, gradientNorm } = gradients(state, tokens);
      const [params, remembered] = optimizer.update(grads, state.optimizer, state.params);
      const changed = { params, optimizer: remembered, step: state.step.add(1) };
      const squares = tree.leaves(grads).map((g) => np.sum(np.square((g as Tensor).astype("float32"))));
      const metrics = {
        loss,
        crossEntropy: entropy,
        gradientNorm,
        gradientSquares: np.stack(squares),
        numUpdates: state.step,
      };
      const finite = np.logicalAnd(np.isfinite(gradientNorm), np.isfinite(loss));
      const before = { params: state.params, optimizer: state.optimizer, step: state.step };
      const next = applyIfFinite(np.logicalAnd(finite, wasGood), changed, before);
      if (!scaling || !lossScale) return [next, { ...metrics, isGood: np.logicalAnd(finite, wasGood) }];
      const nextScale = applyIfFinite(wasGood, scaling.update(lossScale, finite), lossScale);
      const mayHelp = np.logicalAnd(np.greater(lossScale.scale, leastScale), np.isfinite(loss));
      const isGood = np.logicalAnd(wasGood, np.logicalOr(finite, mayHelp));
      return [
        { ...next, lossScale: nextScale },
        { ...metrics, lossScale: lossScale.scale, isGood },
      ];
    });

  const stepOptions = {
    mesh,
    inShardings: [shardings, batchSharding, everywhere],
    outShardings: [shardings, everywhere],
    donate: 0,
    overlap,
    name: "trainStep",
  };
  const init = jit(create, { mesh, outShardings: shardings, name: "init" });
  const afterGoodStep = Tensor.scalar(true, "bool");
  const compiledStep = jit(step, stepOptions);
  const stepCost = costAnalysis(step, stepOptions);
  return {
    init: (seed) => init(random.key(seed)),
    step: (state, tokens, before) => compiledStep(state, tokens, before?.isGood ?? afterGoodStep),
    cost: (state, tokens) => stepCost(state, tokens, afterGoodStep),
    findNonFinite: findNonFinite(gradients, {
      mesh,
      inShardings: [shardings, batchSharding],
      overlap,
      name: "trainStep",
    }),
    isFinite: jit((state: LanguageModelState) => allFinite(state), {
      mesh,
      inShardings: [shardings],
      outShardings: everywhere,
      name: "isFinite",
    }),
    evaluate: jit(
      (state: LanguageModelState, tokens: Tensor) =>
        inContext(() => {
          const measure = (params: Variables, rows: Tensor) => losses(params, rows).crossEntropy;
          return accumulateGradients(measure, accumulate)(state.params, tokens);
        }),
      { mesh, inShardings: [shardings, batchSharding], overlap, name: "evaluate" },
    ),
    logits: jit(
      (state: LanguageModelState, tokens: Tensor) =>
        inContext(() => inTurn.apply(toCanonical(state.params, layout), tokens)),
      {
        mesh,
        inShardings: [shardings, everywhere],
        outShardings: everywhere,
        overlap,
        name: "logits",
      },
    ),
    layout,
    types,
    shardings,
    batchSharding,
  };
}

/** How layers are spread over the stages of a pipeline; undefined when there is only one. */
export function layerLayout(
  numLayers: number,
  numStages: number,
  numRepeats: number,
): LayerLayout | undefined {
  if (numStages === 1) return undefined;
  const layersPerStage = numLayers / (numStages * numRepeats);
  if (Number.isInteger(layersPerStage)) return { numStages, numRepeats, layersPerStage };
  throw new ValueError(
    `[createTraining] ${numLayers} layers do not spread over ${numStages} stages and ${numRepeats} repeats (${numLayers} / ${numStages * numRepeats} = ${layersPerStage})`,
  );
}
