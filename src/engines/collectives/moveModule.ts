import { compileWasmModule } from "#engines/system/v8Flags";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import { buildMoveModule } from "./moveKernels.js";

const moveModules = new Map<AddressType, WebAssembly.Module>();

/** The kernels of copies and collectives, for memories with addresses of this type. */
export function moveModuleFor(addressType: AddressType): WebAssembly.Module {
  let module = moveModules.get(addressType);
  if (module === undefined) {
    module = compileWasmModule(buildMoveModule(addressType));
    moveModules.set(addressType, module);
  }
  return module;
}
