import type { Engine } from "../../ir/engine.js";
import { LocalEngine } from "../localEngine.js";
import { interpretSpmd } from "./interpret.js";

/** How the reference engine is made. */
export interface ReferenceEngineOptions {
  /** How many devices it simulates; as many as a mesh asks for unless said otherwise. */
  readonly numDevices?: number;
}

/** An engine that interprets programs in this thread: slow, simple, and the meaning of every op. */
export function createReferenceEngine(options: ReferenceEngineOptions = {}): Engine {
  return new LocalEngine("reference", options.numDevices ?? Number.POSITIVE_INFINITY, {
    prepare: (program, { mesh }) => ({
      run: (inputs) => interpretSpmd(program, mesh, inputs),
      release: () => {},
    }),
    free: () => {},
    close: () => {},
  });
}
