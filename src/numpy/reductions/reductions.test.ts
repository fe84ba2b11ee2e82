import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { b, c, f, h, i, m, n, p, type Row, t, testRows, u, v } from "../../../test/support/jaxRows.js";
import { DTypeError, grad, ShapeError, type Tensor, ValueError } from "../../index.js";
import * as np from "../index.js";

const q = np.array([3, 1, 2, 1, 3, Number.NaN, 0]);
const spread = np.array([
  [3, 1, 2.5],
  [0.5, -1, 4],
]);
const holes = np.array([
  [3, Number.NaN, 2.5],
  [0.5, -1, 4],
]);

const reductions: readonly Row[] = [
  ["np.sum(t)", () => np.sum(t), "float32", [], [34.5]],
  [
    "np.sum(t, 0)",
    () => np.sum(t, 0),
    "float32",
    [3, 4],
    [1.5, 1.75, 2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75, 4, 4.25],
  ],
  ["np.sum(t, [0, -1])", () => np.sum(t, [0, -1]), "float32", [3], [7.5, 11.5, 15.5]],
  [
    "np.sum(t, -1, { keepdims: true })",
    () => np.sum(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.75, 2.75, 4.75, 6.75, 8.75, 10.75],
  ],
  ["np.prod(t)", () => np.prod(t), "float32", [], [0]],
  [
    "np.prod(t, 0)",
    () => np.prod(t, 0),
    "float32",
    [3, 4],
    [0, 0.203125, 0.4375, 0.703125, 1, 1.328125, 1.6875, 2.078125, 2.5, 2.953125, 3.4375, 3.953125],
  ],
  ["np.prod(t, [0, -1])", () => np.prod(t, [0, -1]), "float32", [3], [0, 4.6575165, 100.32406]],
  [
    "np.prod(t, -1, { keepdims: true })",
    () => np.prod(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0, 0.20507812, 1.9335938, 7.998047, 22.710938, 51.884766],
  ],
  ["np.mean(t)", () => np.mean(t), "float32", [], [1.4375]],
  [
    "np.mean(t, 0)",
    () => np.mean(t, 0),
    "float32",
    [3, 4],
    [0.75, 0.875, 1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 2, 2.125],
  ],
  ["np.mean(t, [0, -1])", () => np.mean(t, [0, -1]), "float32", [3], [0.9375, 1.4375, 1.9375]],
  [
    "np.mean(t, -1, { keepdims: true })",
    () => np.mean(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.1875, 0.6875, 1.1875, 1.6875, 2.1875, 2.6875],
  ],
  ["np.max(t)", () => np.max(t), "float32", [], [2.875]],
  [
    "np.max(t, 0)",
    () => np.max(t, 0),
    "float32",
    [3, 4],
    [1.5, 1.625, 1.75, 1.875, 2, 2.125, 2.25, 2.375, 2.5, 2.625, 2.75, 2.875],
  ],
  ["np.max(t, [0, -1])", () => np.max(t, [0, -1]), "float32", [3], [1.875, 2.375, 2.875]],
  [
    "np.max(t, -1, { keepdims: true })",
    () => np.max(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.375, 0.875, 1.375, 1.875, 2.375, 2.875],
  ],
  ["np.min(t)", () => np.min(t), "float32", [], [0]],
  [
    "np.min(t, 0)",
    () => np.min(t, 0),
    "float32",
    [3, 4],
    [0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1, 1.125, 1.25, 1.375],
  ],
  ["np.min(t, [0, -1])", () => np.min(t, [0, -1]), "float32", [3], [0, 0.5, 1]],
  [
    "np.min(t, -1, { keepdims: true })",
    () => np.min(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0, 0.5, 1, 1.5, 2, 2.5],
  ],
  ["np.var(t)", () => np.var(t), "float32", [], [0.74869794]],
  [
    "np.var(t, 0)",
    () => np.var(t, 0),
    "float32",
    [3, 4],
    [0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625, 0.5625],
  ],
  ["np.var(t, [0, -1])", () => np.var(t, [0, -1]), "float32", [3], [0.58203125, 0.58203125, 0.58203125]],
  [
    "np.var(t, -1, { keepdims: true })",
    () => np.var(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.01953125, 0.01953125, 0.01953125, 0.01953125, 0.01953125, 0.01953125],
  ],
  ["np.std(t)", () => np.std(t), "float32", [], [0.86527336]],
  [
    "np.std(t, 0)",
    () => np.std(t, 0),
    "float32",
    [3, 4],
    [0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75, 0.75],
  ],
  ["np.std(t, [0, -1])", () => np.std(t, [0, -1]), "float32", [3], [0.7629097, 0.7629097, 0.7629097]],
  [
    "np.std(t, -1, { keepdims: true })",
    () => np.std(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.13975425, 0.13975425, 0.13975425, 0.13975425, 0.13975425, 0.13975425],
  ],
  ["np.ptp(t)", () => np.ptp(t), "float32", [], [2.875]],
  [
    "np.ptp(t, 0)",
    () => np.ptp(t, 0),
    "float32",
    [3, 4],
    [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5],
  ],
  ["np.ptp(t, [0, -1])", () => np.ptp(t, [0, -1]), "float32", [3], [1.875, 1.875, 1.875]],
  [
    "np.ptp(t, -1, { keepdims: true })",
    () => np.ptp(t, -1, { keepdims: true }),
    "float32",
    [2, 3, 1],
    [0.375, 0.375, 0.375, 0.375, 0.375, 0.375],
  ],
  ["np.sum(i, 1)", () => np.sum(i, 1), "int32", [2], [9, -6]],
  ["np.prod(i, 1)", () => np.prod(i, 1), "int32", [2], [-105, 0]],
  ["np.mean(i, 1)", () => np.mean(i, 1), "float32", [2], [3, -2]],
  ["np.max(i, 1)", () => np.max(i, 1), "int32", [2], [7, 2]],
  ["np.var(i, 1)", () => np.var(i, 1), "float32", [2], [18.666666, 18.666666]],
  ["np.ptp(i, 1)", () => np.ptp(i, 1), "int32", [2], [10, 10]],
  ["np.sum(b, 1)", () => np.sum(b, 1), "int32", [2], [2, 1]],
  ["np.prod(b, 1)", () => np.prod(b, 1), "int32", [2], [0, 0]],
  ["np.mean(b, 1)", () => np.mean(b, 1), "float32", [2], [0.6666667, 0.33333334]],
  ["np.max(b, 1)", () => np.max(b, 1), "bool", [2], [1, 1]],
  ["np.min(b, 1)", () => np.min(b, 1), "bool", [2], [0, 0]],
  ["np.sum(h)", () => np.sum(h), "bfloat16", [], [300]],
  ["np.mean(h)", () => np.mean(h), "bfloat16", [], [75]],
  ["np.var(h)", () => np.var(h), "bfloat16", [], [16896]],
  [
    `np.sum(np.full([3000], 1.0, "bfloat16"))`,
    () => np.sum(np.full([3000], 1.0, "bfloat16")),
    "bfloat16",
    [],
    [3008],
  ],
  [
    `np.mean(np.full([3000], 1.5, "float16"))`,
    () => np.mean(np.full([3000], 1.5, "float16")),
    "float16",
    [],
    [1.5],
  ],
  [`np.sum(f, 0, { dtype: "int32" })`, () => np.sum(f, 0, { dtype: "int32" }), "int32", [3], [2, 0, 2]],
  [
    "np.sum(f, null, { where: b, initial: 10 })",
    () => np.sum(f, null, { where: b, initial: 10 }),
    "float32",
    [],
    [11],
  ],
  ["np.mean(f, 1, { where: b })", () => np.mean(f, 1, { where: b }), "float32", [2], [0.25, 0.5]],
  ["np.prod(f, 0, { where: c })", () => np.prod(f, 0, { where: c }), "float32", [3], [-4.5, -0.1875, 1]],
  [
    "np.max(f, 0, { where: b, initial: -9 })",
    () => np.max(f, 0, { where: b, initial: -9 }),
    "float32",
    [3],
    [-1.5, -9, 2],
  ],
  ["np.min(f, null, { initial: -9 })", () => np.min(f, null, { initial: -9 }), "float32", [], [-9]],
  ["np.var(f, 1, { where: b })", () => np.var(f, 1, { where: b }), "float32", [2], [3.0625, 0]],
  ["np.var(f, 0, { ddof: 1 })", () => np.var(f, 0, { ddof: 1 }), "float32", [3], [10.125, 0.5, 1.125]],
  ["np.std(f, 1, { ddof: 1 })", () => np.std(f, 1, { ddof: 1 }), "float32", [2], [1.75, 1.9094065]],
  [
    "np.var(v.get(np.s(0, 1)), 0, { ddof: 1 })",
    () => np.var(v.get(np.s(0, 1)), 0, { ddof: 1 }),
    "float32",
    [],
    [Number.NaN],
  ],
  ["np.sum(f, [])", () => np.sum(f, []), "float32", [2, 3], [-1.5, 0.25, 2, 3, -0.75, 0.5]],
  ["np.max(n)", () => np.max(n), "float32", [], [Number.NaN]],
  ["np.prod(np.arange(1, 8))", () => np.prod(np.arange(1, 8)), "int32", [], [5040]],
  ["np.prod(np.zeros([0, 2]), 0)", () => np.prod(np.zeros([0, 2]), 0), "float32", [2], [1, 1]],
  ["np.mean(np.zeros([0]))", () => np.mean(np.zeros([0])), "float32", [], [Number.NaN]],
  [
    "np.max(np.zeros([0]), 0, { initial: 3 })",
    () => np.max(np.zeros([0]), 0, { initial: 3 }),
    "float32",
    [],
    [3],
  ],
  ["np.all(b, 0)", () => np.all(b, 0), "bool", [3], [0, 0, 1]],
  ["np.any(b, 1, { keepdims: true })", () => np.any(b, 1, { keepdims: true }), "bool", [2, 1], [1, 1]],
  ["np.all(f)", () => np.all(f), "bool", [], [1]],
  ["np.any(i, 0, { where: b })", () => np.any(i, 0, { where: b }), "bool", [3], [1, 0, 1]],
  ["np.all(np.zeros([0]))", () => np.all(np.zeros([0])), "bool", [], [1]],
  ["np.countNonzero(i, 1)", () => np.countNonzero(i, 1), "int32", [2], [3, 2]],
  ["np.argmax(f)", () => np.argmax(f), "int32", [], [3]],
  ["np.argmin(f, 0)", () => np.argmin(f, 0), "int32", [3], [0, 1, 1]],
  [
    "np.argmax(t, -1, { keepdims: true })",
    () => np.argmax(t, -1, { keepdims: true }),
    "int32",
    [2, 3, 1],
    [3, 3, 3, 3, 3, 3],
  ],
  ["np.argmax(n)", () => np.argmax(n), "int32", [], [0]],
  ["np.argmax(b, 1)", () => np.argmax(b, 1), "int32", [2], [0, 2]],
  ["np.logsumexp(f)", () => np.logsumexp(f), "float32", [], [3.437299]],
  [
    "np.logsumexp(f, 1, { keepdims: true })",
    () => np.logsumexp(f, 1, { keepdims: true }),
    "float32",
    [2, 1],
    [2.1856256, 3.1003907],
  ],
  ["np.logsumexp(f.mul(1000), 0)", () => np.logsumexp(f.mul(1000), 0), "float32", [3], [3000, 250, 2000]],
  ["np.logsumexp(f, 1, { b: p })", () => np.logsumexp(f, 1, { b: p }), "float32", [2], [2.9846196, 3.208178]],
  [
    "np.logsumexp(np.array([-Infinity, -Infinity]))",
    () => np.logsumexp(np.array([-Infinity, -Infinity])),
    "float32",
    [],
    [-Infinity],
  ],
  [
    "np.logsumexp(f, 1, { where: b })",
    () => np.logsumexp(f, 1, { where: b }),
    "float32",
    [2],
    [2.0297503, 0.5],
  ],
  [
    "np.logsumexp(np.array([Infinity, 1]))",
    () => np.logsumexp(np.array([Infinity, 1])),
    "float32",
    [],
    [Infinity],
  ],
];

