import { CodeMemory } from "#engines/system/codeMemory";
import { compileWasmModule } from "#engines/system/v8Flags";
import type { CompiledProgram, KernelModule } from "../../compiler/steps.js";
import { InternalError } from "../../ir/errors.js";

/** Compiled kernels: a module, and the addresses of the machine code of those that are not in it. */
export interface LoadedModule {
  readonly module: WebAssembly.Module;
  /** The names of all kernels. */
  readonly exports: readonly string[];
  /** The addresses of machine code, by the index of its kernel. */
  readonly native: readonly (number | undefined)[];
}

/** Memory for the machine code of kernels, on a machine whose kernels passed their test. */
export function openKernelCode(): CodeMemory {
  const memory = CodeMemory.open();
  if (typeof memory === "string") throw new InternalError(`[threads] machine code worked before: ${memory}`);
  return memory;
}

/** Compiles the kernels of a program for all threads of the process. */
export function loadKernels({ modules }: CompiledProgram, code: CodeMemory | undefined): LoadedModule[] {
  return modules.map(({ bytes, exports, native }) => ({
    module: compileWasmModule(bytes.slice()),
    exports,
    native: mapCode(native, code),
  }));
}

/** Maps machine code and returns its addresses. */
function mapCode(
  native: KernelModule["native"],
  code: CodeMemory | undefined,
): readonly (number | undefined)[] {
  const pieces = native.filter((piece) => piece !== undefined);
  if (pieces.length === 0) return [];
  if (code === undefined) throw new InternalError("[threads] there is no memory for the code of kernels");
  const addresses = code.load(pieces);
  let next = 0;
  return native.map((piece) => (piece === undefined ? undefined : addresses[next++]));
}

/** Unmaps the machine code of a program; no thread may run it any more. */
export function unloadKernels(modules: readonly LoadedModule[], code: CodeMemory | undefined): void {
  for (const { native } of modules) {
    const first = native.find((address) => address !== undefined);
    if (first !== undefined) code?.unload(first);
  }
}
