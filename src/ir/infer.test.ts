import { describe, expect, test } from "vitest";
import { randomHost } from "../../test/support/gradientChecks.js";
import { caseProgram, deviceAxis, type OpCase, opCases } from "../../test/support/opCases.js";
import { randomNumbers } from "../../test/support/vmapChecks.js";
import { interpretSpmd } from "../engines/reference/interpret.js";
import { vjpRules } from "../transforms/vjpRules.js";
import { vmapRules } from "../transforms/vmapRules.js";
import type { OpName } from "./ops.js";
import { at, range, sizeOf } from "./shape.js";
import { verify } from "./verify.js";

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

describe("every op", () => {
  test("has a record in every table", () => {
    expect(Object.keys(opCases).sort()).toEqual([...opNames].sort());
    expect(Object.keys(vmapRules).sort()).toEqual([...opNames].sort());
    for (const op of opNames) expect(opCases[op].length, `cases of ${op}`).toBeGreaterThan(0);
  });

  test.each(opNames)("%s gives results of the inferred types", (op) => {
    checkOp(op, opCases[op]);
  });
});
