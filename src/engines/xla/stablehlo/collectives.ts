import { sumType } from "../../../ir/dtype.js";
import { AxisError, InternalError } from "../../../ir/errors.js";
import { raggedAllToAllProgram } from "../../../ir/expansions/ragged.js";
import {
  axesSize,
  axisSizeIn,
  deviceGroups,
  formatMesh,
  type MeshAxis,
  positionAlong,
} from "../../../ir/mesh.js";
import type { CollectiveOp } from "../../../ir/opFacts.js";
import type { Collective, OpName, OpParams } from "../../../ir/ops.js";
import type { EqnParts } from "../../../ir/program.js";
import { at, range, sizeOf, tensorType } from "../../../ir/shape.js";
import { sliceAt } from "./controlFlow.js";
import { monoidOf } from "./reductions.js";
import { listText, rowsText, typeText } from "./text.js";
import { type HloValue, names, type Rule, signature, type Writer } from "./writer.js";

/**
 * The groups of replicas that take part in a collective: mesh positions, row-major. XLA silently compiles groups that
 * do not match the replicas, so they are checked here.
 */
function groupsOf(op: OpName, axes: readonly MeshAxis[], { mesh }: Writer): number[][] {
  for (const { name, size } of axes) {
    const bound = axisSizeIn(mesh, name);
    if (bound === size) continue;
    const has = bound === undefined ? "has no such axis" : `has ${bound} devices along it`;
    throw new AxisError(`[${op}] axis "${name}" of size ${size}: the mesh ${formatMesh(mesh)} ${has}`);
  }
  const names = axes.map(({ name }) => name);
  const groups = deviceGroups(mesh, names);
  const size = axesSize(axes);
  const members = new Set(groups.flat());
  const fits = members.size === axesSize(mesh.axes) && groups.every((group) => group.length === size);
  if (!fits) throw new InternalError(`[${op}] groups ${JSON.stringify(groups)} do not cover the mesh`);
  return groups;
}

const groupsText = (groups: readonly (readonly number[])[]) =>
  `replica_groups = ${rowsText(groups, at(groups, 0).length)}`;

/** The attributes that all collectives share. */
function parts<K extends CollectiveOp>(eqn: EqnParts<K> & { readonly params: Collective }, write: Writer) {
  const x = write.read(at(eqn.ins, 0));
  return { x, type: at(eqn.outs, 0).type, groups: groupsOf(eqn.op, eqn.params.axes, write) };
}

/** Sums of 16-bit floats are accumulated in float32 and rounded once, also across devices. */
function summed<K extends CollectiveOp>(eqn: EqnParts<K> & { readonly params: Collective }, write: Writer) {
  const { x, type, groups } = parts(eqn, write);
  const dtype = sumType(type.dtype);
  return { x: write.convert(x, dtype), type: tensorType(dtype, type.shape), groups };
}

const allReduce =
  (kind: "sum" | "max" | "min"): Rule<"psum" | "pmax" | "pmin"> =>
  (eqn, write) => {
    const { x, type, groups } = kind === "sum" ? summed(eqn, write) : parts(eqn, write);
    const result = write.combined("all_reduce", [x], [groupsText(groups)], monoidOf(kind, type).op, type);
    return [write.convert(result, at(eqn.outs, 0).type.dtype)];
  };

const allGather: Rule<"allGather"> = (eqn, write) => {
  const { x, type, groups } = parts(eqn, write);
  const attributes = [`all_gather_dim = ${eqn.params.dim} : i64`, groupsText(groups)];
  return [write.listed("all_gather", [x], attributes, type)];
};

const psumScatter: Rule<"psumScatter"> = (eqn, write) => {
  const { x, type, groups } = summed(eqn, write);
  const attributes = [`scatter_dimension = ${eqn.params.dim} : i64`, groupsText(groups)];
  const result = write.combined("reduce_scatter", [x], attributes, "stablehlo.add", type);
  return [write.convert(result, at(eqn.outs, 0).type.dtype)];
};

/** Replicas that receive nothing get zeros, as the op specifies. */
const ppermute: Rule<"ppermute"> = (eqn, write) => {
  const { x, type, groups } = parts(eqn, write);
  if (write.isConditional) return [permuted(x, groups, eqn.params.permutation, write)];
  const pairs = groups.flatMap((group) =>
    eqn.params.permutation.map(([source, target]) => [at(group, source), at(group, target)]),
  );
  return [write.listed("collective_permute", [x], [`source_target_pairs = ${rowsText(pairs, 2)}`], type)];
};

/**
 * A permutation that not all groups may run, such as those of the stages of a pipeline. XLA's own waits for all devices,
 * also for those that are in another branch or gone on; a gather waits for those of its group.
 */
