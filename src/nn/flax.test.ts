/**
 * Modules against Flax linen 0.12 on JAX: names and shapes of variables, their first elements and sums, and
 * results. Variables were made with `{ params: key(1), dropout: key(2) }`, results with `{ dropout: key(3) }`.
 */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { np, random, Tensor, tree } from "../index.js";
import * as nn from "./index.js";

type Summary = readonly [shape: number[], first: number, sum: number, names?: (string | null)[]];
interface Expected {
  readonly variables?: Readonly<Record<string, Summary>>;
  readonly updates?: Readonly<Record<string, Summary>>;
  readonly y?: readonly [shape: number[], head: number[], sum: number];
}

const expected: Readonly<Record<string, Expected>> = JSON.parse(
  readFileSync(new URL("../../test/fixtures/flaxModules.json", import.meta.url), "utf8"),
);

const x = np.divide(np.reshape(np.arange(6, "float32"), [2, 3]), 6);
const xs = np.reshape(np.sin(np.arange(40, "float32")), [2, 5, 4]);
const rngs = { params: random.key(1), dropout: random.key(2) };
const dropout = { rngs: { dropout: random.key(3) } };
const { normal } = nn.initializers;

async function expectSummary(got: unknown, want: Readonly<Record<string, Summary>>): Promise<void> {
  const entries = tree.flattenWithPath(got, nn.isBoxed);
  expect(entries.map(({ path }) => path)).toEqual(Object.keys(want));
  for (const { path, leaf } of entries) {
    const value = leaf instanceof nn.Partitioned ? leaf.value : leaf;
    if (!(value instanceof Tensor)) throw new Error(`${path} is no tensor`);
    const [shape, first, sum, names] = want[path] ?? [[], 0, 0];
    const data = Array.from(await value.data());
    expect(value.shape, path).toEqual(shape);
    expect(data[0], `first element of ${path}`).toBeCloseTo(first, 4);
    expect(
      data.reduce((a, b) => a + b, 0),
      `sum of ${path}`,
    ).toBeCloseTo(sum, 4);
    expect(leaf instanceof nn.Partitioned ? leaf.names : undefined, `names of ${path}`).toEqual(names);
  }
}

async function expectResult(y: Tensor, want: Expected["y"], digits = 4): Promise<void> {
  if (!want) throw new Error("there is no result to compare with");
  const [shape, head, sum] = want;
  const data = Array.from(await y.data());
  expect(y.shape).toEqual(shape);
  for (const [i, value] of head.entries()) expect(data[i], `element ${i}`).toBeCloseTo(value, digits);
  expect(
    data.reduce((a, b) => a + b, 0),
    "sum",
  ).toBeCloseTo(sum, digits - 1);
}

function caseOf(name: string): Expected {
  const found = expected[name];
  if (!found) throw new Error(`there is no case ${name}`);
  return found;
}

/** Checks the variables that a model makes from the seed, and its result. */
function agrees<A extends readonly unknown[]>(
  name: string,
  model: {
    init(rngs: nn.Rngs, ...args: A): nn.Variables;
    with(options: typeof dropout): { apply(variables: nn.Variables, ...args: A): Tensor };
  },
  args: A,
  digits?: number,
): void {
  test(`agrees with Flax: ${name}`, async () => {
    const { variables: want = {}, y } = caseOf(name);
    const variables = model.init(rngs, ...args);
    await expectSummary(variables, want);
    await expectResult(model.with(dropout).apply(variables, ...args), y, digits);
  });
}

const Body = nn.module("Body", () => (input: Tensor, _: null): [Tensor, Tensor] => {
  const h = nn.Dense({ features: 3, biasInit: normal(1) })(input);
  const y = nn.Dropout({ rate: 0.5, deterministic: false })(h);
  return [y, y];
});

/** Calls a module class of a body and returns its first result. */
const One = nn.module(
  "One",
  ({ Class }: { Class: typeof Body }) =>
    (input: Tensor) =>
      Class()(input, null)[0],
);

const stacked = { variableAxes: { params: 0 }, splitRngs: { params: true, dropout: true }, length: 2 };
agrees("scan", One({ Class: nn.scan(Body, stacked) }), [x]);
agrees("scanNoCheck", One({ Class: nn.scan(Body, { ...stacked, checkConstancyInvariants: false }) }), [x]);
agrees(
  "scanShared",
  One({
    Class: nn.scan(Body, {
      variableBroadcast: "params",
      splitRngs: { params: false, dropout: true },
      length: 2,
    }),
  }),
  [x],
);
agrees("remat", One({ Class: nn.remat(Body) }), [x]);
const times = (factor: number) => (variables: nn.Variables) =>
  tree.map((leaf: Tensor) => np.multiply(leaf, factor), variables);
