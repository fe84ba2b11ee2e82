import { EngineLoadError } from "../errors.js";
import type * as node from "./findGpu.js";

export const findGpu: typeof node.findGpu = async () => {
  const found = globalThis.navigator?.gpu;
  if (found) return found;
  throw new EngineLoadError(
    'the engine "webgpu" needs WebGPU, which this browser does not have here: use a recent Chrome, Edge, Safari or Firefox, and a page served by HTTPS or from localhost; frames with the attribute sandbox need allow-same-origin',
  );
};
