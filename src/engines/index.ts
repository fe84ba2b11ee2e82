export { createReferenceEngine, type ReferenceEngineOptions } from "./reference/engine.js";
export { interpret, interpretSpmd } from "./reference/interpret.js";
export { type HostTensor, hostTensor, numbersOf } from "./reference/tensor.js";
