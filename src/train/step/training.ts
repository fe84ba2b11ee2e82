import type { CompiledProgram } from "../../compiler/steps.js";
import type { Program } from "../../ir/program.js";
import { bytesOfAll, formatType, type TensorType } from "../../ir/shape.js";
import { logicalToMeshSharding } from "../../nn/modules/logicalPartitioning.js";
import { getPartitionSpec, type ShardingTree } from "../../nn/modules/partitioned.js";
import type { Variables } from "../../nn/modules/scope.js";
import { allFinite } from "../../optim/index.js";
import * as random from "../../random/index.js";
import { CostReport } from "../../spmd/inspect/cost.js";
import { findNonFinite, type NonFinite } from "../../spmd/inspect/nonFinite.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import { type Jitted, jit, type Lowered } from "../../spmd/run/jit.js";
import { Tensor } from "../../trace/tensor.js";
import type * as tree from "../../trace/tree.js";
import { evalShape } from "../../transforms/makeProgram.js";
import { simplify } from "../../transforms/rewrite/simplify.js";
import type { LayerLayout } from "../models/layerOrder.js";
import { batchAxes } from "../models/names.js";
import { compileAs } from "./compileAs.js";
import type { LanguageModelState, StepMetrics } from "./state.js";
import { stepFunctions, type TrainingOptions, trainingOptions } from "./stepFunctions.js";
import type { TokenInput } from "./tokenBatch.js";

/** The memory of a training step on each device, in bytes. */
export interface StepMemory {
  /** The state and the batch; the memory of the state is reused for the next state. */
  readonly inputs: number;
  /** Results that need memory of their own. */
  readonly outputs: number;
  /** Intermediate values. */
  readonly intermediate: number;
}

/** A compiled step: the step list of every device, with its memory plan. */
export interface CompiledStep {
  readonly program: CompiledProgram;
  readonly memory: StepMemory;
}

/** The memory of a compiled step on each device. */
function stepMemory({ outputs, arenaBytes }: CompiledProgram, perDevice: Program): StepMemory {
  const fresh = outputs.filter(({ inputIndex }) => inputIndex === undefined);
  const freshBytes = fresh.reduce((sum, { bytes }) => sum + bytes, 0);
  return { inputs: bytesOfAll(perDevice.inputs), outputs: freshBytes, intermediate: arenaBytes };
}

/** The compiled functions of a training run; `compile` of some of them, called before, lets a page answer meanwhile. */
export interface Training {
  /** The state before the first step, made on the devices. */
  readonly init: Jitted<[seed: number], LanguageModelState>;
  /**
   * The state before the first step of a model with given parameters, with layers in canonical order.
   *
   * @param params in float32, or in any type if they are frozen; on any devices
   * @param seed of adapters, if they are trained; 0 by default
   */
  initFrom(params: Variables, seed?: number): LanguageModelState;
  /**
   * One step on int32 tokens [batch, length + 1], or on a batch that says which documents its rows hold; the old state's memory is reused. A step whose loss or gradients are
   * not finite returns the state unchanged.
   *
   * @param before the metrics of the step before, if they have not been read: if that step was not finite, this one
   * leaves the state unchanged, too
   */
  readonly step: Jitted<
    [state: LanguageModelState, tokens: TokenInput, before?: StepMetrics],
    [LanguageModelState, StepMetrics]
  >;
  /** The first tensor of a step's forward and backward pass that is not finite; slow, for debugging. */
  findNonFinite(state: LanguageModelState, tokens: TokenInput): Promise<NonFinite | undefined>;
  /** Whether all elements of a state are finite, a bool scalar. */
  readonly isFinite: Jitted<[state: LanguageModelState], Tensor>;
  /** A copy of a state in memory of its own, on the same devices. */
  copy(state: LanguageModelState): LanguageModelState;
  /** The mean cross-entropy of tokens under the state's parameters. */
  readonly evaluate: Jitted<[state: LanguageModelState, tokens: TokenInput], Tensor>;
  /**
   * The sum of the log-probabilities of the tokens that count, of every row; [pairs, 2] for pairs of answers. These are
   * the reference of `dpo` if the state is that before training.
   */
  logProbabilities(state: LanguageModelState, tokens: TokenInput): Tensor;
  /** The logits of the next token after every position of tokens [batch, length]. */
  logits(state: LanguageModelState, tokens: Tensor): Tensor;
  /** What a step costs every device; nothing is run, only types and placements are used. */
  cost(state: LanguageModelState, tokens: TokenInput): CostReport;
  /**
   * The step list of every device for a step, with its memory plan; nothing is run.
   *
   * @internal
   */
  compile(state: LanguageModelState, tokens: TokenInput): CompiledStep;
  /**
   * What every device runs in a step, before an engine compiles it.
   *
   * @internal
   */
  lower(state: LanguageModelState, tokens: TokenInput): Lowered;
  /** The planned memory of a step on every device; nothing is run. */
  memory(state: LanguageModelState, tokens: TokenInput): StepMemory;
  /** How the layers are spread over stages; undefined without a pipeline. */
  readonly layout: LayerLayout | undefined;
  /** The type of every leaf of the state. */
  readonly types: tree.MapTree<LanguageModelState, Tensor, TensorType>;
  /** The sharding of every leaf of the state. */
  readonly shardings: ShardingTree<LanguageModelState, NamedSharding>;
  /** How batches of tokens are split. */
  readonly batchSharding: NamedSharding;
}

