import fc from "fast-check";
import { afterAll, describe, expect, test, vi } from "vitest";
import { createThreadsEngine } from "../../engines/index.js";
import { nativeKernelsHere } from "../../engines/kernels/kernelChoice.js";
import { devicePut, grad, jit, Mesh, NamedSharding, np, P, random, Tensor } from "../../index.js";
import { at, range, sizeOf } from "../../ir/shape.js";
import * as nn from "../index.js";

/** A call of attention as plain numbers. */
interface Case {
  readonly batch: number;
  readonly length: number;
  readonly keyLength: number;
  readonly keyHeads: number;
  readonly groups: number;
  readonly headDim: number;
  readonly causal: boolean;
  readonly window: readonly [before: number | null, after: number | null] | undefined;
  /** Which dims of a bias and of a mask are whole; the others have size 1. */
  readonly bias: readonly boolean[] | undefined;
  readonly mask: readonly boolean[] | undefined;
  readonly segments: boolean;
  readonly positions: boolean;
  readonly softcap: number | undefined;
  readonly scale: number | undefined;
  readonly sinks: "heads" | "batch" | undefined;
  /** Which dim of query, key and value is split over two devices, if it can be. */
  readonly split: "batch" | "length" | "heads" | undefined;
  readonly seed: number;
}

const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined, freq: 2 });
const side = fc.option(fc.oneof(fc.integer({ min: 0, max: 3 }), fc.integer({ min: 0, max: 400 })), {
  nil: null,
});
const dims = fc.tuple(...range(4).map(() => fc.boolean()));
const lengths = fc.oneof(
  fc.integer({ min: 1, max: 20 }),
  fc.integer({ min: 1, max: 300 }),
  fc.constantFrom(16, 32, 64, 128, 256),
);
const anyCase: fc.Arbitrary<Case> = fc.record({
  batch: fc.integer({ min: 1, max: 2 }),
  length: lengths,
  keyLength: lengths,
  keyHeads: fc.integer({ min: 1, max: 2 }),
  groups: fc.integer({ min: 1, max: 3 }),
  headDim: fc.constantFrom(1, 3, 8, 16, 17, 40, 64),
  causal: fc.boolean(),
  window: maybe(fc.tuple(side, side)),
  bias: maybe(dims),
  mask: maybe(dims),
  segments: fc.boolean(),
  positions: fc.boolean(),
  softcap: maybe(fc.constantFrom(0.5, 3)),
  scale: maybe(fc.constantFrom(0, 0.7, -1)),
  sinks: maybe(fc.constantFrom("heads", "batch")),
  split: maybe(fc.constantFrom("batch", "length", "heads")),
  seed: fc.integer({ min: 0, max: 1e6 }),
});

/** Half of the cases have nothing that a kernel of machine code does not know. */
const kernelCase = anyCase.map((given): Case => {
  const none = { bias: undefined, mask: undefined, softcap: undefined, sinks: undefined };
  return { ...given, ...none, segments: false, positions: false };
});
const cases = fc.oneof(anyCase, kernelCase);

/** The tensors of a case. */
interface Operands {
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  readonly bias?: Tensor;
  readonly sinks?: Tensor;
}

/** What has no gradient. */
interface Fixed {
  readonly mask?: Tensor;
  readonly segments?: { readonly query: Tensor; readonly key: Tensor };
  readonly positions?: { readonly query: Tensor; readonly key: Tensor };
  /** What the output and the log-sum-exps are multiplied with in the loss. */
  readonly ofOutput: Tensor;
  readonly ofSums: Tensor;
}

function draw(given: Case): { readonly operands: Operands; readonly fixed: Fixed } {
  const { batch, length, keyLength, keyHeads, headDim, seed } = given;
  const heads = keyHeads * given.groups;
  const first = random.key(seed);
  const normal = (i: number, shape: readonly number[]) => random.normal(random.foldIn(first, i), [...shape]);
  const integers = (i: number, n: number, below: number) =>
    random.randint(random.foldIn(first, i), [batch, n], 0, below);
  const cut = (whole: readonly boolean[]) =>
    [batch, heads, length, keyLength].map((size, d) => (whole[d] ? size : 1));
  return {
    operands: {
      query: normal(0, [batch, length, heads, headDim]),
      key: normal(1, [batch, keyLength, keyHeads, headDim]),
      value: normal(2, [batch, keyLength, keyHeads, headDim]),
      ...(given.bias && { bias: normal(3, cut(given.bias)) }),
      ...(given.sinks && { sinks: normal(4, given.sinks === "batch" ? [batch, heads] : [heads]) }),
    },
    fixed: {
      ...(given.mask && { mask: np.greater(normal(5, cut(given.mask)), -0.5) }),
      ...(given.segments && { segments: { query: integers(6, length, 3), key: integers(7, keyLength, 3) } }),
      ...(given.positions && {
        positions: { query: integers(8, length, 40), key: integers(9, keyLength, 40) },
      }),
      ofOutput: normal(10, [batch, length, heads, headDim]),
      ofSums: normal(11, [batch, length, heads]),
    },
  };
}