const statistics: readonly Row[] = [
  ["np.cumsum(f)", () => np.cumsum(f), "float32", [6], [-1.5, -1.25, 0.75, 3.75, 3, 3.5]],
  [
    "np.cumulativeSum(np.array([100, 100, -3], 'int8'))",
    () => np.cumulativeSum(np.array([100, 100, -3], "int8")),
    "int32",
    [3],
    [100, 200, 197],
  ],
  [
    "np.cumulativeSum(f, 0, { includeInitial: true })",
    () => np.cumulativeSum(f, 0, { includeInitial: true }),
    "float32",
    [3, 3],
    [0, 0, 0, -1.5, 0.25, 2, 1.5, -0.5, 2.5],
  ],
  [
    "np.cumulativeProd(np.array([2, 3], 'uint8'), 0, { includeInitial: true })",
    () => np.cumulativeProd(np.array([2, 3], "uint8"), 0, { includeInitial: true }),
    "uint8",
    [3],
    [1, 2, 6],
  ],
  [
    "np.nanargmax([[1, NaN], [NaN, NaN]], 1)",
    () =>
      np.nanargmax(
        np.array([
          [1, NaN],
          [NaN, NaN],
        ]),
        1,
      ),
    "int32",
    [2],
    [0, -1],
  ],
  ["np.nanargmin(NaN)", () => np.nanargmin(np.array([NaN])), "int32", [], [-1]],
  [
    "np.nanargmax of large integers",
    () => np.nanargmax(np.array([16777216, 16777217], "int32")),
    "int32",
    [],
    [1],
  ],
  [
    "np.cumsum(t, 1)",
    () => np.cumsum(t, 1),
    "float32",
    [2, 3, 4],
    [
      0, 0.125, 0.25, 0.375, 0.5, 0.75, 1, 1.25, 1.5, 1.875, 2.25, 2.625, 1.5, 1.625, 1.75, 1.875, 3.5, 3.75,
      4, 4.25, 6, 6.375, 6.75, 7.125,
    ],
  ],
  ["np.cumsum(b, 1)", () => np.cumsum(b, 1), "int32", [2, 3], [1, 1, 2, 0, 0, 1]],
  [
    "np.cumprod(t.add(1), -1)",
    () => np.cumprod(t.add(1), -1),
    "float32",
    [2, 3, 4],
    [
      1, 1.125, 1.40625, 1.9335938, 1.5, 2.4375, 4.265625, 7.998047, 2, 4.25, 9.5625, 22.710938, 2.5, 6.5625,
      18.046875, 51.884766, 3, 9.375, 30.46875, 102.83203, 3.5, 12.6875, 47.578125, 184.36523,
    ],
  ],
  ["np.cumprod(i, 1)", () => np.cumprod(i, 1), "int32", [2, 3], [5, -15, -105, -8, -16, 0]],
  ["np.diff(f)", () => np.diff(f), "float32", [2, 2], [1.75, 1.75, -3.75, 1.25]],
  ["np.diff(u, 2)", () => np.diff(u, 2), "float32", [3], [-0.39999998, 0.25, -0.00999999]],
  ["np.diff(i, 1, 0)", () => np.diff(i, 1, 0), "int32", [1, 3], [-13, 5, -7]],
  ["np.diff(b)", () => np.diff(b), "bool", [2, 2], [1, 1, 0, 1]],
  ["np.average(f, 1)", () => np.average(f, 1), "float32", [2], [0.25, 0.9166667]],
  [
    "np.average(f, 1, { weights: np.array([1, 2, 3]) })",
    () => np.average(f, 1, { weights: np.array([1, 2, 3]) }),
    "float32",
    [2],
    [0.8333334, 0.5],
  ],
  [
    "np.average(f, null, { weights: p })",
    () => np.average(f, null, { weights: p }),
    "float32",
    [],
    [0.07780979],
  ],
  ["np.median(f)", () => np.median(f), "float32", [], [0.375]],
  ["np.median(u)", () => np.median(u), "float32", [], [0]],
  ["np.median(t, [0, 2])", () => np.median(t, [0, 2]), "float32", [3], [0.9375, 1.4375, 1.9375]],
  ["np.median(n)", () => np.median(n), "float32", [], [Number.NaN]],
  ["np.quantile(f, 0.3, 1)", () => np.quantile(f, 0.3, 1), "float32", [2], [-0.44999996, 2.9802322e-8]],
  [
    "np.quantile(spread, [0, 0.3, 1], 1)",
    () => np.quantile(spread, [0, 0.3, 1], 1),
    "float32",
    [3, 2],
    [1, -1, 1.9, -0.09999996, 3, 4],
  ],
  [
    "np.percentile(spread, [25, 90], undefined, { keepdims: true })",
    () => np.percentile(spread, [25, 90], undefined, { keepdims: true }),
    "float32",
    [2, 1, 1],
    [0.62499994, 3.4999995],
  ],
  [
    "np.nanquantile(holes, [0.3, 0.5], 1, { keepdims: true })",
    () => np.nanquantile(holes, [0.3, 0.5], 1, { keepdims: true }),
    "float32",
    [2, 2, 1],
    [2.65, -0.09999996, 2.75, 0.5],
  ],
  [
    "np.nanpercentile(holes, [10, 60])",
    () => np.nanpercentile(holes, [10, 60]),
    "float32",
    [2],
    [-0.40000004, 2.6999998],
  ],
  [
    "np.percentile(t, 90, 0, { keepdims: true })",
    () => np.percentile(t, 90, 0, { keepdims: true }),
    "float32",
    [1, 3, 4],
    [1.3499999, 1.475, 1.5999999, 1.725, 1.8499999, 1.9749999, 2.1, 2.2250001, 2.35, 2.475, 2.6, 2.725],
  ],
  ["np.median(i, 1)", () => np.median(i, 1), "float32", [2], [5, 0]],
  ["np.nansum(q)", () => np.nansum(q), "float32", [], [10]],
  ["np.nanmean(q)", () => np.nanmean(q), "float32", [], [1.6666666]],
  ["np.nanmax(q)", () => np.nanmax(q), "float32", [], [3]],
  ["np.nanmin(q, 0)", () => np.nanmin(q, 0), "float32", [], [0]],
  ["np.nanmax(np.array([Number.NaN]))", () => np.nanmax(np.array([Number.NaN])), "float32", [], [Number.NaN]],
  ["np.nansum(i)", () => np.nansum(i), "int32", [], [3]],
  ["np.sort(f)", () => np.sort(f), "float32", [2, 3], [-1.5, 0.25, 2, -0.75, 0.5, 3]],
  ["np.sort(f, 0)", () => np.sort(f, 0), "float32", [2, 3], [-1.5, -0.75, 0.5, 3, 0.25, 2]],
  ["np.sort(f, null)", () => np.sort(f, null), "float32", [6], [-1.5, -0.75, 0.25, 0.5, 2, 3]],
  ["np.sort(q)", () => np.sort(q), "float32", [7], [0, 1, 1, 2, 3, 3, Number.NaN]],
  [
    "np.sort(q, -1, { descending: true })",
    () => np.sort(q, -1, { descending: true }),
    "float32",
    [7],
    [Number.NaN, 3, 3, 2, 1, 1, 0],
  ],
  ["np.argsort(q)", () => np.argsort(q), "int32", [7], [6, 1, 3, 2, 0, 4, 5]],
  [
    "np.argsort(q, 0, { descending: true })",
    () => np.argsort(q, 0, { descending: true }),
    "int32",
    [7],
    [5, 0, 4, 2, 1, 3, 6],
  ],
  ["np.argsort(i, 1)", () => np.argsort(i, 1), "int32", [2, 3], [1, 0, 2, 0, 2, 1]],
  [
    "np.argsort(t, null)",
    () => np.argsort(t, null),
    "int32",
    [24],
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
  ],
  [
    "np.searchsorted(np.array([1, 2, 2, 3]), np.array([[0, 1, 2], [2.5, 3, 4]]))",
    () =>
      np.searchsorted(
        np.array([1, 2, 2, 3]),
        np.array([
          [0, 1, 2],
          [2.5, 3, 4],
        ]),
      ),
    "int32",
    [2, 3],
    [0, 0, 1, 3, 3, 4],
  ],
  [
    `np.searchsorted(np.array([1, 2, 2, 3]), np.array([0, 1, 2, 3, 4, Number.NaN]), { side: "right" })`,
    () => np.searchsorted(np.array([1, 2, 2, 3]), np.array([0, 1, 2, 3, 4, Number.NaN]), { side: "right" }),
    "int32",
    [6],
    [0, 1, 3, 4, 4, 4],
  ],
  ["np.searchsorted(np.arange(7), 3)", () => np.searchsorted(np.arange(7), 3), "int32", [], [3]],
  [
    "np.searchsorted(np.array([1, 3, Number.NaN]), np.array([2, 5, Number.NaN]))",
    () => np.searchsorted(np.array([1, 3, Number.NaN]), np.array([2, 5, Number.NaN])),
    "int32",
    [3],
    [1, 2, 2],
  ],
  [
    "np.digitize(v, np.array([-1, 0, 1]))",
    () => np.digitize(v, np.array([-1, 0, 1])),
    "int32",
    [3],
    [3, 0, 2],
  ],
  [
    "np.digitize(v, np.array([-1, 0, 1]), { right: true })",
    () => np.digitize(v, np.array([-1, 0, 1]), { right: true }),
    "int32",
    [3],
    [2, 0, 2],
  ],
  [
    `np.bincount(np.array([1, 3, 1], "int32"), { length: 5 })`,
    () => np.bincount(np.array([1, 3, 1], "int32"), { length: 5 }),
    "int32",
    [5],
    [0, 2, 0, 1, 0],
  ],
  [
    `np.bincount(np.array([1, 3, 1], "int32"), { length: 4, weights: v })`,
    () => np.bincount(np.array([1, 3, 1], "int32"), { length: 4, weights: v }),
    "float32",
    [4],
    [0, 1.5, 0, -2],
  ],
  ["np.linalg.norm(f)", () => np.linalg.norm(f), "float32", [], [4.0155945]],
  [
    "np.linalg.norm(f, null, 1, { keepdims: true })",
    () => np.linalg.norm(f, null, 1, { keepdims: true }),
    "float32",
    [2, 1],
    [2.5124688, 3.132491],
  ],
  ["np.linalg.norm(v, 1)", () => np.linalg.norm(v, 1), "float32", [], [3.5]],
  ["np.linalg.norm(v, 3)", () => np.linalg.norm(v, 3), "float32", [], [2.0896697]],
  ["np.linalg.norm(v, 0)", () => np.linalg.norm(v, 0), "float32", [], [3]],
  ["np.linalg.norm(v, Infinity)", () => np.linalg.norm(v, Infinity), "float32", [], [2]],
  ["np.linalg.norm(v, -Infinity)", () => np.linalg.norm(v, -Infinity), "float32", [], [0.5]],
  ["np.linalg.norm(f, 2, -1)", () => np.linalg.norm(f, 2, -1), "float32", [2], [2.5124688, 3.132491]],
  [`np.linalg.norm(f, "fro")`, () => np.linalg.norm(f, "fro"), "float32", [], [4.0155945]],
  ["np.linalg.norm(f, 1)", () => np.linalg.norm(f, 1), "float32", [], [4.5]],
  ["np.linalg.norm(f, -1)", () => np.linalg.norm(f, -1), "float32", [], [1]],
  [
    "np.linalg.norm(t, Infinity, [0, 2], { keepdims: true })",
    () => np.linalg.norm(t, Infinity, [0, 2], { keepdims: true }),
    "float32",
    [1, 3, 1],
    [6.75, 8.75, 10.75],
  ],
  [
    "np.linalg.norm(t, -Infinity, [2, 1])",
    () => np.linalg.norm(t, -Infinity, [2, 1]),
    "float32",
    [2],
    [1.5, 6],
  ],
  ["np.linalg.norm(i)", () => np.linalg.norm(i), "float32", [], [12.288206]],
  ["np.linalg.norm(h)", () => np.linalg.norm(h), "bfloat16", [], [300]],
  [
    "np.linalg.matrixPower(m, 3)",
    () => np.linalg.matrixPower(m, 3),
    "float32",
    [3, 3],
    [180, 234, 288, 558, 720, 882, 936, 1206, 1476],
  ],
  [
    "np.linalg.matrixPower(m, 0)",
    () => np.linalg.matrixPower(m, 0),
    "float32",
    [3, 3],
    [1, 0, 0, 0, 1, 0, 0, 0, 1],
  ],
];

