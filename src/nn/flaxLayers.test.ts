/** Layers and lifted transforms compared with Flax's, which `test/jax/layers.py` wrote: variables, results, gradients. */
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { grad, jit, lax, Mesh, np, P, random, shardMap, Tensor, tree } from "../index.js";
import * as nn from "./index.js";

interface Values {
  readonly shape: readonly number[];
  readonly data: readonly number[];
}
type Tree = Readonly<Record<string, Values>>;
interface Expected {
  readonly variables: Tree;
  readonly results: readonly Values[];
  readonly updates: Tree;
  readonly grads: Tree | null;
}

const golden: Readonly<Record<string, Expected>> = JSON.parse(
  readFileSync(new URL("../../test/jax/layers.json", import.meta.url), "utf8"),
);

const waves = (fn: (x: Tensor) => Tensor, step: number, shape: readonly number[]) =>
  fn(
    np
      .arange(
        shape.reduce((n, m) => n * m, 1),
        "float32",
      )
      .mul(step),
  ).reshape(shape);
const rows = waves(np.sin, 0.7, [4, 3]).mul(2);
const images = waves(np.sin, 0.37, [2, 5, 4, 3]);
const sequences = waves(np.cos, 0.53, [2, 5, 3]);
const films = waves(np.cos, 0.71, [2, 3, 4, 2]);
const seqLengths = np.array(new Int32Array([3, 5]));
const mask = np.array([[true], [true], [false], [true]]);
const init = nn.initializers.normal(1);
const norm = { biasInit: init, scaleInit: init };

interface Case {
  readonly x: Tensor;
  init(x: Tensor): nn.Variables;
  /** The result, and the collections that changed. */
  apply(variables: nn.Variables, x: Tensor): readonly [result: unknown, updates: nn.Variables];
}

const key = random.key(1);

/** A layer, called with an input and further arguments. */
function layer<A extends readonly unknown[]>(
  one: nn.ModuleInstance<(x: Tensor, ...args: A) => unknown>,
  x: Tensor,
  ...args: A
): Case {
  return {
    x,
    init: (input) => one.init(key, input, ...args),
    apply: (variables, input) => [one.apply(variables, input, ...args), {}],
  };
}

/** A layer that changes collections while it is called. */
function changing<A extends readonly unknown[]>(
  mutable: readonly string[],
  one: nn.ModuleInstance<(x: Tensor, ...args: A) => unknown>,
  x: Tensor,
  ...args: A
): Case {
  return {
    x,
    init: (input) => one.init(key, input, ...args),
    apply: (variables, input) => one.with({ mutable }).apply(variables, input, ...args),
  };
}

const Spectral = nn.module("Inside", () => (x: Tensor) => {
  const hidden = nn.Dense({ features: 3 })(x);
  const layerInstance = nn.Dense({ features: 4 });
  return nn.SpectralNorm({ layerInstance, nSteps: 3 })({ updateStats: false }, hidden);
});

const Weighted = nn.module("Inside", () => (x: Tensor) => {
  const hidden = nn.Dense({ features: 3 })(x);
  const layerInstance = nn.Dense({ features: 4 });
  return nn.WeightNorm({ layerInstance, variableFilter: null, featureAxes: null })(hidden);
});

const Recurrent = nn.module("Recurrent", () => (x: Tensor) => {
  const hidden = nn.RNN({ cell: nn.LSTMCell({ features: 4 }) })(x);
  return nn.RNN({ cell: nn.GRUCell({ features: 2 }), reverse: true, name: "back" })(hidden);
});

const Chosen = nn.module("Chosen", () => (x: Tensor) => {
  const [one, two] = [nn.Dense({ features: 3, name: "one" }), nn.Dense({ features: 3, name: "two" })];
  if (nn.isInitializing()) [one(x), two(x)];
  const y = nn.cond(
    np.sum(x).gt(0),
    (input: Tensor) => one(input),
    (input) => two(input),
    x,
  );
  return nn.switch(
    np.array(2, "int32"),
    [(input: Tensor) => input, (input) => one(input), (input) => two(input).mul(2)],
    y,
  );
});

