import { afterEach, describe, expect, it, vi } from "vitest";
import { nativeKernels, testWith } from "../../../test/support/optional.js";
import { CodeMemory } from "../system/codeMemory.js";
import { detectX64Features } from "../system/cpu.js";
import { createThreadsEngine } from "../threads/engine.js";
import { chooseKernels, nativeKernelsHere } from "./kernelChoice.js";

const here = nativeKernelsHere();
const opened = process.arch === "x64" ? CodeMemory.open() : "no x86-64";
const hasWideVectors = typeof opened !== "string" && detectX64Features(opened).avx2;

afterEach(() => vi.unstubAllEnvs());

describe("the choice of an implementation of fused kernels", () => {
  it("is machine code where the processor has wide vectors, else WebAssembly", () => {
    vi.stubEnv("SHARDWISE_KERNELS", "");
    expect("unavailable" in here).toBe(!hasWideVectors);
    expect(chooseKernels()).toEqual(hasWideVectors ? here : undefined);
  });

  it("is WebAssembly when asked for, and the engine says so", async () => {
    vi.stubEnv("SHARDWISE_KERNELS", "wasm");
    expect(chooseKernels()).toBeUndefined();
    const engine = createThreadsEngine({ numDevices: 1 });
    expect(engine.info().kernels).toBe("WebAssembly SIMD");
    await engine.close();
  });

  testWith(nativeKernels, "is the instruction set that was named", {}, () => {
    vi.stubEnv("SHARDWISE_KERNELS", "native-avx2");
    expect(chooseKernels()).toEqual({ set: "AVX2", bits: 256 });
  });

  it("is refused with a reason where machine code cannot be", () => {
    vi.stubEnv("SHARDWISE_KERNELS", "native");
    if (!("unavailable" in here)) expect(chooseKernels()).toEqual(here);
    else expect(() => chooseKernels()).toThrow(/kernels by "native": .*; use "wasm"/);
  });

  it("is no word that nobody knows", () => {
    vi.stubEnv("SHARDWISE_KERNELS", "fast");
    expect(() => chooseKernels()).toThrow(
      'SHARDWISE_KERNELS is "fast": use one of native, native-avx512, native-avx2, wasm, or leave it out',
    );
  });
});
