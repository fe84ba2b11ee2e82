import {
  type DType,
  devicePut,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  PartitionSpec,
  random,
  shardMap,
  type Tensor,
  tree,
} from "shardwise";
import { describe, expect, test } from "vitest";
import { getPartitionSpec, Partitioned } from "../../nn/modules/partitioned.js";
import * as optim from "../index.js";

const start = () => ({
  w: np.array([
    [0.5, -1],
    [2, 0.25],
  ]),
  bias: np.array([0.1, -0.2]),
});
type Params = ReturnType<typeof start>;

/** Gradients that change sign and size from step to step. */
const gradsOf = (i: number): Params => ({
  w: np
    .array([
      [0.1, -0.2],
      [0.3, 0.05],
    ])
    .mul((i + 1) * (-1) ** i),
  bias: np.array([1, -3]).div(i + 1),
});

const numbersOf = async (values: unknown) =>
  (await Promise.all(tree.leaves(values).map(async (x) => [...(await (x as Tensor).data())]))).flat();

async function train(optimizer: optim.GradientTransformation, numSteps = 5): Promise<number[]> {
  let params = start();
  let state = optimizer.init(params);
  for (let i = 0; i < numSteps; i++) {
    const [updates, next] = optimizer.update(gradsOf(i), state, params);
    params = optim.applyUpdates(params, updates);
    state = next;
  }
  return numbersOf(params);
}

function expectClose(got: readonly number[], want: readonly number[], tolerance = 2e-6): void {
  expect(got).toHaveLength(want.length);
  got.forEach((value, i) => {
    expect(Math.abs(value - (want[i] ?? Number.NaN))).toBeLessThan(tolerance);
  });
}

const schedule = optim.warmupCosine({ peak: 0.1, to: 0.01, warmupSteps: 2, steps: 6 });

/** Parameters (biases first) after five steps of optax 0.2.8. */
const cases: readonly (readonly [string, optim.GradientTransformation, readonly number[]])[] = [
  ["sgd", optim.sgd({ learningRate: 0.1 }), [-0.12833333, 0.485, 0.46999997, -0.93999994, 1.91, 0.23499998]],
  [
    "momentum",
    optim.momentum({ learningRate: 0.1 }),
    [-0.6392933, 2.01788, 0.472529, -0.945058, 1.917587, 0.2362645],
  ],
  [
    "nesterov",
    optim.sgd({ learningRate: 0.1, momentum: 0.9, nesterov: true }),
    [-0.79369736, 2.481092, 0.4452761, -0.8905522, 1.8358282, 0.22263806],
  ],
  [
    "adam",
    optim.adam({ learningRate: 0.05 }),
    [-0.12007133, 0.020071328, 0.4516289, -0.9516289, 1.9516288, 0.2016289],
  ],
  [
    "adam with nesterov and all constants changed",
    optim.adam({ learningRate: 0.05, nesterov: true, b1: 0.8, b2: 0.9, eps: 1e-6, epsRoot: 1e-7 }),
    [-0.12621504, 0.02621527, 0.43729913, -0.9372986, 1.9372984, 0.18730064],
  ],
  [
    "adamw",
    optim.adamw({ learningRate: 0.05, weightDecay: 0.1 }),
    [-0.1202175, 0.022692636, 0.44008562, -0.92771, 1.9029588, 0.19627346],
  ],
  [
    "adamw without decay of biases",
    optim.adamw({ learningRate: 0.05, weightDecay: 0.1, mask: optim.decayMask }),
    [-0.12007133, 0.020071328, 0.44008562, -0.92771, 1.9029588, 0.19627346],
  ],
  [
    "adamw with a schedule",
    optim.adamw({ learningRate: schedule, weightDecay: 0.1 }),
    [-0.14798412, 0.050871395, 0.4774129, -0.9629764, 1.9341036, 0.2346311],
  ],
  [
    "lion",
    optim.lion({ learningRate: 0.01, weightDecay: 0.1 }),
    [0.0496009, -0.14910191, 0.48752496, -0.98502994, 1.9800401, 0.23877245],
  ],
  [
    "clipping before adamw",
    optim.chain(optim.clipByGlobalNorm(1), optim.adamw({ learningRate: 0.05 })),
    [-0.13953084, 0.03953333, 0.46322787, -0.9632154, 1.9631904, 0.21323413],
  ],
  [
    "clipping before sgd",
    optim.chain(optim.clipByGlobalNorm(1), optim.sgd({ learningRate: 0.1 })),
    [-0.0061966944, 0.11859008, 0.48723444, -0.9744689, 1.9617033, 0.24361722],
  ],
  [
    "a step every second call",
    optim.multiSteps(optim.adam({ learningRate: 0.05 }), 2),
    [0.0052866265, -0.10528663, 0.5999991, -1.0999992, 2.0999992, 0.34999913],
  ],
];