const Looped = nn.module("Looped", () => (x: Tensor) => {
  const dense = nn.Dense({ features: 3 });
  nn.variable("state", "count", () => np.zeros([]));
  if (nn.isInitializing()) dense(x);
  const body = ([i, h]: readonly [Tensor, Tensor]): readonly [Tensor, Tensor] => {
    const count = nn.getVariable("state", "count");
    if (count instanceof Tensor) nn.putVariable("state", "count", count.add(1));
    return [i.add(1), np.tanh(dense(h))];
  };
  const start = [np.array(0, "int32"), x] as const;
  return nn.whileLoop(([i]) => i.lt(3), body, start, { carryVariables: "state" })[1];
});

const Derived = nn.module("Derived", () => (x: Tensor) => {
  const dense = nn.Dense({ features: 1 });
  const [value, [gradient]] = nn.valueAndGrad((input: Tensor) => np.sum(np.sin(dense(input))), [x]);
  const curve = (input: Tensor) => np.tanh(dense(input));
  const [y, pullback] = nn.vjp(curve, [x]);
  const [{ params = {} }, dx] = pullback(np.onesLike(y).mul(2));
  const ones = tree.map((leaf: Tensor) => np.onesLike(leaf), nn.getVariable("params", "Dense_0"));
  const [out, tangent] = nn.jvp(curve, [x], [x.mul(0.5)], { params: { Dense_0: ones } });
  const kernel = tree.flattenWithPath(params).find(({ path }) => path.endsWith("kernel"))?.leaf;
  return [value, gradient, kernel ?? dx, dx, out, tangent];
});

const OwnRule = nn.module("OwnRule", () => (x: Tensor) => {
  const dense = nn.Dense({ features: 2 });
  const call = (input: Tensor) => dense(input);
  const signed = nn.customVjp(call, {
    forward: (input: Tensor) => {
      const y = call(input);
      const [, kernel] = tree.leaves(nn.getVariable("params", "Dense_0")) as Tensor[];
      return [y, [input, kernel ?? input]] as const;
    },
    backward: ([input, kernel], ct: Tensor) => {
      const dense = {
        bias: np.sign(np.sum(ct, 0)),
        kernel: np.sign(np.matmul(np.transpose(input), ct)),
      };
      return [{ params: { Dense_0: dense } }, np.matmul(ct, np.transpose(kernel)).mul(3)];
    },
  });
  return signed(x);
});

const Pair = nn.module("Pair", () => (x: Tensor) => {
  const hidden = nn.Dense({ features: 3 })(x);
  return nn
    .Dense({ features: 2 })(hidden)
    .add(nn.param("shift", init, [2]));
});

const Compiled = nn.module("Compiled", () => (x: Tensor) => {
  const first = nn.jit(nn.Dense)({ features: 4 })(x);
  const second = nn
    .Dense({ features: 3 })(first)
    .mul(nn.param("first", init, [3]));
  const pair = nn.jit(Pair)();
  const joined = np.sum(pair(second), -1, { keepdims: true }).add(second);
  return pair(np.tanh(joined)).mul(nn.param("second", init, [2]));
});

const pooling = (run: (x: Tensor) => Tensor): Case => ({
  x: images,
  init: () => ({}),
  apply: (_, x) => [run(x), {}],
});

const stats = ["batch_stats"];
const train = { useRunningAverage: false };
const gru = (features: number) => nn.RNN({ cell: nn.GRUCell({ features }) });
const spectral = nn.SpectralNorm({ layerInstance: nn.Dense({ features: 4 }) });
const update = { updateStats: true };

