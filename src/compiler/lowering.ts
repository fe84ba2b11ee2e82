import { type LoweredOp, rowsOf, uniformFamilies } from "../ir/opFacts.js";
import type { OpName } from "../ir/ops.js";
import type { Eqn } from "../ir/program.js";

/**
 * How the compiler treats an op: it is `fused` with others into a kernel, only a `view` of memory, a `step` of its own,
 * `control` around the steps of programs, a `collective` that starts and ends, or `gone`, because normalisation
 * expresses it by other ops.
 */
export type Lowering = "fused" | "view" | "step" | "control" | "collective" | "gone";

/** How every op is lowered. */
export const lowerings = {
  ...rowsOf(uniformFamilies, "fused"),
  isFinite: "fused",
  convert: "fused",
  bitcast: "fused",
  compare: "fused",
  select: "fused",
  threefry2x32: "fused",
  clamp: "gone",
  xlaFunction: "gone",
  roundFloat8: "gone",
  name: "gone",
  stopGradient: "gone",
  pvary: "gone",
  optimizationBarrier: "gone",

  iota: "fused",
  broadcastInDim: "view",
  reshape: "view",
  transpose: "view",
  reverse: "view",
  slice: "view",
  pad: "step",
  concatenate: "step",
  dynamicSlice: "step",
  dynamicUpdateSlice: "step",
  gather: "fused",
  scatter: "step",

  reduceSum: "fused",
  reduceMax: "fused",
  reduceMin: "fused",
  argmax: "step",
  argmin: "step",
  cumsum: "step",
  sort: "step",
  dotGeneral: "step",
  raggedDot: "step",
  attention: "step",
  attentionBackward: "step",

  callback: "step",

  ...rowsOf(["control"], "control"),
  ...rowsOf(["call", "sharding"], "gone"),

  ...rowsOf(["collective"], "collective"),
  axisIndex: "step",
} as const satisfies { readonly [K in OpName]: K extends LoweredOp ? Exclude<Lowering, "gone"> : "gone" };

/** The ops that are lowered in one of some ways. */
export type LoweredAs<L extends Lowering> = {
  [K in keyof typeof lowerings]: (typeof lowerings)[K] extends L ? K : never;
}[keyof typeof lowerings];

/** Ops that run in a kernel with others. */
export type FusedOp = LoweredAs<"fused">;
/** Ops that are only views of their operand. */
export type ViewOp = LoweredAs<"view">;
/** Ops that become steps of their own. */
export type StepOp = LoweredAs<"step" | "control" | "collective">;

/** Whether the equation runs in a kernel with others. */
export function isFused(eqn: Eqn): eqn is Eqn<FusedOp> {
  return lowerings[eqn.op] === "fused";
}

/** Whether the equation is only a view of its operand. */
export function isView(eqn: Eqn): eqn is Eqn<ViewOp> {
  return lowerings[eqn.op] === "view";
}

/** Whether normalisation must have removed the equation. */
export function isGone(eqn: Eqn): eqn is Eqn<LoweredAs<"gone">> {
  return lowerings[eqn.op] === "gone";
}
