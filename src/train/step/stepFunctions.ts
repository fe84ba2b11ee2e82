import { oneOf } from "../../ir/arguments.js";
import { ValueError } from "../../ir/errors.js";
import { type OptionsOf, optional, required, schema } from "../../ir/schema.js";
import type { ContextParallelism } from "../../nn/functions/contextAttention.js";
import type { LogicalRules } from "../../nn/modules/logicalPartitioning.js";
import type { Variables } from "../../nn/modules/scope.js";
import * as np from "../../numpy/index.js";
import {
  applyIfFinite,
  castFloats,
  dynamicLossScale,
  type GradientTransformation,
  globalNorm,
  type LossScale,
  type LossScaleOptions,
  microbatch,
} from "../../optim/index.js";
import type { ScheduleName } from "../../parallel/schedule/makers.js";
import type { PipelinePlacement } from "../../parallel/schedule/schedule.js";
import { meshKind } from "../../spmd/mesh/mesh.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { valueAndGrad } from "../../transforms/derivatives/grad.js";
import type { ModelConfig } from "../models/config.js";
import { expertsOf } from "../models/experts.js";
import { LanguageModel, type RunLayers, runInTurn } from "../models/languageModel.js";
import { fromCanonical, type LayerLayout, toCanonical } from "../models/layerOrder.js";
import {
  auxOf,
  crossEntropy,
  type LossParts,
  logProbabilities,
  type StepAux,
  withRouters,
} from "../models/loss.js";
import { type RouterLosses, routerLosses } from "../models/moeDecoder.js";
import { inMeshContext, languageModelRules, type TensorParallelism } from "../models/names.js";
import { pipelinedLayers } from "../models/pipelined.js";
import { type DpoOptions, dpoLoss } from "../models/preference.js";
import {
  chunksOf,
  isInterleaved,
  placementOf,
  scheduledGradients,
  scheduleFor,
} from "../models/scheduled.js";
import { placeTokens, splitSequences } from "../models/sequence.js";
import { applyModel, frozenParams, type TuneConfig, tunedModel } from "../models/tune.js";
import { balancingBias, withoutSurplus } from "./balancingBias.js";
import { paramDtypeKind, parameterUpdates } from "./parameterUpdates.js";
import type { LanguageModelState, StepMetrics } from "./state.js";
import {
  inputsAndTargets,
  rowsOfPairs,
  type TokenInput,
  unweighted,
  type WeightedBatch,
  weighted,
} from "./tokenBatch.js";

/** Minimum loss scale: if gradients overflow without any scaling, skipping steps does not help. */
export const leastLossScale = 1;

/** The schema of {@link TrainingOptions}. */
export const trainingOptions = schema({
  /** The sizes and the kind of the model. */
  model: required<ModelConfig>("object"),
  /** The optimiser, such as `optim.adamw(…)`. */
  optimizer: required<GradientTransformation>("object"),
  /** The mesh to train on. */
  mesh: required(meshKind),
  /** The weight of the z-loss; 0 by default. */
  zLoss: optional("number"),
  /** Trains on pairs of answers by direct preference optimisation, with these options of `dpoLoss`. */
  dpo: optional<DpoOptions>("object"),
  /** How the devices of the mesh's axis `model` exchange activations; `sync` by default. */
  tensor: optional<TensorParallelism>(oneOf("sync", "async", "sequence"), "sync"),
  /** How the devices of the mesh's axis `context`, if it has one, exchange what attention needs; `ring` by default. */
  context: optional<ContextParallelism>(oneOf("ring", "allToAll", "gather"), "ring"),
  /** How a batch passes through the stages if the mesh axis `pipe` is larger than 1. */
  pipeline: optional<{
    readonly microbatches: number;
    readonly repeats: number;
    /** The order in which stages work on microbatches; `circular` by default, which with one repeat is GPipe. */
    readonly schedule?: ScheduleName;
  }>("object"),
  /** The number of parts of a batch that run one after the other; 1 by default. */
  accumulate: optional("number"),
  /** The dtype of parameters. For narrow ones the optimiser keeps float32 copies. */
  paramDtype: optional(paramDtypeKind),
  /** Trains adapters instead of the parameters, which are frozen. */
  tune: optional<TuneConfig>("object"),
  /** How the loss is scaled if anything is computed or stored in float16. */
  lossScale: optional<LossScaleOptions>("object"),
});

/** Options for training a language model on a mesh. */
export interface TrainingOptions extends OptionsOf<typeof trainingOptions> {}