const cases: Readonly<Record<string, Case>> = {
  BatchNorm: changing(stats, nn.BatchNorm({ momentum: 0.9, ...norm }), rows, train),
  "BatchNorm axis": changing(
    stats,
    nn.BatchNorm({ axis: [1, -1], useFastVariance: false, ...norm }),
    images,
    train,
  ),
  "BatchNorm mask": changing(stats, nn.BatchNorm({ useScale: false }), rows, { ...train, mask }),
  "BatchNorm evaluated": layer(nn.BatchNorm({ useRunningAverage: true, ...norm }), rows),
  InstanceNorm: layer(nn.InstanceNorm(norm), images),
  PReLU: layer(nn.PReLU({ negativeSlopeInit: 0.3 }), rows),
  WeightNorm: layer(nn.WeightNorm({ layerInstance: nn.Dense({ features: 4 }), scaleInit: init }), rows),
  "WeightNorm inside": layer(Weighted(), rows),
  SpectralNorm: {
    x: rows,
    init: (x) => spectral.init(key, update, x),
    apply: (variables, x) => spectral.with({ mutable: stats }).apply(variables, update, x),
  },
  "SpectralNorm inside": changing(stats, Spectral(), rows),
  LSTMCell: layer(nn.RNN({ cell: nn.LSTMCell({ features: 4 }), returnCarry: true }), sequences),
  OptimizedLSTMCell: layer(nn.RNN({ cell: nn.OptimizedLSTMCell({ features: 4 }) }), sequences),
  GRUCell: layer(gru(4), sequences),
  MGUCell: layer(nn.RNN({ cell: nn.MGUCell({ features: 4 }) }), sequences),
  "MGUCell plain": layer(nn.RNN({ cell: nn.MGUCell({ features: 4, resetGate: false }) }), sequences),
  SimpleCell: layer(nn.RNN({ cell: nn.SimpleCell({ features: 4, residual: true }) }), sequences),
  ConvLSTMCell: layer(nn.RNN({ cell: nn.ConvLSTMCell({ features: 3, kernelSize: [3] }) }), films),
  "RNN lengths": layer(
    nn.RNN({ cell: nn.LSTMCell({ features: 2 }), returnCarry: true, reverse: true }),
    sequences,
    { seqLengths },
  ),
  "RNN kept order": layer(
    nn.RNN({ cell: nn.GRUCell({ features: 2 }), reverse: true, keepOrder: true }),
    sequences,
    { seqLengths },
  ),
  "RNN time major": layer(nn.RNN({ cell: nn.SimpleCell({ features: 2 }), timeMajor: true }), sequences),
  "RNN carry": layer(gru(2), sequences, { initialCarry: np.ones([2, 2]) }),
  "RNN inside": layer(Recurrent(), sequences),
  Bidirectional: layer(nn.Bidirectional({ forwardRnn: gru(2), backwardRnn: gru(3) }), sequences, {
    seqLengths,
  }),
  "Bidirectional carry": layer(
    nn.Bidirectional({ forwardRnn: gru(2), backwardRnn: gru(2), returnCarry: true, mergeFn: np.multiply }),
    sequences,
  ),
  ConvTranspose: layer(nn.ConvTranspose({ features: 4, kernelSize: [3, 2], strides: [2, 3] }), images),
  "ConvTranspose VALID": layer(
    nn.ConvTranspose({
      features: 2,
      kernelSize: [3, 3],
      strides: [2, 1],
      padding: "VALID",
      kernelDilation: [2, 1],
      transposeKernel: true,
    }),
    images,
  ),
  "ConvTranspose CIRCULAR": layer(
    nn.ConvTranspose({ features: 2, kernelSize: [4, 3], strides: [2, 2], padding: "CIRCULAR" }),
    images,
  ),
  "ConvTranspose pairs": layer(
    nn.ConvTranspose({ features: 2, kernelSize: [3], strides: [2], padding: [[1, 2]] }),
    films,
  ),
  ConvLocal: layer(
    nn.ConvLocal({ features: 2, kernelSize: [2, 3], strides: [2, 1], biasInit: init }),
    images,
  ),
  "ConvLocal CAUSAL": layer(nn.ConvLocal({ features: 2, kernelSize: 2, padding: "CAUSAL" }), sequences),
  maxPool: pooling((x) => nn.maxPool(x, [2, 2], { strides: [2, 2] })),
  "maxPool SAME": pooling((x) => nn.maxPool(x, [3, 2], { padding: "SAME" })),
  minPool: pooling((x) =>
    nn.minPool(x, [2, 3], {
      strides: [1, 2],
      padding: [
        [1, 0],
        [0, 2],
      ],
    }),
  ),
  avgPool: pooling((x) => nn.avgPool(x, [2, 2], { strides: [2, 2], padding: "SAME" })),
  "avgPool inside": pooling((x) =>
    nn.avgPool(x, [3, 3], { strides: [2, 1], padding: "SAME", countIncludePad: false }),
  ),
  pool: pooling((x) => nn.pool(x.get(0), 1, lax.mul, [2, 2], { strides: [1, 2] })),
  "cond and switch": layer(Chosen(), rows),
  while: changing(["state"], Looped(), rows),
  derivatives: layer(Derived(), rows),
  customVjp: layer(OwnRule(), rows),
  jit: layer(nn.jit(nn.Dense)({ features: 4 }), rows),
  "jit inside": layer(Compiled(), rows),
  DenseGeneral: layer(nn.DenseGeneral({ features: 4, axis: [2, 1], biasInit: init }), sequences),
  "DenseGeneral batch": layer(
    nn.DenseGeneral({ features: [2, 3], axis: [-1, 2], batchDims: [1, 0] }),
    images,
  ),
  "WeightNorm no filter": layer(
    nn.WeightNorm({ layerInstance: nn.Dense({ features: 4 }), variableFilter: [], featureAxes: -1 }),
    rows,
  ),
  "WeightNorm axes": layer(
    nn.WeightNorm({ layerInstance: nn.Dense({ features: 4 }), scaleInit: init, featureAxes: [1, 0] }),
    rows,
  ),
};

