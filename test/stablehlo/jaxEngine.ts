/** The XLA engine on simulated devices of jaxlib, as a module that engines can be opened from. */

import { XlaEngine } from "../../src/engines/xla/engine.js";
import type { XlaLowering } from "../../src/engines/xla/xlaLowering.js";
import type { Engine } from "../../src/ir/engine.js";
import { JaxClient } from "./jaxClient.js";

let client: JaxClient | undefined;

/**
 * Opens an engine of eight devices; all engines of a process share the process of Python, which ends with it.
 *
 * @param lowering how programs are written, such as with all loops written out
 */
export function createEngine(lowering?: XlaLowering): Engine {
  client ??= new JaxClient(8);
  return new XlaEngine(client, lowering);
}
