import type { Engine } from "../ir/engine.js";
import { sharedEngine } from "./default.js";

/** The engine of programs that name no mesh, which run on one device. */
export const oneDeviceEngine = (): Engine => sharedEngine(1);
