import { describe, expect, test } from "vitest";
import { expectClose, goldens, HostArray } from "../../test/support/goldens.js";
import { type DType, grad, jit, type Tensor } from "../index.js";
import * as ops from "../trace/ops.js";
import { vmap } from "../transforms/batching/vmap.js";
import { scan } from "../transforms/control/scan.js";
import * as random from "./index.js";

/** A float32 tensor. */
const floats = (shape: readonly number[], ...values: number[]) =>
  HostArray.of("float32", shape, values).toTensor();
const integers = (shape: readonly number[], ...values: number[]) =>
  HostArray.of("int32", shape, values).toTensor();

const probabilities = (shape: readonly number[], ...values: number[]) =>
  floats(shape, ...values.map(Math.log));

/** The calls behind the names of the reference values. */
const calls: Readonly<Record<string, (key: Tensor) => Tensor>> = {
  key: (key) => key,
  split2: (key) => random.split(key),
  split5: (key) => random.split(key, 5),
  fold_in_0: (key) => random.foldIn(key, 0),
  fold_in_77: (key) => random.foldIn(key, 77),
  bits_7: (key) => random.bits(key, [7]),
  bits_4x3: (key) => random.bits(key, [4, 3]),
  uniform_11: (key) => random.uniform(key, [11]),
  uniform_minus2_3: (key) => random.uniform(key, [6, 2], { minval: -2, maxval: 3 }),
  uniform_bf16_8: (key) => random.uniform(key, [8], { dtype: "bfloat16" }),
  normal_10: (key) => random.normal(key, [10]),
  normal_3x4x5: (key) => random.normal(key, [3, 4, 5]),
  normal_bf16_8: (key) => random.normal(key, [8], "bfloat16"),
  "truncated_normal_-2_2_12": (key) => random.truncatedNormal(key, -2, 2, [12]),
  "bernoulli_0.3_20": (key) => random.bernoulli(key, 0.3, [20]),
  randint_0_100_9: (key) => random.randint(key, [9], 0, 100),
  "randint_-5_5_4x4": (key) => random.randint(key, [4, 4], -5, 5),
  exponential_5: (key) => random.exponential(key, [5]),
  gumbel_5: (key) => random.gumbel(key, [5]),
  permutation_10: (key) => random.permutation(key, 10),
  categorical_8: (key) => random.categorical(key, probabilities([4], 0.1, 0.2, 0.3, 0.4), { shape: [8] }),
};

const seeds = goldens("random").filter(({ name }) => name.startsWith("seed"));

describe.each(seeds)("with the reference seed $name", (reference) => {
  const key = () => random.key(reference.number("seed"));
  const names = Object.keys(reference.value("values") ?? {});

  test("every reference value has a call", () => {
    expect(names.sort()).toEqual(Object.keys(calls).sort());
  });

  test.each(Object.entries(calls))("%s agrees", async (name, call) => {
    await expectClose(call(key()), reference.host("values", name));
  });

  test.each(Object.entries(calls))("%s agrees inside jit", async (name, call) => {
    await expectClose(jit(call)(key()), reference.host("values", name));
  });
});

interface Sample {
  readonly call: string;
  readonly draw: (key: Tensor) => Tensor;
  readonly dtype?: DType;
  readonly shape?: readonly number[];
  readonly values: readonly number[];
}

const categories = () => probabilities([3, 4], 0.1, 0.2, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1, 0.7, 0.1, 0.1, 0.1);
const grid = () => floats([3, 4], 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11);
const unsigned = (value: number) => HostArray.of("uint32", [], [value]).toTensor();

