import { lax, np, random, Tensor } from "shardwise";
import { expect, test } from "vitest";
import { type CaseFunction, describeJaxCases } from "../../../test/support/jaxCases.js";
import { expectNear } from "../../../test/support/near.js";

const { fft } = np;

const ofReal =
  <O>(fn: (x: Tensor, options?: O) => unknown, options?: O): CaseFunction =>
  (x) =>
    x && flat(fn(x, options));
const ofPair =
  <O>(fn: (x: Tensor, options?: O) => unknown, options?: O): CaseFunction =>
  (real, imag) =>
    real && imag && flat(fn(lax.complex(real, imag), options));

/** Real parts first, as they stand in the files. */
const flat = (value: unknown) =>
  value instanceof Tensor && np.iscomplexobj(value) ? [value.real, value.imag] : value;

const cases: Readonly<Record<string, CaseFunction>> = {
  fft: ofReal(fft.fft),
  "fft of pairs": ofPair(fft.fft),
  "fft cut": ofPair(fft.fft, { n: 4, dim: 1 }),
  "fft filled": ofPair(fft.fft, { n: 5, dim: 0, norm: "ortho" }),
  "fft of factors": ofReal(fft.fft),
  "fft of a long prime": ofReal(fft.fft),
  ifft: ofPair(fft.ifft),
  "ifft forward": ofPair(fft.ifft, { norm: "forward" }),
  rfft: ofReal(fft.rfft),
  "rfft even": ofReal(fft.rfft, { dim: 0, norm: "forward" }),
  irfft: ofPair(fft.irfft),
  "irfft odd": ofPair(fft.irfft, { n: 9 }),
  hfft: ofPair(fft.hfft, { n: 8 }),
  ihfft: ofReal(fft.ihfft),
  fft2: ofPair(fft.fft2),
  ifft2: ofPair(fft.ifft2),
  fftn: ofReal(fft.fftn),
  "fftn sizes": ofPair(fft.fftn, { s: [2, 5], dims: [1, 0] }),
  ifftn: ofPair(fft.ifftn, { norm: "ortho" }),
  rfft2: ofReal(fft.rfft2),
  rfftn: ofReal(fft.rfftn),
  irfft2: ofPair(fft.irfft2),
  irfftn: ofPair(fft.irfftn, { s: [3, 5] }),
  fftfreq: (x) => x && [fft.fftfreq(6).mul(x.get(0)), fft.fftfreq(5, 0.5), fft.rfftfreq(6, 2)],
  fftshift: (x) => x && [fft.fftshift(x), fft.fftshift(x, 1), fft.ifftshift(x)],
  angle: (real, imag) => {
    if (!real || !imag) return [];
    const z = lax.complex(real, imag);
    return [np.angle(z), np.angle(real), np.real(np.conj(z)), np.imag(np.conj(z))];
  },
};

describeJaxCases("fft.json", cases, {
  tolerance: 1e-5,
  everyday: ["fft of factors", "irfft odd", "rfft2", "angle"],
});

test("long transforms keep their digits and their inverse", async () => {
  for (const n of [1024, 1009]) {
    const x = random.normal(random.key(n), [n]);
    const spectrum = fft.fft(x);
    expectNear(await fft.ifft(spectrum).real.data(), await x.data(), 2e-6);
    const energy = await np.sum(np.square(spectrum.real).add(np.square(spectrum.imag))).item();
    expect(energy / n / (await np.sum(np.square(x)).item())).toBeCloseTo(1, 4);
  }
});

test("wrong arguments are named", () => {
  expect(() => fft.fft(np.array(1))).toThrow(/at least one dim/);
  expect(() => fft.fft(np.ones([3]), { n: 0 })).toThrow(/n must be an integer of at least 1, got 0/);
  expect(() => fft.fftn(np.ones([3, 3]), { s: [2], dims: [0, 1] })).toThrow(/one size for each/);
  expect(() => fft.rfft(np.ones([3], "complex64"))).toThrow(
    /computes with real numbers, got Tensor c64\[3\]/,
  );
});
