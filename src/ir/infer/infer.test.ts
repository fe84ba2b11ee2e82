import { describe, expect, test } from "vitest";
import { randomHost } from "../../../test/support/gradientChecks.js";
import { caseProgram, deviceAxis, type OpCase, opCases } from "../../../test/support/opCases.js";
import { randomNumbers } from "../../../test/support/vmapChecks.js";
import { interpretSpmd } from "../../engines/reference/interpret.js";
import { vmapRules } from "../../transforms/batching/vmapRules.js";
import { vjpRules } from "../../transforms/derivatives/vjpRules.js";
import type { OpName } from "../ops.js";
import { type Atom, makeEqn, newLiteral, newVar } from "../program.js";
import { at, range, sizeOf, type TensorType } from "../shape.js";
import { verify } from "../verify.js";
import { inferTypes } from "./infer.js";
import { typesOfRepeated } from "./repeated.js";
import { varyingAlong } from "./varying.js";

const opNames = Object.keys(vjpRules) as OpName[];

function checkOp<K extends OpName>(op: K, cases: readonly OpCase<K>[]): void {
  const random = randomNumbers(op.length * 31 + 7);
  for (const opCase of cases) {
    const program = verify(caseProgram(op, opCase));
    const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
    const inputs = operands.map(({ type, low, high }) =>
      range(deviceAxis.size).map(() => randomHost(type, low, high, random)),
    );
    const results = interpretSpmd(program, { axes: [deviceAxis] }, inputs);
    expect(results.length).toBe(program.outputs.length);
    results.forEach((blocks, i) => {
      const { type } = at(program.outputs, i);
      for (const block of blocks) {
        expect(block.type).toEqual(type);
        expect(block.data.length).toBe(sizeOf(type.shape));
      }
    });
  }
}

/** Compares what follows from an equation with what is inferred anew, for operands of its types and of others. */
function checkRepeated<K extends OpName>(op: K, cases: readonly OpCase<K>[]): void {
  for (const opCase of cases) {
    const { eqns } = caseProgram(op, opCase);
    const eqn = at(eqns, eqns.length - 1);
    const along = (change: (type: TensorType) => TensorType): Atom[] =>
      eqn.ins.map((atom) => (atom.kind === "var" ? newVar(change(atom.type)) : atom));
    const inferred = (ins: readonly Atom[]) => inferTypes<OpName>(eqn.op, ins, eqn.params);
    const same = along((type) => ({ ...type }));
    expect(typesOfRepeated(eqn, same)).toEqual(inferred(same));
    const others = [
      along((type) => varyingAlong(type, [deviceAxis])),
      along((type) => varyingAlong(type, [])),
      along((type) => ({ ...type, shape: [1, ...type.shape] })),
      along((type) => ({ ...type, dtype: type.dtype === "float32" ? "bfloat16" : "float32" })),
      eqn.ins.map(({ type }) => newLiteral(1, type.dtype)),
      eqn.ins.map(({ type }) => newVar(type)),
    ];
    for (const ins of others) {
      const types = typesOfRepeated(eqn, ins);
      if (types !== undefined) expect(types).toEqual(inferred(ins));
    }
  }
}

describe("every op", () => {
  test("has a record in every table", () => {
    expect(Object.keys(opCases).sort()).toEqual([...opNames].sort());
    expect(Object.keys(vmapRules).sort()).toEqual([...opNames].sort());
    for (const op of opNames) expect(opCases[op].length, `cases of ${op}`).toBeGreaterThan(0);
  });

  test.each(opNames)("%s gives results of the inferred types", (op) => {
    checkOp(op, opCases[op]);
  });

  test.each(opNames)("%s has the types that are inferred when it is repeated on other operands", (op) => {
    checkRepeated(op, opCases[op]);
  });

  test("what is repeated on values that do not differ does not differ either", () => {
    const type: TensorType = { dtype: "float32", shape: [4], varying: [deviceAxis] };
    const plain = newVar({ dtype: "float32", shape: [4] });
    const eqn = makeEqn("mul", [newVar(type), newVar(type)], [newVar(type)], {});
    expect(typesOfRepeated(eqn, [plain, plain])).toEqual([plain.type]);
    expect(typesOfRepeated(eqn, [plain, newVar(type)])).toBeUndefined();
    expect(typesOfRepeated(eqn, [plain])).toBeUndefined();
  });
});
