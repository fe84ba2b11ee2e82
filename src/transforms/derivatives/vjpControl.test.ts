import { expect, test } from "vitest";
import { makeProgram, np, type Tensor } from "../../index.js";
import type { PipelineLoop } from "../../ir/ops.js";
import { tensorType } from "../../ir/shape.js";
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