describe("reductions", () => {
  testRows(reductions);

  test("dims must exist and differ", () => {
    expect(() => np.sum(f, 2)).toThrow(
      "[sum] dim 2 is out of range for a tensor of 2 dims: use an integer from -2 to 1",
    );
    expect(() => np.mean(f, [0, -2])).toThrow("[mean] dims [0,-2] name a dimension twice");
    expect(() => np.cumulativeSum(f)).toThrow(
      "[cumulativeSum] a tensor of 2 dims needs the dim to compute along",
    );
    expect(() => np.sum(3, 0)).toThrow("[sum] dim 0 is out of range for a tensor of 0 dims");
  });

  test("an empty tensor has no extreme element", () => {
    expect(() => np.max(np.zeros([0, 3]), 0)).toThrow(ShapeError);
    expect(() => np.max(np.zeros([0, 3]), 0)).toThrow(
      "[max] dim 0 of f32[0,3] has size 0, so it has no largest or smallest element: pass `initial`",
    );
    expect(() => np.argmax(np.zeros([0]))).toThrow(ShapeError);
  });

  test("where needs a value for the case that nothing is left", () => {
    expect(() => np.min(f, 0, { where: b })).toThrow(ValueError);
    expect(() => np.ptp(b)).toThrow(DTypeError);
    expect(() => np.sum(f, 0, { initial: f })).toThrow("[sum] initial must be a scalar, got f32[2,3]");
  });

  test("the gradient of a product is right where an element is 0", async () => {
    await expectClose(grad((x: Tensor) => np.prod(x))(np.array([2, 0, 5])), [0, 10, 0]);
  });

  test("the gradient of logsumexp is the softmax, also for large numbers", async () => {
    const slope = grad((x: Tensor) => np.logsumexp(x));
    await expectClose(slope(np.array([1000, 1000])), [0.5, 0.5]);
  });
});

