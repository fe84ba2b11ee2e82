import { expect, test } from "vitest";
import { text } from "../../../test/support/compilerText.js";
import { buildProgram } from "../../../test/support/interpreting.js";
import { createThreadsEngine } from "../../engines/index.js";
import { jit, Mesh, np, type Tensor } from "../../index.js";
import { type Shape, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { normalise } from "./normalise.js";

const normalised = (shape: Shape, dims: readonly number[]) =>
  printProgram(
    normalise(buildProgram([tensorType("float32", shape)], (emit, x) => emit("reduceSum", [x], { dims }))),
  );

test("sums of up to 2^22 terms stay what they are", () => {
  expect(normalised([2048, 2048, 3], [0, 1])).toBe(text`
    (%0:f32[2048,2048,3]) {
      %1:f32[3] = reduceSum %0 {dims: [0,1]}
      return %1
    }`);
});

test("inner dims are summed before outer ones", () => {
  expect(normalised([50000, 3, 1024], [2, 0])).toBe(text`
    (%0:f32[50000,3,1024]) {
      %1:f32[50000,3] = reduceSum %0 {dims: [2]}
      %2:f32[3] = reduceSum %1 {dims: [0]}
      return %2
    }`);
});

test("a long dim is cut into parts", () => {
  expect(normalised([2 ** 25, 4], [0])).toBe(text`
    (%0:f32[33554432,4]) {
      %1:f32[512,65536,4] = reshape %0 {shape: [512,65536,4]}
      %2:f32[512,4] = reduceSum %1 {dims: [1]}
      %3:f32[4] = reduceSum %2 {dims: [0]}
      return %3
    }`);
});

test("a long dim of which no part is a divisor is sliced before", () => {
  const prime = 2 ** 22 + 15;
  expect(normalised([prime], [0])).toBe(text`
    (%0:f32[4194319]) {
      %1:f32[4194304] = slice %0 {starts: [0], limits: [4194304], strides: [1]}
      %2:f32[] = reduceSum %1 {dims: [0]}
      %3:f32[15] = slice %0 {starts: [4194304], limits: [4194319], strides: [1]}
      %4:f32[] = reduceSum %3 {dims: [0]}
      %5:f32[] = add %2 %4
      return %5
    }`);
});

test("a GPU reduces columns and all elements in parts, and rows that lie in one piece as they are", () => {
  const shape = [1024, 512];
  const program = buildProgram([tensorType("float32", shape)], (emit, x) => [
    ...emit("reduceMax", [x], { dims: [0] }),
    ...emit("reduceSum", [x], { dims: [0, 1] }),
    ...emit("reduceSum", [x], { dims: [1] }),
  ]);
  expect(printProgram(normalise(program, { gpu: true }))).toBe(text`
    (%0:f32[1024,512]) {
      %1:f32[2,512,512] = reshape %0 {shape: [2,512,512]}
      %2:f32[2,512] = reduceMax %1 {dims: [1]}
      %3:f32[512] = reduceMax %2 {dims: [0]}
      %4:f32[1024,1,512] = reshape %0 {shape: [1024,1,512]}
      %5:f32[1024] = reduceSum %4 {dims: [1,2]}
      %6:f32[] = reduceSum %5 {dims: [0]}
      %7:f32[1024] = reduceSum %0 {dims: [1]}
      return %3, %6, %7
    }`);
});

test("sums of integers, which wrap around, and extremes are left alone", () => {
  const program = buildProgram([tensorType("int32", [2 ** 25])], (emit, x) => [
    ...emit("reduceSum", [x], { dims: [0] }),
    ...emit("reduceMax", [x], { dims: [0] }),
  ]);
  expect(printProgram(normalise(program))).toBe(printProgram(program));
});

test("the mean of very many ones is one", async () => {
  // The reference engine takes its time for so many.
  const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24 });
  const mesh = Mesh.create({ i: 1 }, { engine });
  const mean = jit((row: Tensor) => np.mean(np.broadcastTo(row, [2 ** 25, 2]), 0), { mesh });
  try {
    expect(await mean(np.ones([2])).js()).toEqual([1, 1]);
  } finally {
    await engine.close();
  }
});