agrees(
  "mapVariables",
  One({
    Class: nn.mapVariables(Body, "params", {
      transInFn: times(2),
      transOutFn: times(0.5),
      init: true,
      mutable: true,
    }),
  }),
  [x],
);
agrees(
  "vmapAxis1",
  One({
    Class: nn.vmap(Body, {
      inAxes: [1, null],
      outAxes: 1,
      variableAxes: { params: 1 },
      splitRngs: { params: true, dropout: true },
    }),
  }),
  [x],
);
agrees(
  "vmapShared",
  One({
    Class: nn.vmap(Body, {
      inAxes: [0, null],
      variableAxes: { params: null },
      splitRngs: { params: false, dropout: true },
    }),
  }),
  [x],
);

const Shared = nn.module("Shared", () => (input: Tensor) => {
  const dense = nn.Dense({ features: 3 });
  const drop = nn.Dropout({ rate: 0.5, deterministic: false });
  const h = drop(dense(drop(dense(input))));
  return nn.Dense({ features: 3 })(h);
});
agrees("shared", Shared(), [x]);

type Layer = nn.ModuleInstance<(input: Tensor) => Tensor>;
const Functions = nn.module("Functions", () => (input: Tensor) => {
  const layers = nn.Dense({ features: 3, name: "layers" });
  const loop = nn.scan((layer: Layer, carry: Tensor, _: null): [Tensor, null] => [layer(carry), null], {
    variableAxes: { params: 0 },
    splitRngs: { params: true },
    length: 2,
  });
  const [h] = loop(layers, input, null);
  const each = nn.vmap((layer: Layer, row: Tensor) => layer(row), {
    variableAxes: { params: 0 },
    splitRngs: { params: true },
  });
  const mapped = each(nn.Dense({ features: 3 }), h);
  return nn.Dense({ features: 3 })(mapped);
});
agrees("functions", Functions(), [x]);

const Noisy = nn.module(
  "Lay",
  () => (input: Tensor) => nn.Dropout({ rate: 0.5, deterministic: false })(nn.Dense({ features: 3 })(input)),
);
/** Variables mapped around a vmap of an adopted module, all of it in a loop of the module itself. */
const Pipe = nn.module("Pipe", ({ layers }: { layers: Layer }) => (input: Tensor) => {
  const isInit = nn.isInitializing();
  const each = (iteration: Tensor) =>
    nn.mapVariables(
      nn.vmap((layer: Layer, row: Tensor) => layer(row), {
        variableAxes: { params: 0 },
        splitRngs: { params: isInit, dropout: true },
      }),
      ["params"],
      {
        transInFn: (v) => (isInit ? v : tree.map((leaf: Tensor) => leaf.mul(iteration.add(1)), v)),
        mutable: true,
      },
    );
  if (isInit) return each(np.zeros([]))(layers, input);
  const loop = nn.scan(
    ([state, i]: [Tensor, Tensor], _: null): [[Tensor, Tensor], null] => [
      [each(i)(layers, state), i.add(1)],
      null,
    ],
    { variableBroadcast: "params", splitRngs: { params: true, dropout: true }, length: 2 },
  );
  const [[y]] = loop([input, np.zeros([])], null);
  return y;
});
agrees("pipeline", Pipe({ layers: Noisy() }), [x]);

const Count = nn.module("Cnt", () => (carry: Tensor, slice: Tensor): [Tensor, Tensor] => {
  const n = nn.variable("state", "n", () => np.zeros([]));
  if (!nn.isInitializing()) n.value = np.add(n.value, 1);
  const seen = nn.variable("hist", "h", () => np.zeros(slice.shape));
  seen.value = slice;
  const next = np.add(carry, np.multiply(slice, n.value));
  return [next, next];
});
const Carried = nn.module("Carry", () => (input: Tensor) => {
  const Loop = nn.scan(Count, {
    variableCarry: "state",
    variableAxes: { hist: 1 },
    inAxes: 1,
    outAxes: 1,
    reverse: true,
  });
  return Loop({ name: "cell" })(np.zeros([2]), input)[1];
});
test("agrees with Flax: carried variables, stacked along dim 1, backwards", async () => {
  const { updates: want = {}, y } = caseOf("carry");
  const given = { state: { cell: { n: np.zeros([]) } } };
  const [result, updates] = Carried()
    .with({ mutable: ["state", "hist"] })
    .apply(given, x);
  await expectSummary(updates, want);
  await expectResult(result, y);
});

const layers = () => [nn.Dense({ features: 4 }), nn.relu, nn.Dense({ features: 2 })] as const;
agrees("sequential", nn.Sequential({ layers: layers() }), [x]);
const Inside = nn.module("Inside", () => (input: Tensor) => nn.Sequential({ layers: layers() })(input));
agrees("sequentialInside", Inside(), [x]);

const Outer = nn.module(
  "Outer",
  ({ inner, many }: { inner: Layer; many: Readonly<Record<"a" | "b", Layer>> }) =>
    (input: Tensor) =>
      many.b(inner(input)),
);
const outer = Outer({
  inner: nn.Dense({ features: 2 }),
  many: { a: nn.Dense({ features: 1 }), b: nn.Dense({ features: 3 }) },
});
agrees("adopted", outer, [x]);

