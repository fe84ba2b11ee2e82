import { np } from "shardwise";
import * as nn from "shardwise/nn";
import { expect, test } from "vitest";
import { type CaseFunction, describeJaxCases } from "../../test/support/jaxCases.js";

type Cases = Readonly<Record<string, CaseFunction>>;

const mask = np.array([
  [true, false, true, true],
  [false, true, false, true],
  [true, true, true, false],
]);
const rows = np.array([true, false, true]);
const parts = [0, 0.3, 0.5, 0.77, 1];
const methods = ["linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"] as const;

/** A case for each of some names. */
const eachOf = <T extends string>(
  list: readonly T[],
  name: (one: T) => string,
  run: (one: T) => CaseFunction,
) => Object.fromEntries(list.map((one) => [name(one), run(one)]));

const widths = [1, 3, 11];
const pads: Cases = {
  ...eachOf(
    ["maximum", "minimum", "mean", "median", "empty"] as const,
    (mode) => `pad ${mode}`,
    (mode) => (a) => [
      np.pad(a, 1, { mode }),
      np.pad(
        a,
        [
          [2, 0],
          [1, 3],
        ],
        { mode },
      ),
    ],
  ),
  ...eachOf(
    ["maximum", "minimum", "mean", "median"] as const,
    (mode) => `pad ${mode} of integers`,
    (mode) => (a) =>
      np.pad(
        a,
        [
          [1, 2],
          [0, 3],
        ],
        {
          mode,
          statLength: [
            [1, 2],
            [3, 2],
          ],
        },
      ),
  ),
  "pad statLength": (a) => [
    np.pad(a, 2, { mode: "mean", statLength: 2 }),
    np.pad(a, 2, {
      mode: "maximum",
      statLength: [
        [9, 1],
        [2, 3],
      ],
    }),
  ],
  "pad linear_ramp": (a) => [
    np.pad(a, 2, { mode: "linear_ramp" }),
    np.pad(
      a,
      [
        [1, 3],
        [2, 0],
      ],
      {
        mode: "linear_ramp",
        endValues: [
          [1, -2],
          [3, 4],
        ],
      },
    ),
  ],
  "pad linear_ramp of integers": (a) => np.pad(a, 2, { mode: "linear_ramp", endValues: [0, 10] }),
  "pad constants": (a) => [
    np.pad(a, 1, { constantValues: [5, 6] }),
    np.pad(
      a,
      [
        [1, 2],
        [2, 1],
      ],
      {
        constantValues: [
          [1, 2],
          [3, 4],
        ],
      },
    ),
  ],
  "pad reflect odd": (a) => widths.map((n) => np.pad(a, n, { mode: "reflect", reflectType: "odd" })),
  "pad symmetric odd": (a) => widths.map((n) => np.pad(a, n, { mode: "symmetric", reflectType: "odd" })),
  "pad reflect": (a) =>
    widths.flatMap((n) => (["reflect", "symmetric"] as const).map((mode) => np.pad(a, n, { mode }))),
  "pad reflect one": (a) =>
    (["reflect", "symmetric"] as const).flatMap((mode) =>
      (["even", "odd"] as const).map((reflectType) => np.pad(a.get(np.s(0, 1)), 2, { mode, reflectType })),
    ),
  "pad reflect matrix": (a) =>
    np.pad(
      a,
      [
        [4, 1],
        [2, 6],
      ],
      { mode: "reflect", reflectType: "odd" },
    ),
};

const quantiles: Cases = {
  ...eachOf(
    methods,
    (method) => `quantile ${method}`,
    (method) => (a) => np.quantile(a, parts, 1, { method }),
  ),
  ...eachOf(
    methods,
    (method) => `nanquantile ${method}`,
    (method) => (a) => np.nanquantile(a, parts, 0, { method }),
  ),
  "percentile method": (a) => [
    np.percentile(a, 30, null, { method: "lower" }),
    np.nanpercentile(a, 60, 1, { method: "higher", keepdims: true }),
  ],
};

const reductions: Cases = {
  "nansum where": (a) => [
    np.nansum(a, 1, { where: mask }),
    np.nansum(a, null, { initial: 2 }),
    np.nansum(a, 0, { dtype: "float16", keepdims: true }),
  ],
  "nanprod where": (a) => [np.nanprod(a, 1, { where: mask }), np.nanprod(a, 0, { initial: 2 })],
  "nanmean where": (a) => [np.nanmean(a, 0, { where: mask }), np.nanmean(a, 1)],
  "nanmean dtype": (a) => np.nanmean(a.add(3), null, { dtype: "float16" }),
  "nanmax where": (a) => [
    np.nanmax(a, 0, { where: mask, initial: -1 }),
    np.nanmin(a, 0, { initial: -0.5 }),
    np.nanmax(a, 1),
  ],
  "nanmax none": (a) => [np.nanmax(a, 1), np.nanmin(a, 1, { initial: 0 })],
  "nanvar where": (a) => [
    np.nanvar(a, 0, { where: mask }),
    np.nanstd(a, null, { where: mask, ddof: 1 }),
    np.nanvar(a, 1, { dtype: "float16" }),
  ],
  "nanmax complex": (a) => [np.nanmax(a, 0), np.nanmin(a)],
  "nanvar complex": (a) => np.nanvar(a, 1),
  "deg2rad complex": (a) => [np.deg2rad(a), np.rad2deg(a)],
  "trace dtype": (a) => [np.trace(a, { dtype: "float32" }), np.trace(a, { offset: 1, dtype: "int16" })],
};

