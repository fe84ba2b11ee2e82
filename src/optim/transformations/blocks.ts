/** Measures of one whole parameter, wherever its blocks are. */
import { isComplex, isFloat } from "../../ir/dtype.js";
import { ones } from "../../numpy/arrays/creation.js";
import { divide } from "../../numpy/elementwise/arithmetic.js";
import { astype, sqrt } from "../../numpy/elementwise/elementwise.js";
import { lessEqual, where } from "../../numpy/elementwise/logic.js";
import { squaredSize } from "../../numpy/operands.js";
import { sum } from "../../numpy/reductions/reductions.js";
import { psum } from "../../spmd/mesh/collectives.js";
import type { Tensor } from "../../trace/tensor.js";
import { tensorsWithAxes } from "./clipping.js";
import { mapTensors } from "./transformation.js";

/** What is said about a whole parameter of which a device may hold only a block. */
export interface WholeParameter {
  /** The root of the sum of its squares. */
  norm(x: Tensor): Tensor;
  /** The root of the mean of its squares. */
  rms(x: Tensor): Tensor;
}

/** Applies a function to the tensors of trees, told how to measure the parameter that each is a block of. */
export function mapWholes<T>(
  fn: (whole: WholeParameter, x: Tensor, ...others: Tensor[]) => Tensor,
  first: T,
  ...others: unknown[]
): T {
  const axes = tensorsWithAxes(first).map((leaf) => leaf.axes);
  let i = 0;
  return mapTensors((...tensors) => fn(wholeOver(axes[i++] ?? []), ...tensors), first, ...others);
}

function wholeOver(axes: readonly string[]): WholeParameter {
  const total = (x: Tensor): Tensor => (axes.length > 0 ? psum(x, axes) : x);
  // Squares and counts of narrow integers would wrap around.
  const inexact = (x: Tensor): Tensor => (isFloat(x.dtype) || isComplex(x.dtype) ? x : astype(x, "float32"));
  const squares = (x: Tensor): Tensor => total(sum(squaredSize(inexact(x))));
  return {
    norm: (x) => sqrt(squares(x)),
    rms: (x) => sqrt(divide(squares(x), total(ones([], inexact(x).dtype).mul(x.size)))),
  };
}

/** A measure that is at least `least`, with a gradient that is finite where the measure is zero. */
export function atLeast(least: number, measure: (x: Tensor) => Tensor, x: Tensor): Tensor {
  const small = lessEqual(measure(x), least);
  return where(small, least, measure(where(small, 1, x)));
}
