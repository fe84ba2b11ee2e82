import { describe, expect, expectTypeOf, test } from "vitest";
import { expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import {
  grad,
  jit,
  lax,
  Mesh,
  np,
  P,
  random,
  remat,
  shardMap,
  type Tensor,
  tree,
  vmap,
} from "../../index.js";
import * as nn from "../index.js";

const x = np.reshape(np.arange(6, "float32"), [2, 3]);
const key = random.key(0);

const Mlp = nn.module("MLP", ({ hidden, out = 2 }: { hidden: number; out?: number }) => (input: Tensor) => {
  const h = nn.relu(nn.Dense({ features: hidden })(input));
  return nn.Dense({ features: out, name: "head" })(h);
});

const paths = (variables: unknown) => tree.flattenWithPath(variables).map(({ path }) => path);

/** The error that a function throws. */
function errorOf(fn: () => unknown): nn.ModuleError {
  try {
    fn();
  } catch (error) {
    if (error instanceof nn.ModuleError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

describe("names", () => {
  test("count up per class in the order of creation, and explicit ones take no number", () => {
    const Model = nn.module("Model", () => (input: Tensor) => {
      nn.Dense({ features: 1 });
      const named = nn.Dense({ features: 3, name: "named" });
      const norm = nn.LayerNorm({ useBias: false });
      return norm(nn.Dense({ features: 3, useBias: false })(named(input)));
    });
    expect(paths(Model().init(key, x))).toEqual([
      "params/Dense_1/kernel",
      "params/LayerNorm_0/scale",
      "params/named/bias",
      "params/named/kernel",
    ]);
  });

  test("start anew in every module and in every call", () => {
    const Pair = nn.module("Pair", () => (input: Tensor) => {
      const mlp = Mlp({ hidden: 3, out: 3 });
      return mlp(mlp(input));
    });
    expect(paths(Pair().init(key, x))).toEqual([
      "params/MLP_0/Dense_0/bias",
      "params/MLP_0/Dense_0/kernel",
      "params/MLP_0/head/bias",
      "params/MLP_0/head/kernel",
    ]);
  });

  test.each([
    [
      "two submodules",
      () => {
        nn.Dense({ features: 1, name: "a" });
        nn.Dense({ features: 1, name: "a" });
      },
      'the name "a" is taken in the outermost module by a submodule',
    ],
    [
      "a submodule after a parameter",
      () => {
        nn.param("a", nn.initializers.ones, [1]);
        nn.Dense({ features: 1, name: "a" });
      },
      'the name "a" is taken in the outermost module by a variable of params',
    ],
    [
      "an automatic name that was given before",
      () => {
        nn.Dense({ features: 1, name: "Dense_0" });
        nn.Dense({ features: 1 });
      },
      'the name "Dense_0" is taken',
    ],
    [
      "one parameter twice",
      () => {
        nn.param("a", nn.initializers.ones, [1]);
        nn.param("a", nn.initializers.ones, [1]);
      },
      'the name "a" is taken',
    ],
  ])("may not be used twice: %s", (_, body, message) => {
    const Model = nn.module("Model", () => () => {
      body();
      return 0;
    });
    const error = errorOf(() => Model().init(key));
    expect(error).toMatchObject({ code: "module", reason: "name-in-use" });
    expect(error.message).toContain(message);
  });

  test("of variables in different collections may be equal", () => {
    const Model = nn.module("Model", () => () => {
      nn.param("a", nn.initializers.ones, [1]);
      nn.variable("state", "a", () => np.zeros([1]));
      return 0;
    });
    expect(paths(Model().init(key))).toEqual(["params/a", "state/a"]);
  });
});

describe("a shared module", () => {
  const Twice = nn.module("Twice", () => (input: Tensor) => {
    const dense = nn.Dense({ features: 3 });
    return dense(dense(input));
  });

  test("has one set of parameters, whose gradients add up", async () => {
    const variables = Twice().init(key, x);
    expect(paths(variables)).toEqual(["params/Dense_0/bias", "params/Dense_0/kernel"]);
    const dense = nn.Dense({ features: 3 });
    const unrolled = (v: nn.Variables, w: nn.Variables) => {
      const inner = (u: nn.Variables) => ({ params: u.params?.Dense_0 as nn.VariableTree });
      return dense.apply(inner(v), dense.apply(inner(w), x)).sum();
    };
    const [a, b] = grad(unrolled, { argnums: [0, 1] })(variables, variables);
    const sum = tree.map((p: Tensor, q: Tensor) => p.add(q), a, b);
    await expectTreeClose(grad((v: nn.Variables) => Twice().apply(v, x).sum())(variables), sum);
  });

  test("can be passed to another module, in whose parent it stays", () => {
    const Uses = nn.module(
      "Uses",
      ({ layer }: { layer: nn.ModuleInstance<(x: Tensor) => Tensor> }) =>
        (input: Tensor) =>
          layer(nn.Dense({ features: 3 })(input)),
    );
    const Model = nn.module("Model", () => (input: Tensor) => {
      const layer = nn.Dense({ features: 3, useBias: false });
      return Uses({ layer })(layer(input));
    });
    expect(paths(Model().init(key, x))).toEqual([
      "params/Dense_0/kernel",
      "params/Uses_0/Dense_0/bias",
      "params/Uses_0/Dense_0/kernel",
    ]);
  });

  test("with parent: null is adopted by the module that gets it", () => {
    const Uses = nn.module(
      "Uses",
      ({ layer }: { layer: nn.ModuleInstance<(x: Tensor) => Tensor> }) =>
        (input: Tensor) =>
          layer(input),
    );
    const Model = nn.module(
      "Model",
      () => (input: Tensor) =>
        Uses({ layer: nn.Dense({ features: 3, useBias: false, parent: null }) })(input),
    );
    expect(paths(Model().init(key, x))).toEqual(["params/Uses_0/layer/kernel"]);
  });
});

describe("methods", () => {
  const Tied = nn.module(
    "Tied",
    ({ size }: { size: number }) =>
      (ids: Tensor) => {
        const embed = nn.Embed({ numEmbeddings: size, features: 2, name: "embed" });
        return embed.attend(embed(ids));
      },
    {
      embedOnly:
        ({ size }: { size: number }) =>
        (ids: Tensor) =>
          nn.Embed({ numEmbeddings: size, features: 2, name: "embed" })(ids),
    },
  );

  test("share the parameters of their module, inside and outside", async () => {
    const ids = np.array([1, 0], "int32");
    const model = Tied({ size: 3 });
    const variables = model.init(key, ids);
    expect(paths(variables)).toEqual(["params/embed/embedding"]);
    const vectors = model.with({ method: "embedOnly" }).apply(variables, ids);
    const [table] = tree.leaves(variables) as Tensor[];
    if (!table) throw new Error("one parameter expected");
    await expectClose(model.apply(variables, ids), np.matmul(vectors, table.transpose()));
  });

  test("that do not exist are refused", () => {
    const model = Tied({ size: 3 });
    const call = () => model.with({ method: "nothing" as "embedOnly" }).init(key, np.array([0], "int32"));
    expect(errorOf(call).message).toContain('[Tied] has no method "nothing"');
  });
});

describe("variables", () => {
  const Counter = nn.module("Counter", () => (input: Tensor) => {
    const count = nn.variable("state", "count", () => np.array(0, "float32"));
    if (!nn.isInitializing()) count.value = count.value.add(1);
    return nn.Dense({ features: 1 })(input).mul(count.value);
  });

  test("of mutable collections come back changed, and others not at all", async () => {
    const variables = Counter().init(key, x);
    const [, first] = Counter()
      .with({ mutable: ["state"] })
      .apply(variables, x);
    const [, second] = Counter()
      .with({ mutable: "state" })
      .apply({ ...variables, ...first }, x);
    expect(Object.keys(second)).toEqual(["state"]);
    await expectClose(second.state?.count as Tensor, 2);
    await expectClose(variables.state?.count as Tensor, 0);
  });

  test("that are not mutable cannot be set", () => {
    const error = errorOf(() => Counter().apply(Counter().init(key, x), x));
    expect(error.reason).toBe("immutable-collection");
    expect(error.message).toContain('the collection "state" is not mutable');
  });

  test("of a collection that is not there are missed by name", () => {
    const { params = {} } = Counter().init(key, x);
    const error = errorOf(() => Counter().apply({ params }, x));
    expect(error.reason).toBe("collection-not-found");
    expect(error.message).toContain('no collection "state"');
  });

  test("can be looked at, and are sown only when that is asked for", () => {
    const Model = nn.module("Model", () => () => {
      nn.putVariable("state", "a", np.ones([2]));
      return [nn.hasVariable("state", "a"), nn.getVariable("state", "b"), nn.isMutableCollection("cache")];
    });
    const [seen] = Model()
      .with({ mutable: ["state"] })
      .apply({});
    expect(seen).toEqual([true, undefined, false]);
    const Sowing = nn.module("Sowing", () => () => nn.sow("intermediates", "a", x));
    expect(Sowing().apply({})).toBe(false);
    expect(
      paths(
        Sowing()
          .with({ mutable: ["intermediates"] })
          .apply({})[1],
      ),
    ).toEqual(["intermediates/a/0"]);
    expect(Sowing().init(key)).toEqual({});
  });
});

describe("parameters", () => {
  test("that are missing are named with their place and their siblings", () => {
    const variables = { params: { Dense_0: { kernel: np.ones([3, 4]) } } };
    const error = errorOf(() => Mlp({ hidden: 4 }).apply(variables, x));
    expect(error.reason).toBe("param-not-found");
    expect(error.message).toBe(
      'the parameter "bias" of /Dense_0 is missing; there are "kernel": the variables were made by another module, or with other names',
    );
  });

  test("of another shape are named with both shapes", () => {
    const variables = Mlp({ hidden: 4 }).init(key, x);
    const error = errorOf(() => Mlp({ hidden: 5 }).apply(variables, x));
    expect(error.reason).toBe("param-shape");
    expect(error.message).toContain('"kernel" of /Dense_0 has shape [3,4] but the module needs [3,5]');
  });

  test("without any variables are refused with advice", () => {
    expect(errorOf(() => Mlp({ hidden: 4 }).apply({}, x)).reason).toBe("collection-not-found");
    const twice = { params: { params: {} } };
    expect(errorOf(() => Mlp({ hidden: 4 }).apply(twice, x)).message).toContain("params within params");
    const wrong = np.ones([1]) as unknown as nn.Variables;
    expect(errorOf(() => Mlp({ hidden: 4 }).apply(wrong, x)).message).toContain("variables by collection");
  });

  test("may be trees, whose shapes are checked as well", async () => {
    const Model = nn.module(
      "Model",
      ({ n }: { n: number }) =>
        () =>
          nn.param("pair", (k) => ({ a: random.normal(k, [n]), b: np.ones([2, n]) })),
    );
    const variables = Model({ n: 3 }).init(key);
    expect(paths(variables)).toEqual(["params/pair/a", "params/pair/b"]);
    await expectTreeClose(Model({ n: 3 }).apply(variables), variables.params?.pair);
    expect(errorOf(() => Model({ n: 4 }).apply(variables)).message).toContain(
      'at "a" has shape [3] but the module needs [4]; at "b" has shape [2,3] but the module needs [2,4]',
    );
  });
});

test("an initialiser that makes another shape is refused", () => {
  const Model = nn.module("Model", () => () => nn.param("a", () => np.ones([2]), [3]));
  expect(errorOf(() => Model().init(key)).message).toContain(
    "has shape [2] but the module needs [3]: its initialiser must keep to the shape",
  );
});

describe("keys", () => {
  const Noise = nn.module(
    "Noise",
    () => (input: Tensor) => nn.Dropout({ rate: 0.5, deterministic: false })(input),
  );

  test("that were not given are missed by name and place", () => {
    const error = errorOf(() => Noise().apply({}, x));
    expect(error.reason).toBe("missing-rng");
    expect(error.message).toContain('/Dropout_0 needs a key "dropout", but there are no keys');
  });

  test("of params stand in for others", async () => {
    const given = Noise().with({ rngs: key }).apply({}, x);
    await expectClose(
      Noise()
        .with({ rngs: { params: key } })
        .apply({}, x),
      await plain(given),
    );
  });

  test("must be keys", () => {
    expect(errorOf(() => Noise().init(np.ones([2]), x)).message).toContain("made with random.key(seed)");
    expect(errorOf(() => Noise().init(0 as unknown as Tensor, x)).message).toContain(
      "[init] the keys must be a key, or keys by name such as { params, dropout }, got 0: make a key with random.key(seed)",
    );
  });

  test("can be replaced for a part of the tree, and only params differ then", async () => {
    const Folded = nn.module("Folded", () => (input: Tensor) => {
      nn.mapRngs((k, name) => (name === "params" ? random.foldIn(k, 7) : k));
      return nn.Dense({ features: 3 })(input);
    });
    const folded = Folded().init(key, x);
    const Plain = nn.module("Plain", () => (input: Tensor) => nn.Dense({ features: 3 })(input));
    await expectTreeClose(folded, Plain().init(random.foldIn(key, 7), x));
  });

  const plain = async (value: Tensor) => Array.from(await value.data());
});

describe("a module out of place", () => {
  test("is told how to be called", () => {
    expect(errorOf(() => Mlp({ hidden: 1 })(x)).message).toContain("is called outside of a module");
    expect(errorOf(() => nn.param("a", nn.initializers.ones, [1])).reason).toBe("no-scope");
    const global = nn.Dense({ features: 1 });
    const Model = nn.module("Model", () => (input: Tensor) => global(input));
    const error = errorOf(() => Model().init(key, x));
    expect(error.reason).toBe("unbound-module");
    expect(error.message).toContain("[Dense] was created outside of the outermost module, which calls it");
  });

  test("is refused after its call has ended", () => {
    let kept: nn.ModuleInstance<(x: Tensor) => Tensor> | undefined;
    const Model = nn.module("Model", () => (input: Tensor) => {
      kept = nn.Dense({ features: 1 });
      return kept(input);
    });
    Model().init(key, x);
    expect(errorOf(() => kept?.(x)).reason).toBe("closed-scope");
  });

  test("may not make variables inside a transform that knows nothing of them", () => {
    const Model = nn.module(
      "Model",
      () => (input: Tensor) => remat((v: Tensor) => nn.Dense({ features: 1 })(v))(input),
    );
    const error = errorOf(() => Model().init(key, x));
    expect(error.reason).toBe("leaked-variable");
    expect(error.message).toContain('the variable "params/Dense_0/');
  });

  test("may not be async", () => {
    const Model = nn.module("Model", () => async () => 1);
    expect(errorOf(() => Model().init(key)).message).toContain("[Model] is async");
  });
});

test("a Sequential takes its types from its layers and refuses to be empty", () => {
  const model = nn.Sequential({ layers: [nn.Dense({ features: 2 }), (y: Tensor) => y.shape] });
  expectTypeOf(model).parameters.toEqualTypeOf<[inputs: Tensor]>();
  expectTypeOf(model.apply).returns.toEqualTypeOf<readonly number[]>();
  expect(model.apply(model.init(key, x), x)).toEqual([2, 2]);
  expect(errorOf(() => nn.Sequential({ layers: [] }).init(key)).message).toContain("has no layers");
  const spread = nn.Sequential({
    layers: [(y: Tensor) => [y, y] as const, (a: Tensor, b: Tensor) => a.add(b)],
  });
  expect(spread.init(key, x)).toEqual({});
});

describe("modules under transforms", () => {
  const mlp = Mlp({ hidden: 4 });
  const variables = mlp.init(key, x);
  const y = mlp.apply(variables, x);

  test("initialise and run under jit", async () => {
    await expectTreeClose(jit(mlp.init)(key, x), variables);
    await expectClose(jit(mlp.apply)(variables, x), y);
  });

  test("run under vmap, over inputs and over variables", async () => {
    await expectClose(vmap((row: Tensor) => mlp.apply(variables, row))(x), y);
    const many = vmap((k: Tensor) => mlp.init(k, x))(random.split(key, 3));
    const outs = vmap((v: nn.Variables) => mlp.apply(v, x))(many);
    const second = tree.map((leaf: Tensor) => np.take(leaf, 1, 0), many);
    await expectClose(np.take(outs, 1, 0), mlp.apply(second, x));
  });

  test("are created inside shard maps, with other parameters on every device", async () => {
    const mesh = Mesh.create({ model: 2 });
    const Wrapped = nn.module("Wrapped", () => (input: Tensor) => {
      nn.mapRngs((k) => random.foldIn(k, lax.axisIndex("model")));
      const Stacked = nn.mapVariables(Mlp, "params", {
        transInFn: squeeze,
        transOutFn: stack,
        mutable: true,
      });
      return lax.psum(Stacked({ hidden: 4, name: "sharded" })(input), "model");
    });
    const stack = (v: nn.Variables): nn.Variables =>
      tree.map(
        (leaf: Tensor) => new nn.Partitioned(np.expandDims(leaf, 0), ["model"]),
        v,
      ) as unknown as nn.Variables;
    const squeeze = (v: nn.Variables): nn.Variables =>
      tree.map((leaf: Tensor) => np.squeeze(leaf, 0), nn.unbox<nn.Variables>(v));
    const init = shardMap((k: Tensor, input: Tensor) => Wrapped().init(k, input), {
      mesh,
      inSpecs: P(),
      outSpecs: P("model"),
    });
    const sharded = init(key, x);
    expect(nn.getPartitionSpec(sharded)).toMatchObject({
      params: { sharded: { head: { bias: P("model") } } },
    });
    const out = shardMap((v: nn.Variables, input: Tensor) => Wrapped().apply(v, input), {
      mesh,
      inSpecs: [nn.getPartitionSpec(sharded), P()],
      outSpecs: P(),
    })(sharded, x);
    const Plain = nn.module("Plain", () => (input: Tensor) => Mlp({ hidden: 4, name: "sharded" })(input));
    const parts = [0, 1].map((i) => Plain().init(random.foldIn(key, i), x));
    const [a, b] = parts.map((v) => Plain().apply(v, x));
    if (!a || !b) throw new Error("two parts expected");
    await expectClose(out, a.add(b));
  });
});
