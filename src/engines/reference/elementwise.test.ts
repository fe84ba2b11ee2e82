// biome-ignore-all lint/suspicious/noApproximativeNumericConstant: expected results, rounded to float32
import { describe, expect, test } from "vitest";
import { applyOp } from "../../../test/support/interpreting.js";
import { unaryOps, unaryPoints } from "../../../test/support/unaryOps.js";
import type { DType } from "../../ir/dtype.js";
import { isInDomain } from "../../ir/infer/inferChecks.js";
import { type BinaryOp, opFacts, opsOf, type UnaryOp } from "../../ir/opFacts.js";
import type { CompareDirection } from "../../ir/ops.js";
import { newLiteral } from "../../ir/program.js";
import { at, range } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;

const vector = (dtype: DType, values: readonly number[]): HostTensor =>
  hostTensor(dtype, [values.length], values);
const float32 = (values: readonly number[]): HostTensor => vector("float32", values);
const rounded = (values: readonly number[]): number[] => values.map(Math.fround);
const unary = (op: UnaryOp, x: HostTensor): number[] => numbersOf(at(applyOp(op, [x], {}), 0));
const binary = (op: BinaryOp, x: HostTensor, y: HostTensor): number[] =>
  numbersOf(at(applyOp(op, [x, y], {}), 0));

describe("unary ops on float32", () => {
  const x = unaryPoints;
  const expected = Object.entries(unaryOps).flatMap(([op, { values }]) => (values ? [[op, values]] : [])) as [
    UnaryOp,
    readonly number[],
  ][];

  test("all ops on floats have known values", () => {
    const onFloats = opsOf("unary").filter((op) => isInDomain("float32", opFacts[op].on));
    expect(expected.map(([op]) => op).sort()).toEqual([...onFloats].sort());
  });

  test.each(expected)("%s has the values of JAX and SciPy", (op, values) => {
    expect(unary(op, float32(x))).toEqual(rounded(values));
  });

  test.each(expected)("%s keeps shapes without elements and scalars", (op, values) => {
    const [empty] = applyOp(op, [hostTensor("float32", [2, 0], [])], {});
    expect(empty?.type).toEqual({ dtype: "float32", shape: [2, 0] });
    const [scalar] = applyOp(op, [hostTensor("float32", [], [0.5])], {});
    expect(scalar?.type.shape).toEqual([]);
    expect(scalar && numbersOf(scalar)).toEqual(rounded([at(values, 13)]));
  });
});

describe("unary ops on other types", () => {
  test("integers wrap around in neg and abs", () => {
    const x = vector("int32", [-(2 ** 31), -5, 0, 7]);
    expect(unary("neg", x)).toEqual([-(2 ** 31), 5, 0, -7]);
    expect(unary("abs", x)).toEqual([-(2 ** 31), 5, 0, 7]);
    expect(unary("sign", x)).toEqual([-1, -1, 0, 1]);
    const unsigned = vector("uint32", [0, 1, 2 ** 32 - 1]);
    expect(unary("neg", unsigned)).toEqual([0, 2 ** 32 - 1, 1]);
    expect(unary("abs", unsigned)).toEqual([0, 1, 2 ** 32 - 1]);
    expect(unary("sign", unsigned)).toEqual([0, 1, 1]);
  });

  test("not is logical for bool and bitwise for integers", () => {
    expect(unary("not", vector("bool", [0, 1]))).toEqual([1, 0]);
    expect(unary("not", vector("int32", [0, -1, 5]))).toEqual([-1, 0, -6]);
    expect(unary("not", vector("uint32", [0, 2 ** 32 - 1, 5]))).toEqual([2 ** 32 - 1, 0, 2 ** 32 - 6]);
  });

  test("results of 16-bit floats are rounded to their type", () => {
    expect(unary("exp", vector("bfloat16", [1, -1, 100]))).toEqual([2.71875, 0.3671875, inf]);
    expect(unary("exp", vector("float16", [1, -1, 100]))).toEqual([2.71875, 0.367919921875, inf]);
  });

  test("float64 keeps all its digits", () => {
    expect(unary("exp", vector("float64", [1]))).toEqual([Math.E]);
  });

  test("isFinite tells NaN and infinities apart from numbers", () => {
    const [y] = applyOp("isFinite", [float32([nan, inf, -inf, 0, -3])], {});
    expect(y?.type.dtype).toBe("bool");
    expect(y && numbersOf(y)).toEqual([0, 0, 0, 1, 1]);
  });
});

