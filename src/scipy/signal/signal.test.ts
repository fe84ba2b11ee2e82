import { readFileSync } from "node:fs";
import { grad, jit, lax, np, scipy, type Tensor, vmap } from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";

const { signal, ndimage, integrate } = scipy;
const golden: Readonly<Record<string, readonly number[][]>> = JSON.parse(
  readFileSync(new URL("../../../test/jax/signal.json", import.meta.url), "utf8"),
);
const ramp = (shape: readonly number[], { step = 0.7, start = 0 } = {}) => {
  const n = shape.reduce((a, b) => a * b, 1);
  return np.array(Array.from({ length: n }, (_, i) => Math.sin(i * step + start))).reshape(shape);
};
const [x, y, long] = [ramp([9]), ramp([4], { start: 1 }), ramp([40], { step: 0.37 })];
const [m, k] = [ramp([4, 5]), ramp([2, 3], { start: 2 })];
const z = lax.complex(x, ramp([9], { start: 3 }));
const w = lax.complex(y, y.mul(2));
const other = ramp([40], { step: 0.9 });
const modes = ["full", "same", "valid"] as const;
const places = [np.linspace(-3.2, 6.1, 12), np.linspace(7.27, -2.6, 12)];
const mapped = (mode: "nearest" | "wrap" | "mirror" | "reflect") =>
  ([0, 1] as const).map((order) => ndimage.mapCoordinates(m, places, order, { mode }));

const cases: Readonly<Record<string, () => readonly Tensor[]>> = {
  convolve: () => modes.map((mode) => signal.convolve(x, y, { mode })),
  "convolve swapped": () => (["full", "valid"] as const).map((mode) => signal.convolve(y, x, { mode })),
  "convolve complex": () => modes.map((mode) => signal.convolve(z, w, { mode })),
  correlate: () => modes.map((mode) => signal.correlate(x, y, { mode, method: "fft" })),
  "correlate complex": () => modes.map((mode) => signal.correlate(z, w, { mode })),
  convolve2d: () => modes.map((mode) => signal.convolve2d(m, k, { mode })),
  correlate2d: () => modes.map((mode) => signal.correlate2d(m, k, { mode })),
  fftconvolve: () => modes.map((mode) => signal.fftconvolve(m, m.get("...", np.s(0, 2)), { mode, dims: 1 })),
  detrend: () => [
    signal.detrend(long),
    signal.detrend(long, { bp: [7, 20] }),
    signal.detrend(m, { dim: 0 }),
    signal.detrend(m, { type: "constant" }),
  ],
  stft: () => signal.stft(long, { fs: 2, nperseg: 8 }),
  "stft options": () =>
    signal.stft(long, {
      nperseg: 7,
      noverlap: 2,
      nfft: 9,
      boundary: "odd",
      detrend: "constant",
      window: "hamming",
    }),
  "stft open": () =>
    signal.stft(np.stack([long, np.negative(long)], 1), {
      nperseg: 8,
      boundary: null,
      padded: false,
      dim: 0,
      returnOnesided: false,
    }),
  csd: () => signal.csd(long, other, { fs: 3, nperseg: 8 }),
  "csd median": () => signal.csd(long, other, { nperseg: 9, average: "median", scaling: "spectrum" }),
  welch: () => signal.welch(long, { nperseg: 16, detrend: "linear", window: "blackman" }),
  "welch batch": () => signal.welch(np.stack([long, long.mul(2)]), { nperseg: 8, average: "median" }),
  "map nearest": () => mapped("nearest"),
  "map wrap": () => mapped("wrap"),
  "map mirror": () => mapped("mirror"),
  "map reflect": () => mapped("reflect"),
};

describe("signals agree with SciPy", () => {
  test("all cases are there", () => {
    expect(Object.keys(cases).sort()).toEqual(Object.keys(golden).sort());
  });

  test.each(Object.entries(cases))("%s", async (name, compute) => {
    const parts = (t: Tensor) => (np.iscomplexobj(t) ? np.stack([np.real(t), np.imag(t)]) : t);
    const got = compute();
    expect(got.length).toBe(golden[name]?.length);
    for (const [i, tensor] of got.entries()) {
      await expectClose(parts(tensor).reshape([-1]), golden[name]?.[i] ?? [], { rtol: 1e-4, atol: 2e-5 });
    }
  });
});

describe("signals", () => {
  test("are restored by istft, whatever their segments and dims", async () => {
    for (const options of [{ nperseg: 8 }, { nperseg: 7, noverlap: 4 }, { nperseg: 10, nfft: 16 }]) {
      const [, , spectra] = signal.stft(long, options);
      const [times, restored] = signal.istft(spectra, options);
      await expectClose(restored.get(np.s(0, 40)), long, { atol: 1e-5 });
      expect(times.shape).toEqual(restored.shape);
    }
    const batch = np.stack([long, other], 1);
    const [, , spectra] = signal.stft(batch, { nperseg: 8, dim: 0 });
    expect(spectra.shape).toEqual([5, 2, 11]);
    const [, restored] = signal.istft(spectra, { nperseg: 8, freqDim: 0 });
    await expectClose(restored, np.transpose(batch), { atol: 1e-5 });
  });

  test("have derivatives, and are compiled and mapped", async () => {
    const loss = (s: Tensor) => np.sum(signal.convolve(s, y, { mode: "valid" }));
    await expectClose(grad(loss)(x).get(4), [await np.sum(y).item()], { rtol: 1e-5 });
    const power = (s: Tensor) => signal.welch(s, { nperseg: 8 })[1];
    await expectClose(jit(vmap(power))(np.stack([long, other])).get(1), power(other), {
      rtol: 1e-4,
      atol: 1e-6,
    });
  });

  test("name what does not fit", () => {
    expect(() => signal.convolve(x, m)).toThrow(/as many dims/);
    expect(() => signal.convolve(m, np.ones([2, 9]), { mode: "valid" })).toThrow(/larger along every dim/);
    expect(() => signal.stft(long, { nperseg: 8, noverlap: 8 })).toThrow(
      /noverlap 8 must be less than nperseg 8/,
    );
    expect(() => signal.welch(long, { window: "round" as "hann" })).toThrow(
      /window must be "hann", .*, got "round"/,
    );
    expect(() => signal.detrend(long, { bp: [50] })).toThrow(/bp 50 must lie between 0 and 40/);
    expect(() => ndimage.mapCoordinates(m, [x], 1)).toThrow(/needs 2 coordinates, got 1/);
  });
});

describe("other modules of scipy", () => {
  test("integrate.trapezoid is np.trapezoid", async () => {
    await expectClose(integrate.trapezoid(np.array([1, 2, 3]), { dx: 2 }), [8]);
  });

  test("ndimage.mapCoordinates has JAX's edges, and rounds integers", async () => {
    const beyond = ndimage.mapCoordinates(np.array([1, 2, 3]), [np.array([-0.5, 0.25, 2.5, 3.5])], 1, {
      cval: 9,
    });
    await expectClose(beyond, [5, 1.25, 6, 9]);
    const whole = ndimage.mapCoordinates(np.array([1, 4], "int32"), [np.array([0.5, 0.4])], 1);
    expect([whole.dtype, await whole.js()]).toEqual(["int32", [3, 2]]);
  });
});
