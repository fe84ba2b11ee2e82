import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { explainMemory, explainProgram } from "../../scripts/explainProgram.js";
import { compileProgram } from "../../src/compiler/compile.js";
import { grad, makeProgram, np, simplify, type Tensor } from "../../src/index.js";

test("the page about the threads engine shows the step list and memory plan of today", () => {
  const page = readFileSync(new URL("../../docs/threads-engine.md", import.meta.url), "utf8");
  const gradient = (w: Tensor, x: Tensor) =>
    grad((v: Tensor) => np.mean(np.square(np.tanh(np.matmul(x, v)))))(w);
  const program = simplify(makeProgram(gradient)(np.ones([64, 32]), np.ones([128, 64])));
  const compiled = compileProgram(program, { mesh: { axes: [] }, features: { fma: true }, name: "gradient" });
  expect(page).toContain(`${explainProgram(compiled)}\n${explainMemory(compiled)}\n`);
});