describe("statistics, sorting and norms", () => {
  testRows(statistics);

  test("arguments are checked", () => {
    expect(() => np.quantile(f, 1.5)).toThrow("[quantile] q = 1.5 must lie between 0 and 1");
    expect(() => np.percentile(f, [50, 101])).toThrow("[percentile] q = 101 must lie between 0 and 100");
    expect(() => np.nanquantile(f, [])).toThrow("[nanquantile] q is an empty list: pass at least one number");
    expect(() => np.diff(f, -1)).toThrow("[diff] n = -1 must be an integer of at least 0");
    expect(() => np.average(f, null, { weights: np.ones([3]) })).toThrow(
      "[average] weights f32[3] need one dim of f32[2,3] with 3 elements: pass that dim",
    );
    expect(() => np.sort(f, 2)).toThrow("[sort] dim 2 is out of range");
    expect(() => np.searchsorted(f, 1)).toThrow("[searchsorted] searches a vector, got f32[2,3]");
    expect(() => np.searchsorted(u, 1, { side: "middle" as "left" })).toThrow(ValueError);
    expect(() => np.linalg.norm(f, 3)).toThrow(
      '[linalg.norm] there is no norm of matrices of order 3: use "fro", "nuc", 1, −1, 2, −2, Infinity or −Infinity',
    );
    expect(() => np.linalg.norm(t, 2)).toThrow(
      "[linalg.norm] order 2 is a norm of one dim or of two, not of 3",
    );
    expect(() => np.linalg.norm(v, "fro")).toThrow(ValueError);
    expect(() => np.linalg.matrixPower(m, 0.5)).toThrow(ValueError);
  });

  test("the gradient of a running product is the running product of the rest", async () => {
    const slope = grad((x: Tensor) => np.cumprod(x, 0).sum());
    await expectClose(slope(np.array([2, 3, 4])), [1 + 3 + 12, 2 + 8, 6]);
  });

  test("the gradient of a sort goes back to where the elements came from", async () => {
    const slope = grad((x: Tensor) =>
      np
        .sort(x)
        .mul(np.array([1, 10, 100]))
        .sum(),
    );
    await expectClose(slope(np.array([3, 1, 2])), [100, 1, 10]);
  });
});

