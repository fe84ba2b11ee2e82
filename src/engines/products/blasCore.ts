import { isMainThread } from "node:worker_threads";
import type { LibraryHandle } from "koffi";
import { CodeMemory } from "../system/codeMemory.js";
import { detectX64Features, type X64Features } from "../system/cpu.js";

/** OpenBLAS's names of its kernels for processors without AVX2. */
const CORES_BEFORE_AVX2: ReadonlySet<string> = new Set(
  "Prescott Core2 Penryn Dunnington Nehalem Sandybridge Atom Nano Opteron Barcelona Bobcat Bulldozer".split(
    " ",
  ),
);

/** The vectors that its kernels differ by. */
type Vectors = Pick<X64Features, "avx2" | "avx512">;

/** The kernels OpenBLAS should use if it chose some that use less than the processor offers; else undefined. */
export function betterCore(chosen: string, { avx2, avx512 }: Vectors): string | undefined {
  if (!CORES_BEFORE_AVX2.has(chosen) || !avx2) return undefined;
  return avx512 ? "SkylakeX" : "Haswell";
}

/**
 * An OpenBLAS does not know processors that are newer than itself and then takes kernels that run everywhere, at a
 * fifth of the speed. It chooses when it is loaded, so it is loaded again with the right ones named.
 *
 * @param load loads the library, from the main thread, whose environment is the one that it reads
 */
export function withBetterCore(
  library: LibraryHandle,
  load: () => LibraryHandle | undefined,
): LibraryHandle | undefined {
  if (!isMainThread || process.arch !== "x64" || process.env.OPENBLAS_CORETYPE !== undefined) return library;
  const better = betterCore(chosenCore(library), processorFeatures());
  if (better === undefined) return library;
  library.unload();
  process.env.OPENBLAS_CORETYPE = better;
  return load();
}

/** The kernels a library chose; undefined if it is not OpenBLAS. */
function chosenCore(library: LibraryHandle): string {
  try {
    return String(library.func("openblas_get_corename", "str", [])());
  } catch {
    return "";
  }
}

function processorFeatures(): Vectors {
  const memory = CodeMemory.open();
  if (typeof memory === "string") return { avx2: false, avx512: false };
  try {
    return detectX64Features(memory);
  } catch {
    return { avx2: false, avx512: false };
  } finally {
    memory.release();
  }
}