/** The outputs, and the gradients of their weighted sum. */
type Results = Readonly<Record<string, ArrayLike<number>>>;

/** What `nn.attention` gives in a compiled program. */
async function compiled(
  given: Case,
  { operands, fixed }: ReturnType<typeof draw>,
  mesh: Mesh,
): Promise<Results> {
  const { causal, window, softcap, scale } = given;
  const options = {
    causal,
    ...(window && { window }),
    ...(softcap !== undefined && { softcap }),
    ...(scale !== undefined && { scale }),
  };
  const apply = ({ query, key, value, bias, sinks }: Operands, { mask, segments, positions }: Fixed) =>
    nn.attention(query, key, value, {
      ...options,
      ...(bias && { bias }),
      ...(sinks && { sinks }),
      ...(mask && { mask }),
      ...(segments && { segmentIds: segments }),
      ...(positions && { positions }),
    });
  const loss = (all: Operands, more: Fixed) => {
    const { output, logSumExp } = apply(all, more);
    const seesAny = np.greater(logSumExp, Number.NEGATIVE_INFINITY);
    return np.sum(output.mul(more.ofOutput)).add(np.sum(np.where(seesAny, logSumExp, 0).mul(more.ofSums)));
  };
  const both = jit(
    (all: Operands, more: Fixed) => {
      const { output, logSumExp } = apply(all, more);
      return { output, logSumExp, gradient: grad(loss)(all, more) };
    },
    { mesh },
  );
  const dim = { batch: 0, length: 1, heads: 2 }[given.split ?? "batch"];
  const placed = (x: Tensor) => {
    const isSplit = given.split !== undefined && x.ndim === 4 && at(x.shape, dim) % mesh.size === 0;
    return devicePut(x, new NamedSharding(mesh, isSplit ? P(...range(dim).map(() => null), "x") : P()));
  };
  const { query, key, value, ...others } = operands;
  const shared = { query: await placed(query), key: await placed(key), value: await placed(value) };
  const found = both({ ...shared, ...others }, fixed);
  const { output, logSumExp, gradient } = found;
  const named: Record<string, Tensor> = { output, logSumExp };
  for (const [name, tensor] of Object.entries(gradient)) {
    if (tensor instanceof Tensor) named[`the gradient of ${name}`] = tensor;
  }
  const data: Record<string, ArrayLike<number>> = {};
  for (const [name, tensor] of Object.entries(named)) data[name] = Array.from(await tensor.data(), Number);
  return data;
}

/** Reads a tensor whose sizes may be 1. */
async function reader(tensor: Tensor | undefined): Promise<(...index: readonly number[]) => number> {
  if (tensor === undefined) return () => 0;
  const { shape } = tensor;
  const data = await tensor.data();
  return (...index) =>
    Number(data[index.reduce((place, i, d) => place * at(shape, d) + (shape[d] === 1 ? 0 : i), 0)]);
}

/** Adds to an element of a tensor whose sizes may be 1. */
function adder(tensor: Tensor | undefined) {
  const shape = tensor?.shape ?? [];
  const sums = new Float64Array(tensor ? sizeOf(shape) : 0);
  const add = (value: number, ...index: readonly number[]) => {
    const place = index.reduce((sum, i, d) => sum * at(shape, d) + (shape[d] === 1 ? 0 : i), 0);
    sums[place] = (sums[place] ?? 0) + value;
  };
  return { sums, add };
}

