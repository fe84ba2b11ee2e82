export { DeviceFailedError, type FailurePlace, OutOfMemoryError } from "./errors.js";
export { createReferenceEngine, type ReferenceEngineOptions } from "./reference/engine.js";
export { interpret, interpretSpmd } from "./reference/interpret.js";
export { type HostTensor, hostTensor, numbersOf } from "./reference/tensor.js";
export { simulateDevices } from "./simulateDevices.js";
export {
  createThreadsEngine,
  type ThreadsEngine,
  type ThreadsEngineInfo,
  type ThreadsEngineOptions,
  type TraceEvent,
} from "./threads/engine.js";
