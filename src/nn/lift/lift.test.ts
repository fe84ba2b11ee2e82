import { describe, expect, expectTypeOf, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import {
  checkpointPolicies,
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  printProgram,
  random,
  shardMap,
  Tensor,
  tree,
} from "../../index.js";
import * as nn from "../index.js";

const key = random.key(0);
const x = np.divide(np.reshape(np.arange(6, "float32"), [2, 3]), 6);
const params = { variableAxes: { params: 0 }, splitRngs: { params: true } };

type Layer = nn.ModuleInstance<(input: Tensor) => Tensor>;

const Block = nn.module(
  "Block",
  () => (input: Tensor) => input.add(nn.Dense({ features: input.shape.at(-1) ?? 0 })(nn.RMSNorm()(input))),
);
const Step = nn.module("Step", () => (carry: Tensor, _?: unknown): [Tensor, null] => [Block()(carry), null]);

const shapes = (variables: unknown) =>
  Object.fromEntries(
    tree
      .flattenWithPath(variables)
      .map(({ path, leaf }) => [path, leaf instanceof Tensor ? leaf.shape : leaf]),
  );
const slice = (variables: nn.Variables, i: number) =>
  tree.map((leaf: Tensor) => np.take(leaf, i, 0), variables);

describe("nn.scan", () => {
  const Loop = nn.scan(Step, { ...params, length: 3 });

  test("is a loop over the slices of its parameters, in value and gradient", async () => {
    const variables = Loop().init(key, x);
    const looped = (v: nn.Variables) => Loop().apply(v, x)[0];
    const unrolled = (v: nn.Variables) => [0, 1, 2].reduce((y, i) => Step().apply(slice(v, i), y)[0], x);
    await expectClose(looped(variables), unrolled(variables));
    const loss = (fn: typeof looped) => grad((v: nn.Variables) => fn(v).square().sum())(variables);
    await expectTreeClose(loss(looped), loss(unrolled), agreement.gradient);
    await expectClose(jit(looped)(variables), unrolled(variables));
  });

  test("keeps the types of configuration and arguments", () => {
    expectTypeOf(Loop).toEqualTypeOf(Step);
    const loop = nn.scan(
      (layer: Layer, carry: Tensor, _: null): [Tensor, null] => [layer(carry), null],
      params,
    );
    expectTypeOf(loop).parameters.toEqualTypeOf<[Layer, Tensor, null]>();
  });

  test("works on the module that runs now, and on modules created before it", async () => {
    const Model = nn.module("Model", () => (input: Tensor) => {
      const before = nn.Dense({ features: 3, name: "before" });
      const loop = nn.scan(
        (carry: Tensor): [Tensor, Tensor] => [nn.Dense({ features: 3 })(before(carry)), carry],
        {
          ...params,
          length: 2,
        },
      );
      const [y, inputs] = loop(input);
      expect(inputs.shape).toEqual([2, 2, 3]);
      return y;
    });
    const variables = Model().init(key, x);
    expect(shapes(variables)).toEqual({
      "params/Dense_0/bias": [2, 3],
      "params/Dense_0/kernel": [2, 3, 3],
      "params/before/bias": [2, 3],
      "params/before/kernel": [2, 3, 3],
    });
    const dense = nn.Dense({ features: 3 });
    const part = (name: string, i: number) => ({
      params: slice(variables.params?.[name] as nn.Variables, i) as nn.VariableTree,
    });
    const unrolled = [0, 1].reduce(
      (y, i) => dense.apply(part("Dense_0", i), dense.apply(part("before", i), y)),
      x,
    );
    await expectClose(Model().apply(variables, x), unrolled);
  });

  test("passes what is not scanned over as it is, and constants back as they are", async () => {
    const Mixed = nn.module(
      "Mixed",
      () =>
        (
          carry: Tensor,
          row: Tensor,
          mode: string,
          options?: { readonly scale: Tensor },
        ): [Tensor, unknown] => {
          expect(mode).toBe("train");
          const scale = options?.scale ?? np.ones([]);
          return [carry.add(row), { rows: row.mul(scale), scale }];
        },
    );
    const Loop = nn.scan(Mixed, { inAxes: [0, null, null], outAxes: { rows: 1, scale: null } });
    const [sum, out] = Loop().apply({}, np.zeros([3]), x, "train", { scale: np.array(2) });
    await expectClose(sum, np.sum(x, 0));
    await expectTreeClose(out, { rows: np.multiply(x, 2).transpose(), scale: np.array(2) });
  });

  test("refuses shared variables that depend on the iteration", () => {
    const Bad = nn.module("Bad", () => (carry: Tensor): [Tensor, null] => {
      nn.variable("state", "s", () => carry);
      return [carry, null];
    });
    const Loop = nn.scan(Bad, { variableBroadcast: "state", length: 2 });
    expect(() => Loop().init(key, x)).toThrow(
      '[nn.scan] "state/s" must be the same in every iteration but depends on the carry',
    );
    const Out = nn.scan(Step, { ...params, length: 2, outAxes: null, checkConstancyInvariants: false });
    expect(() => Out().init(key, x)).toThrow("needs checkConstancyInvariants");
  });

  test("says what is wrong with its arguments", () => {
    expect(() => nn.scan(Step, params)().init(key, x, null)).toThrow("give length");
    expect(() =>
      nn
        .scan(Step, { ...params, length: 3 })()
        .init(key, x, x),
    ).toThrow("[nn.scan] the mapped dims must have the same size:\n  0 has 2 along dim 0\n  length is 3");
    expect(() =>
      nn
        // @ts-expect-error more entries than arguments
        .scan(Step, { ...params, inAxes: [0, 1] })()
        .init(key, x, x),
    ).toThrow("inAxes has 2 entries");
    expect(() => nn.scan(Step, params)().init(key, x, "text")).toThrow("is mapped but is a string");
    const NoPair = nn.module("NoPair", () => (carry: Tensor) => carry);
    expect(() => nn.scan(NoPair, { length: 1 })().init(key, x)).toThrow("must return [carry, result]");
    expect(() => nn.scan(1 as unknown as typeof Step, params)).toThrow(
      "expects a module class or a function",
    );
  });

  test("needs a name for the stacked dim of boxes", () => {
    const kernelInit = nn.withPartitioning(nn.initializers.lecunNormal(), [null, "model"]);
    const Boxed = nn.module("Boxed", () => (carry: Tensor): [Tensor, null] => [
      nn.Dense({ features: 3, kernelInit })(carry),
      null,
    ]);
    expect(() =>
      nn
        .scan(Boxed, { ...params, length: 2 })()
        .init(key, x),
    ).toThrow("metadataParams");
  });
});

describe("nn.vmap", () => {
  test("is the module for every element, in value and gradient", async () => {
    const Each = nn.vmap(Block, params);
    const variables = Each().init(key, x);
    const mapped = (v: nn.Variables) => Each().apply(v, x);
    const unrolled = (v: nn.Variables) =>
      np.stack([0, 1].map((i) => Block().apply(slice(v, i), np.take(x, i, 0))));
    await expectClose(mapped(variables), unrolled(variables));
    const loss = (fn: typeof mapped) => grad((v: nn.Variables) => fn(v).square().sum())(variables);
    await expectTreeClose(loss(mapped), loss(unrolled), agreement.gradient);
  });

  test("gives collectives inside a name for the mapped dim, and leaves other arguments alone", async () => {
    const Centre = nn.module("Centre", () => (row: Tensor, mode: string) => {
      expect(mode).toBe("mean");
      return row.sub(lax.pmean(row, "rows"));
    });
    const Each = nn.vmap(Centre, { inAxes: [0, null], axisName: "rows" });
    await expectClose(Each().apply({}, x, "mean"), x.sub(np.mean(x, 0)));
  });

  test("takes the size from the variables, or from axisSize", () => {
    const Each = nn.vmap(Block, { ...params, inAxes: null, axisSize: 4 });
    const variables = Each().init(key, x);
    expect(shapes(variables)["params/Dense_0/kernel"]).toEqual([4, 3, 3]);
    expect(
      nn
        .vmap(Block, { ...params, inAxes: null })()
        .apply(variables, x).shape,
    ).toEqual([4, 2, 3]);
    expect(() =>
      nn
        .vmap(Block, { ...params, inAxes: null })()
        .init(key, x),
    ).toThrow("give axisSize");
    expect(() => nn.vmap(Block, params)().apply(variables, x)).toThrow(
      "argument 0 has 2 along dim 0\n  variable params/Dense_0/bias has 4 along dim 0",
    );
  });

  test("nests in scan, and scan in it", async () => {
    const names = { metadataParams: { partitionName: null } };
    const Loop = nn.scan(Step, { ...params, ...names, length: 3 });
    const Both = nn.vmap(Loop, { ...params, ...names });
    const variables = Both().init(key, x);
    expect(shapes(variables)["params/Block_0/Dense_0/kernel"]).toEqual([2, 3, 3, 3]);
    const [y] = Both().apply(variables, x);
    const rows = [0, 1].map((i) => Loop().apply(slice(variables, i), np.take(x, i, 0))[0]);
    await expectClose(y, np.stack(rows));
  });
});

describe("nn.remat", () => {
  test("changes no value and no gradient, but what is kept", async () => {
    const Again = nn.remat(Block, { policy: checkpointPolicies.dotsSaveable });
    const variables = Block().init(key, x);
    const loss = (model: Layer) => (v: nn.Variables) => model.apply(v, x).square().sum();
    await expectTreeClose(grad(loss(Again()))(variables), grad(loss(Block()))(variables), agreement.gradient);
    expect(printProgram(makeProgram(loss(Again()))(variables))).toContain("remat");
  });

  test("passes everything but tensors as it is", () => {
    const Modes = nn.module("Modes", () => (input: Tensor, isTraining: boolean, size: number) => {
      expect(isTraining).toBe(true);
      return np.reshape(nn.Dense({ features: size })(input), [2, size]);
    });
    expect(nn.remat(Modes)().init(key, x, true, 4)).toMatchObject({ params: { Dense_0: {} } });
    const Static = nn.module("Static", () => (input: Tensor, fixed: Tensor) => {
      expect(fixed.node.kind).toBe("array");
      return input.add(fixed);
    });
    nn.remat(Static, { staticArgnums: 1 })().apply({}, x, x);
  });

  test("lets methods of choice through", () => {
    const Tied = nn.remat(nn.Embed, { methods: ["attend"] });
    const embed = Tied({ numEmbeddings: 3, features: 2 });
    const variables = embed.init(key, np.array([0], "int32"));
    const print = (method: "attend" | undefined) =>
      printProgram(
        makeProgram((v: nn.Variables, input: Tensor) =>
          method ? embed.with({ method }).apply(v, input) : embed.apply(v, np.array([0], "int32")),
        )(variables, np.ones([1, 2])),
      );
    expect(print("attend")).toContain("remat");
    expect(print(undefined)).not.toContain("remat");
  });
});

describe("nn.mapVariables", () => {
  const scaled = (factor: number) => (v: nn.Variables) =>
    tree.map((leaf: Tensor) => np.multiply(leaf, factor), v);

  test("shows the module different variables than those that are stored", async () => {
    const dense = nn.Dense({ features: 3 });
    const variables = dense.init(key, x);
    const Double = nn.mapVariables(nn.Dense, "params", { transInFn: scaled(2) });
    await expectClose(Double({ features: 3 }).apply(variables, x), dense.apply(variables, x).mul(2));
    expect(() => Double({ features: 3 }).init(key, x)).toThrow('no collection "params"');
  });

  test("works on functions and on the module that runs now", async () => {
    const Model = nn.module("Model", () => (input: Tensor) => {
      const first = nn.Dense({ features: 3 });
      const options = { transInFn: scaled(2), transOutFn: scaled(0.5), mutable: true };
      const h = nn.mapVariables(
        (layer: Layer, value: Tensor) => layer(value),
        "params",
        options,
      )(first, input);
      return nn.mapVariables((value: Tensor) => nn.Dense({ features: 3 })(value), "params", options)(h);
    });
    const variables = Model().init(key, x);
    expect(Object.keys(variables.params ?? {})).toEqual(["Dense_0", "Dense_1"]);
    const dense = nn.Dense({ features: 3 });
    const part = (name: string, factor: number) =>
      scaled(factor)({ params: variables.params?.[name] as nn.VariableTree });
    // The second call maps all variables of the module that runs, but only those it makes change there.
    const want = dense.apply(part("Dense_1", 2), dense.apply(part("Dense_0", 2), x));
    await expectClose(Model().apply(variables, x), want);
  });

  test("splits parameters over devices and gathers them again: fully sharded data parallelism", async () => {
    const mesh = Mesh.create({ data: 2 });
    const shard = (v: nn.Variables): nn.Variables =>
      tree.map((leaf: Tensor) => {
        const size = (leaf.shape.at(-1) ?? 0) / 2;
        const start = lax.axisIndex("data").mul(size);
        const block = lax.dynamicSliceInDim(leaf, start, size, leaf.ndim - 1);
        return new nn.Partitioned(block, [...leaf.shape.slice(1).map(() => null), "data"]);
      }, v) as unknown as nn.Variables;
    const gather = (v: nn.Variables): nn.Variables =>
      tree.map(
        (leaf: Tensor) => lax.allGather(leaf, "data", { dim: leaf.ndim - 1, tiled: true }),
        nn.unbox<nn.Variables>(v),
      );
    const Sharded = nn.mapVariables(nn.Dense, "params", {
      transInFn: gather,
      transOutFn: shard,
      mutable: true,
    });
    const model = Sharded({ features: 4 });
    const specs = { params: { bias: P("data"), kernel: P(null, "data") } };
    const variables = shardMap((k: Tensor, input: Tensor) => model.init(k, input), {
      mesh,
      inSpecs: P(),
      outSpecs: specs,
      checkReplication: false,
    })(key, x);
    expect(nn.getPartitionSpec(variables)).toEqual(specs);
    const dense = nn.Dense({ features: 4 });
    const whole = dense.init(key, x);
    await expectTreeClose(nn.unbox(variables), whole);
    const apply = shardMap((v: nn.Variables, input: Tensor) => model.apply(v, input), {
      mesh,
      inSpecs: [specs, P("data")],
      outSpecs: P("data"),
    });
    await expectClose(apply(variables, x), dense.apply(whole, x));
  });
});

test("a lifted class can be named like any other, and counts under its own name", () => {
  const Model = nn.module("Model", () => (input: Tensor) => {
    const Again = nn.remat(Block);
    const h = Block()(Again()(Again()(input)));
    return nn.vmap(Block, params)({ name: "mapped" })(h);
  });
  expect(Object.keys(Model().init(key, x).params ?? {}).sort()).toEqual([
    "Block_0",
    "CheckpointBlock_0",
    "CheckpointBlock_1",
    "mapped",
  ]);
});
