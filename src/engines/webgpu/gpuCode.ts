/** Everything that needs an open GPU. It is loaded with one, so that pages which use none do not load it. */
export { compileForGpu } from "../../compiler/compileForGpu.js";
export { fastestTile } from "./fastestTile.js";
export { openGpu } from "./gpu.js";
export { Machine } from "./gpuMachine.js";
export { MachineProgram } from "./gpuProgram.js";
export { GpuTracer } from "./gpuTrace.js";
export { Run } from "./run.js";
