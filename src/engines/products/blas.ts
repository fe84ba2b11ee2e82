import { isMainThread } from "node:worker_threads";
import { environment } from "#platform/system";
import type { Gemm } from "../../compiler/gemm/wasmGemm.js";
import { ConfigError } from "../../ir/errors.js";
import { type Koffi, loadKoffi } from "../system/koffi.js";
import { withBetterCore } from "./blasCore.js";

type Library = import("koffi").LibraryHandle;

/**
 * Up to this many multiply-adds (m · n · k) the WebAssembly kernel beats a BLAS called through FFI, whose
 * call alone costs as much as a small product.
 */
export const BLAS_CROSSOVER = 16 ** 3;

/** A BLAS of the system; it takes native addresses (see `nativeAddress`) instead of offsets into a memory. */
export interface Blas {
  /** Name of the implementation, for example `OpenBLAS`. */
  readonly name: string;
  /** The library that was loaded. */
  readonly path: string;
  readonly sgemm: Gemm;
  readonly dgemm: Gemm;
  /** Runs one product of useful size as a warm-up: the first calls of a thread are up to three times slower. */
  warmUp(): void;
}

interface Candidate {
  readonly name: string;
  readonly paths: readonly string[];
  /** Functions of one int that set the number of threads, tried in turn. */
  readonly setThreads: readonly string[];
  /** Environment variables the library reads when it is loaded. */
  readonly environment: { readonly [variable: string]: string };
}

const OPENBLAS = {
  name: "OpenBLAS",
  setThreads: ["openblas_set_num_threads"],
  environment: { OPENBLAS_NUM_THREADS: "1" },
};
const MKL = {
  name: "MKL",
  setThreads: ["MKL_Set_Num_Threads"],
  environment: { MKL_NUM_THREADS: "1", MKL_THREADING_LAYER: "SEQUENTIAL" },
};
const BLIS = {
  name: "BLIS",
  setThreads: ["bli_thread_set_num_threads"],
  environment: { BLIS_NUM_THREADS: "1" },
};
const ACCELERATE = {
  name: "Accelerate",
  setThreads: [],
  environment: { VECLIB_MAXIMUM_THREADS: "1" },
};

/** Where each platform keeps its libraries; plain names leave the search to the loader. */
function candidates(platform: NodeJS.Platform): readonly Candidate[] {
  switch (platform) {
    case "darwin":
      return [
        { ...ACCELERATE, paths: ["/System/Library/Frameworks/Accelerate.framework/Accelerate"] },
        {
          ...OPENBLAS,
          paths: [
            "/opt/homebrew/opt/openblas/lib/libopenblas.dylib",
            "/usr/local/opt/openblas/lib/libopenblas.dylib",
          ],
        },
      ];
    case "win32":
      return [
        { ...MKL, paths: ["mkl_rt.2.dll", "mkl_rt.dll"] },
        { ...OPENBLAS, paths: ["libopenblas.dll", "openblas.dll"] },
        { ...BLIS, paths: ["AOCL-LibBlis-Win-dll.dll"] },
      ];
    default:
      return [
        {
          ...OPENBLAS,
          paths: [
            "libopenblas.so.0",
            "libopenblas.so",
            "libopenblasp.so.0",
            "/usr/lib64/libopenblas.so.0",
            "/usr/local/lib/libopenblas.so",
            "/opt/OpenBLAS/lib/libopenblas.so",
          ],
        },
        { ...BLIS, paths: ["libblis.so.4", "libblis.so.3", "libblis.so"] },
        {
          ...MKL,
          paths: ["libmkl_rt.so.2", "libmkl_rt.so", "/opt/intel/oneapi/mkl/latest/lib/libmkl_rt.so"],
        },
      ];
  }
}

/**
 * Finds a BLAS of the system and sets it to one thread, since every device is a thread of its own.
 *
 * Call it on the main thread before any worker does: libraries read the environment when they are first
 * loaded, and a worker's `process.env` is a copy that they do not see. `SHARDWISE_BLAS` names a library to
 * use instead, or `none`.
 *
 * @returns undefined if there is no BLAS, or no FFI to call it with
 */
