import { describe, expect, test } from "vitest";
import { type HostTensor, hostTensor, numbersOf } from "../../src/engines/reference/hostTensor.js";
import { interpret } from "../../src/engines/reference/interpret.js";
import type { DType } from "../../src/ir/dtype.js";
import { newLiteral, type Program } from "../../src/ir/program.js";
import { at, range, type Shape, tensorType } from "../../src/ir/shape.js";
import { oracleFor } from "./agreement.js";
import { unitOfLastPlace } from "./floatBits.js";
import { buildProgram, type Emit } from "./interpreting.js";

const mesh = { axes: [] };

/** What the judge says of results that are the reference's own but for the elements given by index. */
function judge(
  program: Program,
  inputs: readonly HostTensor[],
  wrong: Readonly<Record<number, number>>,
  joinsOps = false,
): string | undefined {
  const oracle = oracleFor(program, mesh, [...inputs.map((x) => [x])], { joinsOps });
  const want = at(at(oracle.expected, 0), 0);
  const values = numbersOf(want);
  for (const [i, value] of Object.entries(wrong)) values[Number(i)] = value;
  return oracle.difference(0, 0, hostTensor(want.type.dtype, want.type.shape, values));
}

/** A program of one op after the other on one input. */
function chain(dtype: DType, shape: Shape, ...links: readonly ((emit: Emit, x: Value) => Value)[]): Program {
  return buildProgram([tensorType(dtype, shape)], (emit, x) => [
    links.reduce<Value>((value, link) => link(emit, value), x),
  ]);
}

type Value = ReturnType<Emit>[number];
const f32 = (...values: number[]): HostTensor => hostTensor("float32", [values.length], values);
const exp = (emit: Emit, x: Value): Value => at(emit("exp", [x], {}), 0);
const times = (factor: number) => (emit: Emit, x: Value) =>
  at(emit("mul", [x, newLiteral(factor, x.type.dtype)], {}), 0);
const plus = (term: number) => (emit: Emit, x: Value) =>
  at(emit("add", [x, newLiteral(term, x.type.dtype)], {}), 0);
const floor = (emit: Emit, x: Value): Value => at(emit("floor", [x], {}), 0);
const toInt = (emit: Emit, x: Value): Value => at(emit("convert", [x], { dtype: "int32" }), 0);
const sumAll = (emit: Emit, x: Value): Value => at(emit("reduceSum", [x], { dims: [0] }), 0);

describe("what rounding does not explain is found", () => {
  const exps = chain("float32", [4], exp);
  const input = f32(1, 100, -1, Number.NaN);

  test.each([
    ["a number in place of infinity", { 1: 3.4e38 }],
    ["the infinity of the other sign", { 1: Number.NEGATIVE_INFINITY }],
    ["NaN in place of infinity", { 1: Number.NaN }],
    ["infinity in place of a number", { 0: Number.POSITIVE_INFINITY }],
    ["NaN in place of a number", { 2: Number.NaN }],
    ["a number in place of NaN", { 3: 1 }],
    ["infinity in place of NaN", { 3: Number.POSITIVE_INFINITY }],
    ["a number that is 1e-5 off", { 2: Math.exp(-1) * (1 + 1e-5) }],
    ["zero in place of a number", { 2: 0 }],
    ["a number of the other sign", { 2: -Math.exp(-1) }],
  ])("%s", (_, wrong) => {
    expect(judge(exps, [input], {})).toBeUndefined();
    expect(judge(exps, [input], wrong)).toMatch(/^element \d of 4 is /);
  });

  test("one element of many", () => {
    const program = chain("float32", [1000], exp, times(3));
    const many = f32(...range(1000).map((i) => i / 500 - 1));
    expect(judge(program, [many], { 613: 3 * Math.exp(613 / 500 - 1) + 1e-4 })).toMatch(
      /^element 613 of 1000/,
    );
  });

  test("a value 1e-3 off beside one of 1e13", () => {
    const program = chain("float32", [2], exp);
    expect(judge(program, [f32(30, 0.5)], { 1: Math.exp(0.5) + 1e-3 })).toMatch(/^element 1 of 2/);
  });

  test("an element of a float16 or bfloat16 that is three units off", () => {
    for (const dtype of ["float16", "bfloat16"] as const) {
      const x = hostTensor(dtype, [3], [0.5, 1, 2]);
      const off = Math.exp(1) + 3 * unitOfLastPlace(Math.exp(1), dtype);
      expect(judge(chain(dtype, [3], exp), [x], { 1: off })).toMatch(/^element 1/);
    }
  });

  test("a single operation that is not rounded to the nearest", () => {
    const x = f32(0.1, 0.2, 0.3);
    for (const link of [times(0.7), plus(1 / 3)]) {
      const program = chain("float32", [3], link);
      const right = numbersOf(at(interpret(program, [x]), 0));
      const next = at(right, 1) + unitOfLastPlace(at(right, 1), "float32");
      expect(judge(program, [x], { 1: next })).toMatch(/nothing else is possible$/);
    }
  });

  test("an integer that is off by one, and a boolean that is not the right one", () => {
    expect(judge(chain("float32", [2], toInt), [f32(2.5, -7)], { 1: -8 })).toMatch(
      /^element 1 .* is -8 instead of -7/,
    );
    const below = (emit: Emit, x: Value) =>
      at(emit("compare", [x, newLiteral(0, "float32")], { direction: "lt" }), 0);
    expect(judge(chain("float32", [2], below), [f32(2.5, -7)], { 0: 1 })).toMatch(/^element 0/);
  });

  test("the zero of the other sign", () => {
    const negated = (emit: Emit, x: Value) => at(emit("neg", [x], {}), 0);
    expect(judge(chain("float32", [2], negated), [f32(0, -0)], { 0: 0 })).toMatch(/is 0 instead of -0/);
    expect(judge(chain("float32", [2], negated), [f32(0, -0)], { 1: -0 })).toMatch(/is -0 instead of 0/);
  });

  test("a sum of exact numbers that is not exact, and a long sum that lost a term", () => {
    const sum = chain("float32", [40], sumAll);
    expect(judge(sum, [f32(...range(40).map((i) => i / 4))], { 0: 195.00002 })).toMatch(
      /nothing else is possible/,
    );
    const terms = range(40).map((i) => Math.sin(i));
    const lost = terms.slice(1, -1).reduce((a, b) => a + b) + at(terms, 39) * (1 - 1e-4);
    expect(judge(sum, [f32(...terms)], { 0: lost })).toMatch(/^element 0/);
  });

  test("another type and another number of elements", () => {
    const oracle = oracleFor(exps, mesh, [[input]]);
    expect(oracle.difference(0, 0, hostTensor("float16", [4], [1, 1, 1, 1]))).toBe(
      "it is f16[4] instead of f32[4]",
    );
    expect(oracle.difference(0, 0, hostTensor("float32", [2, 2], [1, 1, 1, 1]))).toBe(
      "it is f32[2,2] instead of f32[4]",
    );
  });
});