/** A compiled function that is called with other arguments. */
function withArguments<A extends readonly unknown[], B extends readonly unknown[] | [], R>(
  compiled: Jitted<B, R>,
  given: (...args: A) => B,
): Jitted<A, R> {
  return Object.assign((...args: A) => compiled(...given(...args)), {
    lower: (...args: A) => compiled.lower(...given(...args)),
    compile: (...args: A) => compiled.compile(...given(...args)),
  });
}

/** The types of a batch, as a text. */
function typesOf(tokens: TokenInput): string {
  if (tokens instanceof Tensor) return formatType(tokens.type);
  return Object.entries(tokens)
    .map(([name, x]: [string, Tensor]) => `${name} ${formatType(x.type)}`)
    .join(", ");
}

/** Analyses of a step that do not run it. */
function analyse(
  lower: (state: LanguageModelState, tokens: TokenInput) => Lowered,
  mesh: Mesh,
  name: string,
): Pick<Training, "cost" | "compile"> {
  const costs = new Map<string, CostReport>();
  return {
    cost: (state, tokens) => {
      // Only the types of a state matter, and they are always the same.
      const key = typesOf(tokens);
      const known = costs.get(key);
      if (known) return known;
      const { program, donated } = lower(state, tokens);
      const cost = new CostReport(simplify(program), donated);
      costs.set(key, cost);
      return cost;
    },
    compile: (state, tokens) => {
      const { program: perDevice, donated } = lower(state, tokens);
      const program = compileAs(mesh, perDevice, { donated, name });
      return { program, memory: stepMemory(program, perDevice) };
    },
  };
}

/**
 * Compiles a language model's training for a mesh with axes data, fsdp, pipe and model, and context if it has one. The model and the
 * optimiser are written over whole tensors; the partitioner splits them by the model's logical names.
 */
export function createTraining(options: TrainingOptions): Training {
  const { mesh, tensor } = trainingOptions.read(options, "createTraining");
  const functions = stepFunctions(options);
  const { layout } = functions;
  const types = evalShape(functions.create)(random.key(0));
  const shardings = logicalToMeshSharding(getPartitionSpec(types), mesh, functions.rules);
  const batchSharding = new NamedSharding(mesh, new PartitionSpec([batchAxes(mesh.axisNames)]));
  const everywhere = new NamedSharding(mesh, new PartitionSpec([]));
  const onMesh = { mesh, overlap: tensor === "async" ? ["model"] : [] };
  const ofState = { mesh, inShardings: [shardings] } as const;
  const ofBatch = { ...onMesh, inShardings: [shardings, batchSharding] } as const;
  const ofStep = {
    ...onMesh,
    inShardings: [shardings, batchSharding, everywhere],
    outShardings: [shardings, everywhere],
    donate: 0,
    name: "trainStep",
  } as const;
  const init = jit(functions.create, { mesh, outShardings: shardings, name: "init" });
  const initFrom = jit(functions.createFrom, { mesh, outShardings: shardings, name: "initFrom" });
  const afterGoodStep = Tensor.scalar(true, "bool");
  const step = jit(functions.step, ofStep);
  const lower = (state: LanguageModelState, tokens: TokenInput) => step.lower(state, tokens, afterGoodStep);
  const { cost, compile } = analyse(lower, mesh, ofStep.name);
  return {
    init: withArguments(init, (seed: number) => [random.key(seed)]),
    initFrom: (params, seed = 0) => initFrom(params, random.key(seed)),
    step: withArguments(step, (state: LanguageModelState, tokens: TokenInput, before?: StepMetrics) => [
      state,
      tokens,
      before?.isGood ?? afterGoodStep,
    ]),
    cost,
    compile,
    lower,
    memory: (state, tokens) => compile(state, tokens).memory,
    findNonFinite: findNonFinite(functions.gradients, { ...ofBatch, name: "trainStep" }),
    isFinite: jit((state: LanguageModelState) => allFinite(state), {
      ...ofState,
      outShardings: everywhere,
      name: "isFinite",
    }),
    copy: jit((state: LanguageModelState) => state, { ...ofState, outShardings: shardings, name: "copy" }),
    evaluate: jit(functions.evaluate, { ...ofBatch, name: "evaluate" }),
    logProbabilities: jit(functions.logProbabilities, { ...ofBatch, outShardings: everywhere }),
    logits: jit(functions.logits, {
      ...onMesh,
      inShardings: [shardings, everywhere],
      outShardings: everywhere,
      name: "logits",
    }),
    layout,
    types,
    shardings,
    batchSharding,
  };
}
