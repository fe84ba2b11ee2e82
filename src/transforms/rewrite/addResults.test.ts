import { describe, expect, test } from "vitest";
import { agreement, expectTreeClose } from "../../../test/support/goldens.js";
import { normal } from "../../../test/support/parallelChecks.js";
import { jit, lax, makeProgram, np, type Tensor } from "../../index.js";
import { at } from "../../ir/shape.js";
import { callProgram, traceFlat } from "../../trace/builder.js";
import { vjpProgram } from "../derivatives/grad.js";
import { inlineAdding } from "./addResults.js";
import { removeDeadCode } from "./deadCode.js";

/** Layers in a loop: a stack of weights, a bias that they share, and the stream. */
const layers = (w: Tensor, b: Tensor, x: Tensor) =>
  lax.scan((h: Tensor, own: Tensor): [Tensor, null] => [np.tanh(np.matmul(h, own).add(b)), null], x, w)[0];
const args = [normal(0, 3, 4, 4), normal(1, 4), normal(2, 2, 4)] as const;
const sums = [normal(4, 3, 4, 4), normal(5, 4)];

const { forward, backward, residuals } = vjpProgram(makeProgram(layers)(...args));
const kept = callProgram({ ...forward, outputs: residuals }, args);
const ins = [...kept, normal(3, 2, 4)];

describe("gradients that are added to sums", () => {
  test("are those of the program, whether loops stack them or not", async () => {
    const [dw, db, dx] = callProgram(backward, ins);
    if (!dw || !db || !dx) throw new Error("a gradient is missing");
    const add = jit((values: Tensor[], totals: Tensor[]) => inlineAdding(backward, values, totals));
    const got = add(ins, sums);
    await expectTreeClose(got.rest, [dx], agreement.gradient);
    await expectTreeClose(got.sums, [dw.add(at(sums, 0)), db.add(at(sums, 1))], agreement.gradient);
  });

  test("are not stacked beside the sum", () => {
    const { program } = traceFlat(
      (values) => {
        const { sums: after, rest } = inlineAdding(backward, values.slice(0, -2), values.slice(-2));
        return [...after, ...rest];
      },
      [...ins, ...sums].map(({ type }) => type),
    );
    const stacks = (eqns: typeof program.eqns) =>
      eqns.flatMap((eqn) => (eqn.op === "scan" ? [eqn.outs.length - eqn.params.numCarry] : []));
    expect(stacks(backward.eqns)).toEqual([1]);
    expect(stacks(removeDeadCode(program).eqns)).toEqual([0]);
  });

  test("keep the type of the sums", () => {
    const add = jit((values: Tensor[], totals: Tensor[]) => inlineAdding(backward, values, totals).sums);
    const narrow = sums.map((sum) => sum.astype("bfloat16"));
    expect(add(ins, narrow).map(({ dtype }) => dtype)).toEqual(["bfloat16", "bfloat16"]);
  });
});
