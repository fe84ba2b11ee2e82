/** Further functions of NumPy compared with JAX's results, which `test/jax/vocabulary.py` wrote. */
import { readFileSync } from "node:fs";
import { grad, jit, lax, np, type Tensor, tree, vmap } from "shardwise";
import { describe, expect, test } from "vitest";

interface Expected {
  readonly shape: readonly number[];
  readonly data: readonly (number | null)[];
}

const golden: Readonly<Record<string, readonly Expected[]>> = JSON.parse(
  readFileSync(new URL("../../test/jax/vocabulary.json", import.meta.url), "utf8"),
);

const x = np.sin(np.arange(12, "float32").mul(0.7)).reshape([3, 4]).mul(2);
const v = np.cos(np.arange(7, "float32").mul(1.1));
const w = np.array([0.5, -1, 2]);
const holes = x.at(0, 1).set(Number.NaN).at(2, 3).set(Number.NaN);
const ints = np.array([3, 1, 2, 3, 1, 7, 0, 3], "int32");
const others = np.array([1, 7, 9], "int32");
const evens = np.array(
  [
    [0, 2],
    [1, 0],
    [4, 0],
  ],
  "int32",
);
const steps = np.array([0, 1, 3]);

const cases: Readonly<Record<string, () => unknown>> = {
  flatnonzero: () => np.flatnonzero(evens, { size: 5, fillValue: -1 }),
  nonzero: () => np.nonzero(evens, { size: 4, fillValue: 9 }),
  argwhere: () => np.argwhere(evens, { size: 4 }),
  unravelIndex: () => np.unravelIndex(np.array([0, 5, 11], "int32"), [3, 4]),
  ravelMultiIndex: () =>
    np.ravelMultiIndex([np.array([0, 1, 2], "int32"), np.array([3, 1, 0], "int32")], [3, 4]),
  unique: () => {
    const { values, indices, inverse, counts } = np.uniqueAll(ints, { size: 6 });
    return [values, indices, inverse, counts];
  },
  "unique cut": () => np.unique(ints, { size: 3 }),
  isin: () => [np.isin(ints, others), np.isin(ints, others, { invert: true })],
  union1d: () => np.union1d(ints, others, { size: 7, fillValue: -1 }),
  intersect1d: () => np.intersect1d(ints, others, { size: 3, fillValue: -1 }),
  setdiff1d: () => np.setdiff1d(ints, others, { size: 4, fillValue: -1 }),
  "convolve full": () => np.convolve(v, w),
  "convolve same": () => np.convolve(v, w, "same"),
  "convolve valid": () => np.convolve(w, v, "valid"),
  correlate: () => np.correlate(v, w),
  "correlate full": () => np.correlate(v, w, "full"),
  "correlate same": () => np.correlate(v, w, "same"),
  "correlate short": () => np.correlate(w, v, "full"),
  interp: () => np.interp(np.array([-1, 0.5, 2.5, 9]), steps, w),
  "interp ends": () => np.interp(np.array([-1, 0.5, 9]), steps, w, { left: 5, right: 6 }),
  gradient: () => np.gradient(x, 0.5, 1),
  "gradient 0": () => np.gradient(x, 1, 0),
  trapezoid: () => np.trapezoid(x, { dx: 0.5 }),
  "trapezoid x": () => np.trapezoid(x, { x: w, dim: 0 }),
  unwrap: () => np.unwrap(np.array([0, 3, 6.5, -3, 0.5, 4])),
  ediff1d: () => np.ediff1d(x),
  windows: () => [np.hanning(6), np.hamming(5), np.blackman(7), np.hanning(1)],
  histogram: () => np.histogram(x, { bins: 4 }),
  "histogram range": () => np.histogram(x, { bins: 5, range: [-1, 1] }),
  "histogram bounds": () => np.histogram(x, { bins: np.array([-2, 0, 0.5, 2]) }),
  polyval: () => np.polyval(w, x),
  polyadd: () => [np.polyadd(w, v), np.polysub(w, v)],
  polymul: () => np.polymul(w, v),
  polyder: () => [np.polyder(v), np.polyder(v, 2)],
  polyint: () => np.polyint(w, 2),
  vander: () => [np.vander(w), np.vander(w, { n: 4, increasing: true })],
  trilIndices: () => np.trilIndices(3, 1),
  triuIndices: () => np.triuIndices(3, -1, 4),
  diagIndices: () => np.diagIndices(3, 2),
  ix: () => np.ix(np.array([0, 2], "int32"), np.array([1, 2, 3], "int32")),
  fillDiagonal: () => np.fillDiagonal(x, 9),
  unstack: () => np.unstack(x, 1),
  block: () => np.block([[x, x.mul(2)], [np.ones([1, 8])]]),
  nanprod: () => np.nanprod(holes, 0),
  nanvar: () => [np.nanvar(holes), np.nanvar(holes, 1, { ddof: 1 })],
  nanstd: () => np.nanstd(holes, 0),
  nanargmax: () => [np.nanargmax(holes), np.nanargmin(holes, 1)],
  nanquantile: () => np.nanquantile(holes, 0.3, 1),
  nanmedian: () => np.nanmedian(holes),
  nancumsum: () => [np.nancumsum(holes, 1), np.nancumprod(holes)],
  cov: () => [np.cov(x), np.cov(x, { rowvar: false }), np.cov(v)],
  corrcoef: () => np.corrcoef(x),
  applyAlongAxis: () => np.applyAlongAxis((row) => np.cumsum(row).get(np.s(0, 2)), 0, x),
  vectorize: () => np.vectorize((a, b) => np.multiply(a ?? 0, b ?? 0).add(1))(x, v.get(np.s(0, 4))),
  piecewise: () => np.piecewise(x, [np.less(x, 0), np.greater(x, 1)], [np.negative, 7, (t) => t.mul(10)]),
  choose: () => np.choose(np.array([0, 1, 1], "int32"), [w, w.mul(10)]),
  lexsort: () => np.lexsort([ints.get(np.s(0, 6)), np.array([1, 0, 1, 0, 1, 0], "int32")]),
  putAlongAxis: () => np.putAlongAxis(x, np.array([[1], [0], [3]], "int32"), 9, 1),
  gcd: () => [
    np.gcd(np.array([12, -18, 0, 7], "int32"), np.array([18, 27, 5, 3], "int32")),
    np.lcm(np.array([4, 0, 6], "int32"), np.array([6, 3, -9], "int32")),
  ],
  modf: () => np.modf(x.mul(3)),
  ldexp: () => np.ldexp(w, np.array([1, -2, 3], "int32")),
  matvec: () => [np.matvec(x, v.get(np.s(0, 4))), np.vecmat(w, x)],
};

