import { CodeMemory } from "./codeMemory.js";
import { detectX64Features } from "./cpu.js";
import { computesRight, type KernelChoice } from "./kernelTest.js";
import type { InstructionSet } from "./nativeGemm.js";
import { multipliesRight } from "./selfTest.js";

/** Who multiplies in machine code here, or why nobody does. */
export type NativeChoice = { readonly set: InstructionSet } | { readonly unavailable: string };

const known = new Map<InstructionSet | "best", NativeChoice>();

/**
 * The best instruction set of this machine whose kernels pass a test against plain sums, or the one asked for.
 * The answer is found once for the process.
 */
export function nativeGemmHere(asked?: InstructionSet): NativeChoice {
  const key = asked ?? "best";
  let choice = known.get(key);
  if (choice === undefined) {
    choice = findNative(asked);
    known.set(key, choice);
  }
  return choice;
}

const kernels = new Map<KernelChoice["set"] | "best", KernelChoice | { readonly unavailable: string }>();

/** The best machine code for kernels whose results are those of WebAssembly, or the one asked for; found once. */
export function nativeKernelsHere(
  asked?: KernelChoice["set"],
): KernelChoice | { readonly unavailable: string } {
  const key = asked ?? "best";
  let choice = kernels.get(key);
  if (choice === undefined) {
    choice = findKernels(asked);
    kernels.set(key, choice);
  }
  return choice;
}

/** Vectors as wide as WebAssembly's gain nothing, so that there are no kernels for NEON. */
const KERNEL_SETS: readonly KernelChoice[] = [
  { set: "AVX-512", bits: 512 },
  { set: "AVX2", bits: 256 },
];

function findKernels(asked?: KernelChoice["set"]): KernelChoice | { readonly unavailable: string } {
  const memory = CodeMemory.open();
  if (typeof memory === "string") return { unavailable: memory };
  try {
    const sets = instructionSets(memory);
    const candidates = KERNEL_SETS.filter(
      ({ set }) => sets.includes(set) && (asked === undefined || asked === set),
    );
    const found = candidates.find((candidate) => computesRight(memory, candidate));
    if (found !== undefined) return found;
    if (candidates.length === 0)
      return { unavailable: `this processor (${process.arch}) has no ${asked ?? "AVX2"}` };
    return { unavailable: `the self-test of ${candidates.map(({ set }) => set).join(" and ")} fails` };
  } catch (error) {
    return { unavailable: error instanceof Error ? error.message : String(error) };
  } finally {
    memory.release();
  }
}

function findNative(asked: InstructionSet | undefined): NativeChoice {
  const memory = CodeMemory.open();
  if (typeof memory === "string") return { unavailable: memory };
  try {
    const sets = instructionSets(memory);
    const candidates = asked === undefined ? sets : sets.filter((set) => set === asked);
    const set = candidates.find((candidate) => multipliesRight(memory, candidate));
    if (set !== undefined) return { set };
    if (candidates.length > 0) return { unavailable: `the self-test of ${candidates.join(" and ")} fails` };
    return { unavailable: `this processor (${process.arch}) has no ${asked ?? "AVX2 or NEON"}` };
  } catch (error) {
    // A system that forbids executable memory says so only when it is asked for some.
    return { unavailable: error instanceof Error ? error.message : String(error) };
  } finally {
    memory.release();
  }
}

/** What the processor has, best first. */
function instructionSets(memory: CodeMemory): readonly InstructionSet[] {
  if (process.arch === "arm64") return ["NEON"];
  if (process.arch !== "x64") return [];
  const { avx2, avx512 } = detectX64Features(memory);
  return [...(avx512 ? (["AVX-512"] as const) : []), ...(avx2 ? (["AVX2"] as const) : [])];
}
