import type { Engine } from "../../../../src/ir/engine.js";
import type { TensorType } from "../../../../src/ir/shape.js";
import * as lax from "../../../../src/lax/index.js";
import * as nn from "../../../../src/nn/index.js";
import * as np from "../../../../src/numpy/index.js";
import { shardModuleParams, syncGradients } from "../../../../src/parallel/dataParallel.js";
import { executePipelineStep, PipelineModule } from "../../../../src/parallel/pipelineParallel.js";
import { ModelParallelismWrapper, TPDense, type TPMode } from "../../../../src/parallel/tensorParallel.js";
import * as random from "../../../../src/random/index.js";
import { Tensor } from "../../../../src/trace/tensor.js";
import * as tree from "../../../../src/trace/tree.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import { type GoldenCase, HostArray } from "../cases.js";
import { type AreaRunner, byName, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose, wholeOf } from "../compare.js";
import { numbersIn, Stack } from "../models.js";
import { expectNames, firstAxis, meshOf, onMesh, withBoxes } from "../onMesh.js";

/** Pipeline parallelism: one step, whole pipelines, and training over data, pipeline and model axes. */
export const runPipelineParallel: AreaRunner = byName({
  PipelineModule: runPipelineModule,
  execute_pipeline_step: runStep,
  three_d: runThreeAxes,
});

async function runStep(golden: GoldenCase, engine: Engine): Promise<void> {
  const { values } = onMesh(
    meshOf(golden, engine),
    (state: Tensor, input: Tensor, w: Tensor) => {
      const stage = (z: Tensor) => np.tanh(np.matmul(z, w));
      return executePipelineStep(stage, state, input, { modelAxisName: firstAxis(golden) });
    },
    golden.tensor("state"),
    golden.tensor("input"),
    golden.tensor("w"),
  );
  const [state, output] = values;
  await expectAll(
    () => expectClose(state, golden.host("new_state"), undefined, "new_state"),
    () => expectClose(output, golden.host("output"), undefined, "output"),
  );
}

/** The loss counts on the last stage only, where the results are. */
function lastStageLoss(y: Tensor, t: Tensor, axisName: string): Tensor {
  const isLast = np.equal(lax.axisIndex(axisName), lax.axisSize(axisName) - 1);
  return np.where(isLast, np.mean(np.square(np.subtract(y, t))), 0);
}

async function runPipelineModule(golden: GoldenCase, engine: Engine): Promise<void> {
  const mesh = meshOf(golden, engine);
  const axis = firstAxis(golden);
  const [n = 2] = numbersIn(golden.string("module"), "Stack");
  const model = PipelineModule({
    modelAxisName: axis,
    numMicrobatches: golden.number("num_microbatches"),
    moduleFn: () =>
      ModelParallelismWrapper({ modelAxisName: axis, moduleFn: (config) => Stack({ n, ...config }) }),
  });
  const run = (variables: nn.Variables, x: Tensor, t: Tensor) => {
    const loss = (given: nn.Variables): [Tensor, Tensor] => {
      const y = model.apply(given, x);
      return [lastStageLoss(y, t, axis), y];
    };
    const [[value, y], grads] = valueAndGrad(loss, { hasAux: true })(variables);
    return { y, loss: value, grads };
  };
  const made = onMesh(
    mesh,
    (x: Tensor) => ({ variables: model.init(random.key(golden.number("seed")), x) }),
    golden.tensor("x"),
  );
  const { values, names } = onMesh(
    mesh,
    (values: unknown, x: Tensor, t: Tensor) =>
      run(withBoxes(values, golden, "variables") as nn.Variables, x, t),
    golden.tree("variables"),
    golden.tensor("x"),
    golden.tensor("t"),
  );
  await expectAll(
    () => expectNames({ ...made.names, ...names }, golden),
    () => expectTreeClose(made.values.variables, golden.tree("variables")),
    () => expectClose(values.y, golden.host("y"), undefined, "y"),
    () => expectClose(values.loss, golden.host("loss"), undefined, "loss"),
    () => expectTreeClose(values.grads, golden.tree("grads"), agreement.gradient),
  );
}

