import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";
import { b, f, g, i, n, p, type Row, t, testRows, u, v } from "../../test/support/jaxRows.js";
import { DTypeError, grad, jit, ShapeError, type Tensor, ValueError } from "../index.js";
import * as np from "../numpy/index.js";
import * as lax from "./index.js";

const start = (index: number) => np.array([index], "int32").reshape([]);

const calls: readonly Row[] = [
  ["lax.neg(f)", () => lax.neg(f), "float32", [2, 3], [1.5, -0.25, -2, -3, 0.75, -0.5]],
  [
    "lax.exp(f)",
    () => lax.exp(f),
    "float32",
    [2, 3],
    [0.22313017, 1.2840254, 7.389056, 20.085537, 0.47236654, 1.6487212],
  ],
  [
    "lax.tanh(f)",
    () => lax.tanh(f),
    "float32",
    [2, 3],
    [-0.9051482, 0.24491866, 0.9640276, 0.9950547, -0.635149, 0.46211717],
  ],
  ["lax.sign(f)", () => lax.sign(f), "float32", [2, 3], [-1, 1, 1, 1, -1, 1]],
  ["lax.floor(f)", () => lax.floor(f), "float32", [2, 3], [-2, 0, 2, 3, -1, 0]],
  ["lax.ceil(f)", () => lax.ceil(f), "float32", [2, 3], [-1, 1, 2, 3, -0, 1]],
  ["lax.abs(f)", () => lax.abs(f), "float32", [2, 3], [1.5, 0.25, 2, 3, 0.75, 0.5]],
  [
    "lax.cos(f)",
    () => lax.cos(f),
    "float32",
    [2, 3],
    [0.0707372, 0.9689124, -0.41614684, -0.9899925, 0.73168886, 0.87758255],
  ],
  [
    "lax.erf(f)",
    () => lax.erf(f),
    "float32",
    [2, 3],
    [-0.96610504, 0.27632636, 0.9953222, 0.99997795, -0.7111556, 0.5204999],
  ],
  [
    "lax.logistic(f)",
    () => lax.logistic(f),
    "float32",
    [2, 3],
    [0.18242553, 0.5621765, 0.880797, 0.95257413, 0.3208213, 0.62245935],
  ],
  ["lax.square(f)", () => lax.square(f), "float32", [2, 3], [2.25, 0.0625, 4, 9, 0.5625, 0.25]],
  [
    "lax.reciprocal(f)",
    () => lax.reciprocal(f),
    "float32",
    [2, 3],
    [-0.6666667, 4, 0.5, 0.33333334, -1.3333334, 2],
  ],
  [
    "lax.tan(f)",
    () => lax.tan(f),
    "float32",
    [2, 3],
    [-14.10142, 0.25534192, -2.1850398, -0.14254655, -0.93159646, 0.5463025],
  ],
  [
    "lax.atan(f)",
    () => lax.atan(f),
    "float32",
    [2, 3],
    [-0.9827938, 0.24497868, 1.1071489, 1.2490458, -0.64350116, 0.46364754],
  ],
  [
    "lax.sinh(f)",
    () => lax.sinh(f),
    "float32",
    [2, 3],
    [-2.1292794, 0.2526123, 3.6268604, 10.017875, -0.8223167, 0.52109534],
  ],
  [
    "lax.asinh(f)",
    () => lax.asinh(f),
    "float32",
    [2, 3],
    [-1.1947632, 0.24746647, 1.4436355, 1.8184464, -Math.LN2, 0.48121184],
  ],
  [
    "lax.erf(f)",
    () => lax.erf(f),
    "float32",
    [2, 3],
    [-0.96610504, 0.27632636, 0.9953222, 0.99997795, -0.7111556, 0.5204999],
  ],
  ["lax.erfInv(u)", () => lax.erfInv(u), "float32", [5], [-1.163087, -0.22531207, 0, 0.47693628, 1.8213867]],
  [
    "lax.erfc(f)",
    () => lax.erfc(f),
    "float32",
    [2, 3],
    [1.9661051, 0.7236736, 0.004677735, 2.2090497e-5, 1.7111555, 0.47950017],
  ],
  [
    "lax.erfc(np.array([0, 1, 1.9, 2, 2.1, 4, 9, -4]))",
    () => lax.erfc(np.array([0, 1, 1.9, 2, 2.1, 4, 9, -4])),
    "float32",
    [8],
    [1, 0.15729924, 0.007209572, 0.004677735, 0.0029794686, 1.5417259e-8, 4.1370317e-37, 2],
  ],
  [
    "lax.rsqrt(p)",
    () => lax.rsqrt(p),
    "float32",
    [2, 3],
    [3.1622777, 1, 0.6324555, 1.1547005, 0.31622776, 0.57735026],
  ],
  [
    "lax.round(np.array([0.5, 1.5, 2.5, -0.5]))",
    () => lax.round(np.array([0.5, 1.5, 2.5, -0.5])),
    "float32",
    [4],
    [1, 2, 3, -1],
  ],
  ["lax.isFinite(n)", () => lax.isFinite(n), "bool", [5], [0, 0, 0, 1, 1]],
  [
    "lax.integerPow(f, 3)",
    () => lax.integerPow(f, 3),
    "float32",
    [2, 3],
    [-3.375, 0.015625, 8, 27, -0.421875, 0.125],
  ],
  [
    "lax.exp2(f)",
    () => lax.exp2(f),
    "float32",
    [2, 3],
    [0.35355338, 1.1892071, 4, 8, 0.59460354, Math.SQRT2],
  ],
  ["lax.sub(1, f)", () => lax.sub(1, f), "float32", [2, 3], [2.5, 0.75, -1, -2, 1.75, 0.5]],
  ["lax.mul(f, g)", () => lax.mul(f, g), "float32", [2, 3], [-0.75, 0.5, -2, 4.5, 1.5, 0.125]],
  ["lax.div(i, 2)", () => lax.div(i, 2), "int32", [2, 3], [2, -1, 3, -4, 1, 0]],
  ["lax.rem(i, 3)", () => lax.rem(i, 3), "int32", [2, 3], [2, 0, 1, -2, 2, 0]],
  ["lax.max(f, 0)", () => lax.max(f, 0), "float32", [2, 3], [0, 0.25, 2, 3, 0, 0.5]],
  ["lax.lt(f, g)", () => lax.lt(f, g), "bool", [2, 3], [1, 1, 0, 0, 0, 0]],
  ["lax.bitwiseAnd(i, 3)", () => lax.bitwiseAnd(i, 3), "int32", [2, 3], [1, 1, 3, 0, 2, 0]],
  [
    "lax.shiftRightArithmetic(i, 1)",
    () => lax.shiftRightArithmetic(i, 1),
    "int32",
    [2, 3],
    [2, -2, 3, -4, 1, 0],
  ],
  ["lax.shiftRightLogical(i, 28)", () => lax.shiftRightLogical(i, 28), "int32", [2, 3], [0, 15, 0, 15, 0, 0]],
  ["lax.pow(p, g)", () => lax.pow(p, g), "float32", [2, 3], [0.31622776, 1, 0.4, 0.649519, 0.01, 1.316074]],
  ["lax.select(b, f, g)", () => lax.select(b, f, g), "float32", [2, 3], [-1.5, 2, 2, 1.5, -2, 0.5]],
  [
    "lax.select(b.any(), f, g)",
    () => lax.select(b.any(), f, g),
    "float32",
    [2, 3],
    [-1.5, 0.25, 2, 3, -0.75, 0.5],
  ],
  ["lax.clamp(-1, f, 1)", () => lax.clamp(-1, f, 1), "float32", [2, 3], [-1, 0.25, 1, 1, -0.75, 0.5]],
  [
    "lax.clamp(u.get(0), f, 1)",
    () => lax.clamp(u.get(0), f, 1),
    "float32",
    [2, 3],
    [-0.9, 0.25, 1, 1, -0.75, 0.5],
  ],
  [
    `lax.convertElementType(f, "int32")`,
    () => lax.convertElementType(f, "int32"),
    "int32",
    [2, 3],
    [-1, 0, 2, 3, 0, 0],
  ],
  [
    `lax.bitcastConvertType(v, "int32")`,
    () => lax.bitcastConvertType(v, "int32"),
    "int32",
    [3],
    [1065353216, -1073741824, 1056964608],
  ],
  [`lax.iota("int32", 3)`, () => lax.iota("int32", 3), "int32", [3], [0, 1, 2]],
  [
    `lax.broadcastedIota("int32", [2, 2], 1)`,
    () => lax.broadcastedIota("int32", [2, 2], 1),
    "int32",
    [2, 2],
    [0, 1, 0, 1],
  ],
  ["lax.full([2], 1.5)", () => lax.full([2], 1.5), "float32", [2], [1.5, 1.5]],
  ["lax.fullLike(i, 2)", () => lax.fullLike(i, 2), "int32", [2, 3], [2, 2, 2, 2, 2, 2]],
  ["lax.broadcast(v, [2])", () => lax.broadcast(v, [2]), "float32", [2, 3], [1, -2, 0.5, 1, -2, 0.5]],
  [
    "lax.broadcastInDim(v, [3, 2], [0])",
    () => lax.broadcastInDim(v, [3, 2], [0]),
    "float32",
    [3, 2],
    [1, 1, -2, -2, 0.5, 0.5],
  ],
  ["lax.expandDims(v, [0, 2])", () => lax.expandDims(v, [0, 2]), "float32", [1, 3, 1], [1, -2, 0.5]],
  [
    "lax.squeeze(v.reshape(1, 3), [0])",
    () => lax.squeeze(v.reshape(1, 3), [0]),
    "float32",
    [3],
    [1, -2, 0.5],
  ],
  [
    "lax.collapse(t, 1)",
    () => lax.collapse(t, 1),
    "float32",
    [2, 12],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2,
      2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875,
    ],
  ],
  ["lax.pad(v, 9, [[1, -1, 1]])", () => lax.pad(v, 9, [[1, -1, 1]]), "float32", [5], [9, 1, 9, -2, 9]],
  ["lax.rev(f, [1])", () => lax.rev(f, [1]), "float32", [2, 3], [2, 0.25, -1.5, 0.5, -0.75, 3]],
  [
    "lax.concatenate([f, g], 1)",
    () => lax.concatenate([f, g], 1),
    "float32",
    [2, 6],
    [-1.5, 0.25, 2, 0.5, 2, -1, 3, -0.75, 0.5, 1.5, -2, 0.25],
  ],
  [
    "lax.transpose(f, [1, 0])",
    () => lax.transpose(f, [1, 0]),
    "float32",
    [3, 2],
    [-1.5, 3, 0.25, -0.75, 2, 0.5],
  ],
  [
    "lax.slice(f, [0, 1], [2, 3])",
    () => lax.slice(f, [0, 1], [2, 3]),
    "float32",
    [2, 2],
    [0.25, 2, -0.75, 0.5],
  ],
  ["lax.sliceInDim(u, 1, -1, 2)", () => lax.sliceInDim(u, 1, -1, 2), "float32", [2], [-0.25, 0.5]],
  [
    "lax.sliceInDim(f, null, 2, 1, -1)",
    () => lax.sliceInDim(f, null, 2, 1, -1),
    "float32",
    [2, 2],
    [-1.5, 0.25, 3, -0.75],
  ],
  ["lax.indexInDim(f, -1, 1)", () => lax.indexInDim(f, -1, 1), "float32", [2, 1], [2, 0.5]],
  ["lax.indexInDim(f, 1, 0, false)", () => lax.indexInDim(f, 1, 0, false), "float32", [3], [3, -0.75, 0.5]],
  [
    "lax.dynamicSlice(f, [start(1), 1], [1, 2])",
    () => lax.dynamicSlice(f, [start(1), 1], [1, 2]),
    "float32",
    [1, 2],
    [-0.75, 0.5],
  ],
  [
    "lax.dynamicSlice(f, [9, -1], [1, 1])",
    () => lax.dynamicSlice(f, [9, -1], [1, 1]),
    "float32",
    [1, 1],
    [0.5],
  ],
  [
    "lax.dynamicSliceInDim(u, start(4), 3)",
    () => lax.dynamicSliceInDim(u, start(4), 3),
    "float32",
    [3],
    [0, 0.5, 0.99],
  ],
  [
    "lax.dynamicSliceInDim(f, start(-2), 2, 1)",
    () => lax.dynamicSliceInDim(f, start(-2), 2, 1),
    "float32",
    [2, 2],
    [0.25, 2, -0.75, 0.5],
  ],
  [
    "lax.dynamicIndexInDim(t, start(1), 1, false)",
    () => lax.dynamicIndexInDim(t, start(1), 1, false),
    "float32",
    [2, 4],
    [0.5, 0.625, 0.75, 0.875, 2, 2.125, 2.25, 2.375],
  ],
  [
    "lax.dynamicUpdateSlice(f, g.get(np.s(0, 1)), [start(1), 0])",
    () => lax.dynamicUpdateSlice(f, g.get(np.s(0, 1)), [start(1), 0]),
    "float32",
    [2, 3],
    [-1.5, 0.25, 2, 0.5, 2, -1],
  ],
  [
    "lax.dynamicUpdateSliceInDim(u, v, start(1))",
    () => lax.dynamicUpdateSliceInDim(u, v, start(1)),
    "float32",
    [5],
    [-0.9, 1, -2, 0.5, 0.99],
  ],
  [
    "lax.dynamicUpdateIndexInDim(f, v, start(1), 0)",
    () => lax.dynamicUpdateIndexInDim(f, v, start(1), 0),
    "float32",
    [2, 3],
    [-1.5, 0.25, 2, 1, -2, 0.5],
  ],
  ["lax.reduceSum(t, [0, -1])", () => lax.reduceSum(t, [0, -1]), "float32", [3], [7.5, 11.5, 15.5]],
  ["lax.reduceMax(f, [1])", () => lax.reduceMax(f, [1]), "float32", [2], [2, 3]],
  ["lax.reduceProd(f, [0])", () => lax.reduceProd(f, [0]), "float32", [3], [-4.5, -0.1875, 1]],
  ["lax.reduceAnd(b, [0])", () => lax.reduceAnd(b, [0]), "bool", [3], [0, 0, 1]],
  ["lax.argmin(f, -1)", () => lax.argmin(f, -1), "int32", [2], [0, 1]],
  [
    "lax.cumsum(f, 1, true)",
    () => lax.cumsum(f, 1, true),
    "float32",
    [2, 3],
    [0.75, 2.25, 2, 2.75, -0.25, 0.5],
  ],
  [
    "lax.cumprod(u.add(1), 0, true)",
    () => lax.cumprod(u.add(1), 0, true),
    "float32",
    [5],
    [0.22387506, 2.23875, 2.9850001, 2.9850001, 1.99],
  ],
  ["lax.cummax(f, 1)", () => lax.cummax(f, 1), "float32", [2, 3], [-1.5, 0.25, 2, 3, 3, 3]],
  ["lax.cummin(i, 1)", () => lax.cummin(i, 1), "int32", [2, 3], [5, -3, -3, -8, -8, -8]],
  ["lax.sort(f)", () => lax.sort(f), "float32", [2, 3], [-1.5, 0.25, 2, -0.75, 0.5, 3]],
  [
    "lax.sortKeyVal(i, f)[1]",
    () => lax.sortKeyVal(i, f)[1],
    "float32",
    [2, 3],
    [0.25, -1.5, 2, 3, 0.5, -0.75],
  ],
  [
    "np.stack(lax.sort([f, g], 1))",
    () => np.stack(lax.sort([f, g], 1)),
    "float32",
    [2, 2, 3],
    [-1.5, 0.25, 2, -0.75, 0.5, 3, 0.5, 2, -1, -2, 0.25, 1.5],
  ],
  ["lax.topK(i, 2)[0]", () => lax.topK(i, 2)[0], "int32", [2, 2], [7, 5, 2, 0]],
  [
    "lax.topK(np.array([1, 3, 3, 0, 3]), 4)[1]",
    () => lax.topK(np.array([1, 3, 3, 0, 3]), 4)[1],
    "int32",
    [4],
    [1, 2, 4, 0],
  ],
  ["lax.dot(f, v)", () => lax.dot(f, v), "float32", [2], [-1, 4.75]],
  [
    "lax.batchMatmul(t, t.mT)",
    () => lax.batchMatmul(t, t.mT),
    "float32",
    [2, 3, 3],
    [
      0.21875, 0.59375, 0.96875, 0.59375, 1.96875, 3.34375, 0.96875, 3.34375, 5.71875, 11.46875, 14.84375,
      18.21875, 14.84375, 19.21875, 23.59375, 18.21875, 23.59375, 28.96875,
    ],
  ],
  [
    "lax.dotGeneral(t, t, { lhsContract: [2], rhsContract: [2], lhsBatch: [0], rhsBatch: [0] })",
    () => lax.dotGeneral(t, t, { lhsContract: [2], rhsContract: [2], lhsBatch: [0], rhsBatch: [0] }),
    "float32",
    [2, 3, 3],
    [
      0.21875, 0.59375, 0.96875, 0.59375, 1.96875, 3.34375, 0.96875, 3.34375, 5.71875, 11.46875, 14.84375,
      18.21875, 14.84375, 19.21875, 23.59375, 18.21875, 23.59375, 28.96875,
    ],
  ],
];

