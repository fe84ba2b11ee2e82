import { finder, type ProductSets } from "../system/instructionSets.js";
import { multipliesRight } from "./productTest.js";

/** The machine code that can compute products, best first. */
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
 * it the best instructions for bfloat16 that pass. Determined once per process.
 */
export const nativeGemmHere = finder(PRODUCT_SETS, multipliesRight, "AVX2 or NEON");

/** All instructions for products that this machine has, except those that fail their test. */
export function allNativeGemmsHere(): readonly ProductSets[] {
  return PRODUCT_SETS.filter((sets) => "set" in finder([sets], multipliesRight, "", "slow ones too")());
}
