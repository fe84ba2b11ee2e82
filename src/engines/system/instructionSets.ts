import { getOrInsert } from "../../ir/collections.js";
import { reasonOf } from "../../ir/errors.js";
import { CodeMemory } from "./codeMemory.js";
import { detectX64Features, hasArmBfloat16, requestTiles } from "./cpu.js";

/** The instruction sets there are kernels for. */
export const INSTRUCTION_SETS = ["AVX-512", "AVX2", "NEON"] as const;

/** An instruction set there are kernels for. */
export type InstructionSet = (typeof INSTRUCTION_SETS)[number];

/** The instructions that multiply bfloat16, which some processors have in addition to an instruction set. */
export const BFLOAT16_SETS = ["AMX", "AVX-512-BF16", "NEON-BF16"] as const;

/** Instructions that multiply bfloat16. */
export type Bfloat16Set = (typeof BFLOAT16_SETS)[number];

/** Which instructions multiply: floats, and bfloat16 where the processor can. */
export interface ProductSets {
  readonly set: InstructionSet;
  readonly bfloat16?: Bfloat16Set | undefined;
}

/** Which machine code can run here, or why none can. */
export type Found<C> = C | { readonly unavailable: string };

/** Finds the first of some candidates that the processor has and that passes its test, or the one asked for. */
export function finder<C extends ProductSets>(
  candidates: readonly C[],
  isRight: (memory: CodeMemory, candidate: C) => boolean,
  least: string,
  which: "fast ones" | "slow ones too" = "fast ones",
): (asked?: C["set"]) => Found<C> {
  const known = new Map<InstructionSet | "best", Found<C>>();
  const find = (asked: C["set"] | undefined): Found<C> => {
    const memory = CodeMemory.open();
    if (typeof memory === "string") return { unavailable: memory };
    try {
      const sets = instructionSets(memory, which === "slow ones too");
      const able = candidates.filter(
        ({ set, bfloat16 }) =>
          sets.includes(set) && (asked ?? set) === set && (bfloat16 === undefined || sets.includes(bfloat16)),
      );
      const found = able.find((candidate) => isRight(memory, candidate));
      if (found !== undefined) return found;
      if (able.length > 0)
        return { unavailable: `the self-test of ${able.map(({ set }) => set).join(" and ")} fails` };
      return { unavailable: `this processor (${process.arch}) has no ${asked ?? least}` };
    } catch (error) {
      // A system that forbids executable memory reports it only when some is requested.
      return { unavailable: reasonOf(error) };
    } finally {
      memory.release();
    }
  };
  return (asked) => getOrInsert(known, asked ?? "best", () => find(asked));
}

/** What the processor has, best first; `all` includes instructions slower than others that it has. */
function instructionSets(memory: CodeMemory, all: boolean): readonly (InstructionSet | Bfloat16Set)[] {
  if (process.arch === "arm64") return hasArmBfloat16() ? ["NEON-BF16", "NEON"] : ["NEON"];
  if (process.arch !== "x64") return [];
  const { isIntel, avx2, avx512, avx512Bfloat16, amxBfloat16 } = detectX64Features(memory);
  // On Intel's processors, products of pairs of bfloat16 take longer than both as float32. A rule, not a measurement:
  // results must not depend on what else a machine does while an engine opens.
  const isPairFast = avx512Bfloat16 && (all || !isIntel);
  return [
    ...(amxBfloat16 && requestTiles() ? (["AMX"] as const) : []),
    ...(isPairFast ? (["AVX-512-BF16"] as const) : []),
    ...(avx512 ? (["AVX-512"] as const) : []),
    ...(avx2 ? (["AVX2"] as const) : []),
  ];
}