describe("an optimiser agrees with optax", () => {
  test.each(cases)("%s", async (_name, optimizer, want) => {
    expectClose(await train(optimizer), want);
  });

  test.each(cases)("%s, compiled as one step", async (_name, optimizer, want) => {
    const step = jit((params: Params, state: unknown, grads: Params) => {
      const [updates, next] = optimizer.update(grads, state, params);
      return [optim.applyUpdates(params, updates), next] as const;
    });
    let params = start();
    let state = optimizer.init(params);
    for (let i = 0; i < 5; i++) [params, state] = step(params, state, gradsOf(i));
    expectClose(await numbersOf(params), want);
  });
});

describe("a transformation", () => {
  test("that needs the parameters asks for them", () => {
    const optimizer = optim.adamw({ learningRate: 0.1 });
    const params = start();
    expect(() => optimizer.update(gradsOf(0), optimizer.init(params))).toThrow(
      "[addDecayedWeights] needs the parameters: call update(grads, state, params)",
    );
  });

  test("refuses the state of another chain", () => {
    const optimizer: optim.GradientTransformation = optim.chain(optim.scale(2), optim.scale(3));
    expect(() => optimizer.update(gradsOf(0), [[]])).toThrow("the state is that of 1 transformations, but 2");
  });

  test("keeps moments in the type that is asked for", () => {
    const optimizer = optim.scaleByAdam({ muDtype: "bfloat16" });
    const params = start();
    const state = optimizer.init(params);
    const [updates, next] = optimizer.update(gradsOf(0), state, params);
    expect(tree.leaves(next.mu).map((x) => (x as Tensor).dtype)).toEqual(["bfloat16", "bfloat16"]);
    expect(updates.w.dtype).toBe("float32");
  });

  test("keeps the boxes of parameters around updates and moments", () => {
    const params = { w: new Partitioned(np.ones([2, 2]), ["model", null]), bias: np.ones([2]) };
    const optimizer = optim.adamw({ learningRate: 0.1, mask: optim.decayMask });
    const state = optimizer.init(params);
    const [updates] = optimizer.update(params, state, params);
    expect(updates.w).toBeInstanceOf(Partitioned);
    const specs = tree.leaves(getPartitionSpec(state), (node) => node instanceof PartitionSpec).map(String);
    expect(specs).toEqual(["P()", "P()", 'P("model", null)', "P()", 'P("model", null)']);
  });
});

