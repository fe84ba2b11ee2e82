import { type CompileProgramOptions, compileProgram } from "../../src/compiler/compile.js";
import type { CompiledProgram } from "../../src/compiler/steps.js";
import { type HostTensor, hostTensor } from "../../src/engines/reference/hostTensor.js";
import { axesSize, type MeshShape } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, range } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";
import { oracleFor } from "../support/agreement.js";
import { Random, randomData } from "./randomProgram.js";
import { simulate } from "./simulate.js";

/** Runs a program on the reference engine and compiled, and says where the results differ. */
export function findDifference(
  program: Program,
  inputs: readonly (readonly HostTensor[])[],
  options: CompileProgramOptions,
): string | undefined {
  const oracle = oracleFor(program, options.mesh, inputs);
  let compiled: CompiledProgram;
  try {
    compiled = compileProgram(program, options);
  } catch (error) {
    return `${error instanceof Error ? error.stack : error}\n${printProgram(program)}`;
  }
  const actual = simulate(
    compiled,
    inputs.map((row) => row.map((tensor) => tensor.data)),
    axesSize(options.mesh.axes),
  );
  for (const [i, row] of oracle.expected.entries()) {
    for (const [device, { type }] of row.entries()) {
      const difference = oracle.difference(i, device, { type, data: at(at(actual, i), device) });
      if (difference) return `output ${i} on device ${device}: ${difference}\n${printProgram(program)}`;
    }
  }
  return undefined;
}

/** Random inputs of a program for every device of a mesh. */
export function randomInputs(program: Program, mesh: MeshShape, seed: number): HostTensor[][] {
  const random = new Random(seed);
  return program.inputs.map(({ type }) =>
    range(axesSize(mesh.axes)).map(() => hostTensor(type.dtype, type.shape, randomData(random, type))),
  );
}