describe("what rounding explains is right", () => {
  test("a few units in the last place of a function, and as many more as what follows makes of them", () => {
    const x = f32(0.3, 0.7);
    const value = Math.exp(0.7);
    const unit = unitOfLastPlace(value, "float32");
    expect(judge(chain("float32", [2], exp), [x], { 1: value + unit })).toBeUndefined();
    expect(judge(chain("float32", [2], exp), [x], { 1: value + 10 * unit })).toBeDefined();
    const cancelled = chain("float32", [2], exp, plus(-2), times(1000));
    expect(judge(cancelled, [x], { 1: (value + unit - 2) * 1000 })).toBeUndefined();
    expect(judge(cancelled, [x], { 1: (value + 10 * unit - 2) * 1000 })).toBeDefined();
  });

  test("infinity or the largest number where the last place decides, and nothing else", () => {
    const largest = 3.4028234663852886e38;
    const edge = chain("float32", [2], exp, times((largest / Math.exp(0.5)) * (1 + 4e-8)));
    const x = f32(0.5, 0.25);
    expect(judge(edge, [x], { 0: Number.POSITIVE_INFINITY }, true)).toBeUndefined();
    expect(judge(edge, [x], { 0: largest }, true)).toBeUndefined();
    expect(judge(edge, [x], { 0: 0.99 * largest }, true)).toBeDefined();
    expect(judge(edge, [x], { 0: Number.NEGATIVE_INFINITY }, true)).toBeDefined();
    expect(judge(edge, [x], { 0: Number.NaN }, true)).toBeDefined();
    expect(judge(edge, [x], { 1: Number.POSITIVE_INFINITY }, true)).toBeDefined();
  });

  test("either integer where rounding decides, and nothing between them or beside them", () => {
    const jump = chain("float32", [1], exp, times(1 / Math.exp(1)), times(3), floor, times(10));
    const possible = [20, 30];
    for (const value of possible) expect(judge(jump, [f32(1)], { 0: value }, true)).toBeUndefined();
    for (const value of [25, 29.999, 30.001, 10, 40, 0, Number.NaN]) {
      expect(judge(jump, [f32(1)], { 0: value }, true), String(value)).toBeDefined();
    }
  });

  test("only the one integer where the operands are exact", () => {
    const exact = chain("float32", [1], times(4), plus(-3), floor, toInt);
    expect(judge(exact, [f32(1.25)], { 0: 2 })).toBeUndefined();
    expect(judge(exact, [f32(1.25)], { 0: 1 })).toMatch(/nothing else is possible$/);
  });

  test("a product that is not rounded before it is added, only of who may join ops", () => {
    const fused = chain("float32", [1], times(1.1), plus(-0.11));
    const x = Math.fround(0.1);
    const unrounded = x * Math.fround(1.1) + Math.fround(-0.11);
    expect(Math.fround(unrounded)).not.toBe(numbersOf(at(interpret(fused, [f32(x)]), 0))[0]);
    expect(judge(fused, [f32(x)], { 0: unrounded }, true)).toBeUndefined();
    expect(judge(fused, [f32(x)], { 0: unrounded })).toMatch(/nothing else is possible$/);
  });
});