/** The formulas of the scores, the softmax and their derivatives in float64, one query after the other. */
async function plainly(given: Case, { operands, fixed }: ReturnType<typeof draw>): Promise<Results> {
  const { batch, length, keyLength, groups, headDim, causal, window, softcap } = given;
  const heads = given.keyHeads * groups;
  const scale = given.scale ?? 1 / Math.sqrt(headDim);
  const [q, k, v, b, w, u] = await Promise.all(
    [operands.query, operands.key, operands.value, operands.bias, fixed.ofOutput, fixed.ofSums].map(reader),
  );
  const [mask, sink] = await Promise.all([fixed.mask, operands.sinks].map(reader));
  const [from, to, own, other] = await Promise.all(
    [fixed.positions?.query, fixed.positions?.key, fixed.segments?.query, fixed.segments?.key].map(reader),
  );
  if (!q || !k || !v || !b || !w || !u || !mask || !sink || !from || !to || !own || !other) return {};
  const output = adder(fixed.ofOutput);
  const logSums = adder(fixed.ofSums);
  const [dq, dk, dv] = [adder(operands.query), adder(operands.key), adder(operands.value)];
  const [db, ds] = [adder(operands.bias), adder(operands.sinks)];
  const features = range(headDim);
  const sees = (n: number, h: number, t: number, s: number): boolean => {
    const distance = given.positions ? from(n, t) - to(n, s) : t - s;
    const [before, after] = window ?? [null, null];
    return (
      (!causal || distance >= 0) &&
      (before === null || distance <= before) &&
      (after === null || -distance <= after) &&
      (!given.mask || mask(n, h, t, s) !== 0) &&
      own(n, t) === other(n, s)
    );
  };
  const ofQuery = (n: number, h: number, t: number): void => {
    const g = Math.floor(h / groups);
    const seen = range(keyLength).filter((s) => sees(n, h, t, s));
    const raw = seen.map((s) => scale * features.reduce((sum, d) => sum + q(n, t, h, d) * k(n, s, g, d), 0));
    const capped = raw.map((x) => (softcap === undefined ? x : softcap * Math.tanh(x / softcap)));
    const scores = seen.map((s, i) => at(capped, i) + b(n, h, t, s));
    const place = given.sinks === "batch" ? [n, h] : [h];
    const ofSink = given.sinks ? sink(...place) : Number.NEGATIVE_INFINITY;
    const largest = Math.max(ofSink, ...scores);
    const sum = [ofSink, ...scores].reduce((total, x) => total + Math.exp(x - largest), 0);
    if (largest === Number.NEGATIVE_INFINITY) {
      logSums.add(largest, n, t, h);
      return;
    }
    logSums.add(largest + Math.log(sum), n, t, h);
    const weights = scores.map((x) => Math.exp(x - largest) / sum);
    const pulled = seen.map((s) => features.reduce((total, d) => total + w(n, t, h, d) * v(n, s, g, d), 0));
    const mean = weights.reduce((total, p, i) => total + p * at(pulled, i), 0);
    const more = u(n, t, h);
    if (given.sinks) ds.add((Math.exp(ofSink - largest) / sum) * (more - mean), ...place);
    for (const [i, s] of seen.entries()) {
      const p = at(weights, i);
      const ofScore = p * (at(pulled, i) - mean + more);
      if (given.bias) db.add(ofScore, n, h, t, s);
      const slope = softcap === undefined ? 1 : 1 - (at(capped, i) / softcap) ** 2;
      for (const d of features) {
        output.add(p * v(n, s, g, d), n, t, h, d);
        dv.add(p * w(n, t, h, d), n, s, g, d);
        dq.add(ofScore * slope * scale * k(n, s, g, d), n, t, h, d);
        dk.add(ofScore * slope * scale * q(n, t, h, d), n, s, g, d);
      }
    }
  };
  for (const n of range(batch)) for (const h of range(heads)) for (const t of range(length)) ofQuery(n, h, t);
  return {
    output: output.sums,
    logSumExp: logSums.sums,
    "the gradient of query": dq.sums,
    "the gradient of key": dk.sums,
    "the gradient of value": dv.sums,
    ...(given.bias && { "the gradient of bias": db.sums }),
    ...(given.sinks && { "the gradient of sinks": ds.sums }),
  };
}

/** Expects results that differ by no more than the roundings of their largest numbers explain. */
function expectSame(got: Results, want: Results): void {
  expect(Object.keys(got).sort()).toEqual(Object.keys(want).sort());
  for (const [name, wanted] of Object.entries(want)) {
    const found = got[name] ?? [];
    const finite = Array.from(wanted).filter(Number.isFinite);
    const bound = 2e-5 * finite.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
    expect(found.length, name).toBe(wanted.length);
    for (let i = 0; i < wanted.length; i++) {
      const [x, y] = [Number(found[i]), Number(wanted[i])];
      if (Object.is(x, y) || Math.abs(x - y) <= bound) continue;
      expect.fail(`${name}: element ${i} of ${wanted.length} is ${x} instead of ${y}`);
    }
  }
}

/** What computes attention: machine code with vectors of two widths, and WebAssembly. */
const renderers = [
  { name: "AVX-512", setting: "native-avx512" },
  { name: "AVX2", setting: "native-avx2" },
  { name: "WebAssembly", setting: "wasm" },
] as const;
const isHere = ({ name }: (typeof renderers)[number]) =>
  name === "WebAssembly" || "bits" in nativeKernelsHere(name);

describe.each(renderers.filter(isHere))("attention with any options on $name", ({ setting }) => {
  vi.stubEnv("SHARDWISE_KERNELS", setting);
  vi.stubEnv("SHARDWISE_GEMM", setting);
  const engines = [1, 2].map((numDevices) =>
    createThreadsEngine({ numDevices, threadsPerDevice: 3 - numDevices }),
  );
  vi.unstubAllEnvs();
  afterAll(() => Promise.all(engines.map((engine) => engine.close())));

  test("gives on threads what its formulas give in float64, with all gradients", async () => {
    const [one, two] = engines.map((engine, i) => Mesh.create({ x: i + 1 }, { engine }));
    await fc.assert(
      fc.asyncProperty(cases, async (given) => {
        const tensors = draw(given);
        const mesh = given.split === undefined ? one : two;
        if (mesh) expectSame(await compiled(given, tensors, mesh), await plainly(given, tensors));
      }),
      {
        numRuns: Number(process.env.FUZZ_ATTENTION ?? 4),
        seed: Number(process.env.SEED ?? 1),
        endOnFailure: true,
      },
    );
  }, 3_600_000);
});
