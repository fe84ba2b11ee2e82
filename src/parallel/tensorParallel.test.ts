import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../test/support/goldens.js";
import { forAll, normal } from "../../test/support/parallelChecks.js";
import { compileProgram } from "../compiler/compile.js";
import { simulateDevices } from "../engines/index.js";
import { jit, lax, Mesh, np, P, random, shardMap, type Tensor, valueAndGrad } from "../index.js";
import { range } from "../ir/shape.js";
import * as nn from "../nn/index.js";
import { partitionCall } from "../spmd/run/call.js";
import {
  asyncGather,
  asyncGatherBidirectional,
  asyncGatherSplit,
  asyncScatter,
  asyncScatterSplit,
  initSharded,
  ModelParallelismWrapper,
  scaleInit,
  splitArrayOverMesh,
  stackParams,
  TPAsyncDense,
  type TPAsyncDenseConfig,
  TPDense,
  type TPMode,
  unstackParams,
} from "./index.js";

const engine = simulateDevices(8);
const mod = (i: number, n: number) => ((i % n) + n) % n;
const columns = (x: Tensor, from: number, size: number) => lax.sliceInDim(x, from, from + size, 1, -1);

/** How the kernel and bias of a plain layer are spread over the devices, as the variables of the split layer. */
type Spread = (w: Tensor, b: Tensor, n: number) => nn.Variables;

const box = (parts: readonly Tensor[], names: nn.DimNames) => new nn.Partitioned(np.stack(parts), names);
const kernels = (parts: readonly Tensor[]) => box(parts, ["tp", null, null]);
const biases = (parts: readonly Tensor[]) => box(parts, ["tp", null]);

const spreads = {
  gather: (w, b, n) => ({
    params: { module: { sharded: { kernel: kernels(np.split(w, n, 1)), bias: biases(np.split(b, n)) } } },
  }),
  scatter: (w, b, n) => ({
    params: {
      module: {
        sharded: {
          kernel: kernels(np.split(w, n)),
          // The biases of all devices are added up, so one of them has it all.
          bias: biases(range(n).map((d) => (d === 0 ? b : np.zerosLike(b)))),
        },
      },
    },
  }),
} satisfies Record<string, Spread>;

/** The small layers of the asynchronous forms: `block(d, i)` is the kernel, `part(d)` the bias on device d. */
function shards(
  n: number,
  block: (d: number, i: number) => Tensor,
  part: (d: number) => Tensor,
): nn.Variables {
  const layer = (i: number) => ({
    kernel: kernels(range(n).map((d) => block(d, i))),
    ...(i === 0 ? { bias: biases(range(n).map(part)) } : {}),
  });
  return { params: Object.fromEntries(range(n).map((i) => [`shard_${i}`, { sharded: layer(i) }])) };
}

const asyncSpreads = {
  gather: (w, b, n) => {
    const rows = np.split(w, n);
    const width = (w.shape[1] ?? 0) / n;
    return shards(
      n,
      (d, i) => columns(rows[mod(d - i, n)] ?? w, d * width, width),
      (d) => np.split(b, n)[d] ?? b,
    );
  },
  scatter: (w, b, n) => {
    const rows = np.split(w, n);
    const width = (w.shape[1] ?? 0) / n;
    return shards(
      n,
      (d, i) => columns(rows[d] ?? w, mod(d + n - 1 - i, n) * width, width),
      (d) => np.split(b, n)[mod(d + n - 1, n)] ?? b,
    );
  },
  /** The first halves of the outputs travel up the ring, the second halves down. */
  scatterSplit: (w, b, n) => {
    const rows = np.split(w, n);
    const half = (w.shape[1] ?? 0) / n / 2;
    const halves = (x: Tensor, d: number, i: number, cut: (x: Tensor, from: number) => Tensor) =>
      np.concatenate(
        [cut(x, 2 * half * mod(d + n - 1 - i, n)), cut(x, 2 * half * mod(d - (n - 1 - i), n) + half)],
        -1,
      );
    return shards(
      n,
      (d, i) => halves(rows[d] ?? w, d, i, (x, from) => columns(x, from, half)),
      (d) => halves(b, d, 0, (x, from) => columns(x, from, half)),
    );
  },
} satisfies Record<string, Spread>;

type Layer = nn.ModuleInstance<(x: Tensor) => Tensor>;

