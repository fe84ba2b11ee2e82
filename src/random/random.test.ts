import { describe, expect, test } from "vitest";
import { agreement, expectClose, type GoldenCase, goldens, HostArray } from "../../test/support/goldens.js";
import "../index.js";
import type { Tensor } from "../index.js";
import * as random from "./index.js";

const { initializers } = random;

/** The calls behind the names of the values in the reference files. */
const calls: Readonly<Record<string, (key: Tensor, golden: GoldenCase) => Tensor>> = {
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
  normal_bf16_8: (key) => random.normal(key, [8], { dtype: "bfloat16" }),
  "truncated_normal_-2_2_12": (key) => random.truncatedNormal(key, -2, 2, [12]),
  "bernoulli_0.3_20": (key) => random.bernoulli(key, 0.3, [20]),
  "randint_0_100_9": (key) => random.randint(key, [9], 0, 100),
  "randint_-5_5_4x4": (key) => random.randint(key, [4, 4], -5, 5),
  exponential_5: (key) => random.exponential(key, [5]),
  gumbel_5: (key) => random.gumbel(key, [5]),
  permutation_10: (key) => random.permutation(key, 10),
  categorical_8: (key) => random.categorical(key, HostArray.of("float32", [3], [0, 0, 0]).toTensor(), { shape: [8] }),
};

describe("reference values", () => {
  for (const golden of goldens("random")) {
    if (golden.name.startsWith("seed")) {
      for (const name of Object.keys(golden.value("values") as object)) {
        test(`${golden.name}/${name}`, async () => {
          const call = calls[name];
          if (!call) throw new Error(name);
          await expectClose(call(random.key(golden.number("seed")), golden), golden.host("values", name));
        });
      }
    }
  }
});