describe("masks", () => {
  test("leave out biases and everything of a norm", () => {
    const x = np.zeros([1]);
    const params = {
      layers: { attention: { kernel: x, bias: x }, RMSNorm_0: { scale: x }, pre_norm: { weight: x } },
      embedding: x,
      enormous: x,
    };
    expect(optim.decayMask(params)).toEqual({
      layers: {
        attention: { kernel: true, bias: false },
        RMSNorm_0: { scale: false },
        pre_norm: { weight: false },
      },
      embedding: true,
      enormous: true,
    });
  });

  test("may be a prefix of the tree, and keep state only for what they choose", async () => {
    const transformation = optim.masked(optim.trace({ decay: 0.5 }), { w: false, bias: true });
    const params = start();
    const state = transformation.init(params);
    expect(tree.leaves(state)).toHaveLength(1);
    const [updates] = transformation.update(gradsOf(0), state, params);
    expectClose(await numbersOf(updates), [1, -3, 0.1, -0.2, 0.3, 0.05]);
    expect(() => optim.masked(optim.identity(), { w: 1, bias: true }).init(params)).toThrow(
      "the mask of leaf 1 is 1, not true or false",
    );
  });
});

describe("on sharded trees", () => {
  const mesh = Mesh.create({ fsdp: 2, model: 2 });
  const specs = {
    kernel: P("fsdp", "model"),
    bias: P("model"),
    norm: P(),
    stacked: P(null, ["fsdp", "model"]),
  };
  const shardings = tree.map((spec: PartitionSpec) => new NamedSharding(mesh, spec), specs);
  const valuesOf = (seed: number) => {
    const normal = (i: number, shape: readonly number[]) =>
      random.normal(random.foldIn(random.key(seed), i), shape);
    return {
      kernel: normal(0, [4, 6]),
      bias: normal(1, [6]),
      norm: normal(2, [3]),
      stacked: normal(3, [3, 8]),
    };
  };
  const rules: readonly (readonly [string, optim.GradientTransformation])[] = [
    ["sgd", optim.sgd({ learningRate: 0.1 })],
    ["momentum", optim.momentum({ learningRate: 0.1 })],
    ["adam", optim.adam({ learningRate: 0.01 })],
    ["adamw", optim.adamw({ learningRate: schedule, weightDecay: 0.1, mask: optim.decayMask })],
    ["lion", optim.lion({ learningRate: 0.01 })],
    ["several calls", optim.multiSteps(optim.adam({ learningRate: 0.01 }), 2)],
    ["master weights", optim.masterWeights(optim.adam({ learningRate: 0.01 }))],
  ];

  test.each(rules)("%s, with clipping, does what it does on whole ones", async (_name, rule) => {
    const optimizer: optim.GradientTransformation = optim.chain(optim.clipByGlobalNorm(0.5), rule);
    type Values = ReturnType<typeof valuesOf>;
    const step = (params: Values, state: unknown, grads: Values) => {
      const [updates, next] = optimizer.update(grads, state, params);
      return [optim.applyUpdates(params, updates), next, optim.globalNorm(grads)] as const;
    };
    const sharded = jit(step, { mesh, inShardings: [shardings, null, shardings] });
    let whole: Values = valuesOf(0);
    let split = await devicePut(whole, shardings);
    let [wholeState, splitState] = [optimizer.init(whole), optimizer.init(split)];
    for (let i = 1; i <= 3; i++) {
      const grads = valuesOf(i);
      const [a, aState, aNorm] = jit(step)(whole, wholeState, grads);
      const [b, bState, bNorm] = sharded(split, splitState, await devicePut(grads, shardings));
      expect(await bNorm.item()).toBeCloseTo(await aNorm.item(), 5);
      [whole, wholeState, split, splitState] = [a, aState, b, bState];
    }
    const { sharding } = split.kernel;
    expect(sharding).toMatchObject({ spec: P("fsdp", "model") });
    expectClose(await numbersOf(split), await numbersOf(whole), 1e-6);
  });
});