describe("binary ops on float32", () => {
  const x = [nan, 1, inf, inf, -inf, 0, -0, 0, 1, -1, 5.5, -5.5, 5.5, -5.5, 1, -1, 2, -8, -8, 1e30, 0.1];
  const y = [1, nan, inf, -inf, 0, -0, 0, 0, 0, 0, 2, 2, -2, -2, inf, inf, 0.5, 3, 0.5, 1e30, 0.2];
  type FloatOp = "add" | "sub" | "mul" | "div" | "rem" | "pow" | "max" | "min" | "atan2";
  // biome-ignore format: one row per op, as JAX computes it
  const expected: { readonly [K in FloatOp]: readonly number[] } = {
    add: [nan, nan, inf, nan, -inf, 0, 0, 0, 1, -1, 7.5, -3.5, 3.5, -7.5, inf, inf, 2.5, -5, -7.5, 2e30, 0.3],
    sub: [nan, nan, nan, inf, -inf, 0, -0, 0, 1, -1, 3.5, -7.5, 7.5, -3.5, -inf, -inf, 1.5, -11, -8.5, 0, -0.1],
    mul: [nan, nan, inf, -inf, nan, -0, -0, 0, 0, -0, 11, -11, -11, 11, inf, -inf, 1, -24, -4, inf, 0.020000001],
    div: [nan, nan, nan, nan, -inf, nan, nan, nan, inf, -inf, 2.75, -2.75, -2.75, 2.75, 0, -0, 4, -2.6666667, -16, 1, 0.5],
    rem: [nan, nan, nan, nan, nan, nan, nan, nan, nan, nan, 1.5, -1.5, 1.5, -1.5, 1, -1, 0, -2, -0, 0, 0.1],
    pow: [nan, 1, inf, 0, 1, 1, 1, 1, 1, 1, 30.25, 30.25, 0.03305785, 0.03305785, 1, 1, 1.4142135, -512, nan, inf, 0.63095737],
    max: [nan, nan, inf, inf, 0, 0, 0, 0, 1, 0, 5.5, 2, 5.5, -2, inf, inf, 2, 3, 0.5, 1e30, 0.2],
    min: [nan, nan, inf, -inf, -inf, -0, -0, 0, 0, -1, 2, -5.5, -2, -5.5, 1, -1, 0.5, -8, -8, 1e30, 0.1],
    atan2: [nan, nan, 0.7853982, 2.3561945, -1.5707964, 3.1415927, -0, 0, 1.5707964, -1.5707964, 1.2220253, -1.2220253, 1.9195673, -1.9195673, 0, -0, 1.3258177, -1.2120256, -1.5083776, 0.7853982, 0.4636476],
  };

  test.each(Object.keys(expected) as FloatOp[])("%s agrees with JAX, special values included", (op) => {
    expect(binary(op, float32(x), float32(y))).toEqual(rounded(expected[op]));
  });

  // biome-ignore format: one row per direction
  const comparisons: { readonly [D in CompareDirection]: readonly number[] } = {
    eq: [0, 0, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0],
    ne: [1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1],
    lt: [0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 0, 1],
    le: [0, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1],
    gt: [0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0],
    ge: [0, 0, 1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0],
  };

  test.each(Object.keys(comparisons) as CompareDirection[])(
    "compare %s is false for NaN unless ne",
    (direction) => {
      const [z] = applyOp("compare", [float32(x), float32(y)], { direction });
      expect(z?.type.dtype).toBe("bool");
      expect(z && numbersOf(z)).toEqual(comparisons[direction]);
    },
  );

  test("16-bit floats are rounded after every op", () => {
    const third = binary("div", vector("bfloat16", [1, 256]), vector("bfloat16", [3, 1]));
    expect(third).toEqual([0.333984375, 256]);
    expect(binary("add", vector("bfloat16", [256]), vector("bfloat16", [1]))).toEqual([256]);
    expect(binary("mul", vector("float16", [300]), vector("float16", [300]))).toEqual([inf]);
    expect(binary("add", vector("float16", [2048]), vector("float16", [1]))).toEqual([2048]);
  });
});

