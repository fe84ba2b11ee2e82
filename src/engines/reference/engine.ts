import type { Engine } from "../../ir/engine.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { checkDeviceCount } from "../checks.js";
import { LocalEngine } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { runSpmd } from "./interpret.js";

const referenceEngineOptions = schema({
  /** How many devices it simulates; as many as a mesh asks for unless said otherwise. */
  numDevices: optional("number", Number.POSITIVE_INFINITY),
  /** For how long a loop without a fixed end may run; two minutes, or what `SHARDWISE_DEADLINE` says in seconds. */
  deadlineMs: optional("number"),
});

/** How the reference engine is made. */
export interface ReferenceEngineOptions extends OptionsOf<typeof referenceEngineOptions> {}

/** An engine that interprets programs in this thread: slow, simple, and the meaning of every op. */
export function createReferenceEngine(options?: ReferenceEngineOptions): Engine {
  const { numDevices, deadlineMs } = referenceEngineOptions.read(options, "createReferenceEngine");
  if (numDevices !== Number.POSITIVE_INFINITY) checkDeviceCount(numDevices, "createReferenceEngine");
  const limitLoop = limitLoops(deadlineMs);
  return new LocalEngine("reference", numDevices, {
    prepare: (program, { mesh }) => ({
      run: (inputs) => runSpmd(program, mesh, inputs, limitLoop),
      release: () => {},
    }),
    free: () => {},
    close: () => {},
  });
}
