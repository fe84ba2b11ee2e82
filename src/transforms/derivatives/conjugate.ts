import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { imaginaryLeaves } from "../../trace/trace.js";
import type { Structure } from "../../trace/tree.js";

/**
 * Cotangents between JAX's way and that of programs, either direction. Programs know complex numbers by their parts, and
 * so the cotangents of both parts; for JAX's users it is the conjugate of that, with which the cotangent of a holomorphic
 * function is multiplied by its complex derivative.
 */
export function conjugated(structure: Structure, cotangents: readonly Tensor[]): Tensor[] {
  const isImaginary = imaginaryLeaves(structure);
  return cotangents.map((ct, i) => (isImaginary[i] ? ops.neg(ct) : ct));
}
