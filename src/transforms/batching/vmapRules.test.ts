import { describe, expect, test } from "vitest";
import { caseProgram, type OpCase, opCases, type TensorOperand } from "../../../test/support/opCases.js";
import { asTensor, expectLikeLoop, randomNumbers } from "../../../test/support/vmapChecks.js";
import type { OpName } from "../../ir/ops.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { verify } from "../../ir/verify.js";
import { bind, traceFlat } from "../../trace/builder.js";
import { vmapProgram } from "./vmap.js";
import { vmapRules } from "./vmapRules.js";

/** Ways to choose some of n things: of many, all pairs and all but one, unless `CASES=all`. */
function subsets(n: number): boolean[][] {
  const all = range(2 ** n).map((bits) => range(n).map((i) => ((bits >> i) & 1) === 1));
  if (n <= 4 || process.env.CASES === "all") return all;
  const count = (chosen: readonly boolean[]) => chosen.filter((isChosen) => isChosen).length;
  return all.filter((chosen) => count(chosen) <= 2 || count(chosen) >= n - 1);
}

function checkOp<K extends OpName>(op: K, cases: readonly OpCase<K>[]): void {
  const random = randomNumbers(op.length * 7919 + 1);
  for (const opCase of cases) {
    const program = verify(caseProgram(op, opCase));
    const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
    for (const flags of subsets(operands.length)) expectLikeLoop(program, operands, flags, random);
  }
}

const opNames = Object.keys(vmapRules) as OpName[];

describe("every op", () => {
  test("has a case", () => {
    expect(Object.keys(opCases).sort()).toEqual([...opNames].sort());
    for (const op of opNames) expect(opCases[op].length, op).toBeGreaterThan(0);
  });

  test.each(opNames)("%s over a batch equals a loop over its elements", (op) => {
    checkOp(op, opCases[op]);
  });
});

test("operands that attention has once for all of its batch are not repeated", () => {
  const [, , opCase] = opCases.attention;
  if (!opCase) throw new Error("the third case has a bias");
  const batchedInputs = opCase.ins.map((_, i) => i < 3);
  const { program } = vmapProgram(caseProgram("attention", opCase), {
    size: 5,
    axisName: "v",
    batchedInputs,
  });
  const [eqn] = program.eqns.filter(({ op }) => op === "attention");
  const shapes = (eqn?.ins ?? []).map(({ type }) => type.shape);
  expect(shapes.slice(3)).toEqual([
    [1, 4, 2, 1],
    [10, 1, 1, 3],
    [1, 4],
  ]);
});

test("an operand that attention has once for as many heads as its batch has elements is repeated", () => {
  const operand = (shape: readonly number[]): TensorOperand => ({
    kind: "tensor",
    type: tensorType("float32", shape),
    low: -1,
    high: 1,
  });
  const ins = [
    [2, 3, 2, 2],
    [2, 4, 2, 2],
    [2, 4, 2, 2],
    [1, 2, 3, 4],
  ].map(operand);
  const params = { scale: 0.5, causal: false, extras: ["bias"] } as const;
  const program = verify(caseProgram("attention", { ins, params }));
  expectLikeLoop(program, ins, [true, true, true, true], randomNumbers(7));
});

test("an argument of a custom derivative that all elements share is not repeated, unless they talk about it", () => {
  const program = caseProgram("customVjp", at(opCases.customVjp, 0));
  const result = vmapProgram(program, { size: 5, batchedInputs: [false, true, false] });
  const [eqn] = result.program.eqns.filter(({ op }) => op === "customVjp");
  expect(eqn?.ins.map(({ type }) => type.shape)).toEqual([[], [5, 3], [3]]);
});

describe("nested programs", () => {
  test.each(["scan", "while", "cond", "remat", "customVjp", "dynamicUpdateSlice", "gather"] as const)(
    "%s can be mapped twice",
    (op) => {
      const random = randomNumbers(5);
      const checkTwice = <K extends OpName>(name: K, cases: readonly OpCase<K>[]) => {
        const opCase = at(cases, 0);
        const operands = opCase.ins.filter((operand) => operand.kind === "tensor");
        for (const flags of subsets(operands.length)) {
          const once = vmapProgram(caseProgram(name, opCase), { size: 2, batchedInputs: flags }).program;
          const grown = operands.map((operand, i) => ({ ...operand, type: at(once.inputs, i).type }));
          expectLikeLoop(once, grown, [...flags].reverse(), random);
        }
      };
      checkTwice(op, opCases[op]);
    },
  );

  test("a scan whose carry becomes batched only through another carry", () => {
    const scalar: TensorOperand = { kind: "tensor", type: tensorType("float32", []), low: -1, high: 1 };
    const xs: TensorOperand = { ...scalar, type: tensorType("float32", [5]) };
    // Every step hands the values on to the left: x → third → second → first → y.
    const body = traceFlat(
      ([first, ...others]) => [...others, asTensor(first)],
      range(4).map(() => scalar.type),
    ).program;
    const program = traceFlat(
      (args) => bind("scan", args, { body, length: 5, reverse: false, numConsts: 0, numCarry: 3 }),
      [scalar.type, scalar.type, scalar.type, xs.type],
    ).program;
    expectLikeLoop(program, [scalar, scalar, scalar, xs], [false, false, false, true], randomNumbers(3));
  });
});
