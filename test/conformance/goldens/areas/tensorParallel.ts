import type { Engine } from "../../../../src/ir/engine.js";
import * as nn from "../../../../src/nn/index.js";
import * as np from "../../../../src/numpy/index.js";
import {
  asyncGather,
  asyncGatherBidirectional,
  asyncGatherSplit,
  asyncScatter,
  asyncScatterSplit,
} from "../../../../src/parallel/ringCollectives.js";
import {
  type DenseOptions,
  ModelParallelismWrapper,
  scaleInit,
  TPAsyncDense,
  TPDense,
  type TPMode,
} from "../../../../src/parallel/tensorParallel.js";
import * as random from "../../../../src/random/index.js";
import type { Tensor } from "../../../../src/trace/tensor.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import type { GoldenCase } from "../cases.js";
import { type AreaRunner, byName, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose, Mismatch } from "../compare.js";
import { MLP, numbersIn } from "../models.js";
import { alone, expectNames, firstAxis, meshOf, onMesh, withBoxes } from "../onMesh.js";

/** Tensor parallelism: the rings, the dense layers, the wrapper, and scaled initialisers. */
export const runTensorParallel: AreaRunner = byName({
  async_gather_bidirectional: (golden, engine) =>
    runGather(golden, engine, (x) => asyncGatherBidirectional(x, firstAxis(golden), direction(golden))),
  async_gather_split: (golden, engine) =>
    runGather(golden, engine, (x) => asyncGatherSplit(x, firstAxis(golden))),
  async_gather: (golden, engine) =>
    runGather(golden, engine, (x) => asyncGather(x, firstAxis(golden), direction(golden))),
  async_scatter_split: (golden, engine) =>
    runScatter(golden, engine, (xs) => asyncScatterSplit(xs, firstAxis(golden))),
  async_scatter: (golden, engine) =>
    runScatter(golden, engine, (xs) => asyncScatter(xs, firstAxis(golden), direction(golden))),
  TPDense: (golden, engine) => runLayer(golden, engine, tpDense(golden)),
  TPAsyncDense: (golden, engine) => runLayer(golden, engine, tpAsyncDense(golden)),
  ModelParallelismWrapper: (golden, engine) => runLayer(golden, engine, wrapper(golden)),
  scale_init: runScaleInit,
});

function direction(golden: GoldenCase): { shiftUp: boolean } {
  return { shiftUp: !golden.name.includes("_down") };
}

async function runGather(golden: GoldenCase, engine: Engine, gather: (x: Tensor) => Tensor[]): Promise<void> {
  const { values } = onMesh(
    meshOf(golden, engine),
    (x: Tensor, weights: readonly Tensor[]) => {
      const loss = (block: Tensor): [Tensor, Tensor[]] => {
        const blocks = gather(block);
        if (blocks.length !== weights.length) {
          throw new Mismatch(`the result has ${blocks.length} blocks, expected ${weights.length}`);
        }
        const terms = blocks.map((y, i) => np.sum(np.multiply(y, weights[i] ?? 0)));
        return [terms.reduce((a, b) => np.add(a, b)), blocks];
      };
      const [[, y], gradient] = valueAndGrad(loss, { hasAux: true })(x);
      return { y, gradient };
    },
    golden.tensor("x"),
    golden.tree("w") as readonly Tensor[],
  );
  await expectAll(
    () => expectTreeClose(values.y, golden.tree("y")),
    () => expectClose(values.gradient, golden.host("grad_x"), agreement.gradient, "grad_x"),
  );
}

async function runScatter(
  golden: GoldenCase,
  engine: Engine,
  scatter: (xs: readonly Tensor[]) => Tensor,
): Promise<void> {
  const { values } = onMesh(
    meshOf(golden, engine),
    (xs: readonly Tensor[], weights: Tensor) => {
      const loss = (parts: readonly Tensor[]): [Tensor, Tensor] => {
        const y = scatter(parts);
        return [np.sum(np.multiply(y, weights)), y];
      };
      const [[, y], gradient] = valueAndGrad(loss, { hasAux: true })(xs);
      return { y, gradient };
    },
    golden.tree("xs") as readonly Tensor[],
    golden.tensor("w"),
  );
  await expectAll(
    () => expectClose(values.y, golden.host("y"), undefined, "y"),
    () => expectTreeClose(values.gradient, golden.tree("grad_xs"), agreement.gradient),
  );
}

