import type { Engine } from "../ir/engine.js";
import { ShardingError } from "../ir/errors.js";
import { identityOf } from "../ir/identity.js";
import { formatMesh, type MeshShape } from "../ir/mesh.js";

/** Where a program runs: an engine's devices along the axes of a mesh; a place without axes is one device. */
export interface Place {
  readonly engine: Engine;
  readonly mesh: MeshShape;
  /** The engine's device at every position of the mesh, row-major. */
  readonly devices: readonly number[];
  /** The positions whose devices this process holds, ascending: all of them unless processes share the engine. */
  readonly positions: readonly number[];
}

/** The positions of a mesh whose devices this process holds, ascending. */
export function addressablePositions(engine: Engine, devices: readonly number[]): number[] {
  return devices.flatMap((device, position) => (engine.isAddressable(device) ? [position] : []));
}

/** Whether this process holds all devices of a place. */
export function isFullyAddressable({ devices, positions }: Pick<Place, "devices" | "positions">): boolean {
  return positions.length === devices.length;
}

/** Whether two places are the same devices of one engine along the same axes. */
export function samePlace(a: Place, b: Place): boolean {
  return (
    a.engine === b.engine &&
    a.devices.length === b.devices.length &&
    a.devices.every((device, i) => device === b.devices[i]) &&
    (a.mesh === b.mesh || formatMesh(a.mesh) === formatMesh(b.mesh))
  );
}

/** The place that all parts of a program name; undefined when none names one. */
export function onePlace(places: readonly (Place | undefined)[]): Place | undefined {
  const named = places.filter((place) => place !== undefined);
  const [first] = named;
  const other = first && named.find((place) => !samePlace(first, place));
  if (first && other) {
    throw new ShardingError(
      `one program uses two meshes, ${formatPlace(first, other)} and ${formatPlace(other, first)}: use one mesh with all axes`,
    );
  }
  return first;
}

/** A place in words; its devices only where nothing else tells it from the other one. */
export function formatPlace({ engine, mesh, devices }: Place, other: Place): string {
  const text = `Mesh ${formatMesh(mesh)} on ${engine.name}`;
  const isAlike = engine === other.engine && formatMesh(mesh) === formatMesh(other.mesh);
  return isAlike ? `${text} (devices ${devices.join(", ")})` : text;
}

/** A text that tells the places of one engine apart. */
export function placeKey({ mesh, devices }: Place): string {
  return `${formatMesh(mesh)}@${devices.join()}`;
}

/** A text that tells all places apart. */
export function targetKey(target: Place): string {
  return `${identityOf(target.engine)} ${placeKey(target)}`;
}