/** Values that JAX 0.10 drew with the key of seed 11. */
const samples: readonly Sample[] = [
  {
    call: "split into a shape",
    draw: (key) => random.split(key, [2, 2]),
    dtype: "uint32",
    shape: [2, 2, 2],
    values: [1943334310, 1180745302, 3947986621, 4020105687, 3467837548, 1955229632, 3266265133, 2600008386],
  },
  {
    call: "split into none",
    draw: (key) => random.split(key, 0),
    dtype: "uint32",
    shape: [0, 2],
    values: [],
  },
  {
    call: "foldIn of the largest number",
    draw: (key) => random.foldIn(key, 2 ** 32 - 1),
    dtype: "uint32",
    values: [3138454575, 2274379659],
  },
  {
    call: "foldIn of a negative tensor",
    draw: (key) => random.foldIn(key, integers([], -1)),
    dtype: "uint32",
    values: [3138454575, 2274379659],
  },
  {
    call: "bits of a scalar",
    draw: (key) => random.bits(key),
    dtype: "uint32",
    shape: [],
    values: [901010416],
  },
  {
    call: "bits in three dims",
    draw: (key) => random.bits(key, [2, 1, 3]),
    dtype: "uint32",
    shape: [2, 1, 3],
    values: [901010416, 80514922, 3124326316, 1482144495, 2619229662, 1335037494],
  },
  {
    call: "uniform float16",
    draw: (key) => random.uniform(key, [5], { dtype: "float16", minval: -3, maxval: 2 }),
    dtype: "float16",
    values: [-1.36425781, -0.202148438, -0.822265625, 0.647460938, -1.63769531],
  },
  {
    call: "uniform between tensors",
    draw: (key) =>
      random.uniform(key, [2, 3], { minval: floats([2, 1], 0, 10), maxval: floats([3], 1, 20, 30) }),
    shape: [2, 3],
    values: [0.20978272, 0.374925137, 21.823164, 10, 16.0983677, 16.216753],
  },
  {
    call: "normal float16",
    draw: (key) => random.normal(key, [5], { dtype: "float16" }),
    dtype: "float16",
    values: [-0.447021484, 0.150512695, -0.161621094, 0.612304688, -0.604492188],
  },
  {
    call: "normal bfloat16",
    draw: (key) => random.normal(key, 5, "bfloat16"),
    dtype: "bfloat16",
    values: [1.546875, -0.212890625, 0.44921875, 1.4921875, 1.125],
  },
  { call: "normal scalar", draw: (key) => random.normal(key), shape: [], values: [-0.807175159] },
  {
    call: "truncatedNormal between tensors",
    draw: (key) => random.truncatedNormal(key, floats([3], 0, 1, -1), floats([2, 1], 1, 2)),
    shape: [2, 3],
    values: [0.180470079, 0.99999994, 0.399588287, 0.425306886, 1.43407583, -0.219564304],
  },
  {
    call: "truncatedNormal with an open end",
    draw: (key) => random.truncatedNormal(key, 1, Number.POSITIVE_INFINITY, [4]),
    values: [1.1485436, 1.01236784, 1.71422958, 1.25960958],
  },
  {
    call: "truncatedNormal bfloat16",
    draw: (key) => random.truncatedNormal(key, -1, 1, [4], "bfloat16"),
    dtype: "bfloat16",
    values: [0.83984375, -0.147460938, 0.298828125, 0.82421875],
  },
  {
    call: "bernoulli with a tensor",
    draw: (key) => random.bernoulli(key, floats([5], 0, 0.25, 0.5, 0.75, 1), [3, 5]),
    dtype: "bool",
    shape: [3, 5],
    values: [0, 1, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 1],
  },
  {
    call: "bernoulli high",
    draw: (key) => random.bernoulli(key, 0.4, [12], { mode: "high" }),
    dtype: "bool",
    values: [1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0],
  },
  {
    call: "bernoulli one half",
    draw: (key) => random.bernoulli(key, undefined, [6]),
    dtype: "bool",
    values: [1, 1, 0, 1, 0, 1],
  },
  {
    call: "bernoulli bfloat16",
    draw: (key) => random.bernoulli(key, HostArray.of("bfloat16", [], [0.4]).toTensor(), [12]),
    dtype: "bool",
    values: [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1],
  },
  {
    call: "randint uint32",
    draw: (key) => random.randint(key, [4], 0, 2 ** 32 - 1, { dtype: "uint32" }),
    dtype: "uint32",
    values: [2621320021, 192723, 2156811664, 2116697344],
  },
  {
    call: "randint uint32 from a negative bound",
    draw: (key) => random.randint(key, [4], -5, 5, { dtype: "uint32" }),
    dtype: "uint32",
    values: [1, 0, 3, 1],
  },
  {
    call: "randint over all of int32",
    draw: (key) => random.randint(key, [4], -(2 ** 31), unsigned(2 ** 31)),
    dtype: "int32",
    values: [473836373, -2147290925, 9328016, -30786304],
  },
  {
    call: "randint over all of int32, bound as a number",
    draw: (key) => random.randint(key, [4], -(2 ** 31), 2 ** 31),
    dtype: "int32",
    values: [473836373, -2147290925, 9328016, -30786304],
  },
  {
    call: "randint up to the largest int32",
    draw: (key) => random.randint(key, [4], 0, 2 ** 31 - 1),
    dtype: "int32",
    values: [473836374, 192723, 9328017, 2116697344],
  },
  {
    call: "randint over more than 2^16 numbers",
    draw: (key) => random.randint(key, [4], 0, 100000),
    dtype: "int32",
    values: [20021, 92723, 11664, 97344],
  },
  {
    call: "randint of an empty range",
    draw: (key) => random.randint(key, [3], 5, 2),
    dtype: "int32",
    values: [5, 5, 5],
  },
  {
    call: "randint between tensors",
    draw: (key) => random.randint(key, [2, 3], integers([3], 0, 10, 20), integers([2, 1], 5, 1000000)),
    dtype: "int32",
    shape: [2, 3],
    values: [1, 10, 20, 697344, 755117, 355436],
  },
  {
    call: "randint between floats",
    draw: (key) => random.randint(key, [4], floats([], -2.7), 9.9),
    dtype: "int32",
    values: [8, 3, 7, 7],
  },
  {
    call: "categorical",
    draw: (key) => random.categorical(key, categories()),
    dtype: "int32",
    values: [2, 0, 1],
  },
  {
    call: "categorical along dim 0",
    draw: (key) => random.categorical(key, categories(), { dim: 0 }),
    dtype: "int32",
    values: [2, 2, 0, 1],
  },
  {
    call: "categorical with a shape",
    draw: (key) => random.categorical(key, categories(), { shape: [5, 3] }),
    dtype: "int32",
    shape: [5, 3],
    values: [2, 0, 1, 1, 0, 0, 3, 3, 1, 3, 1, 0, 3, 1, 0],
  },
  {
    call: "categorical along dim 0 with a shape",
    draw: (key) => random.categorical(key, categories(), { dim: 0, shape: [2, 4] }),
    dtype: "int32",
    shape: [2, 4],
    values: [2, 2, 0, 1, 1, 0, 1, 0],
  },
  {
    call: "categorical that repeats its logits",
    draw: (key) => random.categorical(key, probabilities([1, 4], 0.1, 0.2, 0.3, 0.4), { shape: [2, 6] }),
    dtype: "int32",
    shape: [2, 6],
    values: [2, 3, 1, 1, 3, 2, 3, 3, 1, 3, 1, 3],
  },
  {
    call: "categorical without replacement",
    draw: (key) => random.categorical(key, categories(), { shape: [4, 3], replace: false }),
    dtype: "int32",
    shape: [4, 3],
    values: [2, 0, 1, 3, 3, 0, 0, 1, 2, 1, 2, 3],
  },
  {
    call: "categorical without replacement along dim 0",
    draw: (key) => random.categorical(key, categories(), { dim: 0, shape: [2, 4], replace: false }),
    dtype: "int32",
    shape: [2, 4],
    values: [2, 2, 0, 1, 1, 1, 2, 0],
  },
  {
    call: "categorical high",
    draw: (key) => random.categorical(key, categories(), { shape: [4, 3], mode: "high" }),
    dtype: "int32",
    shape: [4, 3],
    values: [1, 2, 0, 2, 1, 0, 2, 0, 0, 3, 0, 0],
  },
  {
    call: "permutation of rows",
    draw: (key) => random.permutation(key, grid()),
    shape: [3, 4],
    values: [4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3],
  },
  {
    call: "permutation of columns",
    draw: (key) => random.permutation(key, grid(), { dim: 1 }),
    shape: [3, 4],
    values: [1, 3, 2, 0, 5, 7, 6, 4, 9, 11, 10, 8],
  },
  {
    call: "permutation of each row",
    draw: (key) => random.permutation(key, grid(), { dim: 1, independent: true }),
    shape: [3, 4],
    values: [1, 3, 2, 0, 5, 4, 6, 7, 10, 8, 11, 9],
  },
  {
    call: "permutation of a vector",
    draw: (key) => random.permutation(key, integers([6], 1, 1, 2, 3, 5, 8)),
    dtype: "int32",
    values: [1, 8, 3, 2, 1, 5],
  },
  { call: "permutation of one", draw: (key) => random.permutation(key, 1), dtype: "int32", values: [0] },
  { call: "permutation of none", draw: (key) => random.permutation(key, 0), dtype: "int32", values: [] },
  {
    call: "permutation in two rounds",
    draw: (key) => ops.sliceDim(random.permutation(key, 3000), 0, 0, 6),
    dtype: "int32",
    values: [2676, 1698, 368, 1453, 2853, 2315],
  },
  { call: "choice", draw: (key) => random.choice(key, 10, [5]), dtype: "int32", values: [1, 5, 8, 6, 1] },
  { call: "choice of one", draw: (key) => random.choice(key, 10), dtype: "int32", shape: [], values: [1] },
  {
    call: "choice without replacement",
    draw: (key) => random.choice(key, 10, [2, 3], { replace: false }),
    dtype: "int32",
    shape: [2, 3],
    values: [1, 5, 3, 2, 0, 8],
  },
  {
    call: "choice with probabilities",
    draw: (key) => random.choice(key, 5, [8], { p: floats([5], 0.1, 0.2, 0.3, 0.15, 0.25) }),
    dtype: "int32",
    values: [4, 4, 1, 3, 2, 3, 4, 1],
  },
  {
    call: "choice with probabilities without replacement",
    draw: (key) => random.choice(key, 5, [4], { replace: false, p: floats([5], 0.1, 0.2, 0.3, 0.15, 0.25) }),
    dtype: "int32",
    values: [2, 4, 3, 0],
  },
  {
    call: "choice of columns",
    draw: (key) => random.choice(key, grid(), [2], { dim: 1 }),
    shape: [3, 2],
    values: [1, 3, 5, 7, 9, 11],
  },
  {
    call: "choice of rows without replacement",
    draw: (key) => random.choice(key, grid(), [2], { replace: false }),
    shape: [2, 4],
    values: [4, 5, 6, 7, 8, 9, 10, 11],
  },
  {
    call: "choice of columns without replacement",
    draw: (key) => random.choice(key, grid(), [2], { replace: false, dim: 1 }),
    shape: [3, 2],
    values: [1, 3, 5, 7, 9, 11],
  },
  {
    call: "choice of rows with probabilities",
    draw: (key) => random.choice(key, grid(), [2, 2], { p: floats([3], 0.2, 0.3, 0.5) }),
    shape: [2, 2, 4],
    values: [8, 9, 10, 11, 8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11],
  },
  {
    call: "exponential float16",
    draw: (key) => random.exponential(key, [4], "float16"),
    dtype: "float16",
    values: [0.396240234, 0.819824219, 0.571777344, 1.30761719],
  },
  {
    call: "laplace",
    draw: (key) => random.laplace(key, [4]),
    values: [0.868535638, 3.28361249, -0.606745064, 0.370806813],
  },
  {
    call: "logistic",
    draw: (key) => random.logistic(key, [4]),
    values: [-1.32623565, -3.95783687, 0.981666803, -0.640698791],
  },
  {
    call: "gumbel high",
    draw: (key) => random.gumbel(key, [4], { mode: "high" }),
    values: [1.4462676, 3.9673121, -0.262281328, 0.859779418],
  },
  {
    call: "gumbel float16",
    draw: (key) => random.gumbel(key, [4], { dtype: "float16" }),
    dtype: "float16",
    values: [-0.110839844, 0.543945312, 0.185058594, 1.15429688],
  },
  {
    call: "orthogonal of more rows",
    draw: (key) => random.orthogonal(key, 3, { m: 2 }),
    shape: [3, 2],
    values: [-0.771210909, -0.628625989, 0.578125298, -0.625678837, 0.266467541, -0.4619039],
  },
  {
    call: "orthogonal of more columns",
    draw: (key) => random.orthogonal(key, 2, { m: 3 }),
    shape: [2, 3],
    values: [-0.771210909, 0.578125298, 0.266467541, -0.628625989, -0.625678837, -0.4619039],
  },
];

