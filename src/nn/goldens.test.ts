import { expect, test } from "vitest";
import {
  agreement,
  expectClose,
  expectTreeClose,
  type GoldenCase,
  goldens,
} from "../../test/support/goldens.js";
import { grad, np, random, type Tensor } from "../index.js";
import * as nn from "./index.js";

const Mlp = nn.module("MLP", ({ hidden, out }: { hidden: number; out: number }) => (x: Tensor) => {
  const h = nn.LayerNorm()(nn.gelu(nn.Dense({ features: hidden })(x)));
  return nn.Dense({ features: out, name: "head" })(h);
});

const Block = nn.module("Block", () => (x: Tensor) => {
  const width = x.shape.at(-1) ?? 0;
  const h = nn.Dense({ features: 2 * width, useBias: false })(nn.RMSNorm()(x));
  return x.add(nn.Dense({ features: width })(nn.silu(h)));
});

const Stack = nn.module("Stack", ({ depth }: { depth: number }) => (x: Tensor) => {
  let y = x;
  for (let i = 0; i < depth; i++) y = Block()(y);
  return y;
});

const Body = nn.module("Body", () => (carry: Tensor, _: null): [Tensor, null] => [Block()(carry), null]);

const Scanned = nn.module("Scanned", ({ depth }: { depth: number }) => (x: Tensor) => {
  const Layers = nn.scan(Body, { variableAxes: { params: 0 }, splitRngs: { params: true }, length: depth });
  const [y] = Layers({ name: "layers" })(x, null);
  return y;
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

type Model = nn.ModuleInstance<(x: Tensor) => Tensor>;

/** The model of a case; sizes are those of its parameters. */
function modelOf(golden: GoldenCase): Model {
  const size = (dim: number, ...path: string[]) =>
    golden.host("variables", "params", ...path).shape.at(dim) ?? 0;
  switch (golden.name) {
    case "dense":
      return nn.Dense({ features: size(-1, "kernel") });
    case "dense_named_nobias":
      return nn.Dense({ features: size(-1, "kernel"), useBias: false, name: "projection" });
    case "mlp":
      return Mlp({ hidden: size(-1, "Dense_0", "kernel"), out: size(-1, "head", "kernel") });
    case "stack3":
      return Stack({ depth: 3 });
    case "layernorm":
      return nn.LayerNorm();
    case "rmsnorm":
      return nn.RMSNorm();
    case "attention":
      return nn.SelfAttention({ numHeads: size(-2, "query", "kernel") });
    case "scan3":
      return Scanned({ depth: 3 });
    case "vmap4":
      return Mapped();
    case "dropout":
      return Dropping({ rate: golden.number("rate"), features: size(-1, "Dense_0", "kernel") });
    default:
      throw new Error(`there is no model for the case ${golden.name}`);
  }
}

const variablesOf = (golden: GoldenCase) => golden.tree("variables") as nn.Variables;

for (const golden of goldens("modules")) {
  test(`agrees with Flax: ${golden.name}`, async () => {
    const key = random.key(golden.number("seed"));
    if (golden.name === "embed") {
      const [numEmbeddings = 0, features = 0] = golden.host("variables", "params", "embedding").shape;
      const embed = nn.Embed({ numEmbeddings, features });
      const ids = golden.tensor("ids");
      await expectTreeClose(embed.init(key, ids), variablesOf(golden));
      await expectClose(embed.apply(variablesOf(golden), ids), golden.host("y"));
      const query = np.ones([golden.host("attend").shape[0] ?? 0, features]);
      const logits = embed.with({ method: "attend" }).apply(variablesOf(golden), query);
      await expectClose(logits, golden.host("attend"));
      return;
    }
    const model = modelOf(golden);
    const x = golden.tensor("x");
    if (golden.name === "dropout") {
      await expectTreeClose(model.init({ params: key, dropout: key }, x), variablesOf(golden));
      const dropout = random.key(golden.number("dropout_seed"));
      await expectClose(model.with({ rngs: { dropout } }).apply(variablesOf(golden), x), golden.host("y"));
      return;
    }
    await expectTreeClose(model.init(key, x), variablesOf(golden));
    await expectClose(model.apply(variablesOf(golden), x), golden.host("y"));
    expect(golden.string("loss_fn")).toBe("mean(y**2)");
    const loss = (variables: nn.Variables, input: Tensor) =>
      np.mean(np.square(model.apply(variables, input)));
    const [gradVariables, gradX] = grad(loss, { argnums: [0, 1] })(variablesOf(golden), x);
    await expectTreeClose(gradVariables, golden.tree("grad_variables"), agreement.gradient);
    await expectClose(gradX, golden.host("grad_x"), agreement.gradient);
  });
}
