/**
 * Collectives among some of the devices along an axis. Members of a group send to each other by permutations, one for
 * each distance in the group, so that all groups work at the same time and every engine can do it; what arrives is put
 * into the order of the group first, so that all members compute the same bits.
 */

import { need } from "../../ir/arguments.js";
import { show } from "../../ir/describe.js";
import { AxisError } from "../../ir/errors.js";
import { axesSize, type MeshAxis } from "../../ir/mesh.js";
import { at, range } from "../../ir/shape.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";

/** The devices along axes in groups of one size, by their positions: `[[0, 1], [2, 3]]`. */
export type AxisIndexGroups = readonly (readonly number[])[];

/** Groups that were checked. */
export interface DeviceGroups {
  readonly axes: readonly MeshAxis[];
  readonly groups: AxisIndexGroups;
  /** How many members each has. */
  readonly size: number;
}

/** Checks that every device along axes is in one group, and that all groups have one size. */
export function checkGroups(
  groups: AxisIndexGroups,
  axes: readonly MeshAxis[],
  caller: string,
): DeviceGroups {
  need("list", groups, "axisIndexGroups", caller);
  for (const group of groups) need("integers", group, "a group of axisIndexGroups", caller);
  const count = axesSize(axes);
  const all = groups.flat().sort((a, b) => a - b);
  if (all.length !== count || all.some((position, i) => position !== i)) {
    throw new AxisError(
      `[${caller}] axisIndexGroups ${show(groups)} must name each of the positions 0 to ${count - 1} once`,
    );
  }
  const size = at(groups, 0).length;
  const other = groups.find(({ length }) => length !== size);
  if (other) {
    throw new AxisError(
      `[${caller}] axisIndexGroups ${show(groups)} has groups of ${size} and of ${other.length}: use groups of the same size`,
    );
  }
  return { axes, groups, size };
}

/** This device's index in its group. */
function ownPlace({ axes, groups }: DeviceGroups): Tensor {
  const places = range(axesSize(axes)).map((position) =>
    groups.reduce((found, group) => Math.max(found, group.indexOf(position)), 0),
  );
  const table = places.map((place) => ops.full([1], place, "int32"));
  return row(ops.concatenate(table, 0), ops.axisIndex(axes));
}

const row = (x: Tensor, index: Tensor): Tensor => ops.gather(x, index, { dim: 0, batchDims: 0 });

/** Brings a number from −size … size − 1 into 0 … size − 1, as places in a ring are counted. */
const around = (place: Tensor, size: number): Tensor => ops.rem(ops.add(place, size), size);

/** Sends to the member at this distance in the group. */
function send(x: Tensor, { axes, groups, size }: DeviceGroups, distance: number): Tensor {
  if (distance === 0) return x;
  const hops = groups.flatMap((group) =>
    group.map((source, place) => [source, at(group, (place + distance) % size)] as const),
  );
  return ops.ppermute(x, axes, hops);
}

/** Places 0 … size − 1, each with this device's own place. */
function places(groups: DeviceGroups): { readonly all: Tensor; readonly own: Tensor } {
  const all = ops.iota("int32", [groups.size], 0);
  return { all, own: ops.broadcastInDim(ownPlace(groups), [groups.size], []) };
}

/** What every member of the group has, in their order along a new first dim. */
export function gatherGroup(x: Tensor, groups: DeviceGroups): Tensor {
  const arrived = ops.stack(range(groups.size).map((distance) => send(x, groups, distance)));
  const { all, own } = places(groups);
  return row(arrived, around(ops.sub(own, all), groups.size));
}

/** Row r goes to member r, and row r of the result comes from there. */
export function exchangeGroup(rows: Tensor, groups: DeviceGroups): Tensor {
  const { size } = groups;
  const place = ownPlace(groups);
  const arrived = ops.stack(
    range(size).map((distance) => send(row(rows, ops.rem(ops.add(place, distance), size)), groups, distance)),
  );
  const { all, own } = places(groups);
  return row(arrived, around(ops.sub(own, all), size));
}

/** A dim cut into as many rows as the group has members, which come first. */
export function rowsOf(x: Tensor, dim: number, size: number): Tensor {
  const shape = x.shape.toSpliced(dim, 1, size, at(x.shape, dim) / size);
  return ops.moveDim(ops.reshape(x, shape), dim, 0);
}

/** Rows concatenated along a dim. */
export function joinRows(rows: Tensor, dim: number): Tensor {
  const [size = 1, ...shape] = rows.shape;
  return ops.reshape(ops.moveDim(rows, 0, dim), shape.with(dim, size * at(shape, dim)));
}
