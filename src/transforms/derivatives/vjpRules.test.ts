import { describe, expect, test } from "vitest";
import { type FloatCase, floatCases } from "../../../test/support/floatCases.js";
import { expectNumericGradients, randomHost } from "../../../test/support/gradientChecks.js";
import {
  caseProgram,
  deviceAxis,
  type OpCase,
  opCases,
  type TensorOperand,
} from "../../../test/support/opCases.js";
import { expectLikeLoop, randomNumbers } from "../../../test/support/vmapChecks.js";
import { isFloat } from "../../ir/dtype.js";
import type { OpName } from "../../ir/ops.js";
import { at, range } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { inline, traceFlat } from "../../trace/builder.js";
import { vmapProgram } from "../batching/vmap.js";
import { vjpProgram } from "./grad.js";
import { vjpRules } from "./vjpRules.js";

const mesh = { axes: [deviceAxis] };
const opNames = Object.keys(vjpRules) as OpName[];
const ofKind = (...kinds: readonly string[]) => opNames.filter((op) => kinds.includes(vjpRules[op].kind));

/** Ops whose derivative is meant to differ from that of their values; they have tests of their own. */
const ownRule: ReadonlySet<OpName> = new Set(["customVjp"]);

/** The program `(…inputs, …cotangents) → (…outputs, …gradients)`. */
function withDerivative({ program, operands }: FloatCase): FloatCase {
  const { forward, backward, residuals } = vjpProgram(program);
  const numIns = program.inputs.length;
  const cotangents = program.outputs.filter(({ type }) => isFloat(type.dtype)).map(({ type }) => type);
  const joint = traceFlat(
    (args) => {
      const outputs = [...forward.outputs, ...residuals];
      const results = inline({ ...forward, outputs }, args.slice(0, numIns));
      const kept = results.slice(forward.outputs.length);
      const gradients = inline(backward, [...kept, ...args.slice(numIns)]);
      return [...results.slice(0, forward.outputs.length), ...gradients];
    },
    [...program.inputs.map(({ type }) => type), ...cotangents],
  ).program;
  const weights = cotangents.map((type): TensorOperand => ({ kind: "tensor", type, low: -1, high: 1 }));
  return { program: verify(joint), operands: [...operands, ...weights] };
}

/** The program over a batch of two. */
function overBatch({ program, operands }: FloatCase): FloatCase {
  const batchedInputs = operands.map(() => true);
  const batched = verify(vmapProgram(program, { size: 2, batchedInputs }).program);
  return { program: batched, operands };
}

function checkNumerically({ program, operands }: FloatCase, random: () => number): void {
  const inputs = program.inputs.map(({ type }, i) => {
    const { low, high } = at(operands, i);
    return range(deviceAxis.size).map(() => randomHost(type, low, high, random));
  });
  expectNumericGradients(program, mesh, inputs, random);
}

const differentiable = ofKind("pull", "linearize").filter((op) => !ownRule.has(op));

describe("the derivative of every op", () => {
  test.each(differentiable)("of %s agrees with central differences", (op) => {
    const random = randomNumbers(op.length * 104729 + 3);
    const cases = floatCases(op);
    expect(cases.length, `cases of ${op} with floats`).toBeGreaterThan(0);
    for (const floatCase of [...cases, ...cases]) checkNumerically(floatCase, random);
  });

  test.each(differentiable)("of %s has a derivative that agrees with central differences", (op) => {
    const random = randomNumbers(op.length * 7907 + 5);
    for (const floatCase of floatCases(op)) checkNumerically(withDerivative(floatCase), random);
  });

  test.each(differentiable)("of %s over a batch agrees with central differences", (op) => {
    const random = randomNumbers(op.length * 6997 + 11);
    for (const floatCase of floatCases(op)) checkNumerically(overBatch(floatCase), random);
  });

  test.each(differentiable)("of %s can be mapped over a batch", (op) => {
    const random = randomNumbers(op.length * 5003 + 13);
    for (const floatCase of floatCases(op)) {
      const { program, operands } = withDerivative(floatCase);
      const wide = operands.map((operand, i) => ({ ...operand, type: at(program.inputs, i).type }));
      for (const flags of [wide.map(() => true), wide.map((_, i) => i % 2 === 0)]) {
        expectLikeLoop(program, wide, flags, random);
      }
    }
  });

  test("is zero for ops whose results are constant almost everywhere, and for those only", () => {
    expect(ofKind("zero").sort()).toEqual(
      [
        ...["and", "or", "xor", "not", "shl", "shrArithmetic", "shrLogical", "threefry2x32"],
        ...["argmax", "argmin", "axisIndex", "iota", "bitcast", "compare", "isFinite"],
        ...["ceil", "floor", "round", "sign", "stopGradient"],
      ].sort(),
    );
  });

  test("of products of groups have their precision", () => {
    for (const precision of ["high", "highest"] as const) {
      for (const opCase of opCases.raggedDot) {
        const params = { ...opCase.params, precision };
        const { backward } = vjpProgram(caseProgram("raggedDot", { ...opCase, params }));
        const products = backward.eqns.flatMap((eqn) =>
          eqn.op === "raggedDot" ? [eqn.params.precision] : [],
        );
        expect(products).toEqual([precision, precision]);
      }
    }
  });

  test("of an exchange of rows sends them back: what was received is sent", () => {
    const program = caseProgram("raggedAllToAll", at(opCases.raggedAllToAll, 0));
    const { forward, backward, residuals } = vjpProgram(program);
    const [sends, receives] = [2, 3].map((i) => backward.inputs[residuals.indexOf(at(forward.inputs, i))]);
    const [back] = backward.eqns.filter(({ op }) => op === "raggedAllToAll");
    expect(sends).toBeDefined();
    expect(back?.ins.slice(2)).toEqual([receives, sends]);
  });

  test("is missing for loops of dynamic length only, whose message says what to use instead", () => {
    expect(ofKind("unsupported")).toEqual(["callback", "while"]);
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
