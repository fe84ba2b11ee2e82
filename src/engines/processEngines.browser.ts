import { EngineLoadError } from "./errors.js";
import type * as node from "./processEngines.js";

function refuse(name: string): never {
  throw new EngineLoadError(`the engine "${name}" needs Node: use "threads" or "reference" in a browser`);
}

export const createMpiEngine: typeof node.createMpiEngine = () => refuse("mpi");

export const createXlaEngine: typeof node.createXlaEngine = () => refuse("xla");

export const openXlaAhead: typeof node.openXlaAhead = async () => {};

export const findProcesses: typeof node.findProcesses = () => undefined;