/** The gradients of a batch, with its losses. */
interface Gradients {
  readonly loss: Tensor;
  readonly entropy: Tensor;
  readonly grads: Variables;
  readonly gradientNorm: Tensor;
  readonly router?: Tensor;
}

/** The training of a language model as functions of whole tensors, which are compiled for its mesh. */
export interface StepFunctions {
  /** The state before the first step. */
  create(key: Tensor): LanguageModelState;
  /**
   * The state before the first step of a model with given parameters, in canonical order.
   *
   * @param key of adapters, if they are trained
   */
  createFrom(params: Variables, key: Tensor): LanguageModelState;
  gradients(state: LanguageModelState, tokens: TokenInput): Gradients;
  /** @param wasGood whether all steps before were finite; if not, the state does not change */
  step(state: LanguageModelState, tokens: TokenInput, wasGood: Tensor): [LanguageModelState, StepMetrics];
  /** The mean cross-entropy of tokens; the loss of pairs. */
  evaluate(state: LanguageModelState, tokens: TokenInput): Tensor;
  /** The sums of the log-probabilities of the tokens that count in every row; of pairs, [pairs, 2]. */
  logProbabilities(state: LanguageModelState, tokens: TokenInput): Tensor;
  logits(state: LanguageModelState, tokens: Tensor): Tensor;
  /** How the model's logical dim names map to mesh axes. */
  readonly rules: LogicalRules;
  /** How the layers are spread over stages; undefined without a pipeline. */
  readonly layout: LayerLayout | undefined;
}

/** A loss scale with its minimum. */
interface Scaling extends LossScale {
  readonly least: number;
}

/** The functions of a training: the model, its losses, their gradients and the optimiser put together. */
export function stepFunctions(options: TrainingOptions): StepFunctions {
  const { model, mesh, accumulate = 1, paramDtype = "float32" } = options;
  const { tensor = "sync", context = "ring" } = options;
  const splitsLength = (mesh.shape.context ?? 1) > 1;
  const rules = languageModelRules(tensor, mesh.axisNames, splitsLength);
  const inTurn = LanguageModel(model);
  const trained = splitsLength ? splitSequences(model, context) : model;
  const { layout, losses, rowScores, differentiate } = lossFunctions({ ...options, model: trained }, rules);
  const { tune } = options;
  if (layout && tune) {
    throw new ValueError(
      "[createTraining] adapters (tune) are not trained in stages: use an axis other than pipe",
    );
  }
  const { biasRate } = expertsOf(model);
  const balanced = model.kind === "moe" ? balancingBias(options.optimizer, biasRate) : options.optimizer;
  const optimizer = parameterUpdates(balanced, paramDtype);
  const scaling = scalingOf(options);
  const onMesh = inMeshContext(mesh, rules);
  // Sequences of any length stay whole.
  const onWhole = inMeshContext(
    mesh,
    languageModelRules(tensor === "sequence" ? "sync" : tensor, mesh.axisNames),
  );
  const example = ops.zeros({ dtype: "int32", shape: [mesh.size, 2] });
  const prepare = options.dpo ? unweighted : weighted;
  const gradients = onMesh(gradientsOf(differentiate, accumulate, scaling, prepare));
  const stateOf = (canonical: Variables, key: Tensor): LanguageModelState => {
    const params = tune
      ? tunedModel(model, tune).init(key, canonical, example)
      : fromCanonical(canonical, layout);
    return {
      params: castFloats(params, paramDtype),
      ...(tune && { base: frozenParams(model, canonical, tune, example) }),
      optimizer: optimizer.init(params),
      step: np.zeros([], { dtype: "int32" }),
      ...(scaling ? { lossScale: scaling.init() } : {}),
    };
  };
  return {
    // Parameters are equal on every mesh: they are initialised in canonical order and then spread over stages.
    create: onWhole((key: Tensor) => stateOf(inTurn.init(key, example), key)),
    createFrom: onMesh(stateOf),
    gradients,
    step: onMesh(updateWith(gradients, optimizer, scaling)),
    evaluate: onMesh((state: LanguageModelState, tokens: TokenInput) => {
      const measure = (params: Variables, rows: WeightedBatch) => losses(params, rows).crossEntropy;
      return microbatch(measure, accumulate)(variablesOf(state), prepare(tokens));
    }),
    logProbabilities: onMesh((state: LanguageModelState, tokens: TokenInput) =>
      rowScores(variablesOf(state), unweighted(tokens)),
    ),
    logits: onWhole((state: LanguageModelState, tokens: Tensor) =>
      applyModel(model, tune, toCanonical(variablesOf(state), layout), tokens),
    ),
    rules,
    layout,
  };
}