describe("as in JAX:", () => {
  test.each(samples)("$call", async ({ draw, dtype = "float32", shape, values }) => {
    const expected = HostArray.of(dtype, shape ?? [values.length], values);
    await expectClose(draw(random.key(11)), expected);
    await expectClose(jit(draw)(random.key(11)), expected);
  });
});

describe("key", () => {
  test.each([
    [0, 0],
    [-1, 2 ** 32 - 1],
    [-5, 2 ** 32 - 5],
    [2 ** 31, 2 ** 31],
    [2 ** 32 + 7, 7],
    [2 ** 40 + 3, 3],
    [Number.MAX_SAFE_INTEGER, 2 ** 32 - 1],
    [-(2 ** 40), 0],
  ])("of seed %d holds its lowest 32 bits, as in JAX", async (seed, low) => {
    const expected = HostArray.of("uint32", [2], [0, low]);
    await expectClose(random.key(seed), expected);
    await expectClose(jit(() => random.key(seed))(), expected);
  });

  test("can be made of a traced seed", async () => {
    await expectClose(jit(random.key)(integers([], -3)), HostArray.of("uint32", [2], [0, 4294967293]));
  });
});

describe("samplers inside transforms", () => {
  const keys = () => random.split(random.key(11), 3);

  test("give under vmap what each key gives alone", async () => {
    const normals = vmap((key: Tensor) => random.normal(key, [2]))(keys());
    const normalValues = [-0.309875667, -0.572986603, 0.280162543, -3.91686225, 0.361113131, -0.339190006];
    await expectClose(normals, HostArray.of("float32", [3, 2], normalValues));
    const orders = vmap((key: Tensor) => random.permutation(key, 5))(keys());
    const order = [1, 0, 3, 4, 2, 3, 0, 4, 1, 2, 0, 2, 3, 4, 1];
    await expectClose(orders, HostArray.of("int32", [3, 5], order));
    const drawn = vmap((key: Tensor) => random.randint(key, [3], 0, 10))(keys());
    await expectClose(drawn, HostArray.of("int32", [3, 3], [8, 5, 5, 0, 8, 8, 6, 8, 1]));
  });

  test("give under scan what each key gives alone", async () => {
    const draw = (key: Tensor) => random.truncatedNormal(random.foldIn(key, 3), -1, 1, [4]);
    const [, scanned] = scan((carry: null, key: Tensor): [null, Tensor] => [carry, draw(key)], null, keys());
    await expectClose(scanned, vmap(draw)(keys()));
  });

  test("work with orthogonal matrices under vmap", async () => {
    const matrices = vmap((key: Tensor) => random.orthogonal(key, 4))(keys());
    const first = random.orthogonal(ops.reshape(ops.sliceDim(keys(), 0, 0, 1), [2]), 4);
    await expectClose(ops.reshape(ops.sliceDim(matrices, 0, 0, 1), [4, 4]), first);
  });

  test("are differentiable in their bounds", async () => {
    const total = (low: Tensor) =>
      ops.reduceSum(random.uniform(random.key(11), [3], { minval: low, maxval: 2 }), [0]);
    await expectClose(grad(total)(floats([], 0.5)), floats([], 2.0440321));
  });
});