/** x + down(gelu(up(x))), with the hidden features split over an axis. */
const TPBlock = nn.module(
  "TPBlock",
  ({ hidden, out, modelAxisName }: { hidden: number; out: number; modelAxisName: string }) =>
    (x: Tensor) => {
      const dense = (features: number, tpMode: TPMode, name: string) =>
        TPDense({ denseFn: (config) => nn.Dense({ features, ...config }), modelAxisName, tpMode, name });
      return np.add(x, dense(out, "scatter", "down")(nn.gelu(dense(hidden, "gather", "up")(x))));
    },
);

const Stage = nn.module(
  "Stage",
  (config: { hidden: number; out: number; modelAxisName: string }) => (x: Tensor) =>
    TPBlock({ ...config, name: "b1" })(TPBlock({ ...config, name: "b0" })(x)),
);

/** Training steps on a mesh of data, pipeline and model axes, from the seed on. */
async function runThreeAxes(golden: GoldenCase, engine: Engine): Promise<void> {
  const mesh = meshOf(golden, engine);
  const [dataAxis = "data", pipeAxis = "pipe", modelAxisName = "model"] = mesh.axisNames;
  const text = golden.string("module");
  const featuresOf = (layer: string, otherwise: number) =>
    Number(new RegExp(`${layer}=TPDense\\((\\d+)`).exec(text)?.[1] ?? otherwise);
  const minWeightSize = Number(/min_weight_size (\d+)/.exec(text)?.[1] ?? 8);
  const config = { hidden: featuresOf("up", 16), out: featuresOf("down", 8), modelAxisName };
  const Sharded = shardModuleParams(Stage, dataAxis, { minWeightSize });
  const model = PipelineModule({
    modelAxisName: pipeAxis,
    numMicrobatches: golden.number("num_microbatches"),
    moduleFn: () =>
      ModelParallelismWrapper({
        modelAxisName: pipeAxis,
        moduleFn: (given) => Sharded({ ...config, ...given }),
      }),
  });
  const rate = golden.number("sgd_lr");
  const { values, names } = onMesh(
    mesh,
    (xs: Tensor, ts: Tensor) => {
      const row = (batches: Tensor, step: number) => lax.indexInDim(batches, step, 0, false);
      let variables = model.init(random.key(golden.number("seed")), row(xs, 0));
      const losses: Tensor[] = [];
      for (let step = 0; step < golden.number("steps"); step++) {
        const loss = (given: nn.Variables) =>
          lastStageLoss(model.apply(given, row(xs, step)), row(ts, step), pipeAxis);
        const [value, grads] = valueAndGrad(loss)(variables);
        const synced = syncGradients(grads, mesh.axisNames);
        variables = tree.map(
          (p: Tensor, g: Tensor) => np.subtract(p, np.multiply(g, rate)),
          variables,
          synced,
        );
        // Only the last stage knows the loss; all stages report it.
        losses.push(lax.psum(value, pipeAxis));
      }
      return { final: variables, losses: np.stack(losses) };
    },
    golden.tensor("xs"),
    golden.tensor("ts"),
  );
  await expectAll(
    () => expectNames(names, golden),
    () => expectDiverging({ losses: values.losses }, { losses: golden.host("losses") }),
    () => expectDiverging(values.final, golden.value("final")),
  );
}

/** Beyond this a run has diverged: digits mean nothing any more, only that it did. */
const diverged = 1e6;

/** Compares trees of values that may have diverged, infinite and undefined ones included. */
async function expectDiverging(actual: unknown, expected: unknown): Promise<void> {
  const cut = (type: TensorType, values: ArrayLike<number>) =>
    HostArray.of(
      type.dtype,
      type.shape,
      Array.from(values, (value) => (Math.abs(value) < diverged ? value : diverged)),
    );
  const got = await Promise.all(
    tree
      .leaves(actual)
      .map(async (leaf) => (leaf instanceof Tensor ? cut(leaf.type, await wholeOf(leaf)) : leaf)),
  );
  const want = tree
    .leaves(expected)
    .map((leaf) => (leaf instanceof HostArray ? cut(leaf, leaf.values) : leaf));
  await expectTreeClose(
    tree.unflatten(tree.structure(actual), got),
    tree.unflatten(tree.structure(expected), want),
    agreement.gradient,
  );
}