type Layer = nn.ModuleInstance<(x: Tensor) => Tensor>;

/** The dense layer inside, with the bias that the case says. */
function denseOf(golden: GoldenCase): (config: DenseOptions) => Layer {
  const biasInit = biasInitOf(golden);
  return (config) => nn.Dense({ features: golden.number("features"), biasInit, ...config });
}

function biasInitOf(golden: GoldenCase): nn.ParamInitializer {
  const text = golden.has("bias_init") ? golden.string("bias_init") : "normal(1.0)";
  const [stddev] = numbersIn(text, "normal");
  if (stddev !== undefined) return random.initializers.normal(stddev);
  if (text === "zeros") return random.initializers.zeros;
  throw new Mismatch(`unknown bias_init ${text}`);
}

function commonFields(golden: GoldenCase) {
  return {
    denseFn: denseOf(golden),
    modelAxisName: firstAxis(golden),
    tpMode: golden.string("tp_mode") as TPMode,
    kernelInitAdjustment: golden.number("kernel_init_adjustment"),
    ...(golden.has("use_bias") ? { useBias: golden.boolean("use_bias") } : {}),
  };
}

function tpDense(golden: GoldenCase): Layer {
  return TPDense({ ...commonFields(golden), skipCommunication: golden.boolean("skip_communication") });
}

function tpAsyncDense(golden: GoldenCase): Layer {
  return TPAsyncDense({
    ...commonFields(golden),
    useBidirectionalGather: golden.boolean("use_bidirectional_gather"),
    useBidirectionalScatter: golden.boolean("use_bidirectional_scatter"),
  });
}

function wrapper(golden: GoldenCase): Layer {
  const [hidden = 16, out = 4] = numbersIn(golden.string("module"), "MLP");
  return ModelParallelismWrapper({
    modelAxisName: firstAxis(golden),
    moduleFn: (config) => MLP({ hidden, out, ...config }),
    maskExceptModelIdx: golden.has("mask_except_model_idx")
      ? golden.number("mask_except_model_idx")
      : undefined,
    splitRngs: golden.boolean("split_rngs"),
  });
}

async function runLayer(golden: GoldenCase, engine: Engine, layer: Layer): Promise<void> {
  const mesh = meshOf(golden, engine);
  const run = (variables: nn.Variables, x: Tensor) => {
    const loss = (given: nn.Variables, input: Tensor): [Tensor, Tensor] => {
      const y = layer.apply(given, input);
      return [np.mean(np.square(y)), y];
    };
    const [[, y], grads] = valueAndGrad(loss, { hasAux: true, argnums: [0, 1] })(variables, x);
    return { y, grad_variables: grads[0], grad_x: grads[1] };
  };
  const made = onMesh(
    mesh,
    (x: Tensor) => ({ variables: layer.init(random.key(golden.number("seed")), x) }),
    golden.tensor("x"),
  );
  const { values, names } = onMesh(
    mesh,
    (values: unknown, x: Tensor) => run(withBoxes(values, golden, "variables") as nn.Variables, x),
    golden.tree("variables"),
    golden.tensor("x"),
  );
  await expectAll(
    () => expectNames({ ...made.names, ...names }, golden),
    () => expectTreeClose(made.values.variables, golden.tree("variables")),
    () => expectClose(values.y, golden.host("y"), undefined, "y"),
    () => expectTreeClose(values.grad_variables, golden.tree("grad_variables"), agreement.gradient),
    () => expectClose(values.grad_x, golden.host("grad_x"), agreement.gradient, "grad_x"),
  );
}

async function runScaleInit(golden: GoldenCase, engine: Engine): Promise<void> {
  const factor = Number(/scale_init_(.*)$/.exec(golden.name)?.[1]);
  const init = scaleInit(random.initializers.lecunNormal(), factor);
  const y = alone(engine, () => {
    const value = init(random.key(golden.number("seed")), golden.numbers("shape"));
    return nn.unbox<Tensor>(value);
  });
  await expectClose(y, golden.host("y"), undefined, "y");
}
