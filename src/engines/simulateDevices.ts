import type { Engine } from "../ir/engine.js";
import { createReferenceEngine } from "./reference/engine.js";

/**
 * An engine with this many devices, whatever the machine has: they share one thread and take turns, so a mesh of
 * any size can be tried out and tested anywhere.
 *
 * @example
 * ```ts
 * Mesh.create({ data: 4, model: 2 }, { engine: engines.simulateDevices(8) }).size; // 8
 * ```
 */
export function simulateDevices(numDevices = 8): Engine {
  return createReferenceEngine({ numDevices });
}
