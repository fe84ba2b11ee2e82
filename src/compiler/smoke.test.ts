import { expect, test } from "vitest";
import { interpret } from "../engines/reference/interpret.js";
import { hostTensor } from "../engines/reference/tensor.js";
import { makeEqn, newLiteral, newVar, type Program } from "../ir/program.js";
import { tensorType } from "../ir/shape.js";
import { compileProgram } from "./compile.js";
import { simulate } from "./simulate.js";

const f32 = (...shape: number[]) => tensorType("float32", shape);

test("a fused softmax agrees with the reference", () => {
  const x = newVar(f32(3, 7));
  const m = newVar(f32(3));
  const mb = newVar(f32(3, 7));
  const d = newVar(f32(3, 7));
  const e = newVar(f32(3, 7));
  const s = newVar(f32(3));
  const sb = newVar(f32(3, 7));
  const y = newVar(f32(3, 7));
  const program: Program = {
    inputs: [x],
    eqns: [
      makeEqn("reduceMax", [x], [m], { dims: [1] }),
      makeEqn("broadcastInDim", [m], [mb], { shape: [3, 7], dims: [0] }),
      makeEqn("sub", [x, mb], [d], {}),
      makeEqn("exp", [d], [e], {}),
      makeEqn("reduceSum", [e], [s], { dims: [1] }),
      makeEqn("broadcastInDim", [s], [sb], { shape: [3, 7], dims: [0] }),
      makeEqn("div", [e, sb], [y], {}),
    ],
    outputs: [y, s],
  };
  const input = hostTensor(
    "float32",
    [3, 7],
    Array.from({ length: 21 }, (_, i) => Math.sin(i) * 3),
  );
  const compiled = compileProgram(program, { mesh: { axes: [] } });
  const expected = interpret(program, [input]);
  const actual = simulate(compiled, [[input.data]]);
  expected.forEach((tensor, i) => {
    const got = Array.from(actual[i]?.[0] ?? []);
    Array.from(tensor.data).forEach((want, k) => expect(got[k]).toBeCloseTo(want, 5));
  });
  expect(compiled.steps.length).toBe(1);
  expect(newLiteral(1, "int32").value).toBe(1);
});
