import { compileWasmModule } from "#engines/system/v8Flags";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import { getOrInsert } from "../../ir/collections.js";
import { buildMoveModule } from "./moveKernels.js";

const moveModules = new Map<AddressType, WebAssembly.Module>();

/** The kernels of copies and collectives, for memories with addresses of this type. */
export function moveModuleFor(addressType: AddressType): WebAssembly.Module {
  return getOrInsert(moveModules, addressType, () => compileWasmModule(buildMoveModule(addressType)));
}
