import type { Engine } from "../../../../src/ir/engine.js";
import type { TensorType } from "../../../../src/ir/shape.js";
import * as np from "../../../../src/numpy/index.js";
import * as random from "../../../../src/random/index.js";
import type { Tensor } from "../../../../src/trace/tensor.js";
import { type GoldenCase, HostArray, isRecord } from "../cases.js";
import { type AreaRunner, byName, expectAll } from "../check.js";
import { expectClose, Mismatch } from "../compare.js";
import { alone } from "../onMesh.js";

/** Keys and samplers by name, and initialisers. */
export const runRandom: AreaRunner = (golden, engine) =>
  golden.name.startsWith("init_") ? runInitializer(golden, engine) : runSamplers(golden, engine);

/** What a name calls, with the numbers in it and the type of what it gives. */
type Call = (key: Tensor, numbers: readonly number[], type: TensorType) => Tensor;

/** The shape is that of the expected values, so only numbers in front of it are read from the name. */
const calls: Readonly<Record<string, Call>> = {
  key: (key) => key,
  split: (key, [num = 2]) => random.split(key, num),
  fold_in: (key, [data = 0]) => random.foldIn(key, data),
  bits: (key, _, { shape }) => random.bits(key, shape),
  uniform: (key, [minval, maxval], { shape, dtype }) =>
    maxval === undefined
      ? random.uniform(key, shape, { dtype })
      : random.uniform(key, shape, { dtype, minval: minval ?? 0, maxval }),
  normal: (key, _, { shape, dtype }) => random.normal(key, shape, dtype),
  truncated_normal: (key, [lower = -2, upper = 2], { shape, dtype }) =>
    random.truncatedNormal(key, lower, upper, shape, dtype),
  bernoulli: (key, [probability = 0.5], { shape }) => random.bernoulli(key, probability, shape),
  randint: (key, [low = 0, high = 0], { shape }) => random.randint(key, shape, low, high),
  exponential: (key, _, { shape, dtype }) => random.exponential(key, shape, dtype),
  laplace: (key, _, { shape, dtype }) => random.laplace(key, shape, dtype),
  logistic: (key, _, { shape, dtype }) => random.logistic(key, shape, dtype),
  gumbel: (key, _, { shape, dtype }) => random.gumbel(key, shape, { dtype }),
  permutation: (key, [n = 0]) => random.permutation(key, n),
  categorical: (key, _, { shape }) =>
    random.categorical(key, np.log(np.array([0.1, 0.2, 0.3, 0.4])), { shape }),
};

/** The call and the numbers of a name such as `randint_-5_5_4x4`, `split2` or `uniform_minus2_3`. */
function readName(name: string): [call: Call, numbers: readonly number[]] {
  const found = Object.keys(calls)
    .sort((a, b) => b.length - a.length)
    .find((key) => name.startsWith(key));
  const call = found === undefined ? undefined : calls[found];
  if (!call || found === undefined) throw new Mismatch(`unknown sampler ${name}`);
  const rest = name.slice(found.length).replaceAll("minus", "-");
  return [call, rest.split("_").flatMap((part) => (/^-?\d+(\.\d+)?$/.test(part) ? [Number(part)] : []))];
}

async function runSamplers(golden: GoldenCase, engine: Engine): Promise<void> {
  const values = golden.value("values");
  if (!isRecord(values)) throw new Mismatch("values is no table of tensors");
  const comparisons = Object.entries(values).map(([name, expected]) => async () => {
    if (!(expected instanceof HostArray)) throw new Mismatch(`values > ${name} is no array`);
    const [call, numbers] = readName(name);
    const drawn = alone(engine, () => call(random.key(golden.number("seed")), numbers, expected));
    await expectClose(drawn, expected, undefined, name);
  });
  await expectAll(...comparisons);
}

const { initializers } = random;

const scalings: Readonly<Record<string, random.FanMode>> = {
  fan_in: "fanIn",
  fan_out: "fanOut",
  fan_avg: "fanAvg",
};

const distributions: Readonly<Record<string, random.Distribution>> = {
  normal: "normal",
  uniform: "uniform",
  truncated_normal: "truncatedNormal",
};

function initializerOf(name: string): random.Initializer {
  const plain: Readonly<Record<string, () => random.Initializer>> = {
    lecun_normal: () => initializers.lecunNormal(),
    lecun_uniform: () => initializers.lecunUniform(),
    he_normal: () => initializers.heNormal(),
    he_uniform: () => initializers.heUniform(),
    kaiming_normal: () => initializers.kaimingNormal(),
    kaiming_uniform: () => initializers.kaimingUniform(),
    glorot_normal: () => initializers.glorotNormal(),
    glorot_uniform: () => initializers.glorotUniform(),
    xavier_normal: () => initializers.xavierNormal(),
    xavier_uniform: () => initializers.xavierUniform(),
    orthogonal: () => initializers.orthogonal(),
    zeros: () => initializers.zeros,
    ones: () => initializers.ones,
  };
  const make = plain[name];
  if (make) return make();
  const scaled = /^variance_scaling_([\d.]+)_(fan_in|fan_out|fan_avg)_(\w+)$/.exec(name);
  const [mode, distribution] = [scalings[scaled?.[2] ?? ""], distributions[scaled?.[3] ?? ""]];
  if (scaled && mode && distribution)
    return initializers.varianceScaling(Number(scaled[1]), mode, distribution);
  const [, kind, number] = /^(normal|uniform|truncated_normal|constant)_(-?[\d.]+)$/.exec(name) ?? [];
  if (kind === "normal") return initializers.normal(Number(number));
  if (kind === "uniform") return initializers.uniform(Number(number));
  if (kind === "truncated_normal") return initializers.truncatedNormal(Number(number));
  if (kind === "constant") return initializers.constant(Number(number));
  throw new Mismatch(`unknown initialiser ${name}`);
}

const runInitializer = byName({
  init: async (golden, engine) => {
    const init = initializerOf(golden.name.slice("init_".length));
    const expected = golden.host("values");
    const drawn = alone(engine, () =>
      init(random.key(golden.number("seed")), golden.numbers("shape"), expected.dtype),
    );
    await expectClose(drawn, expected, undefined, "values");
  },
});
