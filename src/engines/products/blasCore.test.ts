import { expect, it } from "vitest";
import { betterCore } from "./blasCore.js";

it("OpenBLAS gets kernels that know the processor's vectors", () => {
  expect(betterCore("Prescott", { avx2: true, avx512: true })).toBe("SkylakeX");
  expect(betterCore("Nehalem", { avx2: true, avx512: false })).toBe("Haswell");
});

it("OpenBLAS keeps kernels that it chose well, or that are the best there are", () => {
  expect(betterCore("Haswell", { avx2: true, avx512: true })).toBeUndefined();
  expect(betterCore("Zen", { avx2: true, avx512: false })).toBeUndefined();
  expect(betterCore("Prescott", { avx2: false, avx512: false })).toBeUndefined();
});