/** All variables of a state's model. */
const variablesOf = ({ base, params }: LanguageModelState): Variables => ({ ...base, ...params });

/** The losses of a model and how they are differentiated: as a whole, or by a schedule of its pipeline. */
function lossFunctions(
  { model, mesh, dpo, tune, zLoss = 0, pipeline = { microbatches: 1, repeats: 1 } }: TrainingOptions,
  rules: LogicalRules,
) {
  const { schedule: name = "circular", microbatches, repeats } = pipeline;
  const layout = layerLayout(
    model.numLayers,
    mesh.shape.pipe ?? 1,
    chunksOf(name, repeats),
    placementOf(name),
  );
  const isSwept = layout && !isInterleaved(name);
  const run = isSwept ? pipelinedLayers(mesh, microbatches, layout) : runInTurn;
  /** What the model predicts for the tokens of rows, in the order in which devices hold them. */
  const predict = (params: Variables, { tokens, weights, segmentIds, positions }: WeightedBatch) => {
    const place = (x: Tensor) => placeTokens(model, x);
    const [inputs, targets] = inputsAndTargets(tokens).map(place) as [Tensor, Tensor];
    const variables = isSwept ? params : toCanonical(params, layout);
    let routers: RouterLosses | undefined;
    const runLayers: RunLayers = (...args) => {
      const stream = run(...args);
      routers = routerLosses(model, stream);
      return stream;
    };
    checkDocuments(model, segmentIds);
    const reading =
      segmentIds && positions ? [{ positions: place(positions), segmentIds: place(segmentIds) }] : [];
    const logits = applyModel({ ...model, runLayers }, tune, variables, inputs, ...reading);
    return { logits, targets, weights: weights && place(weights), routers };
  };
  const rowScores = (params: Variables, batch: WeightedBatch): Tensor => {
    const isPairs = batch.tokens.ndim === 3;
    const { logits, targets, weights } = predict(params, isPairs ? rowsOfPairs(batch) : batch);
    const each = logProbabilities(logits, targets);
    const sums = np.sum(weights ? each.mul(weights) : each, 1);
    return isPairs ? sums.reshape([-1, 2]) : sums;
  };
  const losses: Losses = (params, batch) => {
    if (dpo) return preferenceLoss(rowScores(params, batch), batch.reference, dpo);
    const { logits, targets, weights, routers } = predict(params, batch);
    return withRouters(crossEntropy(logits, targets, zLoss, weights), routers);
  };
  if (!layout || isSwept) return { layout, losses, rowScores, differentiate: sweptGradients(losses) };
  if (dpo) {
    throw new ValueError(
      `[train] the pipeline schedule ${name} does not train on pairs of answers: use pipeline.schedule circular, or an axis other than pipe`,
    );
  }
  const schedule = scheduleFor(name, layout, microbatches);
  return {
    layout,
    losses,
    rowScores,
    differentiate: scheduledGradients({ model, mesh, rules, layout, zLoss, schedule }),
  };
}

/** Documents of a row must not compete for the room of experts. */
function checkDocuments(model: ModelConfig, segmentIds: Tensor | undefined): void {
  if (!segmentIds || model.kind !== "moe" || expertsOf(model).capacityFactor === 0) return;
  throw new ValueError(
    "[train] the documents of a row compete for the room of experts with a capacity: use model.experts.capacityFactor 0, or data.packing joined",
  );
}

/** The mean loss of pairs. @param scores the log-probabilities of chosen and rejected answers, [pairs, 2] */
function preferenceLoss(scores: Tensor, reference: Tensor | undefined, options: DpoOptions): LossParts {
  if (!reference || scores.ndim !== 2) {
    throw new ValueError(
      "[train] dpo needs pairs: { tokens: [pairs, 2, length + 1], lossMask, reference: [pairs, 2] }",
    );
  }
  const column = (x: Tensor, i: number) => np.squeeze(ops.sliceDim(x, 1, i, i + 1), 1);
  const loss = np.mean(
    dpoLoss(
      {
        chosen: column(scores, 0),
        rejected: column(scores, 1),
        referenceChosen: column(reference, 0),
        referenceRejected: column(reference, 1),
      },
      options,
    ),
  );
  return { loss, crossEntropy: loss };
}

