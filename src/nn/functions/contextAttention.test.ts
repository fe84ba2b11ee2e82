/**
 * Attention over a split sequence equals that of one device, with all gradients. `npm run test:meshes` takes every mesh
 * of eight devices with every choice.
 */
import { describe, expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import { compileProgram } from "../../compiler/compile.js";
import {
  grad,
  jit,
  Mesh,
  makeProgram,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  simplify,
  type Tensor,
  tree,
  valueAndGrad,
  withMesh,
  withShardingConstraint,
} from "../../index.js";
import { CostReport } from "../../spmd/inspect/cost.js";
import { partition } from "../../spmd/partition/partition.js";
import * as nn from "../index.js";

const everything = process.env.SHARDWISE_ALL_MESHES === "1";

interface Case {
  readonly options: nn.ContextAttentionOptions;
  readonly length?: number;
  readonly heads?: readonly [heads: number, keyHeads: number];
  readonly sinks?: boolean;
  readonly segments?: boolean;
  /** Sizes of a bias and a mask that are 1. */
  readonly bias?: readonly number[];
  readonly mask?: readonly number[];
  readonly dropout?: boolean;
}

const cases: Readonly<Record<string, Case>> = {
  "all tokens": { options: {} },
  causal: { options: { causal: true } },
  "a causal window of three tokens": { options: { causal: true, window: [3, null] } },
  "a causal window longer than a part": { options: { causal: true, window: [7, 0] } },
  "a window on both sides": { options: { window: [2, 5] } },
  segments: { options: { causal: true }, segments: true },
  "a soft cap, a scale and sinks": { options: { causal: true, softcap: 2, scale: 0.7 }, sinks: true },
  "zigzag, all tokens": { options: { placement: "zigzag" } },
  "zigzag, causal": { options: { causal: true, placement: "zigzag" } },
  "zigzag, a causal window and segments": {
    options: { causal: true, placement: "zigzag", window: [6, null] },
    segments: true,
  },
  "zigzag, sinks": { options: { causal: true, placement: "zigzag" }, sinks: true },
  "a bias of every pair and head": { options: { causal: true }, bias: [] },
  "a bias of keys alone": { options: {}, bias: [0, 1, 2] },
  "a bias of queries alone and a mask": { options: { softcap: 3 }, bias: [3], mask: [0] },
  "a mask of pairs and segments": { options: { causal: true }, mask: [0, 1], segments: true },
  dropout: { options: { causal: true, dropoutRate: 0.3 }, dropout: true },
  "zigzag, a bias, a mask of keys and dropout": {
    options: { causal: true, placement: "zigzag", dropoutRate: 0.3 },
    bias: [1],
    mask: [1, 2],
    dropout: true,
  },
  "zigzag, a bias of queries alone and a window": {
    options: { causal: true, placement: "zigzag", window: [9, null] },
    bias: [0, 3],
  },
};
const ways = ["ring", "allToAll", "gather"] as const;
const meshes: readonly Record<string, number>[] = [
  { context: 1 },
  { context: 2 },
  { context: 4 },
  { context: 8 },
  { context: 2, model: 2 },
  { data: 2, context: 2, model: 2 },
  { fsdp: 2, context: 4 },
  { data: 2, fsdp: 2, context: 2 },
  { context: 4, model: 2 },
];

const draw = (seed: number, shape: readonly number[]) => random.normal(random.key(seed), [...shape]);

/** What is differentiated by. */
interface Given {
  readonly q: Tensor;
  readonly k: Tensor;
  readonly v: Tensor;
  readonly sinks?: Tensor;
  readonly bias?: Tensor;
}

const pairShape = ({ length = 16, heads: [heads] = [8, 8] }: Case, ones: readonly number[]) =>
  [4, heads, length, length].map((n, d) => (ones.includes(d) ? 1 : n));

/** Operands of 4 rows. */
function operandsOf(one: Case): Given {
  const { length = 16, heads: [heads, keyHeads] = [8, 8], sinks, bias } = one;
  const keys = [4, length, keyHeads, 4];
  return {
    q: draw(1, [4, length, heads, 4]),
    k: draw(2, keys),
    v: draw(3, keys),
    ...(sinks && { sinks: draw(4, [heads]) }),
    ...(bias && { bias: draw(5, pairShape(one, bias)) }),
  };
}

const maskOf = (one: Case, ones: readonly number[]) =>
  random.bernoulli(random.key(6), 0.7, pairShape(one, ones));

const segmentsOf = (length: number) =>
  np.floorDivide(np.arange(4 * length).reshape([4, length]), 5).astype("int32");

/** A loss of both results. */
function lossOf({ output, logSumExp }: nn.AttentionResult): Tensor {
  return np.sum(np.sin(output)).add(np.sum(np.cos(logSumExp)));
}

/** The options of a case that are tensors, with those of the sequence placed. */
function tensorOptions(one: Case, { sinks, bias }: Given, place: (x: Tensor, dim?: number) => Tensor) {
  const pairs = (x: Tensor) => {
    const rows = x.shape[2] === 1 ? x : place(x, 2);
    return rows.shape[3] === 1 ? rows : place(rows, 3);
  };
  return {
    ...(sinks && { sinks }),
    ...(bias && { bias: pairs(bias) }),
    ...(one.mask && { mask: pairs(maskOf(one, one.mask)) }),
    ...(one.segments && { segmentIds: place(segmentsOf(one.length ?? 16)) }),
    ...(one.dropout && { dropoutKey: random.key(7) }),
  };
}

function alone(one: Case, place: (given: Given) => Given = (given) => given) {
  const {
    placement: _,
    context: __,
    axis: ___,
    positions: ____,
    batchAxes: _____,
    modelAxis: ______,
    ...options
  } = one.options;
  const loss = (operands: Given) => {
    const given = place(operands);
    return lossOf(
      nn.attention(given.q, given.k, given.v, { ...options, ...tensorOptions(one, given, (x) => x) }),
    );
  };
  return valueAndGrad(loss)(operandsOf(one));
}

/** The same in the global view; the sequence is placed and both results are brought back in order. */
function split(one: Case, context: nn.ContextParallelism, sizes: Readonly<Record<string, number>>) {
  const mesh = Mesh.create(sizes);
  const size = sizes.context ?? 1;
  const place = (x: Tensor, dim = 1) => (one.options.placement === "zigzag" ? nn.zigzag(x, size, dim) : x);
  const loss = (given: Given) => {
    const result = nn.contextAttention(place(given.q), place(given.k), place(given.v), {
      ...one.options,
      context,
      ...tensorOptions(one, given, place),
    });
    return lossOf(result);
  };
  return withMesh(mesh, () => jit(() => valueAndGrad(loss)(operandsOf(one)), { mesh })());
}

/** Plain attention of tensors that are split along the sequence: the partitioner gathers keys and values. */
function partitioned(one: Case, sizes: Readonly<Record<string, number>>) {
  const mesh = Mesh.create(sizes);
  const part = (x: Tensor) => withShardingConstraint(x, P(null, "context"));
  return withMesh(mesh, () =>
    jit(() => alone(one, ({ q, k, v, ...rest }) => ({ q: part(q), k: part(k), v: part(v), ...rest })), {
      mesh,
    })(),
  );
}

const names = Object.keys(cases);
const tried = meshes.flatMap((mesh, m) =>
  ways.flatMap((way, w) =>
    names
      .filter((_, c) => everything || (c + 7 * w + 5 * m) % 16 === 0)
      .map((name) => [name, way, mesh] as const),
  ),
);

describe("the results and gradients of one device", () => {
  test.for(tried)("%s by %s on %j", { timeout: 60_000 }, async ([name, way, mesh]) => {
    const one = cases[name] ?? { options: {} };
    await expectTreeClose(split(one, way, mesh), jit(() => alone(one))(), agreement.gradient);
  });
});

describe("split by the partitioner", () => {
  const inOrder = names.filter((name) => cases[name]?.options.placement !== "zigzag");
  const some = meshes
    .slice(1)
    .flatMap((mesh, m) =>
      inOrder.filter((_, c) => everything || (c + 5 * m) % 9 === 0).map((name) => [name, mesh] as const),
    );

  test.for(some)("%s on %j is that of one device", { timeout: 60_000 }, async ([name, mesh]) => {
    const one = cases[name] ?? { options: {} };
    await expectTreeClose(partitioned(one, mesh), jit(() => alone(one))(), agreement.gradient);
  });

  test("moves keys, values and their cotangents, and nothing of the queries", () => {
    const mesh = Mesh.create({ context: 4 });
    const spec = new NamedSharding(mesh, P(null, "context"));
    const [q, keys] = [np.zeros([1, 64, 8, 16]), np.zeros([1, 64, 2, 16])];
    const loss = (a: Tensor, b: Tensor, c: Tensor) =>
      np.sum(np.sin(nn.attention(a, b, c, { causal: true }).output));
    const fn = jit(grad(loss, { argnums: [0, 1, 2] }), { mesh, inShardings: spec, outShardings: spec });
    const cost = new CostReport(simplify(fn.lower(q, keys, keys).program));
    const bytes = 4 * keys.size;
    // A device receives, or sends, three quarters of both.
    expect(cost.bytesMoved({ op: "allGather" })).toBe(2 * (3 / 4) * bytes);
    expect(cost.bytesMoved({ op: "psumScatter" })).toBe(2 * (3 / 4) * bytes);
    expect(cost.bytesMoved({})).toBe(4 * (3 / 4) * bytes);
  });
});

describe("inside of shardMap", () => {
  const mesh = Mesh.create({ context: 4 });
  const part = P(null, "context");

  test.each(ways)(
    "%s gives a device the results of its own tokens, by positions of any order",
    async (context) => {
      const order = random.permutation(random.key(9), 16).astype("int32");
      const { q, k, v } = operandsOf({ options: {} });
      const mixed = (x: Tensor) => np.take(x, order, 1);
      const attend = shardMap(
        (a: Tensor, b: Tensor, c: Tensor, positions: Tensor) =>
          nn.contextAttention(a, b, c, { context, causal: true, window: [9, null], positions }),
        { mesh, inSpecs: [part, part, part, P("context")], outSpecs: part },
      );
      const got = attend(mixed(q), mixed(k), mixed(v), order);
      const want = nn.attention(q, k, v, { causal: true, window: [9, null] });
      await expectClose(got.output, mixed(want.output));
      await expectClose(got.logSumExp, mixed(want.logSumExp));
    },
  );

  test("knows the positions of the tokens of each device", async () => {
    const of = (placement: nn.ContextPlacement) =>
      shardMap((x: Tensor) => x.add(nn.contextPositions(4, { placement })), {
        mesh,
        inSpecs: P("context"),
        outSpecs: P("context"),
      })(np.zeros([16], { dtype: "int32" }));
    expect(await of("contiguous").js()).toEqual(await np.arange(16).js());
    expect(await of("zigzag").js()).toEqual(await nn.zigzag(np.arange(16), 4, 0).js());
  });
});

describe("at the edges", () => {
  const onFour = (one: Case, context: nn.ContextParallelism) => split(one, context, { context: 4 });

  test.each(ways)("one token on each device by %s", async (way) => {
    const one = { options: { causal: true }, length: 4 };
    await expectTreeClose(onFour(one, way), jit(() => alone(one))(), agreement.gradient);
  });

  test.each([
    ["ring", [6, 2]],
    ["gather", [6, 3]],
    ["allToAll", [8, 4]],
    ["allToAll", [8, 2]],
    ["allToAll", [4, 1]],
  ] as const)("shared key heads by %s, %j", async (way, heads) => {
    const one = { options: { causal: true }, heads };
    await expectTreeClose(onFour(one, way), jit(() => alone(one))(), agreement.gradient);
  });

  test.each(ways)("NaN of a key reaches the tokens that see it alone, by %s", async (context) => {
    const { q, k, v } = operandsOf({ options: {} });
    const bad = k.at(1, 9).set(Number.NaN);
    const mesh = Mesh.create({ context: 4 });
    const { output } = withMesh(mesh, () =>
      jit((x: Tensor) => nn.contextAttention(q, x, v, { causal: true, context }), { mesh })(bad),
    );
    const isBad = await np.any(np.isnan(output), [2, 3]).js();
    expect(isBad).toEqual(
      Array.from({ length: 4 }, (_, row) => Array.from({ length: 16 }, (__, t) => row === 1 && t >= 9)),
    );
  });

  test("bfloat16 is as near to float32 as on one device", async () => {
    const { q, k, v } = tree.map((x: Tensor) => x.astype("bfloat16"), operandsOf({ options: {} }));
    const mesh = Mesh.create({ context: 4 });
    const { output, logSumExp } = withMesh(mesh, () =>
      jit(() => nn.contextAttention(q, k, v, { causal: true }), { mesh })(),
    );
    expect([output.dtype, logSumExp.dtype]).toEqual(["bfloat16", "float32"]);
    const want = nn.attention(q, k, v, { causal: true }).output.astype("float32");
    await expectClose(output.astype("float32"), want, { rtol: 2 ** -7, atol: 2 ** -7 });
  });

  test("sizes that do not fit are named", () => {
    const x = np.ones([1, 8, 2, 4]);
    expect(() => onFour({ options: {}, length: 10 }, "ring")).toThrow(
      '[nn.contextAttention] 10 tokens do not split over axis "context" (10 / 4 = 2.5): use a multiple of 4',
    );
    expect(() => onFour({ options: { placement: "zigzag" }, length: 12 }, "ring")).toThrow(
      "[nn.zigzag] 12 tokens do not split into two chunks for each of 4 devices (12 / 8 = 1.5): use a multiple of 8",
    );
    expect(() => onFour({ options: {}, heads: [6, 2] }, "allToAll")).toThrow(
      '[nn.contextAttention] 6 heads do not split over axis "context" (6 / 4 = 1.5): use a multiple of 4 for context "allToAll", or "ring"',
    );
    expect(() => onFour({ options: {}, heads: [12, 3] }, "allToAll")).toThrow(
      '[nn.contextAttention] 3 key heads do not split over axis "context" (3 / 4 = 0.75)',
    );
    expect(() => nn.contextAttention(x, x, x, { bias: np.ones([1, 2, 8, 4]) })).toThrow(
      "[nn.contextAttention] the bias must be [1, 2, 8, 8] (batch, heads, length, tokens of all devices), where any size may be 1; got f32[1,2,8,4]",
    );
    expect(() => nn.contextAttention(x, x, x, { mask: np.ones([1, 1, 8, 8]) })).toThrow(
      '[nn.contextAttention] the mask must be bool, got f32[1,1,8,8]: convert it with astype("bool"), or pass numbers to add to the scores as bias',
    );
    expect(() => nn.contextAttention(x, x, x, { dropoutRate: 0.5 })).toThrow(
      "[nn.contextAttention] dropoutRate needs a dropoutKey",
    );
  });
});

test("keys and values travel around the ring while blocks are computed, forward and backward", () => {
  const mesh = Mesh.create({ context: 4 });
  const part = P(null, "context");
  const attend = shardMap(
    (q: Tensor, k: Tensor, v: Tensor) => nn.contextAttention(q, k, v, { causal: true }).output,
    { mesh, inSpecs: part, outSpecs: part },
  );
  const loss = (...args: readonly [Tensor, Tensor, Tensor]) => np.sum(np.sin(attend(...args)));
  const x = np.ones([1, 512, 2, 16]);
  const program = simplify(makeProgram(grad(loss, { argnums: [0, 1, 2] }))(x, x, x));
  const own = simplify(partition(program, mesh).program);
  const { steps } = compileProgram(own, { mesh, features: { fma: false } });
  // Each block is one loop over tiles of its scores.
  let [open, blocks, covered] = [0, 0, 0];
  for (const { op } of steps) {
    if (op === "start") open++;
    if (op === "done") open--;
    if (op === "loop") blocks++;
    if (op === "loop" && open > 0) covered++;
  }
  expect(blocks).toBe(4 + 4);
  expect(covered / blocks, steps.map(({ op }) => op).join(" ")).toBeGreaterThan(0.5);
});

test("zigzag gives every device an early and a late chunk, and unzigzag brings them back", async () => {
  const x = np.arange(24).reshape([2, 12]);
  expect(await nn.zigzag(x, 3).js()).toEqual([
    [0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7],
    [12, 13, 22, 23, 14, 15, 20, 21, 16, 17, 18, 19],
  ]);
  expect(await nn.unzigzag(nn.zigzag(x, 3), 3).js()).toEqual(await x.js());
});
