import { integerFrom, need } from "../ir/arguments.js";
import { ShapeError } from "../ir/errors.js";
import { axesSize } from "../ir/mesh.js";
import { type FieldsOf, type OptionsOf, optional, required, schema, type Values } from "../ir/schema.js";
import { formatType, sameType } from "../ir/shape.js";
import * as lax from "../lax/index.js";
import { isModule, type ModuleInstance, type ModuleOptions } from "../nn/index.js";
import { scanFunctionWithRole } from "../nn/lift/scan.js";
import { scopeOrNone } from "../nn/modules/context.js";
import { mainMethod, moduleClass } from "../nn/modules/module.js";
import * as np from "../numpy/index.js";
import { lookUpAxes } from "../trace/axes.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import { leafTensor } from "../trace/trace.js";
import * as tree from "../trace/tree.js";
import { scanWithRole } from "../transforms/control/scan.js";

/** One stage of a pipeline: a module or a function whose result has the type of its first argument. */
export type Stage<T, A extends readonly unknown[]> = (x: T, ...args: A) => T;

const pipelineStepOptions = schema({
  /** The mesh axis of the stages. */
  modelAxisName: required("string"),
});

/** Options of {@link executePipelineStep}. */
export interface PipelineStepOptions extends OptionsOf<typeof pipelineStepOptions> {}

/**
 * One iteration of a pipeline on this device: the stage computes with the microbatch (first stage) or with what
 * the stage before has sent, and sends its result to the next stage. A hop to the next stage forward, a hop to
 * the one before backward.
 *
 * @param state what the stage before sent in the last iteration
 * @param input the microbatch that enters the first stage now
 * @param args further arguments of the stage
 * @returns the state for the next iteration, and the stage's result on the last stage, zeros elsewhere
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ pipe: 2 }), inSpecs: P(), outSpecs: P("pipe") };
 * const step = (x: Tensor) => parallel.executePipelineStep((y) => y.mul(2), x, x, { modelAxisName: "pipe" });
 * shardMap(step, specs)(np.array([1])); // [[2, 2], [0, 2]]
 * ```
 */
export function executePipelineStep<T, A extends readonly unknown[]>(
  stage: Stage<T, A>,
  state: T,
  input: T,
  options: PipelineStepOptions,
  ...args: A
): [state: T, output: T] {
  need("function", stage, "stage", "executePipelineStep");
  const { modelAxisName } = pipelineStepOptions.read(options, "executePipelineStep");
  const numStages = axesSize(lookUpAxes(modelAxisName, "executePipelineStep"));
  const index = lax.axisIndex(modelAxisName);
  const isFirst = np.equal(index, 0);
  const isLast = np.equal(index, numStages - 1);
  const result = stage(
    tree.map((microbatch: Tensor, sent: Tensor) => np.where(isFirst, microbatch, sent), input, state),
    ...args,
  );
  checkStage(state, result);
  const output = tree.map((y: Tensor) => np.where(isLast, y, np.zerosLike(y)), result);
  return [lax.pshift(result, modelAxisName), output];
}

const pipelineOptions = schema({
  ...pipelineStepOptions.fields,
  /** The number of microbatches into which the batch is split; a divisor of the batch size. */
  numMicrobatches: required("number"),
  /**
   * The keys that stages get besides those of `params`: with `true` every iteration, and so every microbatch, has its
   * own keys; `{ dropout: true }` by default.
   */
  splitRngs: optional<Readonly<Record<string, boolean>>>("object", { dropout: true }),
});

/** Options of {@link executePipeline}. */
export interface PipelineOptions extends OptionsOf<typeof pipelineOptions> {}

/**
 * Runs a batch through stages on the devices of an axis, as GPipe does: the batch is split into microbatches,
 * which follow each other through the stages in `numMicrobatches + numStages − 1` iterations.
 *
 * @param stage this device's stage, whose results are like its first argument
 * @param x the batch, a tensor or a tree of tensors with the batch in dim 0; only the first stage reads it
 * @param args further arguments of the stage, the same for every microbatch
 * @returns the results of the last stage there, zeros on the other devices
 *
 * @example
 * ```ts
 * const specs = { mesh: Mesh.create({ pipe: 2 }), inSpecs: P(), outSpecs: P("pipe") };
 * const options = { numMicrobatches: 2, modelAxisName: "pipe" };
 * const run = (x: Tensor) => parallel.executePipeline((y) => y.mul(2), x, options);
 * shardMap(run, specs)(np.array([1, 3])); // [0, 0, 4, 12]
 * ```
 */