describe("orthogonal", () => {
  test.each([
    [40, 40],
    [64, 17],
    [1, 5],
  ])("has orthonormal rows or columns for %d × %d", async (n, m) => {
    const q = random.orthogonal(random.key(5), n, { m });
    const dim = n < m ? 1 : 0;
    const products = ops.dotGeneral(q, q, { lhsContract: [dim], rhsContract: [dim] });
    const small = Math.min(n, m);
    const identity = Array.from({ length: small * small }, (_, i) => (i % (small + 1) === 0 ? 1 : 0));
    await expectClose(products, HostArray.of("float32", [small, small], identity), { atol: 2e-6 });
  });

  test("makes one matrix for every entry of a shape", () => {
    expect(random.orthogonal(random.key(5), 4, { m: 3, shape: [2, 3] }).shape).toEqual([2, 3, 4, 3]);
    expect(random.orthogonal(random.key(5), 3, { dtype: "bfloat16" }).dtype).toBe("bfloat16");
  });
});

describe("float64 samples agree with JAX in 64-bit mode:", () => {
  test("uniform and normal", async () => {
    const key = random.key(11);
    await expectClose(
      random.uniform(key, [3], { dtype: "float64" }),
      HostArray.of("float64", [3], [0.45246777829595675, 0.9192122663222262, 0.80741884849389]),
      {},
    );
    await expectClose(
      random.normal(key, [3], "float64"),
      HostArray.of("float64", [3], [-0.11942891219697942, 1.3997924901050443, 0.8684239232585466]),
      { rtol: 1e-13 },
    );
  });
});