/** The loss is scaled if anything is computed or stored in float16. */
function scalingOf({ model, paramDtype, lossScale }: TrainingOptions): Scaling | undefined {
  if (model.dtype !== "float16" && paramDtype !== "float16") return undefined;
  return { ...dynamicLossScale(lossScale), least: lossScale?.min ?? leastLossScale };
}

/** The losses of tokens. */
type Losses = (params: Variables, batch: WeightedBatch) => LossParts;

/**
 * Losses and gradients of tokens; the loss is scaled before it is differentiated.
 *
 * @param base frozen parameters, if there are any
 */
type Differentiate = (
  params: Variables,
  batch: WeightedBatch,
  scale: (loss: Tensor) => Tensor,
  base: Variables | undefined,
) => [value: readonly [Tensor, StepAux], grads: Variables];

/** Gradients by reverse-mode differentiation of the whole model. */
function sweptGradients(losses: Losses): Differentiate {
  return (params, tokens, scale, base) =>
    valueAndGrad(
      (own: Variables) => {
        const parts = losses({ ...base, ...own }, tokens);
        return [scale(parts.loss), auxOf(parts)] as const;
      },
      { hasAux: true },
    )(params);
}

/** The gradients of a batch, accumulated over its parts, without the loss scale. */
function gradientsOf(
  differentiate: Differentiate,
  numParts: number,
  scaling: Scaling | undefined,
  prepare: (tokens: TokenInput) => WeightedBatch,
): StepFunctions["gradients"] {
  return ({ params: current, base, lossScale }, tokens) => {
    const scale = (loss: Tensor) => (scaling && lossScale ? scaling.scale(lossScale, loss) : loss);
    const ofPart = (params: Variables, rows: WeightedBatch) => differentiate(params, rows, scale, base);
    const [[, [loss, entropy, router]], scaled] = microbatch(ofPart, numParts)(current, prepare(tokens));
    const grads = scaling && lossScale ? scaling.unscale(lossScale, scaled) : scaled;
    const norm = globalNorm(castFloats(withoutSurplus(grads), "float32"));
    return { loss, entropy, grads, gradientNorm: norm, ...(router && { router }) };
  };
}

/** One update; a step with metrics that are not finite, and every one after it, leaves the state unchanged. */
function updateWith(
  gradients: StepFunctions["gradients"],
  optimizer: ReturnType<typeof parameterUpdates>,
  scaling: Scaling | undefined,
): StepFunctions["step"] {
  return (state, tokens, wasGood) => {
    const { lossScale } = state;
    const { loss, entropy, grads, gradientNorm, router } = gradients(state, tokens);
    const [params, remembered] = optimizer.update(grads, state.optimizer, state.params);
    const changed = { params, optimizer: remembered, step: state.step.add(1) };
    const squares = tree.leaves(grads).map((g) => np.sum(np.square((g as Tensor).astype("float32"))));
    const metrics = {
      loss,
      crossEntropy: entropy,
      gradientNorm,
      gradientSquares: np.stack(squares),
      numUpdates: state.step,
      ...(router && { router }),
    };
    const finite = np.logicalAnd(np.isfinite(gradientNorm), np.isfinite(loss));
    const before = { params: state.params, optimizer: state.optimizer, step: state.step };
    const kept = state.base && { base: state.base };
    const next = { ...applyIfFinite(np.logicalAnd(finite, wasGood), changed, before), ...kept };
    if (!scaling || !lossScale) return [next, { ...metrics, isGood: np.logicalAnd(finite, wasGood) }];
    const nextScale = applyIfFinite(wasGood, scaling.update(lossScale, finite), lossScale);
    const mayHelp = np.logicalAnd(np.greater(lossScale.scale, scaling.least), np.isfinite(loss));
    const isGood = np.logicalAnd(wasGood, np.logicalOr(finite, mayHelp));
    return [
      { ...next, lossScale: nextScale },
      { ...metrics, lossScale: lossScale.scale, isGood },
    ];
  };
}

/** How layers are spread over the stages of a pipeline; undefined when there is only one. */
export function layerLayout(
  numLayers: number,
  numStages: number,
  numRepeats: number,
  placement: PipelinePlacement = "loop",
): LayerLayout | undefined {
  if (numStages === 1) return undefined;
  const layersPerStage = numLayers / (numStages * numRepeats);
  if (Number.isInteger(layersPerStage)) return { numStages, numRepeats, layersPerStage, placement };
  throw new ValueError(
    `[createTraining] ${numLayers} layers do not spread over ${numStages} stages and ${numRepeats} repeats (${numLayers} / ${numStages * numRepeats} = ${layersPerStage})`,
  );
}