export function executePipeline<T, A extends readonly unknown[]>(
  stage: Stage<T, A>,
  x: T,
  options: PipelineOptions,
  ...args: A
): T {
  need("function", stage, "stage", "executePipeline");
  const { numMicrobatches, modelAxisName, splitRngs } = pipelineOptions.read(options, "executePipeline");
  const numStages = axesSize(lookUpAxes(modelAxisName, "executePipeline"));
  const length = numMicrobatches + numStages - 1;
  const role = { kind: "forward", numStages, numMicrobatches, numRepeats: 1 } as const;
  const microbatches = tree.map(
    (leaf: Tensor) => splitBatch(leaf, numMicrobatches),
    checkBatch(x, numMicrobatches),
  );
  // In the last iterations, where the other stages finish, the first one has no input.
  const inputs = tree.map(
    (leaf: Tensor) => np.concatenate([leaf, np.zeros([numStages - 1, ...leaf.shape.slice(1)], leaf.dtype)]),
    microbatches,
  );
  const first = tree.map((leaf: Tensor) => np.zeros(leaf.shape.slice(1), leaf.dtype), microbatches);
  const step = (current: Stage<T, A>, state: T, input: T): [T, T] =>
    executePipelineStep(current, state, input, { modelAxisName }, ...args);
  const [, outputs] = needsLift(stage)
    ? scanFunctionWithRole(role, step, {
        variableBroadcast: "params",
        splitRngs: { params: false, ...splitRngs },
        length,
      })(stage, first, inputs)
    : scanWithRole(role, (state: T, input: T) => step(stage, state, input), first, inputs, { length });
  return tree.map((leaf: Tensor) => {
    const results = ops.sliceDim(leaf, 0, numStages - 1, length);
    return np.reshape(results, [-1, ...results.shape.slice(2)]);
  }, outputs);
}

/** Whether a stage may use variables, which only the lifted loop passes on. */
function needsLift(stage: unknown): boolean {
  return isModule(stage) || scopeOrNone() !== undefined;
}

function splitBatch(leaf: Tensor, numMicrobatches: number): Tensor {
  const [batch = 0, ...rest] = leaf.shape;
  return np.reshape(leaf, [numMicrobatches, batch / numMicrobatches, ...rest]);
}

function checkBatch<T>(x: T, numMicrobatches: number): T {
  need(integerFrom(1), numMicrobatches, "numMicrobatches", "executePipeline");
  for (const { path, leaf } of tree.flattenWithPath(x)) {
    const { shape } = leafTensor(leaf, "executePipeline", path);
    const what = path === "" ? "batch" : `batch of "${path}",`;
    const [batch] = shape;
    if (batch === undefined) throw new ShapeError(`[executePipeline] the ${what} [] has no dim 0 to split`);
    if (batch % numMicrobatches !== 0) {
      throw new ShapeError(
        `[executePipeline] ${what} ${batch} does not split into ${numMicrobatches} microbatches (${batch} / ${numMicrobatches} = ${batch / numMicrobatches}): use a batch that is a multiple of ${numMicrobatches}`,
      );
    }
  }
  return x;
}

/** Throws unless a stage's result can be the input of the next. */
function checkStage(input: unknown, result: unknown): void {
  tree.checkSameStructure(
    tree.structure(input),
    tree.structure(result),
    "executePipelineStep",
    "the stage's input",
    "its result",
  );
  const results = tree.leaves(result);
  tree.flattenWithPath(input).forEach(({ path, leaf }, i) => {
    const [before, after] = [leaf, results[i]].map((value) => leafTensor(value, "executePipelineStep", path));
    if (!before || !after || sameType(before.type, after.type)) return;
    throw new ShapeError(
      `[executePipelineStep] the stage turns ${formatType(before.type)} into ${formatType(after.type)}${path && ` at "${path}"`}: every stage must keep shape and type, because its result is the input of the next one`,
    );
  });
}

/** Configuration of {@link PipelineModule}. */
export interface PipelineConfig<T, A extends readonly unknown[]> extends PipelineOptions {
  /** Makes the stage of a device, usually a `ModelParallelismWrapper` around the layers of a stage. */
  readonly moduleFn: () => ModuleInstance<Stage<T, A>>;
}

const pipelineConfig = schema({
  ...pipelineOptions.fields,
  moduleFn: required<() => ModuleInstance<Stage<unknown, readonly unknown[]>>>("function"),
} satisfies FieldsOf<PipelineConfig<unknown, readonly unknown[]>>);

/** A module class whose modules have the signature of the stages that they run. */
export interface PipelineModuleClass {
  <T, A extends readonly unknown[]>(
    config: PipelineConfig<T, A> & ModuleOptions,
  ): ModuleInstance<Stage<T, A>>;
  readonly moduleName: string;
}

/**
 * A module that runs its input through the stages of a pipeline; see {@link executePipeline}.
 *
 * @example
 * ```ts
 * const moduleFn = () => nn.Dense({ features: 1, useBias: false, kernelInit: random.initializers.constant(2) });
 * const pipeline = parallel.PipelineModule({ modelAxisName: "pipe", numMicrobatches: 2, moduleFn });
 * const run = (x: Tensor) => pipeline.apply(pipeline.init(random.key(0), x), x);
 * const specs = { mesh: Mesh.create({ pipe: 2 }), inSpecs: P(), outSpecs: P("pipe") };
 * shardMap(run, specs)(np.array([[1], [3]])); // [[0], [0], [4], [12]]
 * ```
 */
export const PipelineModule = moduleClass<PipelineModuleClass>({
  name: "PipelineModule",
  methods: {
    [mainMethod]:
      ({ moduleFn, numMicrobatches, modelAxisName, splitRngs }: Values<typeof pipelineConfig.fields>) =>
      (x: unknown, ...args: readonly unknown[]): unknown =>
        executePipeline(moduleFn(), x, { numMicrobatches, modelAxisName, splitRngs }, ...args),
  },
  options: pipelineConfig,
});
