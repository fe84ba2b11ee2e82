import { type CompileProgramOptions, compileProgram } from "../../src/compiler/compile.js";
import type { CompiledProgram } from "../../src/compiler/steps.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/tensor.js";
import type { DType } from "../../src/ir/dtype.js";
import { axesSize, type MeshShape } from "../../src/ir/mesh.js";
import { printProgram } from "../../src/ir/print.js";
import type { Program } from "../../src/ir/program.js";
import { at, range } from "../../src/ir/shape.js";
import { Random, randomData } from "./randomProgram.js";
import { simulate } from "./simulate.js";

const tolerances: { readonly [D in DType]: number } = {
  float32: 2e-4,
  // Values of other types are converted to it.
  float64: 2e-4,
  bfloat16: 0.06,
  float16: 0.02,
  int32: 0,
  uint32: 0,
  bool: 0,
};

/** Runs a program on the reference engine and compiled, and says where the results differ. */
export function findDifference(
  program: Program,
  inputs: readonly (readonly HostTensor[])[],
  options: CompileProgramOptions,
): string | undefined {
  const expected = interpretSpmd(program, options.mesh, inputs);
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
  for (const [i, row] of expected.entries()) {
    for (const [device, tensor] of row.entries()) {
      const data = at(at(actual, i), device);
      const got = numbersOf({ type: tensor.type, data });
      const want = numbersOf(tensor);
      const bad = firstDifference(want, got, tolerances[tensor.type.dtype]);
      if (bad !== undefined) {
        return `output ${i} on device ${device}, element ${bad}: ${at(got, bad)} instead of ${at(want, bad)}\n${printProgram(program)}`;
      }
    }
  }
  return undefined;
}

function firstDifference(
  want: readonly number[],
  got: readonly number[],
  tolerance: number,
): number | undefined {
  const finite = want.filter((x) => Number.isFinite(x));
  const scale = Math.max(1, ...finite.map(Math.abs).filter((x) => x < 1e15));
  for (const [k, x] of want.entries()) {
    const y = at(got, k);
    if (Object.is(x, y) || x === y || (Number.isNaN(x) && Number.isNaN(y))) continue;
    if (tolerance === 0) return k;
    // Near overflow and near poles the last bits decide everything.
    if (Math.abs(x) > 1e4 || Math.abs(y) > 1e4) {
      if (Math.abs(x - y) <= 0.1 * Math.abs(x) || Math.abs(x) > 1e12 || Number.isNaN(x) || Number.isNaN(y))
        continue;
    }
    if (!(Math.abs(x - y) <= tolerance * scale)) return k;
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