describe("binary ops on integers", () => {
  // biome-ignore format: operands and results stand below each other
  const table = {
    x: [7, -7, 7, -7, 0, 5, -5, 2147483647, -2147483648, -2147483648, 2, 3, -1, -1, 1, 2, -2, 46341, 0],
    y: [2, 2, -2, -2, 5, 0, 0, 1, -1, 2, 31, 40, -3, -4, -5, -1, -31, 46341, 0],
    add: [9, -5, 5, -9, 5, 5, -5, -2147483648, 2147483647, -2147483646, 33, 43, -4, -5, -4, 1, -33, 92682, 0],
    sub: [5, -9, 9, -5, -5, 5, -5, 2147483646, -2147483647, 2147483646, -29, -37, 2, 3, 6, 3, 29, 0, 0],
    mul: [14, -14, -14, 14, 0, 0, 0, 2147483647, -2147483648, 0, 62, 120, 3, 4, -5, -2, 62, -2147479015, 0],
    div: [3, -3, -3, 3, 0, -1, -1, 2147483647, -2147483648, -1073741824, 0, 0, 0, 0, 0, -2, 0, 1, -1],
    rem: [1, -1, 1, -1, 0, 5, -5, 0, 0, 0, 2, 3, -1, -1, 1, 0, -2, 0, 0],
    pow: [49, 49, 0, 0, 0, 1, 1, 2147483647, 0, 0, -2147483648, 689956897, -1, 1, 1, 0, 0, -1732435659, 1],
    max: [7, 2, 7, -2, 5, 5, 0, 2147483647, -1, 2, 31, 40, -1, -1, 1, 2, -2, 46341, 0],
    min: [2, -7, -2, -7, 0, 0, -5, 1, -2147483648, -2147483648, 2, 3, -3, -4, -5, -1, -31, 46341, 0],
    and: [2, 0, 6, -8, 0, 0, 0, 1, -2147483648, 0, 2, 0, -3, -4, 1, 2, -32, 46341, 0],
    or: [7, -5, -1, -1, 5, 5, -5, 2147483647, -1, -2147483646, 31, 43, -1, -1, -5, -1, -1, 46341, 0],
    xor: [5, -5, -7, 7, 5, 5, -5, 2147483646, 2147483647, -2147483646, 29, 43, 2, 3, -6, -3, 31, 0, 0],
    shl: [28, -28, 0, 0, 0, 5, -5, -2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    shrLogical: [1, 1073741822, 0, 0, 0, 5, -5, 1073741823, 0, 536870912, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    shrArithmetic: [1, -2, 0, -1, 0, 5, -5, 1073741823, -1, -536870912, 0, 0, -1, -1, 0, 0, -1, 0, 0],
  };
  // biome-ignore format: operands and results stand below each other
  const unsigned = {
    x: [7, 0, 5, 4294967295, 4294967295, 2147483648, 3, 65537, 2147483648, 1],
    y: [2, 5, 0, 1, 4294967295, 31, 32, 65537, 33, 2147483648],
    add: [9, 5, 5, 0, 4294967294, 2147483679, 35, 131074, 2147483681, 2147483649],
    sub: [5, 4294967291, 5, 4294967294, 0, 2147483617, 4294967267, 0, 2147483615, 2147483649],
    mul: [14, 0, 0, 4294967295, 1, 2147483648, 96, 131073, 2147483648, 2147483648],
    div: [3, 0, 4294967295, 4294967295, 1, 69273666, 0, 1, 65075262, 0],
    rem: [1, 0, 5, 0, 0, 2, 3, 0, 2, 1],
    pow: [49, 0, 1, 4294967295, 4294967295, 0, 3793632897, 65537, 0, 1],
    max: [7, 5, 5, 4294967295, 4294967295, 2147483648, 32, 65537, 2147483648, 2147483648],
    min: [2, 0, 0, 1, 4294967295, 31, 3, 65537, 33, 1],
    and: [2, 0, 0, 1, 4294967295, 0, 0, 65537, 0, 0],
    or: [7, 5, 5, 4294967295, 4294967295, 2147483679, 35, 65537, 2147483681, 2147483649],
    xor: [5, 5, 5, 4294967294, 0, 2147483679, 35, 0, 2147483681, 2147483649],
    shl: [28, 0, 5, 4294967294, 0, 0, 0, 0, 0, 0],
    shrLogical: [1, 0, 5, 2147483647, 0, 1, 0, 0, 0, 0],
    shrArithmetic: [1, 0, 5, 4294967295, 4294967295, 4294967295, 0, 0, 4294967295, 0],
  };
  const { x, y, ...expected } = table;
  const { x: ux, y: uy, ...expectedUnsigned } = unsigned;

  test.each(Object.keys(expected) as (keyof typeof expected)[])("%s wraps around and truncates", (op) => {
    expect(binary(op, vector("int32", x), vector("int32", y))).toEqual(expected[op]);
    expect(binary(op, vector("uint32", ux), vector("uint32", uy))).toEqual(expectedUnsigned[op]);
  });

  test("bool has and, or, xor, and max and min mean the same", () => {
    const [p, q] = [vector("bool", [0, 0, 1, 1]), vector("bool", [0, 1, 0, 1])];
    expect(binary("and", p, q)).toEqual([0, 0, 0, 1]);
    expect(binary("min", p, q)).toEqual([0, 0, 0, 1]);
    expect(binary("or", p, q)).toEqual([0, 1, 1, 1]);
    expect(binary("max", p, q)).toEqual([0, 1, 1, 1]);
    expect(binary("xor", p, q)).toEqual([0, 1, 1, 0]);
  });
});

describe("convert and bitcast", () => {
  const convert = (x: HostTensor, dtype: DType): number[] =>
    numbersOf(at(applyOp("convert", [x], { dtype }), 0));
  const bitcast = (x: HostTensor, dtype: DType): number[] =>
    numbersOf(at(applyOp("bitcast", [x], { dtype }), 0));
  const x = float32([nan, inf, -inf, -0, -1.9, 1.9, 3e9, -3e9, 5e9, 0.4]);

  test("floats to integers truncate and saturate, NaN gives 0", () => {
    expect(convert(x, "int32")).toEqual([
      0, 2147483647, -2147483648, 0, -1, 1, 2147483647, -2147483648, 2147483647, 0,
    ]);
    expect(convert(x, "uint32")).toEqual([0, 4294967295, 0, 0, 0, 1, 3e9, 0, 4294967295, 0]);
  });

  test("bool is whether the number is not 0, so NaN is true", () => {
    expect(convert(x, "bool")).toEqual([1, 1, 1, 0, 1, 1, 1, 1, 1, 1]);
    expect(convert(vector("int32", [0, 256, -1]), "bool")).toEqual([0, 1, 1]);
    expect(convert(vector("bool", [0, 1]), "float32")).toEqual([0, 1]);
  });

  test("floats round to the nearest, ties to even", () => {
    expect(convert(x, "bfloat16")).toEqual([
      nan,
      inf,
      -inf,
      -0,
      -1.8984375,
      1.8984375,
      3003121664,
      -3003121664,
      4999610368,
      0.400390625,
    ]);
    expect(convert(x, "float16")).toEqual([
      nan,
      inf,
      -inf,
      -0,
      -1.900390625,
      1.900390625,
      inf,
      -inf,
      inf,
      0.39990234375,
    ]);
    expect(convert(vector("float64", [1 + 2 ** -24, 1 + 3 * 2 ** -24, 1e300]), "float32")).toEqual([
      1,
      1 + 2 ** -22,
      inf,
    ]);
    expect(convert(vector("int32", [2 ** 24 + 1, -(2 ** 31)]), "float32")).toEqual([2 ** 24, -(2 ** 31)]);
  });

  test("integers of the other sign keep their bits", () => {
    expect(convert(vector("int32", [-1, -(2 ** 31)]), "uint32")).toEqual([2 ** 32 - 1, 2 ** 31]);
    expect(convert(vector("uint32", [2 ** 32 - 1, 2 ** 31]), "int32")).toEqual([-1, -(2 ** 31)]);
  });

  test("bitcast reads the same bits", () => {
    expect(bitcast(float32([1, -2, 0, -0]), "uint32")).toEqual([0x3f800000, 0xc0000000, 0, 0x80000000]);
    expect(bitcast(vector("uint32", [0x3fc00000, 0x7f800000]), "float32")).toEqual([1.5, inf]);
    expect(bitcast(vector("uint32", [0xffffffff]), "int32")).toEqual([-1]);
    expect(bitcast(vector("bfloat16", [1]), "float16")).toEqual([1.875]);
  });
});

describe("ops of more operands", () => {
  test("select picks by the predicate and lets no NaN through from the other side", () => {
    const predicate = vector("bool", [1, 0, 1]);
    const [y] = applyOp("select", [predicate, float32([1, nan, 3]), float32([nan, -0, 6])], {});
    expect(y && numbersOf(y)).toEqual([1, -0, 3]);
  });

  test("clamp limits from both sides and keeps NaN; where the limits cross the upper one wins", () => {
    const clamp = (low: number[], x: number[], high: number[]) =>
      numbersOf(at(applyOp("clamp", [float32(low), float32(x), float32(high)], {}), 0));
    expect(clamp([-1, -1, -1, -1, 2], [-5, 0.5, 5, nan, 0], [1, 1, 1, 1, 1])).toEqual([-1, 0.5, 1, nan, 1]);
  });

  test("threefry2x32 gives the known answers of the cipher", () => {
    const keys = [
      vector("uint32", [0, 0xffffffff, 0x13198a2e]),
      vector("uint32", [0, 0xffffffff, 0x03707344]),
    ];
    const counters = [
      vector("uint32", [0, 0xffffffff, 0x243f6a88]),
      vector("uint32", [0, 0xffffffff, 0x85a308d3]),
    ];
    const [bits0, bits1] = applyOp("threefry2x32", [...keys, ...counters], {});
    expect(bits0 && numbersOf(bits0)).toEqual([0x6b200159, 0x1cb996fc, 0xc4923a9c]);
    expect(bits1 && numbersOf(bits1)).toEqual([0x99ba4efe, 0xbb002be7, 0x483df7a0]);
  });

  test("a scalar literal fits any shape, on either side", () => {
    const x = hostTensor("float32", [2, 2], [1, 2, 3, 4]);
    const two = newLiteral(2, "float32");
    const values = (tensors: HostTensor[]) => numbersOf(at(tensors, 0));
    expect(values(applyOp("sub", [x, two], {}))).toEqual([-1, 0, 1, 2]);
    expect(values(applyOp("div", [two, x], {}))).toEqual(rounded([2, 1, 2 / 3, 0.5]));
    expect(values(applyOp("clamp", [two, x, newLiteral(3, "float32")], {}))).toEqual([2, 2, 3, 3]);
    expect(values(applyOp("select", [newLiteral(false, "bool"), two, x], {}))).toEqual([1, 2, 3, 4]);
    expect(values(applyOp("mul", [two, two], {}))).toEqual([4]);
    expect(values(applyOp("add", [hostTensor("float32", [0], []), two], {}))).toEqual([]);
    const key = newLiteral(0, "uint32");
    const counter = vector("uint32", [0, 0]);
    expect(values(applyOp("threefry2x32", [key, key, counter, key], {}))).toEqual([0x6b200159, 0x6b200159]);
  });

  test("a literal key or counter of threefry2x32 stands for every element", () => {
    const ins = [0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3];
    const whole = (value: number) => vector("uint32", [value, value]);
    for (const place of range(4)) {
      const mixed = ins.map((value, i) => (i === place ? newLiteral(value, "uint32") : whole(value)));
      const words = applyOp("threefry2x32", mixed, {}).map(numbersOf);
      expect(words, `operand ${place}`).toEqual([
        [0xc4923a9c, 0xc4923a9c],
        [0x483df7a0, 0x483df7a0],
      ]);
    }
  });

  test("identities give back their operands", () => {
    const x = float32([1, nan]);
    expect(applyOp("name", [x], { name: "x" })).toEqual([x]);
    expect(applyOp("stopGradient", [x], {})).toEqual([x]);
    expect(applyOp("optimizationBarrier", [x, float32([2])], {})).toEqual([x, float32([2])]);
  });
});
