import { expect, test } from "vitest";
import { lax, makeProgram, np, type Tensor } from "../../index.js";
import type { PipelineLoop } from "../../ir/ops.js";
import { formatType, tensorType } from "../../ir/shape.js";
import { bind1, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { grad } from "./grad.js";

test.each([
  ["forward", "backward"],
  ["backward", "forward"],
  ["slots", "slots"],
] as const)("a loop of the role %s has a derivative of the role %s", (kind, expected) => {
  const role: PipelineLoop = { kind, numStages: 2, numMicrobatches: 3, numRepeats: 1 };
  const body = traceFlat(([x]) => (x ? [ops.sin(x)] : []), [tensorType("float32", [2])]).program;
  const params = { body, length: 3, reverse: false, numConsts: 0, numCarry: 1, role };
  const loop = (x: Tensor) => np.sum(bind1("scan", [x], params));
  const roles = makeProgram(grad(loop))(np.ones([2])).eqns.flatMap((eqn) =>
    eqn.op === "scan" ? [eqn.params.role] : [],
  );
  expect(roles).toEqual([role, { ...role, kind: expected }]);
});

test("a loop stacks what elementwise ops need, not what they compute", () => {
  const step = (x: Tensor, w: Tensor) => {
    const gate = np.matmul(x, w);
    return [np.matmul(gate.mul(lax.logistic(gate)), w), null] as const;
  };
  const loop = (x: Tensor, w: Tensor) => np.sum(lax.scan(step, x, w)[0]);
  const program = makeProgram(grad(loop, { argnums: [0, 1] }))(np.ones([4, 8]), np.ones([3, 8, 8]));
  const forward = program.eqns.find((eqn) => eqn.op === "scan");
  // The carry after the loop, and of every iteration the carry before it and the argument of the activation.
  expect(forward?.outs.map(({ type }) => formatType(type))).toEqual(["f32[4,8]", "f32[3,4,8]", "f32[3,4,8]"]);
});
