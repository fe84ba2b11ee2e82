/** Engines that need more than the JavaScript of this process: other processes, or system libraries. */
export { createMpiEngine } from "./mpi/engine.js";
export { createXlaEngine, openXlaAhead } from "./xla/openXla.js";
export { findProcesses } from "./xla/processes.js";
