import type { Engine } from "../../../../src/ir/engine.js";
import * as nn from "../../../../src/nn/index.js";
import * as np from "../../../../src/numpy/index.js";
import * as random from "../../../../src/random/index.js";
import type { Tensor } from "../../../../src/trace/tensor.js";
import { valueAndGrad } from "../../../../src/transforms/derivatives/grad.js";
import type { GoldenCase } from "../cases.js";
import { type AreaRunner, byName, expectAll } from "../check.js";
import { agreement, expectClose, expectTreeClose } from "../compare.js";
import { Block, MLP, Stack } from "../models.js";
import { alone } from "../onMesh.js";

type Model = nn.ModuleInstance<(x: Tensor) => Tensor>;

/** Modules: parameters from a seed, results and gradients. Sizes are those of the parameters. */
export const runModules: AreaRunner = byName({
  dense: (golden, engine) =>
    runModel(
      golden,
      engine,
      nn.Dense({ features: size(golden, -1, "kernel"), useBias: hasParam(golden, "bias") }),
    ),
  mlp: (golden, engine) =>
    runModel(
      golden,
      engine,
      MLP({ hidden: size(golden, -1, "Dense_0", "kernel"), out: size(golden, -1, "head", "kernel") }),
    ),
  stack: (golden, engine) => runModel(golden, engine, Stack({ n: numParams(golden) })),
  layernorm: (golden, engine) => runModel(golden, engine, nn.LayerNorm()),
  rmsnorm: (golden, engine) => runModel(golden, engine, nn.RMSNorm()),
  attention: (golden, engine) =>
    runModel(golden, engine, nn.SelfAttention({ numHeads: size(golden, -2, "query", "kernel") })),
  scan: (golden, engine) =>
    runModel(golden, engine, Scanned({ depth: size(golden, 0, "layers", "Block_0", "Dense_0", "kernel") })),
  vmap: (golden, engine) => runModel(golden, engine, Mapped()),
  embed: runEmbed,
  dropout: runDropout,
});

const Body = nn.module("Body", () => (carry: Tensor, _: null): [Tensor, null] => [Block()(carry), null]);

const Scanned = nn.module("Scanned", ({ depth }: { depth: number }) => (x: Tensor) => {
  const Layers = nn.scan(Body, { variableAxes: { params: 0 }, splitRngs: { params: true }, length: depth });
  return Layers({ name: "layers" })(x, null)[0];
});

const Mapped = nn.module("Mapped", () => (x: Tensor) => {
  const Layers = nn.vmap(Block, { variableAxes: { params: 0 }, splitRngs: { params: true } });
  return Layers({ name: "layers" })(x);
});

const Dropping = nn.module(
  "Dropping",
  ({ rate, features }: { rate: number; features: number }) =>
    (x: Tensor) =>
      nn.Dropout({ rate, deterministic: false })(nn.Dense({ features })(x)),
);

function size(golden: GoldenCase, dim: number, ...path: readonly string[]): number {
  return golden.host("variables", "params", ...path).shape.at(dim) ?? 0;
}

function hasParam(golden: GoldenCase, name: string): boolean {
  return golden.has("variables", "params", name);
}

function numParams(golden: GoldenCase): number {
  return Object.keys(golden.value("variables", "params") ?? {}).length;
}

async function runModel(golden: GoldenCase, engine: Engine, model: Model): Promise<void> {
  const made = alone(
    engine,
    (x: Tensor) => model.init(random.key(golden.number("seed")), x),
    golden.tensor("x"),
  );
  const run = (variables: nn.Variables, x: Tensor) => {
    const loss = (given: nn.Variables, input: Tensor): [Tensor, Tensor] => {
      const y = model.apply(given, input);
      return [np.mean(np.square(y)), y];
    };
    const [[, y], grads] = valueAndGrad(loss, { hasAux: true, argnums: [0, 1] })(variables, x);
    return { y, gradVariables: grads[0], gradX: grads[1] };
  };
  const variables = golden.tree("variables") as nn.Variables;
  const { y, gradVariables, gradX } = alone(engine, run, variables, golden.tensor("x"));
  await expectAll(
    () => expectTreeClose(made, golden.tree("variables")),
    () => expectClose(y, golden.host("y"), undefined, "y"),
    () => expectTreeClose(gradVariables, golden.tree("grad_variables"), agreement.gradient),
    () => expectClose(gradX, golden.host("grad_x"), agreement.gradient, "grad_x"),
  );
}

async function runEmbed(golden: GoldenCase, engine: Engine): Promise<void> {
  const embed = nn.Embed({
    numEmbeddings: size(golden, 0, "embedding"),
    features: size(golden, 1, "embedding"),
  });
  const run = (variables: nn.Variables, ids: Tensor) => ({
    made: embed.init(random.key(golden.number("seed")), ids),
    y: embed.apply(variables, ids),
    attend: embed
      .with({ method: "attend" })
      .apply(variables, np.ones([...golden.host("attend").shape.slice(0, -1), size(golden, 1, "embedding")])),
  });
  const variables = golden.tree("variables") as nn.Variables;
  const { made, y, attend } = alone(engine, run, variables, golden.tensor("ids"));
  await expectAll(
    () => expectTreeClose(made, golden.tree("variables")),
    () => expectClose(y, golden.host("y"), undefined, "y"),
    () => expectClose(attend, golden.host("attend"), undefined, "attend"),
  );
}

async function runDropout(golden: GoldenCase, engine: Engine): Promise<void> {
  const model = Dropping({ rate: golden.number("rate"), features: size(golden, -1, "Dense_0", "kernel") });
  const run = (variables: nn.Variables, x: Tensor) => {
    const key = random.key(golden.number("seed"));
    const dropout = random.key(golden.number("dropout_seed"));
    return {
      made: model.init({ params: key, dropout: key }, x),
      y: model.with({ rngs: { dropout } }).apply(variables, x),
    };
  };
  const { made, y } = alone(engine, run, golden.tree("variables") as nn.Variables, golden.tensor("x"));
  await expectAll(
    () => expectTreeClose(made, golden.tree("variables")),
    () => expectClose(y, golden.host("y"), undefined, "y"),
  );
}
