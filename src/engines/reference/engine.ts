import type { Engine } from "../../ir/engine.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { LocalEngine } from "../localEngine.js";
import { limitLoops } from "../loopLimit.js";
import { checkDeviceCount } from "../sizeChecks.js";
import { runSpmd } from "./interpret.js";

const referenceEngineOptions = schema({
  /** Number of devices to simulate; by default as many as a mesh asks for. */
  numDevices: optional("number", Number.POSITIVE_INFINITY),
  /** How long a loop without a fixed end may run; by default `SHARDWISE_DEADLINE` (in seconds), or two minutes. */
  deadlineMs: optional("number"),
});

/** Options of the reference engine. */
export interface ReferenceEngineOptions extends OptionsOf<typeof referenceEngineOptions> {}

/**
 * An engine that interprets programs in this thread: slow and simple; it defines the meaning of every op.
 *
 * @example
 * ```ts
 * engines.createReferenceEngine({ numDevices: 2 }).numDevices; // 2
 * ```
 */
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
