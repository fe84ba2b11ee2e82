import type { Engine } from "../../../src/ir/engine.js";
import { areas } from "./areas.js";
import type { GoldenCase } from "./cases.js";
import { Mismatch } from "./compare.js";
import { isElsewhere } from "./onMesh.js";

/** Computes one case and throws where it differs from its values. */
export async function runCase(golden: GoldenCase, engine: Engine): Promise<void> {
  const run = areas.get(golden.area);
  if (!run)
    throw new Mismatch(`there is no area "${golden.area}": there are ${[...areas.keys()].join(", ")}`);
  if (!isElsewhere(golden, engine)) await run(golden, engine);
}

/** The number of devices that a case needs. */
export function numDevices(golden: GoldenCase): number {
  return golden.has("mesh") ? golden.mesh.reduce((size, [, n]) => size * n, 1) : 1;
}
