import { EngineLoadError } from "../errors.js";
import type * as node from "./findGpu.js";

export const findGpu: typeof node.findGpu = async (_matrices, adapter) => {
  const found = globalThis.navigator?.gpu;
  if (found && adapter === undefined) return found;
  if (found) {
    throw new EngineLoadError(
      `the adapter ${JSON.stringify(adapter)} cannot be asked for by its name in a page: use "high-performance" or "low-power"`,
    );
  }
  throw new EngineLoadError(
    'the engine "webgpu" needs WebGPU, which this browser does not have here: use a recent Chrome, Edge, Safari or Firefox, and a page served by HTTPS or from localhost; frames with the attribute sandbox need allow-same-origin',
  );
};
