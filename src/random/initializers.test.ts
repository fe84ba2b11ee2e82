import { describe, expect, test } from "vitest";
import { agreement, expectClose, golden, HostArray } from "../../test/support/goldens.js";
import { type DType, jit, type Tensor } from "../index.js";
import * as random from "./index.js";

const { initializers } = random;

describe("initialisers agree with the reference values:", () => {
  test.each<[string, random.Initializer]>([
    ["init_lecun_normal", initializers.lecunNormal()],
    ["init_normal_0.02", initializers.normal(0.02)],
    ["init_xavier_uniform", initializers.xavierUniform()],
    ["init_he_normal", initializers.heNormal()],
    ["init_variance_scaling_1_fan_avg_uniform", initializers.varianceScaling(1, "fanAvg", "uniform")],
    ["init_orthogonal", initializers.orthogonal()],
    ["init_zeros", initializers.zeros],
    ["init_ones", initializers.ones],
  ])("%s", async (name, init) => {
    const reference = golden("random", name);
    const draw = (key: Tensor) => init(key, reference.numbers("shape"));
    const key = random.key(reference.number("seed"));
    await expectClose(draw(key), reference.host("values"), agreement.value);
    await expectClose(jit(draw)(key), reference.host("values"), agreement.value);
  });
});

interface Sample {
  readonly call: string;
  readonly init: random.Initializer;
  readonly shape: readonly number[];
  readonly dtype?: DType;
  readonly values: readonly number[];
}

/** Values that JAX 0.10 drew with the key of seed 11. */
const samples: readonly Sample[] = [
  {
    call: "lecunUniform",
    init: initializers.lecunUniform(),
    shape: [2, 3],
    values: [-0.710884273, -1.17882609, 0.557109058, -0.379453897, 0.269044161, -0.463351309],
  },
  {
    call: "heUniform",
    init: initializers.heUniform(),
    shape: [2, 3],
    values: [-1.00534213, -1.66711187, 0.787871122, -0.536628842, 0.380485892, -0.655277669],
  },
  {
    call: "glorotNormal",
    init: initializers.glorotNormal(),
    shape: [2, 3],
    values: [-0.547983944, -1.25341845, 0.412866712, -0.272903562, 0.19117853, -0.337395102],
  },
  {
    call: "heNormal bfloat16",
    init: initializers.heNormal(),
    shape: [2, 3],
    dtype: "bfloat16",
    values: [1.5859375, -0.236328125, 0.48046875, 1.53125, 1.1953125, -0.86328125],
  },
  {
    call: "lecunNormal float16",
    init: initializers.lecunNormal(),
    shape: [2, 3],
    dtype: "float16",
    values: [-0.342773438, 0.11505127, -0.124450684, 0.466552734, -0.461669922, -1.15820312],
  },
  {
    call: "varianceScaling with batch dims",
    init: initializers.varianceScaling(2, "fanOut", "normal", { inAxis: 0, outAxis: 2, batchAxis: 1 }),
    shape: [2, 2, 2],
    values: [
      -0.807175159, -2.0803597, 0.605085313, -0.398614556, 0.278893828, -0.493477464, -2.0433619, 0.953060329,
    ],
  },
  {
    call: "varianceScaling by the geometric mean",
    init: initializers.varianceScaling(1, "fanGeoAvg", "truncatedNormal"),
    shape: [3, 2],
    values: [-0.55360508, -1.26627576, 0.4171018, -0.275702953, 0.193139598, -0.340856016],
  },
  {
    call: "varianceScaling with several input dims",
    init: initializers.varianceScaling(1, "fanIn", "uniform", { inAxis: [0, 1], outAxis: [2] }),
    shape: [2, 1, 3],
    values: [-0.710884273, -1.17882609, 0.557109058, -0.379453897, 0.269044161, -0.463351309],
  },
  {
    call: "lecunNormal with a receptive field",
    init: initializers.lecunNormal(),
    shape: [3, 1, 2],
    values: [-0.500238597, -1.14420927, 0.376893997, -0.249125734, 0.174521312, -0.30799818],
  },
  {
    call: "truncatedNormal",
    init: initializers.truncatedNormal(0.5, -1, 3),
    shape: [4],
    values: [-0.213250175, -0.468455762, 0.368929774, -0.0646907315],
  },
  {
    call: "uniform",
    init: initializers.uniform(2),
    shape: [4],
    values: [0.419565439, 0.0374925137, 1.45487761, 0.690177202],
  },
  {
    call: "normal bfloat16",
    init: initializers.normal(0.02),
    shape: [4],
    dtype: "bfloat16",
    values: [0.0310058594, -0.00427246094, 0.00897216797, 0.0299072266],
  },
  { call: "constant", init: initializers.constant(-7), shape: [2], dtype: "bfloat16", values: [-7, -7] },
  {
    call: "orthogonal with columns in dim 0",
    init: initializers.orthogonal(2, 0),
    shape: [2, 2, 3],
    values: [
      -0.693247557, 0.519681394, 0.239529744, -1.75495446, -0.0211207848, 0.334147334, -1.26475942,
      -0.188908011, -0.266931653, 0.409706265, 1.45416117, 0.104888722,
    ],
  },
  {
    call: "deltaOrthogonal",
    init: initializers.deltaOrthogonal(),
    shape: [3, 1, 2],
    values: [0, 0, -0.361724615, -0.932285011, 0, 0],
  },
  { call: "orthogonal without elements", init: initializers.orthogonal(), shape: [0, 3], values: [] },
  { call: "ones of int32", init: initializers.ones, shape: [2], dtype: "int32", values: [1, 1] },
];

describe("initialisers agree with JAX:", () => {
  test.each(samples)("$call", async ({ init, shape, dtype, values }) => {
    const drawn = dtype ? init(random.key(11), shape, dtype) : init(random.key(11), shape);
    await expectClose(drawn, HostArray.of(dtype ?? "float32", shape, values));
  });
});

describe("wrong arguments", () => {
  test.each<[string, random.Initializer, readonly number[], string]>([
    ["a vector", initializers.lecunNormal(), [3], "a parameter of shape [3] has no inputs and outputs"],
    ["a dim out of range", initializers.lecunNormal({ inAxis: 5 }), [3, 2], "dim 5 is out of range"],
    ["a vector", initializers.orthogonal(), [3], "[orthogonal] needs at least two dims"],
    ["too few dims", initializers.deltaOrthogonal(), [2, 2], "[deltaOrthogonal] needs 3 to 5 dims"],
    ["fewer outputs", initializers.deltaOrthogonal(), [3, 3, 2], "no more inputs than outputs"],
  ])("such as %s are refused with a reason", (_what, init, shape, message) => {
    expect(() => init(random.key(0), shape)).toThrow(message);
  });

  test("such as integers are refused", () => {
    expect(() => initializers.heNormal()(random.key(0), [2, 2], "int32")).toThrow("initialises floats");
  });
});
