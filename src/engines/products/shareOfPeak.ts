import { GEMM_SCRATCH_BYTES } from "../../compiler/gemm/blockedGemm.js";
import { buildGemmModule } from "../../compiler/gemm/gemmModule.js";
import { tileFor } from "../../compiler/gemm/tile.js";
import { writePeakLoop } from "../../compiler/native/peakLoop.js";
import type { GemmStep } from "../../compiler/steps.js";
import type { WasmFeatures } from "../../compiler/wasm/features.js";
import { CodeMemory } from "../system/codeMemory.js";
import { compileWasmModule } from "../system/v8Flags.js";
import { nativeGemmHere } from "./available.js";
import { GemmPreparer } from "./gemm.js";
import type { GemmChoice } from "./gemmChoice.js";

/** Rows and columns of the matrices that are multiplied: they fit a core's own caches. */
const SIDE = 256;
/** Iterations of the loop, which take some hundredths of a millisecond. */
const ITERATIONS = 8192;
/** For how many milliseconds each is repeated; the fastest run counts. */
const MEASURING_MS = 10;

const known = new Map<string, number | undefined>();

/**
 * The share of a core's peak of multiply-adds that an implementation of products reaches on the calling thread;
 * undefined if the peak cannot be measured. Measured once per process, which takes some milliseconds.
 */
export function shareOfPeak(choice: GemmChoice, features: WasmFeatures): number | undefined {
  const key = JSON.stringify(choice);
  if (!known.has(key)) {
    known.set(key, measured(choice, features));
  }
  return known.get(key);
}

function measured(choice: GemmChoice, features: WasmFeatures): number | undefined {
  try {
    const peak = corePeak();
    // Either measurement may have been disturbed by other work on the core.
    return peak && Math.min(1, productRate(choice, features) / peak);
  } catch (error) {
    // Out of memory: this is only a figure, and whatever really needs the memory reports the error itself.
    if (error instanceof RangeError) return undefined;
    throw error;
  }
}

/** The peak of a core in floating-point operations per millisecond. */
function corePeak(): number | undefined {
  const here = nativeGemmHere();
  const memory = CodeMemory.open();
  if (!("set" in here) || typeof memory === "string") return undefined;
  const { code, flops } = writePeakLoop(here.set);
  const [at = 0] = memory.load([code]);
  const loop = memory.bind(at, 1);
  const peak = (ITERATIONS * flops) / fastest(() => loop(ITERATIONS));
  memory.release();
  return peak;
}

/** The speed of products in floating-point operations per millisecond. */
function productRate(choice: GemmChoice, features: WasmFeatures): number {
  const bytes = 4 * SIDE * SIDE;
  const pages = Math.ceil((GEMM_SCRATCH_BYTES + 3 * bytes) / 65536);
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const gemms = new GemmPreparer(memory, choice, 0);
  const module =
    choice.kind === "native" ? undefined : compileWasmModule(buildGemmModule(features, tileFor(features)));
  const [a, b, c] = [GEMM_SCRATCH_BYTES, GEMM_SCRATCH_BYTES + bytes, GEMM_SCRATCH_BYTES + 2 * bytes];
  const multiply = gemms.prepare(product, module);
  const milliseconds = fastest(() => multiply(a, b, c));
  gemms.release();
  return (2 * SIDE ** 3) / milliseconds;
}

const place = { slot: 0, offset: 0 };

const product: GemmStep = {
  op: "gemm",
  dtype: "float32",
  ...{ a: place, b: place, c: place },
  ...{ m: SIDE, n: SIDE, k: SIDE, lda: SIDE, ldb: SIDE, ldc: SIDE },
  ...{ transposeA: false, transposeB: false, alpha: 1, beta: 0 },
  batch: [],
  info: 0,
};

/** Duration of the fastest of several runs, in milliseconds. */
function fastest(run: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  const end = performance.now() + MEASURING_MS;
  for (let begin = performance.now(); begin < end; begin = performance.now()) {
    run();
    least = Math.min(least, performance.now() - begin);
  }
  return least;
}