async function expectGolden(name: string, values: unknown): Promise<void> {
  const want = golden[name] ?? [];
  const tensors = tree.leaves(values) as Tensor[];
  expect(tensors.map(({ shape }) => shape)).toEqual(want.map(({ shape }) => shape));
  for (const [i, tensor] of tensors.entries()) {
    const got = [...(await tensor.data())].map(Number);
    got.forEach((value, j) => {
      const wanted = want[i]?.data[j] ?? Number.NaN;
      if (Number.isNaN(wanted)) expect(value).toBeNaN();
      else expect(Math.abs(value - wanted)).toBeLessThanOrEqual(2e-6 + 4e-6 * Math.abs(wanted));
    });
  }
}

describe("agrees with JAX", () => {
  test("all cases are there", () => {
    expect(Object.keys(cases).sort()).toEqual(Object.keys(golden).sort());
  });

  test.each(Object.entries(cases))("%s", async (name, run) => {
    await expectGolden(name, run());
  });

  test("compiled as one program", async () => {
    const all = jit(() => Object.values(cases).map((run) => tree.leaves(run())))();
    for (const [i, name] of Object.keys(cases).entries()) await expectGolden(name, all[i]);
  });
});

test("what depends on the data asks for the size of the result", () => {
  // @ts-expect-error the size is required
  expect(() => np.unique(ints, {})).toThrow(/pass \{ size \}/);
});

test("filters and interpolation have gradients and map over batches", async () => {
  const loss = (a: Tensor) =>
    np.sum(np.square(np.convolve(a, w))).add(np.sum(np.interp(a.mul(0.9).add(0.03), steps, w)));
  const gradient = await grad(loss)(v).data();
  const h = 1e-2;
  for (let i = 0; i < 7; i++) {
    const moved = (by: number) => loss(v.at(i).add(by)).item();
    expect(Math.abs(((await moved(h)) - (await moved(-h))) / (2 * h) - Number(gradient[i]))).toBeLessThan(
      2e-2,
    );
  }
  const rows = np.stack([v, v.mul(2)]);
  const mapped = vmap((row: Tensor) => np.convolve(row, w))(rows);
  expect(await np.allclose(mapped.get(1), np.convolve(v.mul(2), w)).item()).toBe(1);
});

test("polynomials and areas keep the types of JAX", () => {
  const half = np.array([1, 2, 3], "float16");
  expect(np.polyder(half)).toEqual(np.array([2, 2], "float16"));
  expect(np.polyint(half)).toEqual(np.array([1 / 3, 1, 3, 0], "float16"));
  const yes = np.array([true, false]);
  expect(np.polyval(yes, yes)).toEqual(np.array([true, false]));
  const turned = lax.complex(np.array([0, 1, 2]), np.array([2, 1, 0]));
  expect(np.trapezoid(turned)).toEqual(lax.complex(np.array(2), np.array(2)));
  expect(np.polyder(turned)).toEqual(lax.complex(np.array([0, 1]), np.array([4, 1])));
});

test("piecewise results have the type of the operand", () => {
  const [below, above] = [np.array([true, false, false]), np.array([false, false, true])];
  const whole = np.piecewise(np.array([-3, 0, 2], "int32"), [below, above], [2.7, (y) => y.mul(0.5), true]);
  expect(whole).toEqual(np.array([2, 1, 1], "int32"));
  expect(np.piecewise(below, [below, above], [-1, 0])).toEqual(np.array([true, false, false]));
});
