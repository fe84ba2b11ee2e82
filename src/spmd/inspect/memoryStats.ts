import { needIfGiven } from "../../ir/arguments.js";
import { range } from "../../ir/shape.js";
import { defaultEngine, type Mesh, meshKind } from "../mesh/mesh.js";

/** What the memory of one device holds, in bytes. */
export interface DeviceMemoryStats {
  /** The engine's number of the device. */
  readonly device: number;
  /** What tensors and loaded programs use, including unreachable tensors that are not collected yet. */
  readonly bytesInUse: number;
  /** What is reserved for intermediate values of programs. */
  readonly bytesReserved: number;
  /** The total for both. */
  readonly bytesLimit: number;
}

/**
 * How much of their memory devices use: those of a mesh, or all that the process's shared engine has here. Empty
 * where tensors lie in JavaScript's own memory, as on the reference engine.
 *
 * @example
 * ```ts
 * deviceMemoryStats(Mesh.create({ data: 2 })).every(({ bytesInUse }) => bytesInUse >= 0); // true
 * ```
 */
export function deviceMemoryStats(mesh?: Mesh): DeviceMemoryStats[] {
  needIfGiven(meshKind, mesh, "mesh", "deviceMemoryStats");
  const engine = mesh?.engine ?? defaultEngine(1);
  if (engine.memoryUsage === undefined) return [];
  const devices = mesh?.deviceIds ?? range(engine.numDevices);
  const here = devices.filter((device) => engine.isAddressable(device));
  return here.flatMap((device) => {
    const usage = engine.memoryUsage?.(device);
    if (usage === undefined) return [];
    const { used, capacity, arena } = usage;
    return { device, bytesInUse: used, bytesReserved: arena, bytesLimit: capacity + arena };
  });
}
