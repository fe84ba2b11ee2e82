/** Lifted modules, perturbations and masks of convolutions compared with Flax's, which `test/jax/lifted.py` wrote. */
import { readFileSync } from "node:fs";
import { grad, jit, np, random, type Tensor, tree } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, expect, test } from "vitest";
import { expectNear } from "../../../test/support/near.js";

interface Leaf {
  readonly shape: readonly number[];
  readonly data: readonly number[];
}

const golden: Readonly<
  Record<string, Readonly<Record<"variables" | "results" | "gradients", readonly Leaf[]>>>
> = JSON.parse(readFileSync(new URL("../../../test/jax/lifted.json", import.meta.url), "utf8"));

const ramp = (...shape: number[]) =>
  np
    .sin(
      np
        .arange(
          shape.reduce((a, b) => a * b),
          "float32",
        )
        .mul(0.7),
    )
    .reshape(shape);
const x = ramp(2, 3);
const image = ramp(1, 5, 2);

const Folded = nn.module("Folded", () => (input: Tensor) => {
  return nn.Dense({ features: 2 })(nn.foldRngs(nn.Dense)({ features: 3 })(input));
});
const Deep = nn.module(
  "Deep",
  ({ lengths }: { lengths: readonly number[] }) =>
    (input: Tensor) =>
      nn.rematScan(nn.Dense, { lengths })({ features: 3 })(input),
);
const Perturbed = nn.module("Perturbed", () => (input: Tensor) => {
  const hidden = nn.perturb("hidden", nn.Dense({ features: 3 })(input));
  return np.sum(np.square(nn.Dense({ features: 2 })(hidden)));
});
const lower = (...shape: number[]) => np.tril(np.ones(shape));

type Model = nn.ModuleInstance<(input: Tensor) => Tensor>;
const modules: Readonly<Record<string, readonly [Model, Tensor]>> = {
  foldRngs: [Folded(), x],
  "rematScan 2 3": [Deep({ lengths: [2, 3] }), x],
  "rematScan 4": [Deep({ lengths: [4] }), x],
  "rematScan 2 2 2": [Deep({ lengths: [2, 2, 2] }), x],
  perturb: [Perturbed(), x],
  "Conv mask": [nn.Conv({ features: 4, kernelSize: 3, mask: lower(3, 2, 4) }), image],
  "ConvTranspose mask": [nn.ConvTranspose({ features: 4, kernelSize: 3, mask: lower(3, 2, 4) }), image],
  "ConvLocal mask": [nn.ConvLocal({ features: 4, kernelSize: 3, mask: lower(5, 6, 4) }), image],
};

async function expectLeaves(value: unknown, want: readonly Leaf[], what: string): Promise<void> {
  const tensors = tree.leaves(value) as Tensor[];
  expect(tensors.map(({ shape }) => shape)).toEqual(want.map(({ shape }) => shape));
  for (const [i, tensor] of tensors.entries()) {
    expectNear([...(await tensor.data())].map(Number), want[i]?.data ?? [], 5e-6, `${what} ${i}`);
  }
}

describe("agrees with Flax", () => {
  test.each(Object.entries(modules))("%s", async (name, [model, input]) => {
    const want = golden[name];
    if (!want) throw new Error(`no results for ${name}`);
    const [result, variables] = model.initWithOutput(random.key(0), input);
    await expectLeaves(variables, want.variables, `variables of ${name}`);
    await expectLeaves(result, want.results, `result of ${name}`);
    const loss = (v: nn.Variables) => np.sum(np.square(model.apply(v, input)));
    await expectLeaves(grad(loss)(variables), want.gradients, `gradients of ${name}`);
    await expectLeaves(jit(grad(loss))(variables), want.gradients, `compiled gradients of ${name}`);
  });
});

test("perturb does nothing without its collection, and names what is missing of it", async () => {
  const model = Perturbed();
  const { params, perturbations } = model.init(random.key(0), x);
  if (!params || !perturbations) throw new Error("no variables");
  const [plain, perturbed] = [model.apply({ params }, x), model.apply({ params, perturbations }, x)];
  expect(await plain.item()).toBe(await perturbed.item());
  const other = { other: np.zeros([2, 3]) };
  expect(() => model.apply({ params, perturbations: other }, x)).toThrow(/"hidden".*is missing/);
});

test("interceptors stand around every method, the outer one first", async () => {
  const Two = nn.module("Two", () => (input: Tensor) => {
    const hidden = nn.Dense({ features: 3 })(input);
    return nn.Dense({ features: 2 })(hidden);
  });
  const model = Two();
  const variables = model.init(random.key(0), x);
  const calls: string[] = [];
  const noting =
    (who: string): nn.Interceptor =>
    (next, args, { moduleName, path, method }) => {
      calls.push(`${who} ${moduleName} ${path.join("/")} ${method}`);
      return next(...args);
    };
  const result = nn.interceptMethods(noting("a"), () =>
    nn.interceptMethods(noting("b"), () => model.apply(variables, x)),
  );
  expect(await np.allclose(result, model.apply(variables, x)).item()).toBe(1);
  expect(calls).toEqual(
    ["Two ", "Dense Dense_0", "Dense Dense_1"].flatMap((what) => [
      `a ${what} __call__`,
      `b ${what} __call__`,
    ]),
  );
  const zero: nn.Interceptor = (next, args, { path }) =>
    path.at(-1) === "Dense_1" ? np.zeros([2, 2]) : next(...args);
  const silenced = nn.interceptMethods(zero, () => model.apply(variables, x));
  expect([...(await silenced.data())]).toEqual([0, 0, 0, 0]);
  const skipping: nn.Interceptor = (_, args, { original }) => original(...args);
  const skipped = nn.interceptMethods(skipping, () =>
    nn.interceptMethods(zero, () => model.apply(variables, x)),
  );
  expect(await np.allclose(skipped, result).item()).toBe(1);
});

describe("says what is wrong", () => {
  test("with a mask of another shape", () => {
    const conv = nn.Conv({ features: 4, kernelSize: 3, mask: np.ones([3, 4]) });
    expect(() => conv.init(random.key(0), image)).toThrow(/shape of the kernel, \[3,2,4\]/);
  });

  test("with lengths of loops", () => {
    expect(() => nn.rematScan(nn.Dense, { lengths: [] })).toThrow(
      /lengths must be one or more integers of at least 1/,
    );
    expect(() => nn.rematScan(nn.Dense, { lengths: [2, 0] })).toThrow(
      /lengths must be one or more integers of at least 1/,
    );
  });
});
