import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { Mesh, np, P, random, shardMap, type Tensor, tree } from "../../index.js";
import * as nn from "../index.js";

const key = random.key(0);
const xs = np.reshape(np.sin(np.arange(40, "float32")), [2, 5, 4]);
const rngs = { dropout: key };

/** Makes variables for the arguments and calls the layer with them. */
function run<A extends readonly unknown[], R>(
  layer: {
    init(rngs: nn.Rngs, ...args: A): nn.Variables;
    apply(variables: nn.Variables, ...args: A): R;
  },
  ...args: A
): R {
  return layer.apply(layer.init(key, ...args), ...args);
}

describe("linear layers", () => {
  test("compute in the type that is asked for, or in the common one", () => {
    expect(run(nn.Dense({ features: 2, dtype: "bfloat16" }), xs).dtype).toBe("bfloat16");
    expect(run(nn.Dense({ features: 2, paramDtype: "bfloat16" }), xs).dtype).toBe("float32");
    const half = nn.Dense({ features: 2, paramDtype: "bfloat16" });
    expect(run(half, xs.astype("bfloat16")).dtype).toBe("bfloat16");
    expect(run(nn.Dense({ features: 2 }), xs.astype("int32")).dtype).toBe("float32");
    expect(() => run(nn.Dense({ features: 2, dtype: "int32" }), xs)).toThrow("[Dense] computes in floats");
  });

  test("say what is wrong with shapes", () => {
    expect(() => run(nn.Dense({ features: 2 }), np.ones([]))).toThrow("at least one dim, got f32[]");
    expect(() => run(nn.DenseGeneral({ features: 2, batchDims: [1] }), xs)).toThrow(
      "must be the leading dims",
    );
    expect(() => run(nn.Einsum({ shape: [4], subscripts: "abc->a" }), xs)).toThrow();
    expect(() => run(nn.Conv({ features: 2, kernelSize: 3 }), np.ones([4]))).toThrow("at least 2 dims");
    expect(() => run(nn.Conv({ features: 3, kernelSize: 3, featureGroupCount: 2 }), xs)).toThrow(
      "(3 / 2 = 1.5)",
    );
    expect(() => run(nn.Conv({ features: 2, kernelSize: 6, padding: "VALID" }), xs)).toThrow(
      "does not fit into 5",
    );
    expect(() => run(nn.Conv({ features: 2, kernelSize: [1, 1], padding: "CAUSAL" }), xs)).toThrow("CAUSAL");
    expect(() => run(nn.Conv({ features: 2, kernelSize: 3, strides: [1, 2] }), xs)).toThrow("strides [1,2]");
    expect(() => run(nn.Conv({ features: 2, kernelSize: 3, padding: [1, 1] }), xs)).toThrow(
      "padding has 2 entries",
    );
  });

  test("convolve inputs without a batch and with several", async () => {
    const conv = nn.Conv({ features: 2, kernelSize: 3, padding: "REFLECT" });
    const variables = conv.init(key, xs);
    const y = conv.apply(variables, xs);
    await expectClose(conv.apply(variables, np.take(xs, 1, 0)), np.take(y, 1, 0));
    await expectClose(conv.apply(variables, np.expandDims(xs, 1)), np.expandDims(y, 1));
  });
});

describe("Embed", () => {
  test("takes integers only and gives NaN for those out of range", async () => {
    const embed = nn.Embed({ numEmbeddings: 3, features: 2 });
    expect(() => run(embed, xs)).toThrow("ids must be integers");
    const y = run(embed, np.array([1, 3], "int32"));
    expect(Array.from(await y.data(), Number.isNaN)).toEqual([false, false, true, true]);
  });

  test("with one row gives it everywhere, in the type that is asked for", () => {
    const one = nn.Embed({ numEmbeddings: 1, features: 2, dtype: "bfloat16" });
    const y = run(one, np.array([0, 0, 5], "int32"));
    expect([y.shape, y.dtype]).toEqual([[3, 2], "bfloat16"]);
  });
});

describe("normalisation layers", () => {
  test("give mean 0 and variance 1 along the last dim", async () => {
    const y = run(nn.LayerNorm(), xs);
    await expectClose(np.mean(y, -1), np.zeros([2, 5]), { atol: 1e-6 });
    await expectClose(np.mean(np.square(y), -1), np.ones([2, 5]), { rtol: 1e-4 });
    await expectClose(np.mean(np.square(run(nn.RMSNorm(), xs)), -1), np.ones([2, 5]), { rtol: 1e-4 });
  });

  test("without scale and bias have no parameters", () => {
    expect(nn.LayerNorm({ useBias: false, useScale: false }).init(key, xs)).toEqual({});
    expect(nn.RMSNorm({ useScale: false }).init(key, xs)).toEqual({});
  });

  test("leave masked elements out of mean and variance", async () => {
    const mask = np.less(np.arange(4), 2);
    const norm = nn.LayerNorm({ useScale: false, useBias: false });
    const half = norm.apply({}, np.take(xs, [0, 1], -1));
    await expectClose(np.take(norm.apply({}, xs, { mask }), [0, 1], -1), half, { atol: 1e-5 });
  });

  test("normalise over devices that hold parts of the vectors", async () => {
    const mesh = Mesh.create({ model: 2 });
    const norm = (axisName?: string) =>
      nn.LayerNorm({ useScale: false, useBias: false, ...(axisName === undefined ? {} : { axisName }) });
    const split = shardMap((x: Tensor) => norm("model").apply({}, x), {
      mesh,
      inSpecs: P(null, null, "model"),
      outSpecs: P(null, null, "model"),
    });
    await expectClose(split(xs), norm().apply({}, xs), { atol: 1e-5 });
  });

  test("say which groups do not fit", () => {
    expect(() => run(nn.GroupNorm(), xs)).toThrow("4 channels do not split into 32 groups (4 / 32 = 0.125)");
    expect(() => run(nn.GroupNorm({ groupSize: 3 }), xs)).toThrow("groups of 3");
    expect(() => run(nn.GroupNorm({ numGroups: 2, groupSize: 2 }), xs)).toThrow("not both");
    expect(() => run(nn.GroupNorm({ numGroups: 2, reductionAxes: 1 }), xs)).toThrow(
      "must have the last dim 2",
    );
  });

  test("count groups by their number or their size, and groups of one channel are instances", async () => {
    await expectClose(run(nn.GroupNorm({ groupSize: 2 }), xs), run(nn.GroupNorm({ numGroups: 2 }), xs));
    const instances = run(nn.GroupNorm({ numGroups: null, groupSize: 1 }), xs);
    await expectClose(instances, run(nn.LayerNorm({ reductionAxes: 1 }), xs), { atol: 1e-5 });
  });
});

