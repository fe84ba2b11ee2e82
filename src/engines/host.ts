import { environment } from "#platform/system";
import type { Engine } from "../ir/engine.js";
import { createInlineEngine } from "./inline/engine.js";
import { createReferenceEngine } from "./reference/engine.js";

/**
 * The engine that computes at once, on the calling thread; what is worth compiling runs as kernels. If
 * `SHARDWISE_ENGINE` is `reference` everything is interpreted.
 */
export const hostEngine: Engine =
  environment.SHARDWISE_ENGINE === "reference" ? createReferenceEngine() : createInlineEngine();
