import { CodeMemory } from "./codeMemory.js";
import { detectX64Features } from "./cpu.js";
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