/** Value and gradients of a split layer, differentiated from outside, and of the plain one. */
async function expectLikeDense(
  layer: (features: number) => Layer,
  spread: Spread,
  sizes: { n: number; batch: number; inputs: number; outputs: number; seed: number; features: number },
): Promise<void> {
  const { n, batch, inputs, outputs, seed, features } = sizes;
  const mesh = Mesh.create({ tp: n }, { engine });
  const [x, w, b] = [
    normal(seed, batch, inputs),
    normal(seed + 1, inputs, outputs),
    normal(seed + 2, outputs),
  ];
  const weights = normal(seed + 3, batch, outputs);
  const model = layer(features);
  const split = (kernel: Tensor, bias: Tensor, input: Tensor) => {
    const variables = spread(kernel, bias, n);
    const apply = shardMap((given: nn.Variables, part: Tensor) => model.apply(given, part), {
      mesh,
      inSpecs: [nn.getPartitionSpec(variables), P(null, "tp")],
      outSpecs: P(null, "tp"),
    });
    return apply(variables, input);
  };
  const plain = (kernel: Tensor, bias: Tensor, input: Tensor) => np.add(np.matmul(input, kernel), bias);
  const run = (fn: typeof plain) => {
    const loss = (...args: Parameters<typeof plain>): [Tensor, Tensor] => {
      const y = fn(...args);
      return [np.sum(np.multiply(np.tanh(y), weights)), y];
    };
    const [[, y], grads] = jit(valueAndGrad(loss, { hasAux: true, argnums: [0, 1, 2] }), { mesh })(w, b, x);
    return { y, grads };
  };
  const [actual, expected] = [run(split), run(plain)];
  await expectClose(actual.y, expected.y, { rtol: 1e-5, atol: 1e-5 });
  await expectTreeClose(actual.grads, expected.grads, agreement.gradient);
}

const sizes = {
  n: fc.constantFrom(2, 3, 4),
  batch: fc.integer({ min: 1, max: 3 }),
  in: fc.integer({ min: 1, max: 3 }),
  out: fc.integer({ min: 1, max: 3 }),
  seed: fc.nat({ max: 1000 }),
};

const denseOf =
  (features: number): TPAsyncDenseConfig["denseFn"] =>
  (config) =>
    nn.Dense({ features, ...config });

describe("a split dense layer equals the plain one in value and gradient", () => {
  test.each(["gather", "scatter"] as const)("TPDense, %s", async (tpMode) => {
    await forAll(sizes, ({ n, batch, in: i, out, seed }) =>
      expectLikeDense(
        (features) => TPDense({ denseFn: denseOf(features), modelAxisName: "tp", tpMode }),
        spreads[tpMode],
        { n, batch, inputs: n * i, outputs: n * out, seed, features: tpMode === "gather" ? out : n * out },
      ),
    );
  });

  test.each<[TPMode, Partial<TPAsyncDenseConfig>, keyof typeof asyncSpreads]>([
    ["gather", { useBidirectionalGather: false }, "gather"],
    ["gather", { useBidirectionalGather: true }, "gather"],
    ["scatter", { useBidirectionalScatter: false }, "scatter"],
    ["scatter", { useBidirectionalScatter: true }, "scatterSplit"],
  ])("TPAsyncDense, %s with %o", async (tpMode, options, spread) => {
    await forAll(sizes, ({ n, batch, in: i, out, seed }) =>
      expectLikeDense(
        (features) => TPAsyncDense({ denseFn: denseOf(features), modelAxisName: "tp", tpMode, ...options }),
        asyncSpreads[spread],
        { n, batch, inputs: n * i, outputs: 2 * n * out, seed, features: 2 * out },
      ),
    );
  });
});

describe("TPAsyncDense", () => {
  test.each<[TPMode, string]>([
    ["gather", "inputs"],
    ["scatter", "outputs"],
  ])("in mode %s sends %s while it multiplies", (tpMode) => {
    const mesh = Mesh.create({ tp: 4 }, { engine });
    const model = TPAsyncDense({ denseFn: denseOf(128), modelAxisName: "tp", tpMode });
    const x = np.zeros([512, 4 * 128]);
    const variables = shards(
      4,
      () => np.zeros([128, 128]),
      () => np.zeros([128]),
    );
    const apply = shardMap((given: nn.Variables, part: Tensor) => model.apply(given, part), {
      mesh,
      inSpecs: [nn.getPartitionSpec(variables), P(null, "tp")],
      outSpecs: P(null, "tp"),
    });
    const { program } = partitionCall(apply, [variables, x], {});
    const { steps, collectives } = compileProgram(program, { mesh });
    const place = (op: "start" | "done", collective: number) =>
      steps.findIndex((step) => step.op === op && step.collective === collective);
    const products = range(collectives.length).map((i) =>
      steps.slice(place("start", i), place("done", i)).filter(({ op }) => op === "gemm"),
    );
    expect(collectives.map(({ kind }) => kind)).toEqual(["permute", "permute", "permute"]);
    // Every hop is under way while a matrix product runs: start … gemm … done.
    expect(products.map(({ length }) => length > 0)).toEqual([true, true, true]);
  });
});

