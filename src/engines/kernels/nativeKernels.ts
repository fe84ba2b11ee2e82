import { KernelCaller } from "#engines/kernels/kernelCaller";
import { at } from "../../ir/shape.js";
import { instantiateKernels, type KernelFunction } from "./kernelFunctions.js";
import type { LoadedModule } from "./loadKernels.js";

/** The kernels of a module as functions of this thread: machine code if there is any, else WebAssembly. */
export function bindKernels(
  { module, exports, native }: LoadedModule,
  imports: WebAssembly.Imports,
  memory: WebAssembly.Memory,
): KernelFunction[] {
  const inModule = exports.filter((_, i) => native[i] === undefined);
  const rest = instantiateKernels(module, inModule, imports);
  const caller = rest.length < exports.length ? new KernelCaller(memory) : undefined;
  let next = 0;
  return exports.map((_, i) => {
    const address = native[i];
    return address !== undefined && caller !== undefined ? caller.bind(address) : at(rest, next++);
  });
}