async function expectValues(got: Tensor, want: Values | undefined, what: string): Promise<void> {
  expect(got.shape, what).toEqual(want?.shape);
  const data = [...(await got.data())].map(Number);
  data.forEach((value, i) => {
    const wanted = want?.data[i] ?? Number.NaN;
    const bound = 3e-5 + 1e-4 * Math.abs(wanted);
    if (!(Math.abs(value - wanted) <= bound)) expect.fail(`${what} [${i}]: ${value}, Flax ${wanted}`);
  });
}

async function expectTree(got: unknown, want: Tree, what: string): Promise<void> {
  const entries = tree.flattenWithPath(got);
  expect(entries.map(({ path }) => path).sort(), what).toEqual(Object.keys(want).sort());
  for (const { path, leaf } of entries) await expectValues(leaf as Tensor, want[path], `${what} ${path}`);
}

/** A number that every element of the results has a share of. */
function loss(results: unknown): Tensor {
  const parts = (tree.leaves(results) as Tensor[]).map((y) =>
    np.sum(y.mul(np.cos(np.arange(y.size, "float32")).reshape(y.shape))),
  );
  return parts.reduce((total, part) => total.add(part));
}

describe("agrees with Flax", () => {
  test("all cases are there", () => {
    expect(Object.keys(cases).sort()).toEqual(Object.keys(golden).sort());
  });

  test.each(Object.entries(cases))("%s", async (name, { x, init: make, apply }) => {
    const want = golden[name];
    if (!want) throw new Error(`no case ${name}`);
    const variables = make(x);
    await expectTree(variables, want.variables, "variables");
    const run = (given: nn.Variables, input: Tensor) => {
      const [result, updates] = apply(given, input);
      const gradient =
        want.grads &&
        grad((params: nn.VariableTree, inner: Tensor) => loss(apply({ ...given, params }, inner)[0]), {
          argnums: [0, 1],
        })(given.params ?? {}, input);
      return { result, updates, gradient };
    };
    const { result, updates, gradient } = jit(run)(variables, x);
    const results = tree.leaves(result) as Tensor[];
    expect(results).toHaveLength(want.results.length);
    for (const [i, tensor] of results.entries()) await expectValues(tensor, want.results[i], `result ${i}`);
    await expectTree(updates, want.updates, "updates");
    if (gradient && want.grads) await expectTree({ ...gradient[0], x: gradient[1] }, want.grads, "gradient");
  });
});

