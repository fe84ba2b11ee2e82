import { byteSize } from "../../ir/dtype.js";
import { axesSize, deviceGroups, positionAlong } from "../../ir/mesh.js";
import type { Eqn } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, range, sizeOf, typesOf } from "../../ir/shape.js";
import type { KernelSpec } from "../kernel/spec.js";
import type { StepOp } from "../lowering.js";
import { blockView, joinedBlock, refOf, type View } from "../plan/planBuffers.js";
import type { HostKernel } from "../steps.js";
import type { DynamicUpdate, LoweringFrame } from "./frame.js";
import { lowerCollective, lowerRaggedAllToAll } from "./lowerCollective.js";
import { lowerCond, lowerScan, lowerWhile } from "./lowerControl.js";
import { lowerDot } from "./lowerDot.js";
import { gatherLayout } from "./lowerGroup.js";
import { lowerRaggedDot } from "./lowerRaggedDot.js";

/** Emits the steps of an equation. */
type Lower<K extends StepOp> = (frame: LoweringFrame, eqn: Eqn<K>) => void;

/** The steps of every op that is not fused with others. */
const lowers: { readonly [K in StepOp]: Lower<K> } = {
  pad,
  concatenate,
  dynamicSlice,
  dynamicUpdateSlice,
  scatter,
  argmax: host,
  argmin: host,
  cumsum: host,
  sort: host,
  callback,
  dotGeneral: lowerDot,
  raggedDot: lowerRaggedDot,
  attention: (frame, eqn) => frame.lowerAttention(eqn),
  attentionBackward: (frame, eqn) => frame.lowerAttention(eqn),
  scan: lowerScan,
  while: lowerWhile,
  cond: lowerCond,
  psum: lowerCollective,
  pmax: lowerCollective,
  pmin: lowerCollective,
  allGather: lowerCollective,
  psumScatter: lowerCollective,
  ppermute: lowerCollective,
  allToAll: lowerCollective,
  raggedAllToAll: lowerRaggedAllToAll,
  axisIndex,
};

/** Emits the steps of an equation that is not fused with others. */
export function lowerEqn<K extends StepOp>(frame: LoweringFrame, eqn: Eqn<K>): void {
  const { op }: { readonly op: K } = eqn;
  const lower: Lower<K> = lowers[op];
  lower(frame, eqn);
}

function concatenate(frame: LoweringFrame, eqn: Eqn<"concatenate">): void {
  const target = frame.joined(eqn);
  eqn.ins.forEach((atom, i) => {
    frame.copy(frame.view(atom), joinedBlock(target, eqn, i), "concatenate", eqn.source);
  });
  frame.define(at(eqn.outs, 0), target);
}

function pad(frame: LoweringFrame, eqn: Eqn<"pad">): void {
  const out = at(eqn.outs, 0);
  const target = frame.temporary(out);
  const { low, interior } = eqn.params;
  const padding = frame.view(at(eqn.ins, 1));
  const everywhere = { ...padding, shape: out.type.shape, strides: out.type.shape.map(() => 0) };
  frame.copy(everywhere, target, "pad", eqn.source);
  // Negative padding crops: the first element of x that lands inside, and how many do.
  const x = frame.view(at(eqn.ins, 0));
  const first = low.map((l, d) => (l >= 0 ? 0 : Math.ceil(-l / (at(interior, d) + 1))));
  const starts = low.map((l, d) => l + at(first, d) * (at(interior, d) + 1));
  const sizes = x.shape.map((n, d) => {
    const room = Math.ceil((at(out.type.shape, d) - at(starts, d)) / (at(interior, d) + 1));
    return Math.max(0, Math.min(n - at(first, d), room));
  });
  const source = blockView(x, first, sizes);
  const inside = blockView(target, starts, sizes);
  const strides = target.strides.map((s, d) => s * (at(interior, d) + 1));
  frame.copy(source, { ...inside, strides }, "pad", eqn.source);
  frame.define(out, target);
}

/** A view of a dynamic block of `x`: a new slot is set to the start of the block. */
function dynamicBlock(
  frame: LoweringFrame,
  x: View,
  sizes: readonly number[],
  eqn: Eqn,
  firstStart: number,
): View {
  const buffer = frame.compilation.dynamic([x.buffer], frame.depth);
  const bytes = byteSize(x.dtype);
  const terms = sizes.flatMap((size, d) => {
    const max = at(x.shape, d) - size;
    if (max === 0) return [];
    const index = refOf(frame.view(at(eqn.ins, firstStart + d)));
    return [{ index, max, stride: at(x.strides, d) * bytes }];
  });
  const info = frame.compilation.info([eqn.op], eqn.source, 0, 0);
  frame.steps.push({ op: "address", slot: buffer, from: refOf(x), terms, info });
  return { ...x, buffer, offset: 0, shape: sizes };
}

function dynamicSlice(frame: LoweringFrame, eqn: Eqn<"dynamicSlice">): void {
  const x = frame.view(at(eqn.ins, 0));
  frame.define(at(eqn.outs, 0), dynamicBlock(frame, x, eqn.params.sizes, eqn, 1));
}

