import { describe, expect, test } from "vitest";
import { expectNumericGradients, randomHost, widen } from "../../test/support/gradientChecks.js";
import { caseProgram, deviceAxis, type OpCase, opCases } from "../../test/support/opCases.js";
import { randomNumbers } from "../../test/support/vmapChecks.js";
import { isFloat } from "../ir/dtype.js";
import type { OpName } from "../ir/ops.js";
import { at, range } from "../ir/shape.js";
import { verify } from "../ir/verify.js";
import { vjpProgram } from "./grad.js";
import { vjpRules } from "./vjpRules.js";

const mesh = { axes: [deviceAxis] };
const opNames = Object.keys(vjpRules) as OpName[];
const ofKind = (...kinds: readonly string[]) => opNames.filter((op) => kinds.includes(vjpRules[op].kind));

/** Ops whose derivative is meant to differ from that of their values; they have tests of their own. */
const ownRule: ReadonlySet<OpName> = new Set(["customVjp"]);

function checkOp<K extends OpName>(op: K, cases: readonly OpCase<K>[]): number {
  const random = randomNumbers(op.length * 104729 + 3);
  let checked = 0;
  for (const opCase of cases) {
    const program = widen(caseProgram(op, opCase));
    if (!program.inputs.some(({ type }) => isFloat(type.dtype))) continue;
    if (!program.outputs.some(({ type }) => isFloat(type.dtype))) continue;
    const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
    for (let round = 0; round < 2; round++) {
      const inputs = program.inputs.map(({ type }, i) => {
        const { low, high } = at(operands, i);
        return range(deviceAxis.size).map(() => randomHost(type, low, high, random));
      });
      expectNumericGradients(program, mesh, inputs, random);
      checked++;
    }
  }
  return checked;
}

describe("the derivative of every op", () => {
  test.each(ofKind("pull", "linearize").filter((op) => !ownRule.has(op)))(
    "of %s agrees with central differences",
    (op) => {
      expect(checkOp(op, opCases[op]), `${op} has a case with floats`).toBeGreaterThan(0);
    },
  );

  test("is zero for ops whose results are constant almost everywhere, and for those only", () => {
    expect(ofKind("zero").sort()).toEqual(
      [
        ...["and", "or", "xor", "not", "shl", "shrArithmetic", "shrLogical", "threefry2x32"],
        ...["argmax", "argmin", "axisIndex", "iota", "bitcast", "compare", "isFinite"],
        ...["ceil", "floor", "round", "sign", "stopGradient"],
      ].sort(),
    );
  });

  test("is missing for loops of dynamic length only, whose message says what to use instead", () => {
    expect(ofKind("unsupported")).toEqual(["while"]);
    const program = caseProgram("while", at(opCases.while, 1));
    expect(() => vjpProgram(program)).toThrow(
      /\[grad\] while: .*no reverse derivative: use lax\.scan or lax\.foriLoop/,
    );
  });

  test.each(ofKind("zero"))("of %s stops there without an error", <K extends OpName>(op: K) => {
    const cases: readonly OpCase<K>[] = opCases[op];
    for (const opCase of cases) {
      const { forward, backward } = vjpProgram(caseProgram(op, opCase));
      verify(forward);
      verify(backward);
      expect(backward.eqns.every((eqn) => eqn.op === "broadcastInDim")).toBe(true);
    }
  });
});
