import { describe, expect, test } from "vitest";
import { applyOp, buildProgram } from "../../../test/support/interpreting.js";
import type { MeshShape } from "../../ir/mesh.js";
import { newLiteral } from "../../ir/program.js";
import { at, tensorType } from "../../ir/shape.js";
import { type HostTensor, hostTensor, numbersOf } from "./hostTensor.js";
import { interpret, interpretSpmd } from "./interpret.js";

const scalar = tensorType("float32", []);
const counter = tensorType("int32", []);
const float = (value: number): HostTensor => hostTensor("float32", [], [value]);
const integer = (value: number): HostTensor => hostTensor("int32", [], [value]);
const mesh: MeshShape = { axes: [{ name: "x", size: 3 }] };

describe("scan", () => {
  /** carry ← scale · carry + x, y is the carry before. */
  const body = buildProgram([scalar, scalar, scalar], (emit, scale, carry, x) => {
    const product = at(emit("mul", [scale, carry], {}), 0);
    return [...emit("add", [product, x], {}), carry];
  });
  const params = { body, numConsts: 1, numCarry: 1 };

  test("threads the carry through and stacks what the body gives", () => {
    const xs = hostTensor("float32", [3], [1, 2, 3]);
    const outs = applyOp("scan", [float(2), float(10), xs], { ...params, length: 3, reverse: false });
    expect(outs.map(numbersOf)).toEqual([[91], [10, 21, 44]]);
  });

  test("goes from the last slice to the first when reversed, and stacks at the slice's place", () => {
    const xs = hostTensor("float32", [3], [1, 2, 3]);
    const outs = applyOp("scan", [float(2), float(10), xs], { ...params, length: 3, reverse: true });
    expect(outs.map(numbersOf)).toEqual([[97], [48, 23, 10]]);
  });

  test("of no slices gives the carry back and empty stacks", () => {
    const xs = hostTensor("float32", [0], []);
    const [carry, ys] = applyOp("scan", [float(2), float(10), xs], { ...params, length: 0, reverse: false });
    expect(carry && numbersOf(carry)).toEqual([10]);
    expect(ys?.type).toEqual({ dtype: "float32", shape: [0] });
  });

  test("slices tensors of several dims of any type", () => {
    const row = tensorType("bfloat16", [2]);
    const swap = buildProgram([row], (emit, x) => emit("reverse", [x], { dims: [0] }));
    const xs = hostTensor("bfloat16", [2, 2], [1, 2, 3, 4]);
    const swapped = { body: swap, length: 2, reverse: false, numConsts: 0, numCarry: 0 };
    expect(applyOp("scan", [xs], swapped).map(numbersOf)).toEqual([[2, 1, 4, 3]]);
    const bits = buildProgram([row], (emit, x) => emit("bitcast", [x], { dtype: "float16" }));
    expect(applyOp("scan", [xs], { ...swapped, body: bits }).map(numbersOf)).toEqual([
      [1.875, 2, 2.125, 2.25],
    ]);
  });

  test("runs without slices for its length", () => {
    const step = buildProgram([scalar], (emit, x) => emit("add", [x, newLiteral(1, "float32")], {}));
    const times = { body: step, length: 5, reverse: false, numConsts: 0, numCarry: 1 };
    expect(applyOp("scan", [float(0)], times).map(numbersOf)).toEqual([[5]]);
  });
});