describe("ModelParallelismWrapper", () => {
  const mesh = Mesh.create({ tp: 2 }, { engine });
  const init = (config: { maskExceptModelIdx?: number; splitRngs?: boolean }) =>
    initSharded(
      ModelParallelismWrapper({
        modelAxisName: "tp",
        moduleFn: (given) => nn.Dense({ features: 2, ...given }),
        moduleKwargs: { useBias: false },
        ...config,
      }).init,
      { mesh },
    )(random.key(0), np.ones([1, 2]));
  const kernelOf = (variables: nn.Variables) => variables.params?.sharded as { kernel: nn.Partitioned };

  test("gives every device parameters of its own, and passes moduleKwargs on", async () => {
    const made = kernelOf(init({}));
    expect(Object.keys(made)).toEqual(["kernel"]);
    const [first, second] = (await made.kernel.value.js()) as number[][][];
    expect(first).not.toEqual(second);
  });

  test("gives all devices the same parameters without splitRngs", async () => {
    const [first, second] = (await kernelOf(init({ splitRngs: false })).kernel.value.js()) as number[][][];
    expect(first).toEqual(second);
  });

  test("refuses a position that is not on the axis", () => {
    expect(() => init({ maskExceptModelIdx: 2 })).toThrow(
      'maskExceptModelIdx 2 is not a position along axis "tp" of size 2: use 0 to 1',
    );
  });
});

test("scaleInit scales what is in a box too", async () => {
  const boxed = nn.withPartitioning(random.initializers.ones, [null]);
  const value = scaleInit(boxed, 0.5)(random.key(0), [2]);
  expect(value).toBeInstanceOf(nn.Partitioned);
  await expectClose(nn.unbox<Tensor>(value), [0.5, 0.5]);
});

describe("misuse", () => {
  const mesh = Mesh.create({ tp: 4 }, { engine });
  const layer = (tpMode: string) =>
    TPDense({ denseFn: denseOf(4), modelAxisName: "tp", tpMode: tpMode as TPMode });
  const asyncLayer = (tpMode: string) =>
    TPAsyncDense({ denseFn: denseOf(4), modelAxisName: "tp", tpMode: tpMode as TPMode });
  const x = np.ones([2, 3]);
  test.each<[string, () => unknown, string]>([
    [
      "odd features in a split gather",
      () => asyncGatherSplit({ h: x }, "tp"),
      '[asyncGatherSplit] the last dim of "h" [2,3] does not split into two halves (3 / 2 = 1.5): use an even number of features',
    ],
    [
      "too few parts",
      () => asyncScatter([x, x, x], "tp"),
      '[asyncScatter] got 3 parts for the 4 devices of axis "tp": give one part for each device',
    ],
    [
      "too many parts",
      () => asyncScatterSplit([x, x, x, x, x], "tp"),
      "[asyncScatterSplit] got 5 parts for the 4",
    ],
    [
      "an unknown mode",
      () => layer("column").init(random.key(0), x),
      '[nn.TPDense] tpMode must be "gather", "scatter" or "none", got "column"',
    ],
    [
      "an unknown mode of the ring",
      () => asyncLayer("ring").init(random.key(0), x),
      '[nn.TPAsyncDense] tpMode must be "gather", "scatter" or "none", got "ring"',
    ],
    [
      "a missing axis",
      () => asyncGather(x, "model"),
      '[asyncGather] unknown axis "model": the axes here are "tp"',
    ],
    [
      "a missing axis, both ways",
      () => asyncGatherBidirectional(x, "model"),
      "[asyncGatherBidirectional] unknown axis",
    ],
    [
      "a dim that does not divide",
      () => splitArrayOverMesh(x, "tp", 1),
      '[splitArrayOverMesh] dim 1 of [2,3] does not split over axis "tp" (3 / 4 = 0.75)',
    ],
    [
      "a stacked parameter of another axis size",
      () => unstackParams({ w: new nn.Partitioned(np.ones([2, 3]), ["tp", null]) }, "tp"),
      '[unstackParams] dim 0 of the parameter "w" [2,3] is split over axis "tp" but holds 2 slices',
    ],
  ])("refuses %s", (_what, call, message) => {
    const run = shardMap(
      () => {
        call();
        return np.ones([]);
      },
      { mesh, inSpecs: P(), outSpecs: P() },
    );
    expect(run).toThrow(message);
  });

  test("stackParams and unstackParams undo each other at any dim", () => {
    shardMap(
      () => {
        const params = { w: np.ones([2, 3]), v: new nn.Partitioned(np.ones([4]), ["data"]) };
        const stacked = stackParams(params, "tp", { dim: -1 }) as unknown as Record<string, nn.Partitioned>;
        expect([stacked.w?.names, stacked.v?.names]).toEqual([
          [null, null, "tp"],
          ["data", "tp"],
        ]);
        const back = unstackParams(stacked, "tp") as unknown as typeof params;
        expect(back.w.shape).toEqual([2, 3]);
        expect(back.v.names).toEqual(["data"]);
        return np.ones([]);
      },
      { mesh, inSpecs: P(), outSpecs: P() },
    )();
  });
});
