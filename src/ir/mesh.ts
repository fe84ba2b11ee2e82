import { need } from "./arguments.js";
import { getOrInsert } from "./collections.js";
import { at, type MeshAxis, type Shape } from "./shape.js";

export type { MeshAxis } from "./shape.js";

/** The axes of a device mesh, outermost first; devices are numbered row-major over them. */
export interface MeshShape {
  readonly axes: readonly MeshAxis[];
}

/** The shape of a mesh alone, which is all that a program knows about it. */
export function meshShape({ axes }: MeshShape): MeshShape {
  return { axes };
}

/** The mesh axes that split one dimension, outermost first; none means the dimension is whole on every device. */
export type DimAxes = readonly string[];

/** For every dimension of a tensor the axes that split it. */
export type Spec = readonly DimAxes[];

/** A constraint on one dimension: its axes, or free for the partitioner to choose. */
export type DimConstraint = DimAxes | "unconstrained";

/** Whether two specs split every dim over the same axes. */
export function sameSpec(a: Spec, b: Spec): boolean {
  const rank = Math.max(a.length, b.length);
  for (let dim = 0; dim < rank; dim++) {
    const [left, right] = [a[dim] ?? [], b[dim] ?? []];
    if (left.length !== right.length || left.some((axis, i) => axis !== right[i])) return false;
  }
  return true;
}

/** Returns the axis; throws for anything that cannot be one. */
function needAxis(axis: MeshAxis | undefined, caller: string): MeshAxis {
  need("object", axis, "each of the axes", caller);
  return axis;
}

/**
 * The number of devices (or positions) that the axes span together.
 *
 * @example
 * ```ts
 * engines.axesSize([{ name: "data", size: 2 }, { name: "model", size: 3 }]); // 6
 * ```
 */
export function axesSize(axes: readonly MeshAxis[]): number {
  need("list", axes, "the axes", "axesSize");
  return axes.reduce((size, axis) => size * needAxis(axis, "axesSize").size, 1);
}

/**
 * The coordinates of a row-major position along each axis.
 *
 * @example
 * ```ts
 * engines.axesCoordinates([{ name: "data", size: 2 }, { name: "model", size: 3 }], 4); // [1, 1]
 * ```
 */
export function axesCoordinates(axes: readonly MeshAxis[], position: number): number[] {
  need("list", axes, "the axes", "axesCoordinates");
  need("integer", position, "the position", "axesCoordinates");
  const coordinates = new Array<number>(axes.length);
  let rest = position;
  for (let i = axes.length - 1; i >= 0; i--) {
    const { size } = needAxis(axes[i], "axesCoordinates");
    coordinates[i] = rest % size;
    rest = Math.floor(rest / size);
  }
  return coordinates;
}

/** The size of the named axis in the mesh, or `undefined` when the mesh has no such axis. */
export function axisSizeIn(mesh: MeshShape, name: string): number | undefined {
  return mesh.axes.find((axis) => axis.name === name)?.size;
}

/** Into how many blocks the named axes split a dimension. */
export function splitCount(mesh: MeshShape, axes: DimAxes): number {
  return axes.reduce((n, name) => n * (axisSizeIn(mesh, name) ?? 1), 1);
}

/** The shape of one device's block of a global tensor. */
export function blockShape(global: Shape, spec: Spec, mesh: MeshShape): number[] {
  return global.map((n, d) => n / splitCount(mesh, spec[d] ?? []));
}

/** The shape of the global tensor whose blocks have the given shape. */
export function globalShape(block: Shape, spec: Spec, mesh: MeshShape): number[] {
  return block.map((n, d) => n * splitCount(mesh, spec[d] ?? []));
}

/** The row-major position of a device among the devices that differ from it only along `axes`. */
export function positionAlong(mesh: MeshShape, device: number, axes: DimAxes): number {
  const coordinates = axesCoordinates(mesh.axes, device);
  return axes.reduce((position, name) => {
    const i = mesh.axes.findIndex((axis) => axis.name === name);
    return position * at(mesh.axes, i).size + at(coordinates, i);
  }, 0);
}

/**
 * The groups of devices that a collective over `axes` joins: devices that differ only along these axes,
 * each group ordered row-major over `axes` in the order given.
 */
export function deviceGroups(mesh: MeshShape, axes: DimAxes): number[][] {
  const groups = new Map<string, { device: number; position: number }[]>();
  for (let device = 0; device < axesSize(mesh.axes); device++) {
    const coordinates = axesCoordinates(mesh.axes, device);
    const key = coordinates.filter((_, i) => !axes.includes(at(mesh.axes, i).name)).join(",");
    getOrInsert(groups, key, () => []).push({ device, position: positionAlong(mesh, device, axes) });
  }
  return [...groups.values()].map((group) =>
    group.sort((a, b) => a.position - b.position).map(({ device }) => device),
  );
}

/** The printed form of a spec, such as `P("data", null)`. */
export function formatSpec(spec: readonly DimConstraint[]): string {
  const entry = (axes: DimConstraint) => {
    if (axes === "unconstrained") return "UNCONSTRAINED";
    if (axes.length === 0) return "null";
    return axes.length === 1 ? JSON.stringify(axes[0]) : JSON.stringify(axes);
  };
  return `P(${spec.map(entry).join(", ")})`;
}

/**
 * The printed form of a mesh, such as `{data: 2, model: 4}`; axis names that are not identifiers are quoted.
 *
 * @example
 * ```ts
 * engines.formatMesh({ axes: [{ name: "data", size: 2 }, { name: "model", size: 4 }] }); // "{data: 2, model: 4}"
 * ```
 */
export function formatMesh(mesh: MeshShape): string {
  need("object", mesh, "the mesh", "formatMesh");
  need("list", mesh.axes, "the axes of the mesh", "formatMesh");
  const name = (axis: MeshAxis) => (isWord.test(axis.name) ? axis.name : JSON.stringify(axis.name));
  return `{${mesh.axes.map((axis) => `${name(axis)}: ${axis.size}`).join(", ")}}`;
}

const isWord = /^[A-Za-z_$][\w$]*$/;