describe("while", () => {
  /** Doubles x and counts while x is below the limit. */
  const condition = buildProgram([scalar, scalar, counter], (emit, limit, x) =>
    emit("compare", [x, limit], { direction: "lt" }),
  );
  const body = buildProgram([scalar, scalar, counter], (emit, factor, x, i) => [
    ...emit("mul", [x, factor], {}),
    ...emit("add", [i, newLiteral(1, "int32")], {}),
  ]);
  const params = { condition, body, numConditionConsts: 1, numBodyConsts: 1 };

  test("goes on while its condition holds, also not at all", () => {
    expect(applyOp("while", [float(100), float(2), float(3), integer(0)], params).map(numbersOf)).toEqual([
      [192],
      [6],
    ]);
    expect(applyOp("while", [float(1), float(2), float(3), integer(0)], params).map(numbersOf)).toEqual([
      [3],
      [0],
    ]);
  });

  test("ends for every device when its own condition fails", () => {
    const program = buildProgram([scalar, scalar, scalar, counter], (emit, ...ins) =>
      emit("while", ins, params),
    );
    const lanes = (values: readonly number[]) => values.map(float);
    const starts = [lanes([100, 100, 100]), lanes([2, 2, 2]), lanes([1, 60, 500]), [0, 0, 0].map(integer)];
    const outs = interpretSpmd(program, mesh, starts);
    expect(outs.map((values) => values.flatMap(numbersOf))).toEqual([
      [128, 120, 500],
      [7, 1, 0],
    ]);
  });
});

describe("cond", () => {
  const branches = [
    buildProgram([scalar, scalar], (emit, x, y) => [...emit("add", [x, y], {}), x]),
    buildProgram([scalar, scalar], (emit, x, y) => [...emit("mul", [x, y], {}), newLiteral(-1, "float32")]),
  ];

  test("runs the branch of the index, clamped", () => {
    const run = (index: number) =>
      applyOp("cond", [integer(index), float(3), float(4)], { branches }).map(numbersOf);
    expect(run(0)).toEqual([[7], [3]]);
    expect(run(1)).toEqual([[12], [-1]]);
    expect(run(-3)).toEqual([[7], [3]]);
    expect(run(8)).toEqual([[12], [-1]]);
  });

  test("lets every device take its own branch and know its own place in it", () => {
    const axes = mesh.axes;
    const place = buildProgram([scalar], (emit) =>
      emit("convert", emit("axisIndex", [], { axes }), { dtype: "float32" }),
    );
    const same = buildProgram([scalar], (_emit, x) => [x]);
    const program = buildProgram([counter, scalar], (emit, index, x) =>
      emit("cond", [index, x], { branches: [same, place] }),
    );
    const outs = interpretSpmd(program, mesh, [[1, 0, 1].map(integer), [7, 8, 9].map(float)]);
    expect(outs.map((values) => values.flatMap(numbersOf))).toEqual([[0, 8, 2]]);
  });
});

describe("remat and customVjp", () => {
  const body = buildProgram([scalar], (emit, x) => emit("exp", [x], {}));
  const pair = buildProgram([scalar], (_emit, x) => [x, x]);
  const backward = buildProgram([scalar, scalar], (_emit, _residual, cotangent) => [cotangent]);

  test("run their body", () => {
    expect(applyOp("remat", [float(0)], { body, policy: { kind: "nothing" } }).map(numbersOf)).toEqual([[1]]);
    const params = { body, forward: pair, backward, numCaptures: 0, numResiduals: 1 };
    expect(applyOp("customVjp", [float(0)], params).map(numbersOf)).toEqual([[1]]);
  });
});

describe("programs", () => {
  test("may return inputs, literals and one value twice", () => {
    const program = buildProgram([scalar], (_emit, x) => [x, newLiteral(2, "bfloat16"), x]);
    const outs = interpret(program, [float(5)]);
    expect(outs.map(numbersOf)).toEqual([[5], [2], [5]]);
    expect(outs[1]?.type).toEqual({ dtype: "bfloat16", shape: [] });
  });

  test("refuse inputs of another type, number or count of blocks", () => {
    const program = buildProgram([scalar], (_emit, x) => [x]);
    expect(() => interpret(program, [])).toThrow(/0 inputs for 1/);
    expect(() => interpret(program, [integer(1)])).toThrow(/i32\[\].*f32\[\]/);
    expect(() => interpretSpmd(program, mesh, [[float(1)]])).toThrow(/1 blocks for 3 devices/);
  });
});
