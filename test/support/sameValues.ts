import { numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpretSpmd } from "../../src/engines/reference/interpret.js";
import type { MeshShape } from "../../src/ir/mesh.js";
import type { Program } from "../../src/ir/program.js";
import { at, formatType } from "../../src/ir/shape.js";
import { printProgram } from "../../src/ir/text/print.js";
import { randomInputs } from "../compiler/differential.js";

/** How far two numbers may be apart, given both. */
export type Allowance = (x: number, y: number) => boolean;

/** The same number; zeros of either sign are the same. */
export const isExact: Allowance = (x, y) => x === y || (Number.isNaN(x) && Number.isNaN(y));

/**
 * Where two programs with the same inputs differ on random numbers by the reference interpreter, on all devices of
 * a mesh; undefined where they agree.
 */
export function differenceBetween(
  before: Program,
  after: Program,
  mesh: MeshShape,
  seed: number,
  isSame: Allowance = isExact,
): string | undefined {
  const inputs = randomInputs(before, mesh, seed);
  const [want, got] = [before, after].map((program) => interpretSpmd(program, mesh, inputs));
  if (!want || !got || want.length !== got.length) return "the programs have not the same outputs";
  const programs = () => `${printProgram(before)}\n${printProgram(after)}`;
  for (const [i, row] of want.entries()) {
    for (const [device, tensor] of row.entries()) {
      const other = at(at(got, i), device);
      const [type, otherType] = [formatType(tensor.type), formatType(other.type)];
      if (type !== otherType) return `output ${i}: ${otherType} instead of ${type}\n${programs()}`;
      const [x, y] = [numbersOf(tensor), numbersOf(other)];
      const bad = x.findIndex((value, k) => !isSame(value, at(y, k)));
      if (bad >= 0)
        return `output ${i} on device ${device}, element ${bad}: ${y[bad]} instead of ${x[bad]}\n${programs()}`;
    }
  }
  return undefined;
}
