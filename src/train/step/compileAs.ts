import { type CompileProgramOptions, compileProgram } from "../../compiler/compile.js";
import type { CompiledProgram } from "../../compiler/steps.js";
import { type CompileSettings, compileWith } from "../../engines/kernels/compileWith.js";
import type { Program } from "../../ir/program.js";
import type { Mesh } from "../../spmd/mesh/mesh.js";

/** Compiles a program into the steps that the engine of a mesh runs; for any processor if it does not say how. */
export function compileAs(
  mesh: Mesh,
  program: Program,
  { donated = [], name = "program" }: Pick<CompileProgramOptions, "donated" | "name">,
): CompiledProgram {
  const settings = mesh.engine.compileSettings?.(mesh.deviceIds) as CompileSettings | undefined;
  const options = { mesh, donated, name };
  return settings ? compileWith(settings, program, options).compiled : compileProgram(program, options);
}
