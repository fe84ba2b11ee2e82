import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { imaginaryLeaves } from "../../trace/trace.js";
import type { Structure } from "../../trace/tree.js";

/**
 * Converts cotangents between JAX's convention and that of programs, in either direction. Programs hold complex
 * numbers, and so cotangents, as their parts; JAX's convention is the conjugate of that, under which the cotangent of a
 * holomorphic function is multiplied by its complex derivative.
 */
export function conjugated(structure: Structure, cotangents: readonly Tensor[]): Tensor[] {
  const isImaginary = imaginaryLeaves(structure);
  return cotangents.map((ct, i) => (isImaginary[i] ? ops.neg(ct) : ct));
}