describe("lax", () => {
  testRows(calls);

  test("does not promote or broadcast", () => {
    expect(() => lax.add(f, i)).toThrow(DTypeError);
    expect(() => lax.add(f, v)).toThrow(ShapeError);
    expect(() => lax.add(i, 0.5)).toThrow(
      "[lax.add] 0.5 is not a valid int32: convert the tensor with convertElementType",
    );
  });

  test("checks slices", () => {
    expect(() => lax.dynamicSlice(f, [0], [1, 1])).toThrow(
      "[lax.dynamicSlice] got 1 starts for the 2 dims of f32[2,3]: pass one for each",
    );
    expect(() => lax.dynamicSliceInDim(f, 0.5, 1)).toThrow(ValueError);
    expect(() => lax.dynamicSliceInDim(f, v, 1)).toThrow(
      "[lax.dynamicSliceInDim] a start must be an integer scalar, got Tensor f32[3]",
    );
    expect(() => lax.indexInDim(f, 3, 1)).toThrow(
      "[lax.indexInDim] index 3 is out of range for dim 1 of f32[2,3]",
    );
    expect(() => lax.topK(f, 4)).toThrow(
      "[lax.topK] k = 4 does not fit the last dim of f32[2,3]: use 0 to 3",
    );
    expect(() => lax.squeeze(f, [0])).toThrow("[lax.squeeze] dims [0] of f32[2,3] must have size 1");
    expect(() => lax.dot(t, t)).toThrow("use dotGeneral");
    // @ts-expect-error it would be ignored
    const dims: lax.DotDims = { lhsContract: [0], rhsContract: [0], preferredElementType: "int8" };
    expect(() => lax.dotGeneral(t, t, dims)).toThrow('unknown option "preferredElementType"');
    expect(() => lax.batchMatmul(f, t)).toThrow(ShapeError);
    expect(() => lax.integerPow(f, 0.5)).toThrow(ValueError);
  });

  test("stopGradient works on trees and keeps what is no tensor", async () => {
    const slope = grad((x: Tensor) => {
      const held = lax.stopGradient({ x, name: "held" });
      expect(held.name).toBe("held");
      return x.mul(held.x).sum();
    });
    await expectClose(slope(v), v);
  });

  test("offers control flow under JAX's names", async () => {
    const sum = jit(
      (xs: Tensor) => lax.scan((carry: Tensor, x: Tensor) => [carry.add(x), carry], np.array(0), xs)[0],
    );
    await expectClose(sum(v), -0.5);
    const pick = (index: number) => lax.switch(start(index), [(x: Tensor) => x, (x: Tensor) => x.mul(2)], v);
    await expectClose(pick(1), v.mul(2));
    await expectClose(
      lax.foriLoop(0, 3, (_, x) => x.mul(2), v),
      v.mul(8),
    );
  });

  test("erfc keeps its digits where it is tiny, and differentiates", async () => {
    const [tail = 0] = await lax.erfc(np.array([5])).data();
    expect(Math.abs(tail / 1.5374597944280347e-12 - 1)).toBeLessThan(1e-5);
    const slope = grad((x: Tensor) => lax.erfc(x).sum())(np.array([0, 0.5, 1.5, 3]));
    const exact = [0, 0.5, 1.5, 3].map((x) => (-2 / Math.sqrt(Math.PI)) * Math.exp(-x * x));
    await expectClose(slope, exact, { rtol: 1e-6 });
    const second = grad((x: Tensor) => grad((y: Tensor) => lax.erfc(y).sum())(x).sum())(np.array([1, 2, 3]));
    const curved = [1, 2, 3].map((x) => ((4 * x) / Math.sqrt(Math.PI)) * Math.exp(-x * x));
    await expectClose(second, curved, { rtol: 1e-5 });
  });

  test("topK differentiates into the chosen elements", async () => {
    const slope = grad((x: Tensor) => lax.topK(x, 2)[0].sum());
    await expectClose(slope(v), [1, 0, 1]);
  });
});

test("products of bools tell whether there is a pair of trues", () => {
  const bits = (...rows: number[][]) => np.array(rows).ne(0);
  const [a, b] = [bits([1, 1], [0, 1]), bits([1, 1], [1, 0])];
  expect(lax.dot(a, b)).toEqual(bits([1, 1], [1, 0]));
  expect(lax.batchMatmul(a.expandDims(0), b.expandDims(0)).get(0)).toEqual(bits([1, 1], [1, 0]));
  const dims = { lhsContract: [1], rhsContract: [0] };
  expect(lax.dotGeneral(a, b, dims, "int32")).toEqual(np.array([2, 1, 1, 0], "int32").reshape([2, 2]));
  expect(() => lax.dot(a, np.ones([2, 2]))).toThrow("dotGeneral");
});
