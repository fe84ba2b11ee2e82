import { grad, jit, lax, np, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";
import { type CaseFunction, describeJaxCases } from "../../test/support/jaxCases.js";

type Padding = Parameters<typeof lax.convGeneralDilated>[3];

const layouts = ["NHWC", "HWIO", "NHWC"] as const;

const conv =
  (strides: number[], padding: Padding, options: lax.ConvOptions = {}): CaseFunction =>
  (x, w) =>
    x && w && lax.convGeneralDilated(x, w, strides, padding, options);

const two =
  (fn: (x: Tensor, w: Tensor) => Tensor): CaseFunction =>
  (x, w) =>
    x && w && fn(x, w);

const window =
  (
    init: number,
    fn: (a: Tensor, b: Tensor) => Tensor,
    size: number[],
    options: lax.ReduceWindowOptions = {},
  ): CaseFunction =>
  (x) =>
    x && lax.reduceWindow(x, init, fn, size, options);

const convolutions: Readonly<Record<string, CaseFunction>> = {
  conv: two((x, w) => lax.conv(x, w, [1, 1], "SAME")),
  "conv valid strided": two((x, w) => lax.conv(x, w, [2, 3], "VALID")),
  "conv line": two((x, w) => lax.conv(x, w, [2], "SAME")),
  "conv no space": conv([], []),
  "conv volume": conv([1, 2, 1], "SAME_LOWER"),
  "conv layouts": conv([1, 1], "SAME", { dimensionNumbers: layouts }),
  "conv odd layouts": conv([1, 2], "VALID", { dimensionNumbers: ["CWNH", "WIHO", "HCNW"] }),
  "conv many features": conv(
    [2, 1],
    [
      [1, 1],
      [0, 2],
    ],
    { dimensionNumbers: layouts },
  ),
  "conv negative padding": conv(
    [1, 1],
    [
      [-1, 2],
      [1, -2],
    ],
  ),
  "conv window dilation": conv(
    [1, 1],
    [
      [2, 1],
      [0, 3],
    ],
    { rhsDilation: [2, 3] },
  ),
  "conv operand dilation": conv(
    [1, 2],
    [
      [2, 1],
      [1, 3],
    ],
    { lhsDilation: [2, 3], rhsDilation: [1, 2] },
  ),
  "conv dilation negative padding": conv(
    [2, 1],
    [
      [-2, 1],
      [1, -3],
    ],
    { lhsDilation: [3, 2] },
  ),
  "conv groups": conv([1, 1], "SAME", { featureGroupCount: 2, dimensionNumbers: layouts }),
  "conv depthwise": conv([2, 1], "SAME", { featureGroupCount: 4, dimensionNumbers: layouts }),
  "conv groups many features": conv([1], "SAME", { featureGroupCount: 2 }),
  "conv batch groups": conv([1, 1], "VALID", { batchGroupCount: 2 }),
  "conv tiles": conv([2, 3], "VALID", { dimensionNumbers: layouts }),
  "conv tiles in groups": conv(
    [2, 3],
    [
      [1, 0],
      [0, 1],
    ],
    { featureGroupCount: 2, dimensionNumbers: layouts },
  ),
  "conv pointwise": conv([1, 1], "VALID", { dimensionNumbers: layouts }),
  "conv pointwise strided": conv([2, 3], "VALID", { dimensionNumbers: layouts }),
  "conv outside": conv([1, 1], "VALID"),
  convWithGeneralPadding: two((x, w) =>
    lax.convWithGeneralPadding(
      x,
      w,
      [1, 2],
      [
        [1, 0],
        [2, 2],
      ],
      [2, 1],
      [1, 2],
    ),
  ),
  "convTranspose same": two((x, w) => lax.convTranspose(x, w, [2, 3], "SAME")),
  "convTranspose valid": two((x, w) => lax.convTranspose(x, w, [2, 1], "VALID", { rhsDilation: [1, 2] })),
  "convTranspose pairs": two((x, w) => lax.convTranspose(x, w, [2], [[1, 2]])),
  "convTranspose consistent": two((x, w) =>
    lax.convTranspose(x, w, [2], [[1, 0]], { useConsistentPadding: true }),
  ),
  "convTranspose kernel": two((x, w) => lax.convTranspose(x, w, [2, 2], "SAME", { transposeKernel: true })),
  convGeneralDilatedPatches: (x) =>
    x && lax.convGeneralDilatedPatches(x, [3, 2], [2, 1], "SAME", { rhsDilation: [1, 2] }),
  "convGeneralDilatedPatches layouts": (x) =>
    x && lax.convGeneralDilatedPatches(x, [2, 3], [1, 1], "VALID", { dimensionNumbers: layouts }),
  convGeneralDilatedLocal: two((x, w) =>
    lax.convGeneralDilatedLocal(x, w, [2, 2], "VALID", [3, 2], { dimensionNumbers: layouts }),
  ),
};

const pairs = (...flat: readonly (readonly [number, number])[]) => flat;

const reductions: Readonly<Record<string, CaseFunction>> = {
  "reduceWindow sum": window(0, lax.add, [1, 2, 3, 1], { windowStrides: [1, 2, 2, 1], padding: "SAME" }),
  "reduceWindow max": window(Number.NEGATIVE_INFINITY, lax.max, [1, 2, 2, 1], {
    windowStrides: [1, 2, 2, 1],
  }),
  "reduceWindow max ties": window(Number.NEGATIVE_INFINITY, lax.max, [1, 3, 3, 1], {
    windowStrides: [1, 2, 2, 1],
    padding: "SAME",
  }),
  "reduceWindow min": window(Number.POSITIVE_INFINITY, np.minimum, [1, 3, 2, 1], {
    windowStrides: [1, 1, 2, 1],
    padding: pairs([0, 0], [2, 1], [0, 1], [0, 0]),
  }),
  "reduceWindow product": window(1, lax.mul, [2, 3], { windowStrides: [1, 2] }),
  "reduceWindow dilated": window(0, lax.add, [2, 3], {
    windowStrides: [1, 2],
    padding: pairs([1, 0], [2, 3]),
    baseDilation: [2, 3],
    windowDilation: [3, 2],
  }),
  "reduceWindow max dilated": window(Number.NEGATIVE_INFINITY, lax.max, [2, 3], {
    windowStrides: [1, 2],
    padding: pairs([0, 0], [1, 0]),
    windowDilation: [3, 2],
  }),
  "reduceWindow long sum": window(0, lax.add, [13], { windowStrides: [3], padding: pairs([5, 2]) }),
  "reduceWindow long max": window(Number.NEGATIVE_INFINITY, lax.max, [11], {
    windowStrides: [2],
    padding: "SAME",
  }),
  "reduceWindow long dilated": window(0, lax.add, [9], {
    windowStrides: [2],
    padding: pairs([0, 4]),
    windowDilation: [3],
  }),
  "reduceWindow start": window(2, lax.add, [2, 2]),
  "reduceWindow integers": window(-(2 ** 31), lax.max, [2], { padding: "SAME" }),
  "reduceWindow function": window(0, (a, b) => a.add(b).add(a.mul(b)), [2, 3]),
  "reduceWindow tree": (x, y) =>
    x &&
    y &&
    lax.reduceWindow(
      [x, y] as const,
      [Number.NEGATIVE_INFINITY, 0] as const,
      (a, b) => {
        const first = np.greaterEqual(a[0], b[0]);
        return [np.where(first, a[0], b[0]), np.where(first, a[1], b[1])] as const;
      },
      [3],
      { windowStrides: [2] },
    ),
};

describeJaxCases(
  "windows.json",
  { ...convolutions, ...reductions },
  {
    tolerance: 1e-5,
    everyday: [
      "conv layouts",
      "conv operand dilation",
      "conv many features",
      "conv groups",
      "conv depthwise",
      "conv batch groups",
      "conv tiles",
      "convGeneralDilatedLocal",
      "reduceWindow max ties",
      "reduceWindow dilated",
      "reduceWindow long sum",
    ],
  },
);

describe("convolutions", () => {
  const x = np.ones([2, 4, 8, 8]);

  test("sum half-width floats in float32", async () => {
    const ones = np.ones([1, 40, 3, 3], "bfloat16");
    const y = lax.conv(np.ones([1, 40, 3, 3], "bfloat16"), ones.mul(1.0078125), [1, 1], "VALID");
    expect(y.dtype).toBe("bfloat16");
    expect(await y.item()).toBe(362);
  });

  test("say what does not fit", () => {
    const fails = (w: Tensor, options: lax.ConvOptions, message: RegExp) =>
      expect(() => lax.convGeneralDilated(x, w, [1, 1], "SAME", options)).toThrow(message);
    fails(np.ones([3, 3, 3, 3]), {}, /takes 3 features in each of 1 groups.*has 4/);
    fails(np.ones([3, 2, 3, 3]), { featureGroupCount: 2 }, /3 output features do not split.*3 \/ 2 = 1.5/);
    fails(np.ones([4, 4, 3, 3]), { batchGroupCount: 4 }, /2 batch do not split into 4/);
    fails(np.ones([4, 4, 3, 3]), { lhsDilation: [2, 1] }, /"SAME" is not defined for lhsDilation \[2,1\]/);
    fails(np.ones([4, 4, 3, 3]), { dimensionNumbers: ["NCHW", "OIHW", "NCHH"] }, /"NCHH" must name each of/);
    fails(np.ones([4, 4, 3, 3], "bfloat16"), {}, /need the same data type/);
    expect(() => lax.conv(x, np.ones([4, 4, 3, 3]), [1], "SAME")).toThrow(/strides \[1\] must be/);
  });
});

describe("reduceWindow", () => {
  test("gives the whole cotangent of a largest element to the first of them", async () => {
    const pool = (x: Tensor) =>
      np.sum(lax.reduceWindow(x, Number.NEGATIVE_INFINITY, lax.max, [2, 2], { windowStrides: [2, 2] }));
    const gradient = await jit(grad(pool))(np.zeros([4, 2])).data();
    expect([...gradient]).toEqual([1, 0, 0, 0, 1, 0, 0, 0]);
  });

  test("hands NaN on", async () => {
    const x = np.array([1, Number.NaN, 0, 3]);
    const y = lax.reduceWindow(x, Number.NEGATIVE_INFINITY, lax.max, [2]);
    expect([...(await y.data())]).toEqual([Number.NaN, Number.NaN, 3]);
  });

  test("needs one start for each operand", () => {
    expect(() => lax.reduceWindow(np.ones([3]), [0, 0], lax.add, [2])).toThrow(/2 initial values for 1/);
    expect(() => lax.reduceWindow(np.ones([3]), np.ones([2]), lax.add, [2])).toThrow(/must be a number/);
    expect(() => lax.reduceWindow(np.ones([3]), 0, lax.add, [2, 2])).toThrow(/one for each of the 1 dims/);
  });
});