test("variances take a known mean, as in JAX", async () => {
  const x = np.array([
    [1, Number.NaN, 4],
    [2, 6, 8],
  ]);
  const mean = np.array([[1], [2]]);
  await expectClose(np.nanvar(x, 1, { mean }), [4.5, 17.333334]);
  await expectClose(np.nanstd(x, 1, { mean, ddof: 1 }), [3, 5.0990195]);
  const row = np.array([1, 3, 8]);
  await expectClose(np.var(row, 0, { mean: 1 }), 17.666666);
  await expectClose(np.std(row, 0, { mean: 2, ddof: 1 }), 4.358899);
  expect(np.var(row.astype("float16"), 0, { mean: np.array(1.5) }).dtype).toBe("float16");
  expect(() => np.var(row, 0, { mean: np.ones([2]) })).toThrow("[var] shapes [3] and [2] do not broadcast");
});

test.each([
  ["nansum", np.nansum],
  ["nanprod", np.nanprod],
  ["nanmean", np.nanmean],
  ["nanvar", np.nanvar],
  ["nanstd", np.nanstd],
  ["nanmax", np.nanmax],
  ["nanmin", np.nanmin],
  ["nanmedian", np.nanmedian],
  ["nanargmax", np.nanargmax],
  ["nancumsum", np.nancumsum],
  ["nancumprod", np.nancumprod],
  ["median", np.median],
  ["std", np.std],
  ["ptp", np.ptp],
  ["average", np.average],
  ["countNonzero", np.countNonzero],
] as const)("errors of %s name it", (name, reduce) => {
  const fn = reduce as (x: unknown, dim?: number) => Tensor;
  expect(() => fn(np.ones([2, 3]), 9)).toThrow(`[${name}]`);
  // A string that is no operand is refused by the function, not by the choice of a type.
  expect(() => fn("float32")).toThrow(`[${name}]`);
});
