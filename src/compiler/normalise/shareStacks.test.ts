import { expect, test } from "vitest";
import { randomProgram } from "../../../test/compiler/randomProgram.js";
import { text } from "../../../test/support/compilerText.js";
import { differenceBetween } from "../../../test/support/sameValues.js";
import { parseProgram } from "../../ir/text/parse.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { shareStacks } from "./shareStacks.js";

const mesh = { axes: [] };

test("stacks of what a loop reads, and of the same values, are read where they are", () => {
  const program = parseProgram(text`
    (%0:f32[2], %1:f32[3,2]) {
      %2:f32[2], %3:f32[3,2], %4:f32[3,2], %5:f32[3,2], %6:f32[3,2] = scan %0 %1 {length: 3, reverse: true, numConsts: 0, numCarry: 1} (%7:f32[2], %8:f32[2]) {
        %9:f32[2] = mul %7 %8
        return %9, %8, %9, %9, %7
      }
      %10:f32[3,2] = add %3 %4
      %11:f32[3,2] = add %10 %5
      return %2, %11, %6, %5
    }
  `);
  const shared = verify(shareStacks(program));
  expect(printProgram(shared)).toBe(text`
    (%0:f32[2], %1:f32[3,2]) {
      %2:f32[2], %3:f32[3,2], %4:f32[3,2] = scan %0 %1 {length: 3, reverse: true, numConsts: 0, numCarry: 1} (%5:f32[2], %6:f32[2]) {
        %7:f32[2] = mul %5 %6
        return %7, %7, %5
      }
      %8:f32[3,2] = add %1 %3
      %9:f32[3,2] = add %8 %3
      return %2, %9, %4, %3
    }
  `);
  expect(differenceBetween(program, shared, mesh, 1)).toBeUndefined();
});

test("random programs keep their values", () => {
  for (let seed = 0; seed < 100; seed++) {
    const program = randomProgram({ seed: 4000 + seed, numEqns: 20, types: ["float32"] });
    const shared = verify(shareStacks(program));
    expect(differenceBetween(program, shared, mesh, seed), `seed ${seed}`).toBeUndefined();
  }
});