describe("samples are spread as they should be:", () => {
  const moments = async (sample: Tensor) => {
    const values = Array.from(await sample.data());
    const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
    const variance = values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length;
    return { mean, variance };
  };

  test.each([
    ["normal", random.normal, 0, 1],
    ["exponential", random.exponential, 1, 1],
    ["gumbel", random.gumbel, 0.5772, Math.PI ** 2 / 6],
    ["laplace", random.laplace, 0, 2],
    ["logistic", random.logistic, 0, Math.PI ** 2 / 3],
    ["uniform", random.uniform, 0.5, 1 / 12],
  ])("%s", async (_name, draw, mean, variance) => {
    for (const dtype of ["float32", "float16"] as const) {
      const got = await moments(draw(random.key(1), [20_000], { dtype }));
      expect(Math.abs(got.mean - mean)).toBeLessThan(0.05);
      expect(Math.abs(got.variance / variance - 1)).toBeLessThan(0.05);
    }
  });
});

describe("wrong arguments", () => {
  const key = () => random.key(0);

  test.each<[string, () => unknown, string]>([
    ["a seed that is not an integer", () => random.key(0.5), "[random.key] seed 0.5 is not an integer"],
    ["a seed that is too large", () => random.key(2 ** 60), "2^53"],
    ["a seed that is a vector", () => random.key(integers([2], 0, 1)), "not i32[2]; use vmap"],
    ["a float as a key", () => random.normal(floats([2], 0, 1)), "expects one key, u32[2], not f32[2]"],
    ["several keys", () => random.bits(random.split(key())), "use vmap to work with several keys"],
    ["negative data", () => random.foldIn(key(), -1), "[random.foldIn] data -1"],
    ["a float tensor as data", () => random.foldIn(key(), floats([], 1)), "integer scalar, not f32[]"],
    ["a negative size", () => random.uniform(key(), [-1]), "[random.uniform] shape [-1]"],
    ["too many elements", () => random.bits(key(), [2 ** 20, 2 ** 20]), "more than 2^32 elements"],
    [
      "integers as floats",
      () => random.normal(key(), [1], "int32"),
      "[random.normal] draws floats, not int32",
    ],
    [
      "floats as integers",
      () => random.randint(key(), [1], 0, 1, { dtype: "float32" }),
      "cannot draw float32",
    ],
    ["a bound that is NaN", () => random.randint(key(), [1], Number.NaN, 1), "a bound of the range is NaN"],
    [
      "bounds that do not broadcast",
      () => random.uniform(key(), [2], { minval: floats([3], 0, 0, 0) }),
      "[random.uniform] an argument f32[3] does not broadcast to the shape [2]",
    ],
    [
      "bounds that do not fit together",
      () => random.truncatedNormal(key(), floats([3], 0, 0, 0), floats([2], 1, 1)),
      "[random.truncatedNormal] shapes [3] and [2] do not broadcast",
    ],
    ["an integer probability", () => random.bernoulli(key(), integers([], 1)), "draws floats, not int32"],
    [
      "a shape that does not fit the logits",
      () => random.categorical(key(), categories(), { shape: [5] }),
      "[random.categorical] shape [5] does not end in [3]",
    ],
    [
      "more draws than categories",
      () => random.categorical(key(), categories(), { shape: [5, 3], replace: false }),
      "but there are 4 categories",
    ],
    ["a dim out of range", () => random.permutation(key(), grid(), { dim: 2 }), "[random.permutation] dim 2"],
    ["nothing to choose from", () => random.choice(key(), 0, [1]), "there are no elements to choose from"],
    [
      "more choices than elements",
      () => random.choice(key(), 3, [4], { replace: false }),
      "4 elements cannot be drawn from 3",
    ],
    [
      "probabilities of another length",
      () => random.choice(key(), 3, [4], { p: floats([2], 0.5, 0.5) }),
      "[random.choice] p is f32[2] but must have one probability for each of 3 elements",
    ],
    ["an empty matrix", () => random.orthogonal(key(), 0), "[random.orthogonal] a matrix of 0 × 0 is empty"],
  ])("such as %s are refused with a reason", (_what, call, message) => {
    expect(call).toThrow(message);
  });
});