export function findBlas(choice: string | undefined = environment.SHARDWISE_BLAS): Blas | undefined {
  if (choice === "none") return undefined;
  const koffi = loadKoffi();
  if (koffi === undefined) {
    if (!choice) return undefined;
    throw new ConfigError(
      `[findBlas] SHARDWISE_BLAS=${choice} needs the package koffi, which does not load here: install it, or say "none"`,
    );
  }
  if (choice) {
    const named = [OPENBLAS, BLIS, MKL, ACCELERATE].map((kind) => ({ ...kind, paths: [choice] }));
    for (const candidate of named) setEnvironment(candidate);
    const library = tryLoad(koffi, choice);
    const found = library && openBlas(koffi, library, choice, identify(library, named));
    if (found) return found;
    throw new ConfigError(
      `[findBlas] SHARDWISE_BLAS=${choice} is not a library with a working cblas_sgemm: give the full path of a BLAS, or "none"`,
    );
  }
  return systemBlas(koffi).next().value;
}

/** Every BLAS of the system, one of each kind. */
export function findAllBlas(): readonly Blas[] {
  const koffi = loadKoffi();
  return koffi === undefined ? [] : [...systemBlas(koffi)];
}

function* systemBlas(koffi: Koffi): Generator<Blas, undefined> {
  for (const candidate of candidates(process.platform)) {
    setEnvironment(candidate);
    for (const path of candidate.paths) {
      const library = tryLoad(koffi, path);
      const found = library && openBlas(koffi, library, path, candidate);
      if (found === undefined) continue;
      yield found;
      break;
    }
  }
}

function setEnvironment(candidate: Candidate): void {
  if (!isMainThread) return;
  for (const [variable, value] of Object.entries(candidate.environment)) process.env[variable] ??= value;
}

function tryLoad(koffi: Koffi, path: string): Library | undefined {
  const load = () => {
    try {
      return koffi.load(path);
    } catch {
      return undefined;
    }
  };
  const library = load();
  return library && withBetterCore(library, load);
}

function identify(library: Library, kinds: readonly Candidate[]): Candidate {
  const fallback: Candidate = { name: "BLAS", paths: [], setThreads: [], environment: {} };
  return kinds.find((kind) => kind.setThreads.some((name) => hasSymbol(library, name))) ?? fallback;
}

function hasSymbol(library: Library, name: string): boolean {
  try {
    library.symbol(name);
    return true;
  } catch {
    return false;
  }
}

const ROW_MAJOR = 101;
const NO_TRANSPOSE = 111;
const TRANSPOSE = 112;

/** Binds the functions and checks that they multiply correctly, which a library with 64-bit integers would not. */
function openBlas(koffi: Koffi, library: Library, path: string, candidate: Candidate): Blas | undefined {
  try {
    for (const name of candidate.setThreads) {
      if (hasSymbol(library, name)) library.func(name, "void", ["int"])(1);
    }
    const sgemm = bind(library, "cblas_sgemm", "float");
    const dgemm = bind(library, "cblas_dgemm", "double");
    if (!multiplies(koffi, sgemm, Float32Array) || !multiplies(koffi, dgemm, Float64Array)) return undefined;
    return { name: candidate.name, path, sgemm, dgemm, warmUp: () => warmUp(koffi, sgemm) };
  } catch {
    return undefined;
  }
}

function bind(library: Library, name: string, real: "float" | "double"): Gemm {
  // Addresses as numbers: typed arrays would cost a third more per call, and views would have to be created.
  const address = "uintptr_t";
  const call = library.func(name, "void", [
    ...["int", "int", "int", "int", "int", "int"],
    ...[real, address, "int", address, "int", real, address, "int"],
  ]) as (...args: number[]) => void;
  return (transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) => {
    const [opA, opB] = [transA ? TRANSPOSE : NO_TRANSPOSE, transB ? TRANSPOSE : NO_TRANSPOSE];
    call(ROW_MAJOR, opA, opB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  };
}

function multiplies(
  koffi: Koffi,
  gemm: Gemm,
  ArrayType: Float32ArrayConstructor | Float64ArrayConstructor,
): boolean {
  const a = new ArrayType([1, 2, 3, 4, 5, 6]);
  const b = new ArrayType([7, 8, 9, 10, 11, 12]);
  const c = new ArrayType([1, 1, 1, 1]);
  const [aAt, bAt, cAt] = [a, b, c].map((array) => Number(koffi.address(array)));
  if (aAt === undefined || bAt === undefined || cAt === undefined) return false;
  gemm(false, true, 2, 2, 3, 2, aAt, 3, bAt, 3, 1, cAt, 2);
  return c.join() === "101,137,245,335" && a.length + b.length === 12;
}

function warmUp(koffi: Koffi, sgemm: Gemm): void {
  const n = 256;
  const data = new Float32Array(3 * n * n);
  const at = Number(koffi.address(data));
  sgemm(false, false, n, n, n, 1, at, n, at + n * n * 4, n, 0, at + 2 * n * n * 4, n);
  data[0] = 1;
}
