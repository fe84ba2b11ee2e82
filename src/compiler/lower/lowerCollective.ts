import { axesSize, deviceGroups } from "../../ir/mesh.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import type { Eqn } from "../../ir/program.js";
import { at, sizeOf } from "../../ir/shape.js";
import { bytesOf, refOf } from "../plan/buffers.js";
import type { PlannedCollective } from "../plan/plannedSteps.js";
import type { Frame } from "./frame.js";

/** Emits the start and the end of a collective. */
export function lowerCollective(frame: Frame, eqn: Eqn<CollectiveOp>): void {
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
    combine: eqn.op === "pmax" ? "max" : eqn.op === "pmin" ? "min" : "sum",
    dtype: x.type.dtype,
    axes,
    groups: deviceGroups(frame.compilation.mesh, names),
    size,
    source: refOf(source),
    target: refOf(target),
    elements,
    permutation: eqn.op === "ppermute" ? eqn.params.permutation : [],
    info,
  };
  frame.steps.push({ op: "start", collective, info }, { op: "done", collective, info });
}

function layout(eqn: Eqn<CollectiveOp>): Pick<PlannedCollective, "kind" | "outer" | "inner"> {
  const { shape } = at(eqn.ins, 0).type;
  switch (eqn.op) {
    case "allGather":
      return {
        kind: "allGather",
        outer: sizeOf(shape.slice(0, eqn.params.dim)),
        inner: sizeOf(shape.slice(eqn.params.dim)),
      };
    case "psumScatter": {
      const size = axesSize(eqn.params.axes);
      return {
        kind: "reduceScatter",
        outer: sizeOf(shape.slice(0, eqn.params.dim)),
        inner: sizeOf(shape.slice(eqn.params.dim)) / size,
      };
    }
    case "allToAll":
      return { kind: "allToAll", outer: 1, inner: sizeOf(shape.slice(1)) };
    case "ppermute":
      return { kind: "permute", outer: 1, inner: sizeOf(shape) };
    default:
      return { kind: "allReduce", outer: 1, inner: sizeOf(shape) };
  }
}
