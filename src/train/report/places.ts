import { byteSize } from "../../ir/dtype.js";
import { blockShape } from "../../ir/mesh.js";
import { formatBytes, formatType, range, sizeOf } from "../../ir/shape.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";
import { resolveSpec, toPartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { NamedSharding } from "../../spmd/mesh/sharding.js";
import * as tree from "../../trace/tree.js";
import { namedLeaves } from "../files/safetensors/treeFiles.js";
import type { Training } from "../step/training.js";

/** How one tensor of a state is placed on a mesh. */
export interface TensorPlace {
  readonly path: string;
  readonly shape: string;
  readonly spec: string;
  readonly bytes: number;
  readonly bytesPerDevice: number;
}

/** How every tensor of a tree is placed on a mesh, from its types and shardings alone. */
export function placesOf(types: unknown, shardings: unknown, mesh: Mesh): TensorPlace[] {
  const isSharding = (node: unknown) => node instanceof NamedSharding;
  const specs = tree.leaves(shardings, isSharding);
  return namedLeaves(types, "placesOf").map(({ path, type }, i) => {
    const sharding = specs[i];
    const given = sharding instanceof NamedSharding ? sharding.spec : undefined;
    const spec = given ? resolveSpec(given, mesh, type.shape, "placesOf", path) : type.shape.map(() => []);
    const bytes = (shape: readonly number[]) => sizeOf(shape) * byteSize(type.dtype);
    return {
      path: path.replace(/^params\//, ""),
      shape: formatType(type),
      spec: String(toPartitionSpec(spec.map((axes) => axes.filter((axis) => (mesh.shape[axis] ?? 1) > 1)))),
      bytes: bytes(type.shape),
      bytesPerDevice: bytes(blockShape(type.shape, spec, mesh)),
    };
  });
}

/** What one device holds of a run's state, by kind. */
export function stateMemory(
  { types, shardings }: Training,
  mesh: Mesh,
): { readonly what: string; readonly bytesPerDevice: number }[] {
  const total = (part: "params" | "base" | "optimizer") =>
    placesOf(types[part], shardings[part], mesh).reduce((sum, place) => sum + place.bytesPerDevice, 0);
  return [
    { what: "parameters", bytesPerDevice: total("params") },
    ...(types.base ? [{ what: "frozen parameters", bytesPerDevice: total("base") }] : []),
    { what: "optimiser", bytesPerDevice: total("optimizer") },
  ];
}

/** A table of placements for a terminal. */
export function formatPlaces(places: readonly TensorPlace[]): string {
  const rows = places.map(({ path, shape, spec, bytesPerDevice }) => [
    path,
    shape,
    spec,
    formatBytes(bytesPerDevice),
  ]);
  const widths = range(4).map((c) => Math.max(0, ...rows.map((row) => row[c]?.length ?? 0)));
  return rows
    .map((row) => `  ${row.map((cell, c) => (c === 3 ? cell : cell.padEnd(widths[c] ?? 0))).join("  ")}`)
    .join("\n");
}
