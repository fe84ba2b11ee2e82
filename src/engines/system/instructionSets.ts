import { CodeMemory } from "./codeMemory.js";
import { detectX64Features, hasArmBfloat16, requestTiles } from "./cpu.js";
import { computesRight, type KernelChoice } from "../kernels/kernelTest.js";
import type { Bfloat16Set, InstructionSet, ProductSets } from "../products/nativeGemm.js";
import { multipliesRight } from "../products/productTest.js";

/** What machine code can do here, or why there is none. */
type Found<C> = C | { readonly unavailable: string };

/** Who multiplies in machine code here, or why nobody does. */
export type NativeChoice = Found<ProductSets>;

/** Whom products can be made by, best first. */
const PRODUCT_SETS: readonly ProductSets[] = [
  { set: "AVX-512", bfloat16: "AMX" },
  { set: "AVX-512", bfloat16: "AVX-512-BF16" },
  { set: "AVX-512" },
  { set: "AVX2" },
  { set: "NEON", bfloat16: "NEON-BF16" },
  { set: "NEON" },
];

/**
 * The best instruction set of this machine whose products pass a test against plain sums, or the one asked for; with
 * it the best instructions for bfloat16 that pass. The answer is found once for the process.
 */
export const nativeGemmHere = finder(PRODUCT_SETS, multipliesRight, "AVX2 or NEON");

/** All instructions for products that this machine has, those that fail their test left out. */
export function allNativeGemmsHere(): readonly ProductSets[] {
  return PRODUCT_SETS.filter((sets) => "set" in finder([sets], multipliesRight, "", "slow ones too")());
}

/**
 * The best machine code for kernels whose results are those of WebAssembly, or the one asked for; found once.
 * Vectors as wide as WebAssembly's gain nothing, so that there are no kernels for NEON.
 */
export const nativeKernelsHere = finder<KernelChoice>(
  [
    { set: "AVX-512", bits: 512 },
    { set: "AVX2", bits: 256 },
  ],
  computesRight,
  "AVX2",
);

/** Finds the first of some candidates that the processor has and that passes its test, or the one asked for. */
function finder<C extends ProductSets>(
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
      // A system that forbids executable memory says so only when it is asked for some.
      return { unavailable: error instanceof Error ? error.message : String(error) };
    } finally {
      memory.release();
    }
  };
  return (asked) => {
    const key = asked ?? "best";
    const choice = known.get(key) ?? find(asked);
    known.set(key, choice);
    return choice;
  };
}

/** What the processor has, best first; `all` asks also for what takes longer than something else it has. */
function instructionSets(memory: CodeMemory, all: boolean): readonly (InstructionSet | Bfloat16Set)[] {
  if (process.arch === "arm64") return hasArmBfloat16() ? ["NEON-BF16", "NEON"] : ["NEON"];
  if (process.arch !== "x64") return [];
  const { isIntel, avx2, avx512, avx512Bfloat16, amxBfloat16 } = detectX64Features(memory);
  // Intel's processors multiply pairs of bfloat16 in more time than both as float32. A rule instead of a measurement:
  // results must not depend on what else a machine does while an engine opens.
  const isPairFast = avx512Bfloat16 && (all || !isIntel);
  return [
    ...(amxBfloat16 && requestTiles() ? (["AMX"] as const) : []),
    ...(isPairFast ? (["AVX-512-BF16"] as const) : []),
    ...(avx512 ? (["AVX-512"] as const) : []),
    ...(avx2 ? (["AVX2"] as const) : []),
  ];
}
