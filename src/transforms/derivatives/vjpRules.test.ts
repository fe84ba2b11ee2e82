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
import { asTensor, expectLikeLoop, randomNumbers } from "../../../test/support/vmapChecks.js";
import { hostTensor, numbersOf } from "../../engines/reference/hostTensor.js";
import { interpretSpmd } from "../../engines/reference/interpret.js";
import { isFloat } from "../../ir/dtype.js";
import type { OpName } from "../../ir/ops.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { inline, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import { vmapProgram } from "../batching/vmap.js";
import { vjpProgram } from "./grad.js";
import { vjpRules } from "./vjpRules.js";

const mesh = { axes: [deviceAxis] };
const opNames = Object.keys(vjpRules) as OpName[];
const ofKind = (...kinds: readonly string[]) => opNames.filter((op) => kinds.includes(vjpRules[op].kind));

/** Ops whose derivative is meant to differ from that of their values; they have tests of their own. */
const ownRule: ReadonlySet<OpName> = new Set(["customVjp", "roundFloat8"]);

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

  test("of an exchange of rows is none for the rows that are replaced", () => {
    const x = { name: "m", size: 2 };
    const types = [tensorType("float64", [5, 2]), tensorType("float64", [6, 2])];
    // Each device sends a row to itself and two to the other one, which go behind its third row.
    const rows = [
      [0, 1, 1],
      [2, 2, 3],
    ];
    const received = [
      [1, 1, 0],
      [3, 2, 2],
    ];
    const table = (own: readonly (readonly number[])[]) =>
      ops.reshape(ops.stack(own.flat().map((n) => ops.full([], n, "int32"))), [2, 3]);
    const turned = (own: Tensor) =>
      ops.select(
        ops.broadcastInDim(ops.compare("eq", ops.axisIndex([x]), 0), [2, 3], []),
        own,
        ops.reverse(own, [0]),
      );
    const program = traceFlat(
      ([a, b]) => [
        ops.raggedAllToAll([asTensor(a), asTensor(b), turned(table(rows)), turned(table(received))], [x]),
      ],
      types,
    ).program;
    const random = randomNumbers(17);
    const inputs = types.map((type) => range(2).map(() => randomHost(type, -1, 1, random)));
    expectNumericGradients(verify(program), { axes: [x] }, inputs, random);
    const { forward, backward, residuals } = vjpProgram(program);
    verify(forward);
    const kept = interpretSpmd({ ...forward, outputs: residuals }, { axes: [x] }, inputs);
    const ones = range(2).map(() =>
      hostTensor(
        "float64",
        [6, 2],
        range(12).map(() => 1),
      ),
    );
    const [, into] = interpretSpmd(verify(backward), { axes: [x] }, [...kept, ones]);
    expect((into ?? []).map((one) => numbersOf(one).filter((_, i) => i % 2 === 0))).toEqual([
      [1, 0, 1, 0, 0, 1],
      [1, 0, 1, 0, 0, 1],
    ]);
  });

  test("of padding is that of the padding value alone where there is nothing to pad", () => {
    const types = [tensorType("float32", [0, 2]), tensorType("float32", [])];
    const params = { low: [2, 1], high: [1, -1], interior: [3, 2] };
    const { program } = traceFlat(([x, y]) => [ops.pad(asTensor(x), asTensor(y), params)], types);
    const { backward } = vjpProgram(program);
    const ones = hostTensor(
      "float32",
      [3, 4],
      range(12).map(() => 1),
    );
    const gradients = interpretSpmd(verify(backward), { axes: [] }, [[ones]]);
    expect(gradients.flat().map((one) => [one.type.shape, numbersOf(one)])).toEqual([
      [[0, 2], []],
      [[], [12]],
    ]);
  });

  test("of a scatter of nothing is that of what is left as it is", () => {
    const types = [tensorType("float32", [3]), tensorType("int32", [0]), tensorType("float32", [0])];
    const program = traceFlat(
      ([a, b, c]) => [
        ops.scatter(asTensor(a), asTensor(b), asTensor(c), { dim: 0, batchDims: 0, combine: "set" }),
      ],
      types,
    ).program;
    const { forward, backward } = vjpProgram(program);
    verify(forward);
    verify(backward);
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
