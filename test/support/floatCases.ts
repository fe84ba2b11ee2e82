import { isFloat } from "../../src/ir/dtype.js";
import type { OpName } from "../../src/ir/ops.js";
import type { Atom, Program } from "../../src/ir/program.js";
import { widen } from "./gradientChecks.js";
import { caseProgram, type OpCase, opCases, type TensorOperand } from "./opCases.js";

/** A case of an op in float64 with the ranges of its operands. */
export interface FloatCase {
  readonly program: Program;
  readonly operands: readonly TensorOperand[];
}

/** The cases of an op that map floats to floats. */
export function floatCases<K extends OpName>(op: K): FloatCase[] {
  const cases: readonly OpCase<K>[] = opCases[op];
  return cases.flatMap((opCase) => {
    const program = widen(caseProgram(op, opCase));
    const hasFloat = (atoms: readonly Atom[]) => atoms.some(({ type }) => isFloat(type.dtype));
    const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
    return hasFloat(program.inputs) && hasFloat(program.outputs) ? [{ program, operands }] : [];
  });
}