test("a compiled layer has the results of the layer, and the shapes of its parameters", async () => {
  const compiled = nn.Sequential({ layers: [nn.jit(nn.Dense)({ features: 4 }), nn.relu] });
  const plain = nn.Sequential({ layers: [nn.Dense({ features: 4 }), nn.relu] });
  const variables = plain.init(key, rows);
  // One is compiled by itself: engines may multiply in another order and fuse other products into sums.
  const valuesOf = async (t: Tensor) => ({ shape: t.shape, data: Array.from(await t.data(), Number) });
  await expectValues(
    compiled.apply(variables, rows),
    await valuesOf(plain.apply(variables, rows)),
    "compiled",
  );
  const shapes = (given: nn.Variables) => tree.map(({ shape }: Tensor) => shape, given);
  expect(shapes(compiled.init(key, rows))).toEqual(shapes(variables));
});

test("batches that are split over devices are normalised as a whole", async () => {
  const mesh = Mesh.create({ data: 2 });
  const one = nn.BatchNorm({ axisName: "data", useRunningAverage: false });
  const whole = nn.BatchNorm({ useRunningAverage: false });
  const variables = whole.init(key, rows);
  const mutable = ["batch_stats"];
  const loss = (y: Tensor) => np.sum(y.mul(rows.get(0)));
  const step = shardMap(
    (given: nn.Variables, x: Tensor) => {
      const [y, updates] = one.with({ mutable }).apply(given, x);
      const dx = grad((input: Tensor) =>
        lax.psum(loss(one.with({ mutable }).apply(given, input)[0]), "data"),
      )(x);
      return [y, updates, dx] as const;
    },
    { mesh, inSpecs: [P(), P("data")], outSpecs: [P("data"), P(), P("data")] },
  );
  const [y, updates, dx] = step(variables, rows);
  const [wanted, wantedUpdates] = whole.with({ mutable }).apply(variables, rows);
  const wantedDx = grad((input: Tensor) => loss(whole.with({ mutable }).apply(variables, input)[0]))(rows);
  for (const [got, want] of [
    [y, wanted],
    [dx, wantedDx],
    ...(tree.leaves(updates) as Tensor[]).map(
      (leaf, i) => [leaf, tree.leaves(wantedUpdates)[i] as Tensor] as const,
    ),
  ] as const) {
    expect(await np.allclose(got, want, { atol: 1e-5 }).item()).toBe(1);
  }
  const split = jit((given: nn.Variables, x: Tensor) => whole.with({ mutable }).apply(given, x)[0], {
    mesh,
    inShardings: [P(), P("data")],
  })(variables, rows);
  expect(await np.allclose(split, wanted, { atol: 1e-5 }).item()).toBe(1);
});

test("a table tells what the parts of a model get, give and have", () => {
  const model = nn.Sequential({
    layers: [nn.Dense({ features: 8 }), nn.BatchNorm({ useRunningAverage: false }), nn.relu],
  });
  const text = nn.tabulate(model, key)(rows);
  expect(text).toContain("│ layers_0 │ Dense      │ f32[4,3] │ f32[4,8] │");
  expect(text).toContain("kernel: f32[3,8]");
  expect(text).toContain("32 (128 B)");
  expect(text).toContain("total parameters: 64 (256 B)");
  expect(nn.tabulate(model, key, { depth: 0 })(rows)).not.toContain("layers_0 ");
});

test("cells of one's own are repeated too", async () => {
  const Sum = nn.rnnCell("Sum", () => (carry: Tensor, x: Tensor) => [carry.add(x), carry.add(x)], {
    initializeCarry: () => (_key, shape) => np.zeros(shape),
  });
  const [carry, y] = nn.RNN({ cell: Sum(), returnCarry: true }).apply({}, sequences);
  expect(await np.allclose(y, np.cumsum(sequences, 1), { atol: 1e-5 }).item()).toBe(1);
  expect(carry.shape).toEqual([2, 3]);
});
