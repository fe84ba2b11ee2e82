import { zip } from "../../ir/collections.js";
import type { DType } from "../../ir/dtype.js";
import { AxisError, ValueError } from "../../ir/errors.js";
import { axisSizeIn, deviceGroups, formatMesh, type MeshAxis, positionAlong } from "../../ir/mesh.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import { checkRows } from "../../ir/rowBlocks.js";
import { at, entriesOf, range, sizeOf, type TensorType } from "../../ir/shape.js";
import { decode, encode, type HostTensor, hostTensor, unsetValues, zeros } from "./hostTensor.js";
import { maxFold, minFold, sumFold } from "./reductions.js";
import type { Context, EvalRule } from "./rule.js";
import { concatenated, splitAlong } from "./strided.js";

function axisNames(op: OpName, axes: readonly MeshAxis[], { mesh }: Context): string[] {
  return axes.map(({ name, size }) => {
    const bound = axisSizeIn(mesh, name);
    if (bound === undefined) {
      throw new AxisError(`[${op}] axis "${name}" is not an axis of the mesh ${formatMesh(mesh)}`);
    }
    if (bound !== size) {
      throw new AxisError(
        `[${op}] axis "${name}" has size ${bound} in the mesh, the program expects ${size}`,
      );
    }
    return name;
  });
}

/** The lanes of every group of devices that take part in a collective, in the order of the group. */
function meetingLanes(op: OpName, axes: readonly MeshAxis[], context: Context): number[][] {
  const names = axisNames(op, axes, context);
  const laneOf = new Map(context.devices.map((device, lane) => [device, lane]));
  const groups = deviceGroups(context.mesh, names).filter((group) => group.some((d) => laneOf.has(d)));
  return groups.map((group) =>
    group.map((device) => {
      const lane = laneOf.get(device);
      if (lane !== undefined) return lane;
      const here = group.filter((d) => laneOf.has(d));
      const missing = group.filter((d) => !laneOf.has(d));
      throw new ValueError(
        `[${op}] devices ${here.join(", ")} wait over axis ${names.join(", ")} for devices ` +
          `${missing.join(", ")}, which took another branch or left the loop: a collective under diverging ` +
          "control flow would deadlock; let the condition agree along the axis, or move the collective out",
      );
    }),
  );
}

/** Defines a collective by what one group does: from the blocks of its members, in order, to the result of each. */
function collective<K extends CollectiveOp>(
  op: K,
  exchange: (blocks: readonly HostTensor[], params: OpParams[K], type: TensorType) => HostTensor[],
): EvalRule<K> {
  return (ins, params, types, context) => {
    const blocks = at(ins, 0);
    const results = [...blocks];
    for (const lanes of meetingLanes(op, params.axes, context)) {
      const members = lanes.map((lane) => at(blocks, lane));
      for (const [lane, block] of zip(lanes, exchange(members, params, at(types, 0)))) results[lane] = block;
    }
    return [results];
  };
}

/** All blocks combined element by element in the order of the group, floats in float64 and rounded once. */
function combined(blocks: readonly HostTensor[], foldOf: typeof sumFold): HostTensor {
  const { type } = at(blocks, 0);
  const { start, combine } = foldOf(type.dtype);
  const totals = new Float64Array(at(blocks, 0).data.length).fill(start);
  for (const block of blocks) {
    const values = decode(block);
    for (let i = 0; i < totals.length; i++) totals[i] = combine(totals[i] as number, values[i] as number);
  }
  return encode(type, totals);
}

/** A row of a table of blocks of rows: where the block begins, its rows, and where it begins on the other device. */
type RowBlock = readonly [start: number, size: number, other: number];

function blockOf(table: HostTensor, member: number): RowBlock {
  return entriesOf([...decode(table).subarray(3 * member, 3 * member + 3)], 3);
}

/** Copies the rows that one device sends to another, after checking that both mean the same ones. */
function moveRows(
  x: HostTensor,
  into: { type: TensorType; data: HostTensor["data"] },
  sent: RowBlock,
  received: RowBlock,
): void {
  const [start, size, target] = sent;
  if (received[0] !== target || received[1] !== size || received[2] !== start) {
    throw new ValueError(
      `[raggedAllToAll] one device sends rows ${start} to ${start + size} for row ${target}, the other expects rows ${received[2]} to ${received[2] + received[1]} for row ${received[0]}`,
    );
  }
  checkRows(start, size, at(x.type.shape, 0), "x");
  checkRows(target, size, at(into.type.shape, 0), "the result");
  const width = sizeOf(x.type.shape.slice(1));
  into.data.set(x.data.subarray(start * width, (start + size) * width), target * width);
}

const forEach = (blocks: readonly HostTensor[], result: HostTensor): HostTensor[] => blocks.map(() => result);

const reduceAcross = <K extends "psum" | "pmax" | "pmin">(
  op: K,
  foldOf: (dtype: DType) => ReturnType<typeof sumFold>,
): EvalRule<K> => collective(op, (blocks) => forEach(blocks, combined(blocks, foldOf)));

/** Reference rules of the ops between devices. */
export const collectiveRules: { readonly [K in CollectiveOp | "axisIndex"]: EvalRule<K> } = {
  psum: reduceAcross("psum", sumFold),
  pmax: reduceAcross("pmax", maxFold),
  pmin: reduceAcross("pmin", minFold),
  allGather: collective("allGather", (blocks, { dim }) => forEach(blocks, concatenated(blocks, dim))),
  psumScatter: collective("psumScatter", (blocks, { dim }) =>
    splitAlong(combined(blocks, sumFold), dim, blocks.length),
  ),
  ppermute: collective("ppermute", (blocks, { permutation, unset }, type) => {
    const received = forEach(blocks, unset ? unsetValues(type) : zeros(type));
    for (const [source, target] of permutation) received[target] = at(blocks, source);
    return received;
  }),
  allToAll: collective("allToAll", (blocks, { splitDim, concatDim }) => {
    const parts = blocks.map((block) => splitAlong(block, splitDim, blocks.length));
    const sentTo = (member: number) => parts.map((sent) => at(sent, member));
    return range(blocks.length).map((member) => concatenated(sentTo(member), concatDim));
  }),
  raggedAllToAll: (ins, { axes }, _types, context) => {
    const [x, into, sends, receives] = [at(ins, 0), at(ins, 1), at(ins, 2), at(ins, 3)];
    const results = into.map(({ type, data }) => ({ type, data: data.slice() }));
    for (const lanes of meetingLanes("raggedAllToAll", axes, context)) {
      lanes.forEach((to, member) => {
        lanes.forEach((from, sender) => {
          const count = at(at(sends, from).type.shape, 0) / lanes.length;
          for (let i = 0; i < count; i++) {
            const sent = blockOf(at(sends, from), member * count + i);
            moveRows(at(x, from), at(results, to), sent, blockOf(at(receives, to), sender * count + i));
          }
        });
      });
    }
    return [results];
  },
  axisIndex: (_ins, { axes }, _types, context) => {
    const names = axisNames("axisIndex", axes, context);
    const position = (device: number) => positionAlong(context.mesh, device, names);
    return [context.devices.map((device) => hostTensor("int32", [], [position(device)]))];
  },
};
