import type { Engine } from "../ir/engine.js";
import { ShardingError } from "../ir/errors.js";
import { identityOf } from "../ir/identity.js";
import { formatMesh, type MeshShape } from "../ir/mesh.js";

/** Where a program runs: an engine's devices along the axes of a mesh; a target without axes is one device. */
export interface ExecutionTarget {
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

/** Whether this process holds all devices of a target. */
export function isFullyAddressable({
  devices,
  positions,
}: Pick<ExecutionTarget, "devices" | "positions">): boolean {
  return positions.length === devices.length;
}

/** Whether two targets are the same devices of one engine along the same axes. */
export function isSameTarget(a: ExecutionTarget, b: ExecutionTarget): boolean {
  return (
    a.engine === b.engine &&
    a.devices.length === b.devices.length &&
    a.devices.every((device, i) => device === b.devices[i]) &&
    (a.mesh === b.mesh || formatMesh(a.mesh) === formatMesh(b.mesh))
  );
}

/** The target that all parts of a program name; undefined when none names one. */
export function commonTarget(targets: readonly (ExecutionTarget | undefined)[]): ExecutionTarget | undefined {
  const named = targets.filter((target) => target !== undefined);
  const [first] = named;
  const other = first && named.find((target) => !isSameTarget(first, target));
  if (first && other) {
    throw new ShardingError(
      `one program uses two meshes, ${formatTarget(first, other)} and ${formatTarget(other, first)}: use one mesh with all axes`,
    );
  }
  return first;
}

/** Describes a target; lists its devices only where nothing else distinguishes it from the other one. */
export function formatTarget({ engine, mesh, devices }: ExecutionTarget, other: ExecutionTarget): string {
  const text = `Mesh ${formatMesh(mesh)} on ${engine.name}`;
  const isAlike = engine === other.engine && formatMesh(mesh) === formatMesh(other.mesh);
  return isAlike ? `${text} (devices ${devices.join(", ")})` : text;
}

/** A key that distinguishes the targets of one engine. */
export function devicesKey({ mesh, devices }: ExecutionTarget): string {
  return `${formatMesh(mesh)}@${devices.join()}`;
}

/** A key that distinguishes all targets. */
export function targetKey(target: ExecutionTarget): string {
  return `${identityOf(target.engine)} ${devicesKey(target)}`;
}