const others: Cases = {
  "cross 2": (a, b) => np.cross(a, b),
  "cross 2 and 3": (a, b) => [np.cross(a, b), np.cross(b, a)],
  "cross axis": (a, b) => [np.cross(a, b, { dim: 0 }), np.cross(a.T, b, { dimA: 1, dimB: 0, dimC: 1 })],
  "cross axis 2": (a, b) => np.cross(a, b, { dim: 0 }),
  "interp period": (a, b, c) => np.interp(a, b, c, { period: 3 }),
  "interp extrapolate": (a, b, c) => [
    np.interp(a, b, c, { left: "extrapolate" }),
    np.interp(a, b, c, { right: "extrapolate" }),
    np.interp(a, b, c, { left: "extrapolate", right: "extrapolate" }),
  ],
  "at mask": (a) => [
    a.at(mask).set(2),
    a.at(mask).add(1.5),
    a.at(mask).multiply(3),
    a.at(mask).max(0.2),
    a.at(mask).divide(4),
  ],
  "at mask rows": (a, b) => [
    a.at(rows).set(b),
    a.at(rows).add(b),
    a.at(rows).min(0.1),
    a.at(rows).subtract(b),
  ],
  "at mask power": (a) => a.at(np.greater(a, 0)).power(2.5),
};

const activations: Cases = {
  sparsePlus: (a) => [nn.sparsePlus(a), nn.sparseSigmoid(a)],
  log1mexp: (a) => nn.log1mexp(a),
  logmeanexp: (a) => [
    nn.logmeanexp(a),
    nn.logmeanexp(a, 1, { where: mask }),
    nn.logmeanexp(a, 0, { keepdims: true }),
  ],
};

const method = "inverted_cdf";

/** Sums before, products of the dim after. */
const ends =
  (shift: number): np.PadFunction =>
  (vector, [before, after], dim) => {
    const own = vector.get(np.s(before, vector.size - after));
    return np.concatenate([
      np.broadcastTo(np.sum(own), [before]),
      own,
      np.broadcastTo(own.get(-1).mul(dim + shift), [after]),
    ]);
  };

const weighed: Readonly<Record<string, CaseFunction>> = {
  "quantile weights": (a, weights) => [
    np.quantile(a, [0, 0.3, 0.8, 1], 1, { weights, method }),
    np.quantile(a, 0.4, null, { weights, method, keepdims: true }),
  ],
  "quantile weights of dims": (a, weights) => [
    np.percentile(a, 60, 1, { weights, method }),
    np.nanquantile(a, 0.25, -1, { weights, method, keepdims: true }),
  ],
  "quantile weights nan": (a, weights) => [
    np.quantile(a, 0.7, 1, { weights, method }),
    np.nanquantile(a, 0.7, 1, { weights, method }),
  ],
  "quantile weights negative": (a, weights) => np.nanpercentile(a, 50, 0, { weights, method }),
  "unravelIndex types": (...all) => all.flatMap((a) => np.unravelIndex(a, [2, 3])),
  "pad function": (a) => [
    np.pad(
      a,
      [
        [1, 2],
        [0, 3],
      ],
      { mode: ends(2) },
    ),
    np.pad(a, 1, { mode: ends(0.5) }),
  ],
};

const cases = { ...pads, ...quantiles, ...weighed, ...reductions, ...others, ...activations };

describeJaxCases("arrayOptions.json", cases, {
  tolerance: 5e-6,
  // JAX rounds the sum to 16 bits before it divides.
  tolerances: { "nanmean dtype": 1e-3 },
  everyday: Object.keys(cases),
});

test.each<readonly [string, () => unknown, RegExp]>([
  [
    "a method",
    () => np.quantile(mask, 0.5, null, { method: "best" as "lower" }),
    /method must be "linear", .*, got "best"/,
  ],
  [
    "weights without their method",
    () => np.quantile(mask, 0.5, null, { weights: mask }),
    /weights need method "inverted_cdf", not "linear"/,
  ],
  [
    "weights of another shape",
    () => np.quantile(np.ones([2, 3]), 0.5, 0, { weights: np.ones([3]), method: "inverted_cdf" }),
    /weights f32\[3\] must have the shape \[2,3\] of the elements or \[2\] of the dims \[0\]/,
  ],
  [
    "a length",
    () => np.pad(rows, 1, { mode: "mean", statLength: 0 }),
    /statLength is a pair of integers of at least 1/,
  ],
  ["a reflection", () => np.pad(rows, 1, { mode: "reflect", reflectType: "x" as "odd" }), /"even" or "odd"/],
  ["vectors", () => np.cross(np.ones([4]), np.ones([3])), /dim 0 must have size 2 or 3/],
  [
    "a period",
    () => np.interp(1, np.ones([2]), np.ones([2]), { period: np.ones([2]) }),
    /period must be a scalar/,
  ],
  ["a mask", () => np.ones([2, 3]).at(rows).set(1), /mask bool\[3\] does not fit f32\[2,3\]/],
  [
    "updates",
    () =>
      np
        .ones([3])
        .at(rows)
        .set(np.ones([2])),
    /depends on its values/,
  ],
  ["reading by a mask", () => np.ones([3]).at(rows).get(), /use np.where/],
  ["an initial value", () => np.nanmax(np.ones([3]), 0, { where: rows }), /pass `initial`/],
])("says what is wrong with %s", (_, call, message) => {
  expect(call).toThrow(message);
});