describe("globalNorm", () => {
  // What optax.global_norm answers, with jax_enable_x64.
  const cases: readonly (readonly [name: string, dtypes: readonly DType[], result: DType, norm: number])[] = [
    ["float32", ["float32"], "float32", Math.fround(Math.sqrt(14))],
    ["float64", ["float64"], "float64", Math.sqrt(14)],
    ["float64 beside float32", ["float64", "float32"], "float64", Math.sqrt(28)],
    ["bfloat16", ["bfloat16"], "bfloat16", 3.734375],
    ["both 16-bit floats", ["float16", "bfloat16"], "float32", Math.fround(Math.sqrt(28))],
    ["integers", ["int32"], "float32", Math.fround(Math.sqrt(14))],
    ["complex64", ["complex64"], "float32", Math.fround(Math.sqrt(14))],
    ["complex128", ["complex128"], "float64", Math.sqrt(14)],
  ];

  test.each(cases)("of %s has the type that optax gives it", async (_name, dtypes, result, expected) => {
    const norm = optim.globalNorm(dtypes.map((dtype) => np.array([1, 2, 3]).astype(dtype)));
    expect(norm.dtype).toBe(result);
    // An ulp or two of the type.
    const [value, ulp] = [await norm.item(), result === "float64" ? 2 ** -50 : 2 ** -22];
    expect(Math.abs(value - expected)).toBeLessThanOrEqual(2 * ulp);
  });

  test("adds up the squares of imaginary parts", async () => {
    const norm = optim.globalNorm([lax.complex(np.array([1, 2]), np.array([2, -4]))]);
    expect(await norm.item()).toBe(5);
  });

  test("of nothing is 0", async () => {
    expect(await optim.globalNorm({}).item()).toBe(0);
  });

  test("clips float64 to as many digits", async () => {
    const grads = np.array([3, 4]).astype("float64");
    const [clipped] = optim.clipByGlobalNorm(0.1).update([grads], []);
    const [first = 0] = await numbersOf(clipped);
    expect(Math.abs(first - 0.06)).toBeLessThanOrEqual(2 ** -55);
  });
});

describe("clipByGlobalNorm across shards", () => {
  const mesh = Mesh.create({ data: 2, model: 2 });
  const whole = np.array([
    [3, -4, 1, 2],
    [0.5, 6, -7, 8],
  ]);
  const shared = np.array([2, -1]);
  const clip = (grads: unknown) => optim.clipByGlobalNorm(1).update(grads, [])[0];

  test("counts blocks over exactly the axes that split them", async () => {
    const expected = await numbersOf(clip({ shared, whole }));
    const local = shardMap(
      (a: Tensor, b: Tensor) => {
        const result = clip({ shared: b, whole: new Partitioned(a, ["data", "model"]) });
        return tree.leaves(result) as Tensor[];
      },
      { mesh, inSpecs: [P("data", "model"), P()], outSpecs: [P(), P("data", "model")] },
    );
    expectClose(await numbersOf(local(whole, shared)), expected, 1e-6);
  });

  test("treats several axes on one dim as one split", async () => {
    const expected = await (optim.globalNorm(whole) as Tensor).item();
    const norm = shardMap((a: Tensor) => optim.globalNorm([new Partitioned(a, [null, ["data", "model"]])]), {
      mesh,
      inSpecs: P(null, ["data", "model"]),
      outSpecs: P(),
    });
    expect(await norm(whole).item()).toBeCloseTo(expected, 5);
  });

  test("needs nothing in the global view", async () => {
    const expected = await numbersOf(clip({ shared, whole }));
    const global = jit(
      (a: Tensor, b: Tensor) => clip({ shared: b, whole: new Partitioned(a, ["data", "model"]) }),
      {
        mesh,
        inShardings: [P("data", "model"), P()],
      },
    );
    expectClose(await numbersOf(global(whole, shared)), expected, 1e-6);
  });

  test("leaves axes to the partitioner that the shard map does not handle", async () => {
    const expected = await (optim.globalNorm(whole) as Tensor).item();
    const norm = shardMap((a: Tensor) => optim.globalNorm([new Partitioned(a, ["data", "model"])]), {
      mesh,
      inSpecs: P("data"),
      outSpecs: P(),
      axisNames: ["data"],
    });
    expect(await jit(norm)(whole).item()).toBeCloseTo(expected, 5);
  });
});