agrees("convSame", nn.Conv({ features: 3, kernelSize: 3 }), [xs]);
agrees("convStride", nn.Conv({ features: 2, kernelSize: [3], strides: 2, useBias: false }), [xs]);
agrees("convValid", nn.Conv({ features: 2, kernelSize: [2], padding: "VALID", kernelDilation: 2 }), [xs]);
agrees("convCausal", nn.Conv({ features: 2, kernelSize: [3], padding: "CAUSAL" }), [xs]);
agrees("convCircular", nn.Conv({ features: 2, kernelSize: [3], padding: "CIRCULAR" }), [xs]);
agrees("convGroups", nn.Conv({ features: 4, kernelSize: [2], padding: [[1, 0]], featureGroupCount: 2 }), [
  xs,
]);
agrees("conv2d", nn.Conv({ features: 2, kernelSize: [2, 3], strides: [1, 2] }), [
  np.reshape(np.sin(np.arange(24, "float32")), [1, 3, 4, 2]),
]);
agrees("groupNorm", nn.GroupNorm({ numGroups: 2, scaleInit: normal(1) }), [xs]);
agrees(
  "layerNormAxes",
  nn.LayerNorm({ reductionAxes: [1, 2], featureAxes: [1, 2], useFastVariance: false, epsilon: 1e-3 }),
  [xs],
);
agrees("denseGeneral", nn.DenseGeneral({ features: [2, 3], axis: [1, -1], biasInit: normal(1) }), [xs]);
agrees("denseGeneralBatch", nn.DenseGeneral({ features: 2, batchDims: [0], biasInit: normal(1) }), [xs]);
agrees("einsum", nn.Einsum({ shape: [4, 2, 3], subscripts: "...d,dhe->...he", biasInit: normal(1) }), [xs]);

const masked = nn.MultiHeadDotProductAttention({
  numHeads: 2,
  qkvFeatures: 6,
  outFeatures: 3,
  normalizeQk: true,
});
agrees("attentionMask", masked, [xs, { mask: nn.makeCausalMask(np.zeros([2, 5])) }]);
agrees("attentionCross", nn.MultiHeadDotProductAttention({ numHeads: 2 }), [
  xs.get(np.s(), np.s(0, 2)),
  xs,
  np.multiply(xs, 2),
]);
agrees("attentionDropout", nn.MultiHeadAttention({ numHeads: 2, dropoutRate: 0.5, deterministic: false }), [
  xs,
]);

test("agrees with Flax: decoding with a cache, which is causal attention position by position", async () => {
  const { variables: want = {}, y } = caseOf("decode");
  const decoder = nn.MultiHeadDotProductAttention({ numHeads: 2, decode: true });
  const variables = decoder.init(random.key(1), xs);
  await expectSummary(variables, want);
  let cache: nn.Variables = variables;
  const rows: Tensor[] = [];
  for (let i = 0; i < 5; i++) {
    const [row, updates] = decoder
      .with({ mutable: ["cache"] })
      .apply({ ...variables, ...cache }, np.expandDims(np.take(xs, i, 1), 1));
    rows.push(row);
    cache = updates;
  }
  const decoded = np.concatenate(rows, 1);
  await expectResult(decoded, y);
  const whole = nn.MultiHeadDotProductAttention({ numHeads: 2 });
  const causal = whole.apply(variables, xs, { mask: nn.makeCausalMask(np.zeros([2, 5])) });
  expect(await np.max(np.abs(np.subtract(decoded, causal))).item()).toBeLessThan(1e-5);
});

const Narrow = nn.module("Narrow", () => (input: Tensor) => {
  const h = nn.Dense({ features: 4, dtype: "bfloat16" })(input);
  const y = nn.LayerNorm({ dtype: "bfloat16" })(h);
  expect([h.dtype, y.dtype]).toEqual(["bfloat16", "bfloat16"]);
  return np.astype(y, "float32");
});
agrees("bfloat16", Narrow(), [x], 1);

const kernelInit = nn.withPartitioning(nn.initializers.lecunNormal(), [null, "model"]);
const Part = nn.module("PB", () => (input: Tensor, _: null): [Tensor, null] => [
  nn.Dense({ features: 3, kernelInit })(input),
  null,
]);
const Parts = nn.module("PS", () => (input: Tensor) => {
  const params = { variableAxes: { params: 0 }, splitRngs: { params: true } };
  const Loop = nn.scan(Part, { ...params, length: 2, metadataParams: { partitionName: "layers" } });
  const [h] = Loop()(input, null);
  const Each = nn.vmap(Part, {
    ...params,
    variableAxes: { params: 1 },
    inAxes: [0, null],
    metadataParams: { partitionName: "experts" },
  });
  return Each()(h, null)[0];
});
agrees("partitioned", Parts(), [x]);

const Captured = nn.module("Cap", () => (input: Tensor) => {
  nn.sow("intermediates", "x", input);
  const dense = nn.Dense({ features: 2 });
  return dense(np.repeat(np.take(dense(input), [0], 1), 3, 1));
});
test("agrees with Flax: captured intermediates", async () => {
  const variables = Captured().init(random.key(1), x);
  const [, updates] = Captured().with({ captureIntermediates: true }).apply(variables, x);
  await expectSummary(updates, caseOf("capture").updates ?? {});
});
