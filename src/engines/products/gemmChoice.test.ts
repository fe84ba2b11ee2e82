import { afterEach, describe, expect, it, vi } from "vitest";
import { createThreadsEngine } from "../threads/engine.js";
import { nativeGemmHere } from "./available.js";
import { findBlas } from "./blas.js";
import { joinBatches } from "./gemm.js";
import { chooseGemm } from "./gemmChoice.js";

const native = nativeGemmHere();
const isNative = "set" in native;
const blas = findBlas();

afterEach(() => {
  vi.unstubAllEnvs();
});

describe("who multiplies", () => {
  it.runIf(isNative)("is machine code where it can be loaded", () => {
    vi.stubEnv("SHARDWISE_GEMM", undefined);
    vi.stubEnv("SHARDWISE_BLAS", undefined);
    expect(chooseGemm(undefined)).toEqual({ kind: "native", ...native });
  });

  it("is whom the engine's options or the environment name", () => {
    vi.stubEnv("SHARDWISE_GEMM", "wasm");
    expect(chooseGemm(undefined)).toEqual({ kind: "wasm" });
    if (blas !== undefined) expect(chooseGemm("blas")).toMatchObject({ kind: "blas", path: blas.path });
  });

  it.runIf(blas !== undefined)("is a BLAS that is named", () => {
    vi.stubEnv("SHARDWISE_GEMM", undefined);
    vi.stubEnv("SHARDWISE_BLAS", blas?.path);
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
    expect(() => chooseGemm(undefined)).toThrow(/has no (AVX2|NEON); use "blas" or "wasm"/);
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
