import { wasmAttention } from "../../compiler/attention/wasmMachine.js";
import { type CompileProgramOptions, compileProgram } from "../../compiler/compile.js";
import { attentionAs } from "../../compiler/lower/lowerAttention.js";
import type { CompiledProgram } from "../../compiler/steps.js";
import type { AddressType } from "../../compiler/wasm/addresses.js";
import type { CompileOptions } from "../../ir/engine.js";
import type { Program } from "../../ir/program.js";

/** How an engine compiles programs: plain data, so that any thread can compile for it. */
export interface CompileSettings
  extends Pick<
    CompileProgramOptions,
    // An engine that never overwrites inputs sets `donated` to undefined.
    "features" | "threads" | "vectorBits" | "bfloat16Products" | "donated"
  > {
  readonly addressType: AddressType;
  /** Whether attention is one kernel even if kernels are WebAssembly; it always is in machine code. */
  readonly fusesAttention: boolean;
}

/** A compiled program that has not been loaded. */
export interface PreparedProgram {
  readonly addressType: AddressType;
  readonly compiled: CompiledProgram;
}

/** Compiles a program as an engine with these settings does. */
export function compileWith(
  { fusesAttention, ...settings }: CompileSettings,
  program: Program,
  { mesh, donated, name }: Pick<CompileOptions, "mesh" | "donated" | "name">,
): PreparedProgram {
  const attention =
    fusesAttention || settings.vectorBits !== undefined ? attentionAs(wasmAttention) : undefined;
  const compiled = compileProgram(program, { mesh, donated, name, ...settings, attention });
  return { addressType: settings.addressType, compiled };
}

/** Whether a program was prepared for memories with such addresses; those of an engine may have changed since. */
export function isPrepared(prepared: unknown, addressType: AddressType): prepared is PreparedProgram {
  return (prepared as PreparedProgram | undefined)?.addressType === addressType;
}
