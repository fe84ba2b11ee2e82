import { type DType, isFloat, limits } from "../ir/dtype.js";
import type { ReduceOp } from "../ir/opFacts.js";

/** How a reduction or a collective combines two elements. */
export type Combine = "sum" | "max" | "min";

/** The combination that every reduction applies. */
export const combineOf: { readonly [K in ReduceOp]: Combine } = {
  reduceSum: "sum",
  reduceMax: "max",
  reduceMin: "min",
};

/** The value that a combination leaves unchanged. */
export function identityOf(combine: Combine, dtype: DType): number {
  if (combine === "sum") return 0;
  if (isFloat(dtype)) return combine === "max" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const { min, max } = limits(dtype);
  return combine === "max" ? min : max;
}

/** The result of reducing no elements. */
export function reductionIdentity(op: ReduceOp, dtype: DType): number {
  return identityOf(combineOf[op], dtype);
}
