import { describe, expect, test } from "vitest";
import { Random } from "../../../test/compiler/randomProgram.js";
import { text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { differenceBetween } from "../../../test/support/sameValues.js";
import type { Program, Var } from "../../ir/program.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { bucketSums } from "./bucketSums.js";

const [x, y] = [
  { name: "x", size: 2 },
  { name: "y", size: 2 },
];
const mesh = { axes: [x, y] };
const f32 = (...shape: number[]) => tensorType("float32", shape);
const count = (program: Program) => program.eqns.filter(({ op }) => op === "psum").length;

function bucketed(program: Program): Program {
  const result = verify(bucketSums(program), "lowered");
  expect(differenceBetween(program, result, mesh, 3)).toBeUndefined();
  return result;
}

describe("small sums over devices", () => {
  test("travel together when nobody reads one before the last is there", () => {
    const program = buildProgram([f32(3), f32(2, 2), f32()], (emit, a, b, c) => {
      const first = emit("psum", [a], { axes: [x] });
      const second = emit("psum", [b], { axes: [x] });
      const twice = emit("add", [c, c], {});
      return [...first, ...second, ...emit("psum", twice, { axes: [x] })];
    });
    expect(printProgram(program)).toBe(text`
      (%0:f32[3], %1:f32[2,2], %2:f32[]) {
        %3:f32[3] = psum %0 {axes: {x: 2}}
        %4:f32[2,2] = psum %1 {axes: {x: 2}}
        %5:f32[] = add %2 %2
        %6:f32[] = psum %5 {axes: {x: 2}}
        return %3, %4, %6
      }`);
    expect(printProgram(bucketed(program))).toBe(text`
      (%0:f32[3], %1:f32[2,2], %2:f32[]) {
        %3:f32[] = add %2 %2
        %4:f32[4] = reshape %1 {shape: [4]}
        %5:f32[1] = reshape %3 {shape: [1]}
        %6:f32[8] = concatenate %0 %4 %5 {dim: 0}
        %7:f32[8] = psum %6 {axes: {x: 2}}
        %8:f32[3] = slice %7 {starts: [0], limits: [3], strides: [1]}
        %9:f32[4] = slice %7 {starts: [3], limits: [7], strides: [1]}
        %10:f32[2,2] = reshape %9 {shape: [2,2]}
        %11:f32[1] = slice %7 {starts: [7], limits: [8], strides: [1]}
        %12:f32[] = reshape %11 {shape: []}
        return %8, %10, %12
      }`);
  });

  test("stay apart where one needs the other", () => {
    const program = buildProgram([f32(3)], (emit, a) =>
      emit("psum", emit("exp", emit("psum", [a], { axes: [x] }), {}), { axes: [x] }),
    );
    expect(bucketed(program)).toBe(program);
  });

  test("stay apart over other axes and in other types, and large ones by themselves", () => {
    const program = buildProgram(
      [f32(3), f32(3), tensorType("int32", [3]), f32(96, 96)],
      (emit, a, b, c, d) => [
        ...emit("psum", [a], { axes: [x] }),
        ...emit("psum", [b], { axes: [y] }),
        ...emit("psum", [c], { axes: [x] }),
        ...emit("psum", [d], { axes: [x] }),
      ],
    );
    expect(bucketed(program)).toBe(program);
  });

  test("fill several buckets when they are many", () => {
    const program = buildProgram(
      range(40).map(() => f32(8, 1000)),
      (emit, ...inputs) => inputs.flatMap((input) => emit("psum", [input], { axes: [x] })),
    );
    expect(count(bucketSums(program))).toBe(5);
  });

  test("keep their values in random programs", () => {
    for (const seed of range(60)) {
      const random = new Random(seed);
      const program = buildProgram([f32(2), f32(2), f32(2)], (emit, ...inputs) => {
        const values: Var[] = [...inputs];
        const any = () => at(values, random.below(values.length));
        for (let i = 0; i < 12; i++) {
          const made = random.chance(0.6)
            ? emit("psum", [any()], { axes: random.chance(0.7) ? [x] : [y] })
            : emit("sub", [any(), any()], {});
          values.push(...made);
        }
        return values.slice(3);
      });
      expect(count(bucketed(program)), `seed ${seed}`).toBeLessThanOrEqual(count(program));
    }
  });
});