describe("parameters of narrow types", () => {
  test("have norms that do not wrap around, as in optax", async () => {
    const step = optim.scaleByParamBlockNorm();
    const params = { w: np.array([200, 21], "uint8") };
    const [updates] = step.update({ w: np.array([1, 2], "uint8") }, step.init(params), params);
    expectClose((await updates.w.js()) as number[], [201.09947, 402.19894], 1e-3);
  });

  test("may be bools", async () => {
    const params = { w: np.array([true, false, true, true]) };
    const optimizers: readonly optim.GradientTransformation[] = [
      optim.scaleByParamBlockRms(),
      optim.adaptiveGradClip(0.5),
      optim.adafactor({ learningRate: 0.1 }),
    ];
    const wanted = [0.8660254, 0.5, -0.08660254];
    for (const [i, optimizer] of optimizers.entries()) {
      const [updates] = optimizer.update(params, optimizer.init(params), params);
      const size = wanted[i] ?? Number.NaN;
      expectClose((await updates.w.js()) as number[], [size, 0, size, size]);
    }
  });
});

describe("complex parameters", () => {
  // Three steps on w with gradients 0.3 w + g, by optax.
  test.each([
    ["adam", optim.adam({ learningRate: 0.1 }), [0.8480688, 0.7582829, -0.4968505, 1.774106]],
    ["rmsprop", optim.rmsprop({ learningRate: 0.1 }), [0.6394886, 1.1128694, -0.7659453, 1.4653087]],
    ["yogi", optim.yogi({ learningRate: 0.1 }), [0.8483111, 0.7578685, -0.4965153, 1.7744926]],
    ["adabelief", optim.adabelief({ learningRate: 0.1 }), [0.8225897, 0.8015975, -0.5298541, 1.7362329]],
    ["novograd", optim.novograd({ learningRate: 0.1 }), [0.7937785, 0.8505766, -0.5515903, 1.7112899]],
    ["adadelta", optim.adadelta({ learningRate: 0.1 }), [0.9990293, 0.5000001, -0.3009707, 2]],
    ["adan", optim.adan({ learningRate: 0.1 }), [0.8479391, 0.7585034, -0.497029, 1.7739012]],
    ["adagrad", optim.adagrad({ learningRate: 0.1 }), [0.8892376, 0.688296, -0.4428323, 1.836094]],
    ["clipByBlockRms", optim.clipByBlockRms(0.3), [1.4698476, -0.2987406, 0.2732138, 2.6577864]],
    ["adaptiveGradClip", optim.adaptiveGradClip(0.3), [1.9095032, -1.0461556, 0.8095939, 3.2733045]],
  ] as const)("are divided by the sizes of their gradients: %s", async (_, optimizer, wanted) => {
    const g = lax.complex(np.array([0.2, 0.7]), np.array([-1, 0.1]));
    let params = lax.complex(np.array([1, -0.3]), np.array([0.5, 2]));
    let state = optimizer.init(params);
    for (let step = 0; step < 3; step++) {
      const [updates, next] = optimizer.update(params.mul(0.3).add(g), state as never, params);
      [params, state] = [optim.applyUpdates(params, updates), next];
    }
    const found = np.stack([np.real(params), np.imag(params)], 1);
    expect(await np.allclose(np.ravel(found), np.array([...wanted]), { atol: 2e-5 }).item()).toBe(1);
  });
});

test("incrementalUpdate of integers is a float, as in optax", async () => {
  const [fresh, old] = [np.array([4, 1], "uint8"), np.array([1, 3], "uint8")];
  const updated = optim.incrementalUpdate(fresh, old, 0.3);
  expect(updated.dtype).toBe("float32");
  expect(await np.allclose(updated, np.array([1.9, 2.4])).item()).toBe(1);
});
