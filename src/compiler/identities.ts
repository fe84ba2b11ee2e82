import type { DType } from "../ir/dtype.js";
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
  const sign = combine === "max" ? -1 : 1;
  switch (dtype) {
    case "int32":
      return sign < 0 ? -(2 ** 31) : 2 ** 31 - 1;
    case "uint32":
      return sign < 0 ? 0 : 2 ** 32 - 1;
    case "bool":
      return sign < 0 ? 0 : 1;
    default:
      return sign * Number.POSITIVE_INFINITY;
  }
}

/** The result of reducing no elements. */
export function reductionIdentity(op: ReduceOp, dtype: DType): number {
  return identityOf(combineOf[op], dtype);
}
