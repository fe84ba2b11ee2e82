import { grad, lax, np, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { type CaseFunction, describeJaxCases } from "../../test/support/jaxCases.js";

const bits: Readonly<Record<string, CaseFunction>> = {
  nextafter: (a, b) => np.nextafter(a, b),
  "nextafter bits": (a, b) => lax.bitcastConvertType(lax.nextafter(a, b), "int32"),
  "nextafter bfloat16": (a, b) => np.nextafter(a, b),
  "nextafter float16": (a, b) => np.nextafter(a, b),
  spacing: (a) => np.spacing(a),
  "spacing float16": (a) => np.spacing(a),
  frexp: (a) => np.frexp(a),
  "frexp ends": (a) => np.frexp(a),
  "frexp half": (a) => np.frexp(a),
  bitwiseCount: (a) => np.bitwiseCount(a),
  "bitwiseCount int8": (a) => np.bitwiseCount(a),
  packbits: (a) => [np.packbits(a), np.packbits(a, null, { bitorder: "little" })],
  "packbits dim": (a) => [np.packbits(a, 0), np.packbits(a, -1)],
  unpackbits: (a) => [
    np.unpackbits(a),
    np.unpackbits(a, null, { bitorder: "little" }),
    ...[11, -3, 20].map((count) => np.unpackbits(a, null, { count })),
  ],
  "unpackbits dim": (a) => [np.unpackbits(a, 0), np.unpackbits(a, 1, { count: 5 })],
  clz: (a) => [lax.clz(a), lax.populationCount(a)],
  "clz uint32": (a) => [lax.clz(a), lax.populationCount(a)],
  "clz int8": (a) => [lax.clz(a), lax.populationCount(a)],
  "clz uint16": (a) => [lax.clz(a), lax.populationCount(a)],
  reduceXor: (a) => [lax.reduceXor(a, [0]), lax.reduceXor(a, [0, 1])],
  "reduceXor bool": (a) => [lax.reduceXor(a, [0]), lax.reduceXor(a, [1])],
  "bitcast narrower": (a) =>
    (["uint8", "int16", "bfloat16", "int8"] as const).map((dtype) => lax.bitcastConvertType(a, dtype)),
  "bitcast wider": (a) => [
    lax.bitcastConvertType(a, "float32"),
    lax.bitcastConvertType(a.get(":", np.s(0, 2)), "uint16"),
  ],
  cumlogsumexp: (a) => [lax.cumlogsumexp(a, 0), lax.cumlogsumexp(a, 1, true)],
  "cumlogsumexp ends": (a) => lax.cumlogsumexp(a, 0),
};

const windows: Readonly<Record<string, CaseFunction>> = {
  windows: (a) =>
    [np.bartlett(6), np.bartlett(1), np.hanning(5), np.hanning(1), np.hamming(1), np.blackman(4)].map(
      (window) => window.mul(a),
    ),
  kaiser: (b) => [7, 1, 4].map((n) => np.kaiser(n, b)),
  "histogram density": (a) => np.histogram(a, { bins: 4, density: true }),
  "histogram density weights": (a, b) =>
    np.histogram(a, { bins: np.array([-2, -0.5, 0, 2]), weights: b, density: true }),
  histogram2d: (a, b) => np.histogram2d(a, b, { bins: [3, 2] }),
  "histogram2d bounds": (a, b) =>
    np.histogram2d(a, b, { bins: np.array([-2, -0.5, 0.5, 2]), weights: a.add(2), density: true }),
  histogramdd: (a) => np.histogramdd(a, { bins: 3, range: [[-1, 1], null] }),
};

const choices: Readonly<Record<string, CaseFunction>> = {
  setxor1d: (a, b) => [
    np.setxor1d(a, b, { size: 6, fillValue: -1 }),
    np.setxor1d(a, b, { size: 5 }),
    np.setxor1d(a, b, { size: 2 }),
  ],
  uniqueCounts: (a) => {
    const { values, counts } = np.uniqueCounts(a, { size: 6 });
    const inverse = np.uniqueInverse(a, { size: 6 });
    return [values, counts, inverse.values, inverse.inverse, np.uniqueValues(a, { size: 6 })];
  },
  compress: (a, c) => [
    np.compress(c, a, 0, { size: 3 }),
    np.compress(c, a.T, 1, { size: 2, fillValue: 7 }),
    np.compress(c, a, null, { size: 2 }),
  ],
  extract: (a) => np.extract(np.greater(a, 0), a, { size: 8, fillValue: -1 }),
  place: (a, b) => np.place(a, np.greater(a, 0), b),
  put: (a, b) => [
    np.put(a, np.array([0, 5, 20, -1], "int32"), b),
    np.put(a, np.array([13, 6], "int32"), b, { mode: "wrap" }),
    np.put(a, np.array([30, 2], "int32"), b, { mode: "clip" }),
  ],
  sortComplex: (a, b) => [np.sortComplex(a), np.sortComplex(b)],
  resize: (a) => [np.resize(a, [2, 9]), np.resize(a, 5)],
  rollaxis: (a) => [np.rollaxis(a, 2), np.rollaxis(a, 0, 3), np.rollaxis(a, 1, -1)],
  dsplit: (a) => np.dsplit(a, 2),
  applyOverAxes: (a) => np.applyOverAxes((x, d) => np.sum(x, d), a, [0, 2]),
  arrayEquiv: (a) => [np.arrayEquiv(a, np.stack([a, a])), np.arrayEquiv(a, a.add(1))],
  indicesFrom: (a) => [
    ...np.trilIndicesFrom(a),
    ...np.triuIndicesFrom(a, 1),
    ...np.diagIndicesFrom(a.get(":", np.s(0, 3))),
  ],
  maskIndices: (a) => np.maskIndices(3, (m, k) => np.triu(m, k), 1, { size: 3 }).map((i) => i.mul(a)),
  mgrid: (a) => [np.mgrid(np.s(0, 3), np.s(1, 2, 0.25)).mul(a), np.mgrid(np.s(2, 5)).mul(a)],
  ogrid: (a) => np.ogrid(np.s(0, 3), np.s(1, 6, 2)).map((grid) => grid.mul(a)),
  poly: (a) => np.poly(a),
  "poly matrix": (a) => np.poly(a).real,
  polydiv: (a, b) => [...np.polydiv(a, b), ...np.polydiv(b, a)],
  roots: (a) => np.sort(np.roots(a)),
  "roots zeros": (a) => np.sort(np.roots(a)),
};

const cases = { ...bits, ...windows, ...choices };

describeJaxCases("arrayFunctions.json", cases, { tolerance: 5e-6, everyday: Object.keys(cases) });

test.each<readonly [string, () => unknown, RegExp]>([
  [
    "widths of bits",
    () => lax.bitcastConvertType(np.ones([3]), "float64"),
    /cannot read the bits of float32 as float64/,
  ],
  [
    "parts of elements",
    () => lax.bitcastConvertType(np.ones([3], "uint8"), "int32"),
    /must hold the 4 parts/,
  ],
  ["bits of floats", () => lax.clz(np.ones([3])), /counts bits of integers/],
  ["bytes", () => np.unpackbits(np.ones([3], "int32")), /takes uint8/],
  [
    "an order of bits",
    () => np.packbits(np.ones([3], "int32"), 0, { bitorder: "x" as "big" }),
    /"big" or "little"/,
  ],
  ["points of a window", () => np.bartlett(-1), /integer of at least 0/],
  ["weights", () => np.histogram(np.ones([3]), { weights: np.ones([2]) }), /2 weights for 3 elements/],
  ["bins", () => np.histogramdd(np.ones([3, 2]), { bins: [1, 2, 3] }), /3 entries for 2 dims/],
  // @ts-expect-error the size is required
  ["a size", () => np.extract(np.ones([3]), np.ones([3]), {}), /pass \{ size \}/],
  ["no values", () => np.place(np.ones([3]), np.ones([3]), np.ones([0])), /at least one value/],
  [
    "a mode",
    () => np.put(np.ones([3]), 0, 1, { mode: "raise" as "clip" }),
    /mode must be "clip" or "wrap", got "raise"/,
  ],
  ["a slice", () => np.mgrid(np.s(1)), /slice with an end/],
  ["a kind", () => np.isdtype("int32", "real" as "integral"), /not a data type or a kind/],
])("says what is wrong with %s", (_, call, message) => {
  expect(call).toThrow(message);
});

test("types have kinds, and cast where values are kept", () => {
  expect(np.isdtype("bfloat16", "real floating")).toBe(true);
  expect(np.isdtype("int8", ["bool", "unsigned integer"])).toBe(false);
  expect(np.issubdtype("complex64", "inexact")).toBe(true);
  expect(np.issubdtype("bool", "number")).toBe(false);
  const safe = (["int8", "uint16", "int32", "float16", "complex64"] as const).map((to) =>
    np.canCast("uint8", to),
  );
  expect(safe).toEqual([false, true, true, true, true]);
  expect(np.canCast("int32", "float32")).toBe(false);
  expect(np.canCast("int32", "float32", "same_kind")).toBe(true);
  expect(np.canCast("float32", "int32", "same_kind")).toBe(false);
  expect([np.ndim(np.ones([2, 3])), np.size(np.ones([2, 3]), 1), np.isscalar(1)]).toEqual([2, 3, true]);
});

test("a neighbour moves as its number does, and their distance stays", async () => {
  const at = np.array([1, -0.3, 700]);
  const up = grad((a: Tensor) => np.sum(np.nextafter(a, np.inf)))(at);
  const distance = grad((a: Tensor) => np.sum(np.spacing(a)))(at);
  expect([...(await up.data()), ...(await distance.data())]).toEqual([1, 1, 1, 0, 0, 0]);
});

test("float64 has neighbours too, without integers of its width", async () => {
  const from = [1, 0, -0, 5e-324, 2 ** -1021, 2 ** -968, Number.MAX_VALUE, Number.POSITIVE_INFINITY, -2];
  const x = np.array(from, "float64");
  const [up, down] = [np.nextafter(x, np.inf), np.nextafter(x, -np.inf)];
  const bits = (value: number) => new BigInt64Array(Float64Array.of(value).buffer)[0] ?? 0n;
  const step = (value: number, by: 1n | -1n) => {
    if (value === 0) return by > 0n ? 5e-324 : -5e-324;
    if (value === Number.POSITIVE_INFINITY && by > 0n) return value;
    return Float64Array.from(
      new Float64Array(BigInt64Array.of(bits(value) + (value > 0 ? by : -by)).buffer),
    )[0];
  };
  expect([...(await up.data())]).toEqual(from.map((value) => step(value, 1n)));
  expect([...(await down.data())]).toEqual(from.map((value) => step(value, -1n)));
});

test("NaNs are equal in sets, and different in what the array API calls unique", async () => {
  const x = np.array([Number.NaN, 1, Number.NaN, 2]);
  expect(await np.unique(x, { size: 4 }).js()).toEqual([1, 2, Number.NaN, 1]);
  const { values, indices, inverse, counts } = np.uniqueAll(x, { size: 4 });
  expect(await values.js()).toEqual([1, 2, Number.NaN, Number.NaN]);
  expect(await np.stack([indices, inverse, counts]).js()).toEqual([
    [1, 3, 0, 2],
    [2, 0, 3, 1],
    [1, 1, 1, 1],
  ]);
});
