import { grad, jit, jvp, lax, Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { describe, expect, test } from "vitest";
import { simulateDevices } from "../src/engines/index.js";
import { expectClose } from "./support/goldens.js";
import { type CaseFunction, describeJaxCases } from "./support/jaxCases.js";

const mask = np.array([
  [true, false, true, true],
  [false, true, false, true],
]);
const there = (x: Tensor) => np.logicalNot(np.isnan(x));
const affine = ([a, b]: [Tensor, Tensor], [c, d]: [Tensor, Tensor]): [Tensor, Tensor] => [
  c.mul(a),
  c.mul(b).add(d),
];
const uniqueParts = (x: Tensor, size: number, fillValue?: number) => {
  const { values, indices, inverse, counts } = np.uniqueAll(x, { size, fillValue });
  return [values, indices, inverse, counts];
};
const slicesOf = (x: Tensor, sizes: readonly number[]) => sizes.map((n) => x.get(np.s(0, n)));

const cases: Readonly<Record<string, CaseFunction>> = {
  associativeScan: (a, b) => lax.associativeScan(affine, [a, b]),
  "associativeScan reverse": (a, b) => lax.associativeScan(affine, [a, b], { reverse: true }),
  "associativeScan reverse 5": (a, b) => lax.associativeScan(affine, [a, b], { reverse: true }),
  reduceAnd: (a) => [0, 1].map((d) => lax.reduceAnd(a, [d])),
  reduceOr: (a) => [0, 1].map((d) => lax.reduceOr(a, [d])),
  "reduceAnd both": (a) => [lax.reduceAnd(a, [0, 1]), lax.reduceOr(a, [0, 1])],
  "reduceAnd bool": (a) => [lax.reduceAnd(a, [0]), lax.reduceOr(a, [0])],
  round: (a) => lax.round(a),
  "round to even": (a) => lax.round(a, "toNearestEven"),
  "dynamicSlice unsigned": (a, i) => lax.dynamicSlice(a, [i], [2]),
  "dynamicSlice negative": (a, i) => lax.dynamicSlice(a, [i], [2]),
  "dynamicUpdateSlice unsigned": (a, b, i) => lax.dynamicUpdateSlice(a, b, [i]),

  "softmax where": (a) => nn.softmax(a, -1, { where: mask }),
  "logSoftmax where": (a) => nn.logSoftmax(a, -1, { where: mask }),
  "logsumexp where": (a) => nn.logsumexp(a, 1, { where: mask }),
  "standardize where": (a) => nn.standardize(a, -1, { where: mask }),
  "sum where": (a) => np.sum(a, 1, { where: mask }),
  "prod where": (a) => np.prod(a, 1, { where: mask }),
  "mean where": (a) => np.mean(a, 1, { where: mask }),
  "var where": (a) => np.var(a, 1, { where: mask, ddof: 1 }),
  "std where": (a) => np.std(a, 1, { where: mask }),
  "max where": (a) => [np.max(a, 1, { where: mask, initial: -9 }), np.min(a, 1, { where: mask, initial: 9 })],
  "mean where nan": (a) => np.mean(a, 1, { where: there(a) }),
  "logsumexp where nan": (a) => nn.logsumexp(a, 1, { where: there(a) }),
  "softmax where nan": (a) => nn.softmax(a, -1, { where: there(a) }),
  "logSoftmax where nan": (a) => nn.logSoftmax(a, -1, { where: there(a) }),
  nanvar: (a) => np.nanvar(a, 1),
  "nanvar ddof": (a) => np.nanvar(a, 1, { ddof: 1 }),
  nanstd: (a) => np.nanstd(a),
  nanmean: (a) => np.nanmean(a, 1),
  nansum: (a) => np.nansum(a, 1),
  nanprod: (a) => np.nanprod(a, 1),
  nanmax: (a) => [np.nanmax(a, 1), np.nanmin(a, 1)],
  "nanmedian infinite": (a) => np.nanmedian(a, 1),
  "nanquantile infinite": (a) => [0.25, 0.75].map((q) => np.nanquantile(a, q, 1)),
  "quantile infinite": (a) => [0.25, 0.5].map((q) => np.quantile(a, q, 1)),
  nanquantile: (a) => np.nanquantile(a, 0.3, 1),

  "takeAlongAxis clip": (a, i) => np.takeAlongAxis(a, i, 1, { mode: "clip" }),
  "takeAlongAxis fill": (a, i) => np.takeAlongAxis(a, i, 1),
  "take clip": (a, i) => np.take(a, i, 1, { mode: "clip" }),
  "take wrap": (a, i) => np.take(a, i, 1, { mode: "wrap" }),
  "take fill": (a, i) => np.take(a, i, 1),
  index: (a, i) => a.get(i),
  "index two": (a, i, j) => a.get(i, j),
  "index scalar": (a, i) => a.get(i),
  "index scalar two": (a, i) => a.get(0, i),
  "index ellipsis": (a, i, j) => [a.get(i, "...", j), a.get(i, j), a.get("...", i, j)],
  "index empty ellipsis": (a, i, j) => [
    a.get(i, "...", ":", j),
    a.get(":", i, "...", j),
    a.get(i, ":", "...", j),
  ],
  "at add outside": (a, i, u) => a.at(i).add(u),
  "at set outside": (a, i, u) => a.at(i).set(u),
  digitize: (a, b) => [false, true].map((right) => np.digitize(a, b, { right })),
  "digitize falling": (a, b) => [false, true].map((right) => np.digitize(a, b, { right })),
  "cov one row": (a) => [np.cov(a), np.cov(a.get(0)), np.cov(a.transpose(), { rowvar: false })],
  "corrcoef one row": (a) => [np.corrcoef(a), np.corrcoef(a.get(0))],
  fillDiagonal: (a, v) => slicesOf(v, [1, 2, 3]).map((part) => np.fillDiagonal(a, part)),
  unravelIndex: (i) => np.unravelIndex(i, [3, 4]),
  bincount: (i) => np.bincount(i, { length: 4 }),
  "bincount weights": (i, weights) => np.bincount(i, { length: 4, weights }),
  setdiff1d: (a, b) => [1, 2, 3, 5].map((size) => np.setdiff1d(a, b, { size })),
  "setdiff1d fill": (a, b) => np.setdiff1d(a, b, { size: 5, fillValue: -1 }),
  "setdiff1d nothing": (a, b) => np.setdiff1d(a, b, { size: 3 }),
  intersect1d: (a, b) => [1, 2, 4].map((size) => np.intersect1d(a, b, { size })),
  "intersect1d nothing": (a, b) => np.intersect1d(a, b, { size: 2 }),
  union1d: (a, b) => [2, 5, 7].map((size) => np.union1d(a, b, { size })),
  uniqueAll: (a) => [1, 2, 4, 6].map((size) => uniqueParts(a, size)),
  "uniqueAll fill": (a) => uniqueParts(a, 6, -1),
  "uniqueAll nan": (a) => [2, 4, 6].map((size) => uniqueParts(a, size)),

  "power -3": (a) => np.power(a, -3),
  "power -1": (a) => np.power(a, -1),
  "power 3": (a) => np.power(a, 3),
  "power 7": (a) => np.power(a, 7),
  "power 0": (a) => np.power(a, 0),
  "power 1": (a) => np.power(a, 1),
  "power 2": (a) => np.power(a, 2),
  power: (a, b) => np.power(a, b),
  cosh: (a) => np.cosh(a),
  sinh: (a) => np.sinh(a),
  asinh: (a) => np.asinh(a),
  erfc: (a) => lax.erfc(a),
  "gelu exact": (a) => nn.gelu(a, { approximate: false }),
  gelu: (a) => nn.gelu(a),
  softplus: (a) => nn.softplus(a),
  logSigmoid: (a) => nn.logSigmoid(a),
  logaddexp: (a, b) => np.logaddexp(a, b),
  "logaddexp infinite": (a, b) => np.logaddexp(a, b),
  logaddexp2: (a, b) => np.logaddexp2(a, b),
  celu: (a) => nn.celu(a, 0.7),
  elu: (a) => nn.elu(a, 0.7),
  selu: (a) => nn.selu(a),
  relu: (a) => nn.relu(a),
  relu6: (a) => nn.relu6(a),
  leakyRelu: (a) => nn.leakyRelu(a),
  hardTanh: (a) => nn.hardTanh(a),
  hardSigmoid: (a) => nn.hardSigmoid(a),
  hardSilu: (a) => nn.hardSilu(a),
  mish: (a) => nn.mish(a),
  silu: (a) => nn.silu(a),
  sigmoid: (a) => nn.sigmoid(a),
  softSign: (a) => nn.softSign(a),
  squareplus: (a) => nn.squareplus(a),
  "at power": (a, v) => a.at(np.s(1, 3)).power(v),
  igamma: (a, b) => lax.igamma(a, b),
  igammac: (a, b) => lax.igammac(a, b),
  "igamma slope": (a, b) => lax.igamma(a, b),
  besselI0e: (a) => lax.besselI0e(a),
  besselI1e: (a) => lax.besselI1e(a),
  zeta: (a, b) => lax.zeta(a, b),
  floorDivide: (a, b) => np.floorDivide(a, b),
  mod: (a, b) => np.mod(a, b),
  remainder: (a, b) => np.fmod(a, b),
  fmax: (a, b) => [np.fmax(a, b), np.fmin(a, b)],
  maximum: (a, b) => [np.maximum(a, b), np.minimum(a, b)],
  clamp: (a, b, c) => lax.clamp(a, b, c),
  clip: (a, b, c) => np.clip(b, a, c),
  abs: (a) => np.abs(a),

  "convolve integers": (a, b) => np.convolve(a, b),
  "convolve mixed": (a, b) => np.convolve(a, b),
  "convolve uint8": (a, b) => np.convolve(a, b),
  "correlate integers": (a, b) => np.correlate(a, b, "full"),
  "correlate int8": (a, b) => np.correlate(a, b, "same"),
  "relu6 integers": (a) => [nn.relu6(a), nn.relu(a), nn.hardTanh(a), nn.hardSigmoid(a), nn.hardSilu(a)],
  "ldexp half": (a, i) => (["bfloat16", "float16"] as const).map((type) => np.ldexp(a.astype(type), i)),
  ldexp: (a, i) => np.ldexp(a, i),
};

describeJaxCases("corners.json", cases, {
  tolerance: 2e-6,
  // JAX has 0 in place of what is smaller than float32's normal numbers.
  least: 1e-32,
  tolerances: {
    // Differences of numbers that are nearly equal.
    "softmax where": 2e-5,
    gelu: 5e-5,
    // JAX computes powers of 2 with an error, and rounds gradients of half-width floats one by one.
    ldexp: 1e-5,
    "ldexp half": 2 ** -10,
  },
  everyday: Object.keys(cases),
});

const nan = Number.NaN;
const infinity = Number.POSITIVE_INFINITY;

test("lax.broadcastInDim transposes where dims are out of order, also where the shape stays", async () => {
  const [square, wide] = [np.arange(4).reshape(2, 2), np.arange(3).reshape(1, 3)];
  await expectClose(lax.broadcastInDim(square, [2, 2], [1, 0]), square.transpose());
  await expectClose(
    lax.broadcastInDim(wide, [3, 1, 2], [2, 0]),
    np.array([[[0, 0]], [[1, 1]], [[2, 2]]], "int32"),
  );
  expect(lax.broadcastInDim(square, [2, 2], [0, 1])).toBe(square);
  for (const dims of [[0], [0, 0], [0, 5]])
    expect(() => lax.broadcastInDim(square, [2, 2], dims)).toThrow("must name each of the 2 dims of [2,2]");
});

test("np.linalg.multiDot multiplies from left to right where no order is cheaper, as JAX does", async () => {
  const [a, b] = [0.3, 1.1].map((shift) => np.sin(np.arange(16).mul(1.7).add(shift)).reshape(4, 4));
  const [x, y] = [a, b].map((m) => (m ?? np.ones([4, 4])).astype("bfloat16")) as [Tensor, Tensor];
  expect(np.linalg.multiDot([x, y, x])).toEqual(np.matmul(np.matmul(x, y), x));
  expect(np.linalg.multiDot([x, y, x])).not.toEqual(np.matmul(x, np.matmul(y, x)));
});

test("np.kron refuses two tensors of bool", async () => {
  const flags = np.array([true, false]);
  expect(() => np.kron(flags, flags)).toThrow(`[kron] works on numbers, not on bool`);
  await expectClose(np.kron(flags, np.array([1, 2], "int32")), np.array([1, 2, 0, 0], "int32"));
});

test("products of integers refuse a narrower preferredElementType, those of floats take it", async () => {
  const [whole, half] = [np.ones([2, 2], "int32"), np.ones([2, 2])];
  expect(() => np.matmul(whole, whole, { preferredElementType: "int8" })).toThrow("cannot hold products");
  const dims = { lhsContract: [1], rhsContract: [0] };
  expect(() => lax.dotGeneral(whole, whole, dims, "int8")).toThrow("cannot hold products");
  expect(() => np.einsum("ij,jk", whole, whole, { preferredElementType: "int16" })).toThrow("cannot hold");
  expect(np.matmul(half, half, { preferredElementType: "bfloat16" }).dtype).toBe("bfloat16");
  expect(np.matmul(whole, whole, { preferredElementType: "float32" }).dtype).toBe("float32");
});

describe("a shard map takes what JAX wants marked, with the same values", () => {
  const mesh = Mesh.create({ i: 4 }, { engine: simulateDevices(4) });
  const x = np.arange(4, "float32");
  const weights = np.array([1, 2, 3, 4]);
  /** The values, and the gradients of a weighed sum of them. */
  const expectRun = async (
    f: (a: Tensor) => Tensor,
    outSpecs: ReturnType<typeof P>,
    value: number[],
    slope: number[],
  ) => {
    const run = shardMap(f, { mesh, inSpecs: P("i"), outSpecs });
    await expectClose(jit(run)(x), np.array(value));
    await expectClose(jit(grad((a: Tensor) => run(a).mul(weights).sum()))(x), np.array(slope));
  };

  test("a carry that comes to differ along an axis", async () => {
    const sum = (a: Tensor) =>
      lax.scan((c: Tensor, y: Tensor): [Tensor, null] => [c.add(y.mul(y)), null], np.zeros([]), a)[0];
    await expectRun((a) => sum(a).reshape(1), P("i"), [0, 1, 4, 9], [0, 4, 12, 24]);
  });

  test("a carry that no longer differs", async () => {
    const last = (a: Tensor) =>
      lax.scan((_: Tensor, y: Tensor): [Tensor, Tensor] => [np.zeros([]), y], a.get(0), a)[0];
    await expectRun((a) => last(a).reshape(1), P("i"), [0, 0, 0, 0], [0, 0, 0, 0]);
  });

  test("a gathered value, which is the same everywhere", async () => {
    await expectRun((a) => lax.allGather(a.mul(a), "i", { tiled: true }), P(), [0, 1, 4, 9], [0, 4, 12, 24]);
  });
});

test("asinh keeps the sign of 0, and its slope there is 1", async () => {
  const zeros = np.array([-0, 0]);
  for (const values of [np.asinh(zeros), jit(np.asinh)(zeros)]) {
    expect([...(await values.data())]).toEqual([-0, 0]);
  }
  expect([...(await grad((x: Tensor) => np.asinh(x).sum())(zeros).data())]).toEqual([1, 1]);
});

test("a quantile that falls on an infinite element is NaN as in JAX, a median is that element", async () => {
  const x = np.array([-infinity, 0, 1, infinity]);
  const holes = np.array([-infinity, nan, 0, 1, infinity, nan]);
  for (const [i, want] of [nan, 0, 1, nan].entries()) {
    expect(await np.quantile(x, i / 3).item()).toBe(want);
    expect(await np.nanquantile(holes, i / 3).item()).toBe(want);
  }
  for (const method of ["lower", "higher", "nearest", "midpoint"] as const)
    expect(await np.quantile(x, 1, undefined, { method }).item()).toBe(infinity);
  for (const median of [np.median, np.nanmedian])
    expect(await median(np.array([1, infinity, infinity])).item()).toBe(infinity);
});

test("what a mask leaves out of a variance may be NaN", async () => {
  const x = np.array([1, nan, 4]);
  const loss = (y: Tensor) => np.var(y, null, { where: np.array([true, false, true]) });
  await expectClose(loss(x), 2.25);
  await expectClose(grad(loss)(x), np.array([-1.5, 0, 1.5]));
});

describe("x.at(i).power(v)", () => {
  const x = np.array([-2, 3, -0.5, 2]);
  const f = (a: Tensor, v: Tensor) => a.at(np.array([1], "int32")).power(v);

  test("has no derivative of NaN at the negative elements beside i", async () => {
    const [value, change] = jvp(f, [x, np.array([2.5])], [np.ones([4]), np.ones([1])]);
    await expectClose(value, np.array([-2, 3 ** 2.5, -0.5, 2]));
    await expectClose(change, np.array([1, 2.5 * 3 ** 1.5 + Math.log(3) * 3 ** 2.5, 1, 1]));
  });

  test("has the gradient of a power at i and 1 elsewhere", async () => {
    const [dx, dv] = grad((a: Tensor, v: Tensor) => f(a, v).sum(), { argnums: [0, 1] })(x, np.array([2.5]));
    await expectClose(dx, np.array([1, 2.5 * 3 ** 1.5, 1, 1]));
    await expectClose(dv, np.array([Math.log(3) * 3 ** 2.5]));
  });
});

test("unsigned indices from 2^31 on lie beyond the end, not before the beginning", async () => {
  const x = np.array([1, 2, 3]);
  const far = np.array([0, 2 ** 31 + 1, 2 ** 32 - 1], "uint32");
  await expectClose(x.get(far), np.array([1, 3, 3]));
  await expectClose(np.take(x, far, 0, { mode: "clip" }), np.array([1, 3, 3]));
  await expectClose(np.take(x, far, 0), np.array([1, nan, nan]));
  await expectClose(np.take(x, far, 0, { mode: "wrap" }), np.array([1, 1, 1]));
  await expectClose(np.bincount(far, { length: 2 }), np.array([1, 0], "int32"));
  await expectClose(x.at(far).set(9), np.array([9, 2, 3]));
});

test("second derivatives of functions with rules of their own are those of their formulas", async () => {
  const second = (f: (x: Tensor) => Tensor) => (x: number) => grad(grad((y: Tensor) => f(y)))(np.array(x));
  await expectClose(second((x) => np.power(x, -3))(2), 12 * 2 ** -5);
  await expectClose(second(np.cosh)(0.5), Math.cosh(0.5));
  await expectClose(second(nn.softplus)(0.5), Math.exp(0.5) / (1 + Math.exp(0.5)) ** 2);
  await expectClose(second((x) => np.logaddexp(x.mul(2), x))(0.5), Math.exp(0.5) / (1 + Math.exp(0.5)) ** 2);
  await expectClose(
    second((x) => nn.gelu(x, { approximate: false }))(0.5),
    ((2 - 0.25) * Math.exp(-0.125)) / Math.sqrt(2 * Math.PI),
  );
});

test("erfc of half-width floats is rounded once", async () => {
  const x = np.array([0.5, 2, 3], "bfloat16");
  await expectClose(lax.erfc(x), lax.erfc(x.astype("float32")).astype("bfloat16"));
});

test("functions of two integers take a number beside a tensor", async () => {
  const x = np.array([4, 6], "int32");
  await expectClose(np.gcd(x, 2), np.array([2, 2], "int32"));
  await expectClose(np.gcd(12, x), np.array([4, 6], "int32"));
  await expectClose(np.lcm(x, 4), np.array([4, 12], "int32"));
  await expectClose(np.ldexp(np.array([1.5, 3]), 2), np.array([6, 12]));
  await expectClose(np.ldexp(1.5, np.array([1, 2], "int32")), np.array([3, 6]));
});

test("np.resultType takes data types beside values", () => {
  expect(np.resultType("uint8", "int32")).toBe("int32");
  expect(np.resultType("uint8", "int8")).toBe("int16");
  expect(np.resultType("bfloat16", 2)).toBe("bfloat16");
  expect(np.resultType(np.ones([1], "int32"), "bool")).toBe("int32");
  expect(() => np.resultType("int7" as never)).toThrow("int7");
});

test("a choice takes the numbers 0 and 1, as JAX's does", async () => {
  const chosen = (predicate: number) =>
    lax.cond(
      predicate,
      () => np.array(3),
      () => np.array(4),
    );
  expect([await chosen(1).js(), await chosen(0).js(), await jit(() => chosen(0))().js()]).toEqual([3, 4, 4]);
});

test("a clone of a key draws the same numbers", async () => {
  const key = random.key(3);
  expect(await random.uniform(random.clone(key), [3]).js()).toEqual(await random.uniform(key, [3]).js());
});

test("the sum over an axis of what is the same along it is a multiple of it", async () => {
  const mesh = Mesh.create({ i: 2 });
  const twice = shardMap((x: Tensor) => lax.psum(x, "i"), { mesh, inSpecs: P(), outSpecs: P() });
  expect(await twice(np.array([1, 2])).js()).toEqual([2, 4]);
});

test("what only stopGradient reads needs no derivative, not even of a loop without one", async () => {
  const until = (x: Tensor) =>
    lax.whileLoop(
      (y: Tensor) => y.lt(100),
      (y: Tensor) => y.mul(2),
      x,
    );
  const slope = grad((x: Tensor) => x.mul(lax.stopGradient(until(x))));
  expect(await slope(np.array(3)).js()).toBe(192);
});
