import { needIfGiven } from "../../ir/arguments.js";
import type { Engine } from "../../ir/engine.js";
import { checkDeviceCount } from "../checks.js";
import { LocalEngine } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { runSpmd } from "./interpret.js";

/** How the reference engine is made. */
export interface ReferenceEngineOptions {
  /** How many devices it simulates; as many as a mesh asks for unless said otherwise. */
  readonly numDevices?: number;
  /** For how long a loop without a fixed end may run; two minutes, or what `SHARDWISE_DEADLINE` says in seconds. */
  readonly deadlineMs?: number;
}

/** An engine that interprets programs in this thread: slow, simple, and the meaning of every op. */
export function createReferenceEngine(options: ReferenceEngineOptions = {}): Engine {
  needIfGiven("object", options, "the options", "createReferenceEngine");
  const { numDevices = Number.POSITIVE_INFINITY } = options;
  if (numDevices !== Number.POSITIVE_INFINITY) checkDeviceCount(numDevices, "createReferenceEngine");
  const limitLoop = limitLoops(options.deadlineMs);
  return new LocalEngine("reference", numDevices, {
    prepare: (program, { mesh }) => ({
      run: (inputs) => runSpmd(program, mesh, inputs, limitLoop),
      release: () => {},
    }),
    free: () => {},
    close: () => {},
  });
}