/** Copies what an update leaves unchanged to the memory of its result, and finds the block that it changes. */
export function beginUpdate(frame: LoweringFrame, eqn: Eqn<"dynamicUpdateSlice">): DynamicUpdate {
  const whole = frame.temporary(at(eqn.outs, 0));
  frame.copy(frame.view(at(eqn.ins, 0)), whole, eqn.op, eqn.source);
  return { whole, block: dynamicBlock(frame, whole, at(eqn.ins, 1).type.shape, eqn, 2) };
}

function dynamicUpdateSlice(frame: LoweringFrame, eqn: Eqn<"dynamicUpdateSlice">): void {
  const { whole, block } = frame.update(eqn);
  frame.copy(frame.view(at(eqn.ins, 1)), block, eqn.op, eqn.source);
  frame.define(at(eqn.outs, 0), whole);
}

function scatter(frame: LoweringFrame, eqn: Eqn<"scatter">): void {
  const out = at(eqn.outs, 0);
  const target = frame.temporary(out);
  frame.copy(frame.view(at(eqn.ins, 0)), target, eqn.op, eqn.source);
  const [indices, updates] = [frame.view(at(eqn.ins, 1)), frame.view(at(eqn.ins, 2))];
  const { dtype } = updates;
  const layout = gatherLayout(target, indices, eqn.params);
  const spec: KernelSpec = {
    dims: updates.shape,
    numRows: 0,
    args: [dtype, "int32", dtype],
    nodes: [{ kind: "load", dtype, access: { arg: 0, strides: updates.strides } }],
    stores: [
      {
        node: 0,
        access: { arg: 2, strides: layout.strides },
        index: {
          access: { arg: 1, strides: layout.indexStrides },
          stride: layout.stride,
          limit: layout.limit,
        },
        ...(eqn.params.combine === "add" && { combine: "sum" as const }),
      },
    ],
    fills: [],
  };
  const bytes = 2 * bytesOf(at(eqn.ins, 2).type);
  const info = frame.compilation.info([eqn.op], eqn.source, sizeOf(updates.shape), bytes);
  frame.kernel(spec, [updates, indices, target], [0, 1, 2], [2], info);
  frame.define(out, target);
}

function host(frame: LoweringFrame, eqn: Eqn<"sort" | "argmax" | "argmin" | "cumsum">): void {
  const ins = eqn.ins.map((atom) => frame.dense(atom));
  const outs = eqn.outs.map((out) => frame.temporary(out));
  const { shape } = at(ins, 0);
  const { dim } = eqn.params;
  const extent = {
    outer: sizeOf(shape.slice(0, dim)),
    n: at(shape, dim),
    inner: sizeOf(shape.slice(dim + 1)),
  };
  const kernel = hostKernel(eqn, extent);
  const bytes = bytesOfAll([...eqn.ins, ...eqn.outs]);
  const info = frame.compilation.info([eqn.op], eqn.source, 0, bytes);
  frame.steps.push({ op: "host", kernel, ins: ins.map(refOf), outs: outs.map(refOf), info });
  frame.defineAll(eqn.outs, outs);
}

function hostKernel(
  eqn: Eqn<"sort" | "argmax" | "argmin" | "cumsum">,
  extent: { readonly outer: number; readonly n: number; readonly inner: number },
): HostKernel {
  const dtypes = eqn.ins.map((atom) => atom.type.dtype);
  if (eqn.op === "sort") return { kind: "sort", dtypes, numKeys: eqn.params.numKeys, ...extent };
  const kind = eqn.op !== "cumsum" ? eqn.op : eqn.params.reverse ? "cumsumReverse" : "cumsum";
  return { kind, dtype: at(dtypes, 0), ...extent };
}

function axisIndex(frame: LoweringFrame, eqn: Eqn<"axisIndex">): void {
  const out = at(eqn.outs, 0);
  const target = frame.temporary(out);
  const { mesh } = frame.compilation;
  const names = eqn.params.axes.map((axis) => axis.name);
  const devices = deviceGroups(mesh, []).length;
  const positions = range(devices).map((device) => positionAlong(mesh, device, names));
  const info = frame.compilation.info([eqn.op], eqn.source, 0, 4);
  frame.steps.push({ op: "axisIndex", target: refOf(target), positions, info });
  frame.define(out, target);
}

function callback(frame: LoweringFrame, eqn: Eqn<"callback">): void {
  const ins = eqn.ins.map((atom) => frame.dense(atom));
  const outs = eqn.outs.map((out) => frame.temporary(out));
  const { mesh } = frame.compilation;
  const { fn, once } = eqn.params;
  const names = once.map(({ name }) => name);
  const calls = range(axesSize(mesh.axes)).map((device) => positionAlong(mesh, device, names) === 0);
  const spec = { fn, ins: typesOf(eqn.ins), outs: typesOf(eqn.outs) };
  const bytes = bytesOfAll([...eqn.ins, ...eqn.outs]);
  const info = frame.compilation.info([eqn.op], eqn.source, 0, bytes);
  frame.steps.push({ op: "callback", spec, calls, ins: ins.map(refOf), outs: outs.map(refOf), info });
  frame.defineAll(eqn.outs, outs);
}
