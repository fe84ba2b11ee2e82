import { afterEach, describe, expect, it, vi } from "vitest";
import { blas, nativeProducts, testWith } from "../../../test/support/optional.js";
import { createThreadsEngine } from "../threads/engine.js";
import { nativeGemmHere } from "./available.js";
import { chooseGemm } from "./gemmChoice.js";
import { joinBatches } from "./nativeProducts.js";

afterEach(() => {
  vi.unstubAllEnvs();
});

describe("the choice of a gemm implementation", () => {
  testWith(nativeProducts, "is machine code where it can be loaded", {}, (native) => {
    vi.stubEnv("SHARDWISE_GEMM", undefined);
    vi.stubEnv("SHARDWISE_BLAS", undefined);
    expect(chooseGemm(undefined)).toEqual({ kind: "native", ...native });
  });

  it("is whom the engine's options or the environment name", () => {
    vi.stubEnv("SHARDWISE_GEMM", "wasm");
    expect(chooseGemm(undefined)).toEqual({ kind: "wasm" });
  });

  testWith(blas, "is a BLAS that is named", {}, ({ path }) => {
    vi.stubEnv("SHARDWISE_GEMM", "wasm");
    expect(chooseGemm("blas")).toMatchObject({ kind: "blas", path });
    vi.stubEnv("SHARDWISE_GEMM", undefined);
    vi.stubEnv("SHARDWISE_BLAS", path);
    expect(chooseGemm(undefined)).toMatchObject({ kind: "blas" });
  });

  it("must be somebody", () => {
    vi.stubEnv("SHARDWISE_GEMM", "fast");
    expect(() => chooseGemm(undefined)).toThrow(
      /SHARDWISE_GEMM is "fast": use one of native, .*, blas, wasm/,
    );
    vi.stubEnv("SHARDWISE_BLAS", "none");
    expect(() => chooseGemm("blas")).toThrow(/no BLAS library was found; install one/);
    vi.stubEnv("SHARDWISE_GEMM", process.arch === "arm64" ? "native-avx2" : "native-neon");
    expect(() => chooseGemm(undefined)).toThrow(
      /(has no (AVX2|NEON)|koffi does not load); use "blas" or "wasm"/,
    );
  });

  it("is told by the engine", async () => {
    const engine = createThreadsEngine({ numDevices: 1, gemm: "wasm" });
    const { gemm, gemmShareOfPeak } = engine.info();
    expect(gemm).toMatch(/^WebAssembly SIMD/);
    if ("set" in nativeGemmHere()) {
      expect(gemmShareOfPeak).toBeGreaterThan(0);
      expect(gemmShareOfPeak).toBeLessThanOrEqual(1);
    } else expect(gemmShareOfPeak).toBeUndefined();
    await engine.close();
  });
});

describe("batch dims", () => {
  it("become one where a single stride walks them", () => {
    const inner = { count: 4, strideA: 64, strideB: 0, strideC: 16 };
    const outer = { count: 3, strideA: 256, strideB: 0, strideC: 64 };
    expect(joinBatches([outer, inner])).toEqual([{ count: 12, strideA: 64, strideB: 0, strideC: 16 }]);
    expect(joinBatches([{ ...outer, strideB: 8 }, inner])).toHaveLength(2);
  });
});
