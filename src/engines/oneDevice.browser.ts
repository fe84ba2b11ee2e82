import { hostEngine } from "./host.js";
import type * as node from "./oneDevice.js";

/** The calling thread: only pages that make a mesh load the engine of workers. */
export const oneDeviceEngine: typeof node.oneDeviceEngine = () => hostEngine;
