import { axesSize, deviceGroups } from "../../ir/mesh.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import type { OpParams } from "../../ir/ops.js";
import type { Eqn, EqnParts } from "../../ir/program.js";
import { at, bytesOf, type Shape, sizeOf } from "../../ir/shape.js";
import type { Combine } from "../identities.js";
import { refOf } from "../plan/planBuffers.js";
import type { PlannedCollective } from "../plan/plannedSteps.js";
import type { LoweringFrame } from "./frame.js";

/** Collectives of one operand. */
type PlainCollective = Exclude<CollectiveOp, "raggedAllToAll">;

/** Emits the start and the end of an exchange of blocks of rows, after copying the rows that stay. */
export function lowerRaggedAllToAll(frame: LoweringFrame, eqn: Eqn<"raggedAllToAll">): void {
  const [x, into, out] = [at(eqn.ins, 0), at(eqn.ins, 1), at(eqn.outs, 0)];
  const target = frame.temporary(out);
  frame.copy(frame.view(into), target, eqn.op, eqn.source);
  frame.define(out, target);
  const elements = sizeOf(x.type.shape);
  if (elements === 0 || sizeOf(out.type.shape) === 0) return;
  const [source, sends, receives] = [
    frame.dense(x),
    frame.dense(at(eqn.ins, 2)),
    frame.dense(at(eqn.ins, 3)),
  ];
  const { axes } = eqn.params;
  const names = axes.map((axis) => axis.name);
  const info = frame.compilation.info([eqn.op], eqn.source, 0, 2 * bytesOf(x.type));
  const collective: PlannedCollective = {
    kind: "allToAll",
    combine: "sum",
    dtype: x.type.dtype,
    axes,
    groups: deviceGroups(frame.compilation.mesh, names),
    size: axesSize(axes),
    source: refOf(source),
    target: refOf(target),
    elements,
    outer: 1,
    inner: Math.ceil(elements / axesSize(axes)),
    permutation: [],
    ragged: {
      sends: refOf(sends),
      receives: refOf(receives),
      numBlocks: at(sends.shape, 0) / axesSize(axes),
      rows: at(x.type.shape, 0),
      targetRows: at(out.type.shape, 0),
    },
    info,
  };
  frame.steps.push({ op: "start", collective, info }, { op: "done", collective, info });
}

/** Emits the start and the end of a collective. */
export function lowerCollective(frame: LoweringFrame, eqn: Eqn<PlainCollective>): void {
  const [x, out] = [at(eqn.ins, 0), at(eqn.outs, 0)];
  const { axes } = eqn.params;
  const size = axesSize(axes);
  const elements = sizeOf(x.type.shape);
  if (size === 1 && eqn.op !== "ppermute") {
    frame.define(out, frame.view(x));
    return;
  }
  const source = frame.dense(x);
  const target = frame.temporary(out);
  frame.define(out, target);
  if (elements === 0) return;
  const info = frame.compilation.info([eqn.op], eqn.source, 0, bytesOf(x.type) + bytesOf(out.type));
  const names = axes.map((axis) => axis.name);
  const collective: PlannedCollective = {
    ...layout(eqn),
    dtype: x.type.dtype,
    axes,
    groups: deviceGroups(frame.compilation.mesh, names),
    size,
    source: refOf(source),
    target: refOf(target),
    elements,
    permutation: eqn.op === "ppermute" ? eqn.params.permutation : [],
    ...(eqn.op === "ppermute" && eqn.params.unset ? { unset: true } : {}),
    info,
  };
  frame.steps.push({ op: "start", collective, info }, { op: "done", collective, info });
}

/** How a collective combines elements, and the number and size of the contiguous pieces of its operand. */
type Layout = Pick<PlannedCollective, "kind" | "combine" | "outer" | "inner">;
type LayoutRule<K extends PlainCollective> = (params: OpParams[K], shape: Shape) => Layout;

const allReduce =
  (combine: Combine): LayoutRule<"psum" | "pmax" | "pmin"> =>
  (_, shape) => ({ kind: "allReduce", combine, outer: 1, inner: sizeOf(shape) });

const layouts: { readonly [K in PlainCollective]: LayoutRule<K> } = {
  psum: allReduce("sum"),
  pmax: allReduce("max"),
  pmin: allReduce("min"),
  allGather: ({ dim }, shape) => ({
    kind: "allGather",
    combine: "sum",
    outer: sizeOf(shape.slice(0, dim)),
    inner: sizeOf(shape.slice(dim)),
  }),
  psumScatter: ({ dim, axes }, shape) => ({
    kind: "reduceScatter",
    combine: "sum",
    outer: sizeOf(shape.slice(0, dim)),
    inner: sizeOf(shape.slice(dim)) / axesSize(axes),
  }),
  ppermute: (_, shape) => ({ kind: "permute", combine: "sum", outer: 1, inner: sizeOf(shape) }),
  allToAll: (_, shape) => ({ kind: "allToAll", combine: "sum", outer: 1, inner: sizeOf(shape.slice(1)) }),
};

function layout<K extends PlainCollective>(eqn: Eqn<K>): Layout {
  const { op, params, ins }: EqnParts<K> = eqn;
  const rule: LayoutRule<K> = layouts[op];
  return rule(params, at(ins, 0).type.shape);
}