describe("Dropout", () => {
  test("keeps the mean, drops about the given part, and shares masks along broadcast dims", async () => {
    const ones = np.ones([50, 40]);
    const drop = (config: Partial<nn.DropoutConfig>) =>
      nn.Dropout({ rate: 0.25, deterministic: false, ...config }).with({ rngs });
    const y = drop({}).apply({}, ones);
    expect(await np.mean(y).item()).toBeCloseTo(1, 1);
    expect(await np.mean(np.equal(y, 0)).item()).toBeCloseTo(0.25, 1);
    const rows = drop({ broadcastDims: [-1] }).apply({}, ones);
    await expectClose(rows, np.broadcastTo(np.take(rows, [0], 1), [50, 40]));
    await expectClose(drop({ rate: 1 }).apply({}, ones), np.zeros([50, 40]));
    await expectClose(drop({ rate: 0 }).apply({}, ones), ones);
  });

  test("draws from the keys that are named, or given at the call", async () => {
    const named = nn.Dropout({ rate: 0.5, deterministic: false, rngCollection: "noise" });
    const y = named.with({ rngs: { noise: key } }).apply({}, xs);
    await expectClose(named.with({ rngs: { noise: key } }).apply({}, xs), y);
    const given = nn.Dropout({ rate: 0.5 });
    await expectClose(
      given.apply({}, xs, { deterministic: false, rng: key }),
      given.with({ rngs: { dropout: random.key(9) } }).apply({}, xs, { deterministic: false, rng: key }),
    );
  });

  test("is told once whether to drop", async () => {
    expect(() => nn.Dropout({ rate: 0.5 }).apply({}, xs)).toThrow("[Dropout] needs deterministic");
    const fixed = nn.Dropout({ rate: 0.5, deterministic: true });
    await expectClose(fixed.apply({}, xs), xs);
    expect(() => fixed.apply({}, xs, { deterministic: true })).toThrow("give it once");
    expect(() => nn.Dropout({ rate: 2 }).init(key, xs)).toThrow("rate 2 is not a probability");
  });
});

describe("attention", () => {
  test("refuses heads that do not fit and several positions while decoding", () => {
    expect(() => run(nn.SelfAttention({ numHeads: 3 }), xs)).toThrow("4 features do not split into 3 heads");
    const decoder = nn.MultiHeadAttention({ numHeads: 2, decode: true });
    const decode = decoder.with({ mutable: ["cache"] });
    expect(() => decode.apply(decoder.init(key, xs), xs)).toThrow("decoding takes one position a call");
  });

  test("shows its weights, which sum to 1, and takes another function", async () => {
    const layer = nn.MultiHeadDotProductAttention({ numHeads: 2 });
    const variables = layer.init(key, xs);
    const [, seen] = layer.with({ mutable: ["intermediates"] }).apply(variables, xs, { sowWeights: true });
    const [weights] = tree.leaves(seen) as Tensor[];
    if (!weights) throw new Error("no weights were kept");
    await expectClose(np.sum(weights, -1), np.ones([2, 2, 5]), { rtol: 1e-5 });
    const first = nn.SelfAttention({ numHeads: 2, attentionFn: (query) => query });
    expect(run(first, xs).shape).toEqual([2, 5, 4]);
  });

  test("has masks from values, positions and other masks", async () => {
    const tokens = np.array([[1, 1, 0]], "int32");
    const padding = nn.makeAttentionMask(np.greater(tokens, 0), np.greater(tokens, 0), {
      pairwise: np.logicalAnd,
      dtype: "bool",
    });
    expect(await padding.js()).toEqual([
      [
        [
          [true, true, false],
          [true, true, false],
          [false, false, false],
        ],
      ],
    ]);
    const causal = nn.makeCausalMask(tokens, { extraBatchDims: 1 });
    expect(causal.shape).toEqual([1, 1, 1, 3, 3]);
    const both = nn.combineMasks([undefined, padding, nn.makeCausalMask(tokens), null]);
    await expectClose(both ?? np.zeros([]), [1, 0, 0, 1, 1, 0, 0, 0, 0]);
    expect(nn.combineMasks([null])).toBeUndefined();
    expect(() => nn.combineMasks([padding, causal])).toThrow("same number of dims");
  });
});