function permuted(
  x: HloValue,
  groups: readonly (readonly number[])[],
  permutation: OpParams["ppermute"]["permutation"],
  write: Writer,
): HloValue {
  const { dtype, shape } = x.type;
  const all = write.listed(
    "all_gather",
    [write.reshape(x, [1, ...shape])],
    ["all_gather_dim = 0 : i64", groupsText(groups)],
    tensorType(dtype, [at(groups, 0).length, ...shape]),
  );
  const sourceOf = new Map(
    groups.flatMap((group) => permutation.map(([source, target]) => [at(group, target), source] as const)),
  );
  const source = ofReplica(
    range(axesSize(write.mesh.axes)).map((device) => sourceOf.get(device) ?? -1),
    write,
  );
  const received = sliceAt(all, source, write);
  const hasSource = write.compare("GE", source, write.splat(0, "int32"));
  const none = write.splat(0, dtype, shape);
  return write.mapped("stablehlo.select", [hasSource, received, none], "", x.type);
}

const allToAll: Rule<"allToAll"> = (eqn, write) => {
  const { x, type, groups } = parts(eqn, write);
  const { splitDim, concatDim } = eqn.params;
  const attributes = [
    `split_dimension = ${splitDim} : i64`,
    `concat_dimension = ${concatDim} : i64`,
    `split_count = ${at(groups, 0).length} : i64`,
    groupsText(groups),
  ];
  return [write.listed("all_to_all", [x], attributes, type)];
};

/** XLA's form says only in the sender's table where rows begin in the receiver's result. */
const raggedAllToAll: Rule<"raggedAllToAll"> = (eqn, write) => {
  const groups = groupsOf("raggedAllToAll", eqn.params.axes, write);
  const [x, into, sends, receives] = eqn.ins.map((atom) => write.read(atom));
  if (!x || !into || !sends || !receives) throw new InternalError("[raggedAllToAll] needs four operands");
  if (!write.fuses("raggedAllToAll")) {
    const given = [x, into, sends, receives];
    const types = given.map(({ type }) => type);
    return write.inline(raggedAllToAllProgram(eqn.params, types), given, write.equation);
  }
  const size = at(sends.type.shape, 0);
  const column = (table: HloValue, i: number) => {
    const cut = `stablehlo.slice ${table.name} [0:${size}, ${i}:${i + 1}] : `;
    const sliced = tensorType("int32", [size, 1]);
    return write.reshape(write.define(`${cut}${signature([table], [sliced])}`, sliced), [size]);
  };
  const operands = [x, into, column(sends, 0), column(sends, 1), column(sends, 2), column(receives, 1)];
  const { type } = at(eqn.outs, 0);
  const text =
    `stablehlo.custom_call @ragged_all_to_all(${names(operands)}) {api_version = 4 : i32, ` +
    `backend_config = {${groupsText(groups)}}} : ${signature(operands, [type])}`;
  return [write.define(text, tensorType(type.dtype, type.shape))];
};

/** The integer of a table that has one for every replica. */
function ofReplica(numbers: readonly number[], write: Writer): HloValue {
  const tableType = tensorType("int32", [numbers.length]);
  const constant = `stablehlo.constant dense<${listText(numbers)}> : ${typeText(tableType)}`;
  const table = write.define(constant, tableType);
  const id = write.define("stablehlo.replica_id : tensor<ui32>", tensorType("uint32", []));
  const rowType = tensorType("int32", [1]);
  const row = write.mapped("stablehlo.dynamic_slice", [table, id], ", sizes = [1]", rowType);
  return write.reshape(row, []);
}

const axisIndex: Rule<"axisIndex"> = (eqn, write) => {
  const { axes } = eqn.params;
  groupsOf("axisIndex", axes, write);
  const names = axes.map(({ name }) => name);
  const { mesh } = write;
  return [
    ofReplica(
      range(axesSize(mesh.axes)).map((device) => positionAlong(mesh, device, names)),
      write,
    ),
  ];
};

/** StableHLO refuses to gather or to exchange nothing, such as the tokens of a sequence that is shorter than its axis. */
const unlessEmpty =
  <K extends CollectiveOp>(rule: Rule<K>): Rule<K> =>
  (eqn, write) => {
    const { dtype, shape } = at(eqn.outs, 0).type;
    return sizeOf(shape) === 0 ? [write.splat(0, dtype, shape)] : rule(eqn, write);
  };

/** The lowering rules of collectives. */
export const collectiveRules: { readonly [K in CollectiveOp | "axisIndex"]: Rule<K> } = {
  psum: unlessEmpty(allReduce("sum")),
  pmax: unlessEmpty(allReduce("max")),
  pmin: unlessEmpty(allReduce("min")),
  allGather: unlessEmpty(allGather),
  psumScatter: unlessEmpty(psumScatter),
  ppermute: unlessEmpty(ppermute),
  allToAll: unlessEmpty(allToAll),
  raggedAllToAll: unlessEmpty(raggedAllToAll),
  axisIndex,
};
