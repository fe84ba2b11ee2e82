import { describe, expect, test } from "vitest";
import { agreement, expectTreeClose } from "../../../test/support/goldens.js";
import { normal } from "../../../test/support/parallelChecks.js";
import { checkpointPolicies, lax, makeProgram, np, remat, type Tensor } from "../../index.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import { callProgram } from "../../trace/builder.js";
import { vjpProgram } from "../derivatives/grad.js";
import { splitOutputs } from "./splitOutputs.js";

/** Layers in a loop: a stack of weights, a bias that they share, and the stream. */
const layers = (w: Tensor, b: Tensor, x: Tensor) =>
  lax.scan((h: Tensor, own: Tensor): [Tensor, null] => [np.tanh(np.matmul(h, own).add(b)), null], x, w)[0];
const args = [normal(0, 3, 4, 4), normal(1, 4), normal(2, 2, 4)] as const;

function numProducts(program: Program): number {
  let count = 0;
  forEachEqn(program, ({ op }) => {
    if (op === "dotGeneral") count++;
  });
  return count;
}

/** The backward pass of a function in two halves: by its last argument, then by the others. */
function halvesOf(fn: (w: Tensor, b: Tensor, x: Tensor) => Tensor) {
  const { forward, backward, residuals } = vjpProgram(makeProgram(fn)(...args));
  const { first, second, kept } = splitOutputs(backward, [false, false, true]);
  const run = () => {
    const results = callProgram({ ...forward, outputs: [...forward.outputs, ...residuals] }, args);
    const ins = [...results.slice(1), normal(3, 2, 4)];
    const [dx, ...handed] = callProgram(first, ins);
    return { got: [...callProgram(second, [...handed, ...ins]), dx], whole: callProgram(backward, ins) };
  };
  return { first, second, kept, backward, run };
}

describe("a backward pass in two halves", () => {
  test("gives the gradients of the whole, each product in one of the halves", async () => {
    const { first, second, kept, backward, run } = halvesOf(layers);
    expect([numProducts(backward), numProducts(first), numProducts(second)]).toEqual([2, 1, 1]);
    // What the second loop needs of the first: the cotangents in front of the products, one for each layer.
    expect(kept.map(({ type }) => type.shape)).toEqual([[3, 2, 4]]);
    const { got, whole } = run();
    await expectTreeClose(got, whole, agreement.gradient);
  });

  test("recomputes in the first half alone", async () => {
    const again = remat(layers, { policy: checkpointPolicies.nothingSaveable });
    const { second, run } = halvesOf(again);
    expect(numProducts(second)).toBe(1);
    const { got, whole } = run();
    await expectTreeClose(got, whole, agreement.gradient);
  });

  test("is one half where all is needed or nothing", () => {
    const { backward } = halvesOf(layers);
    const all = splitOutputs(backward, [true, true, true]);
    expect([all.kept.length, all.second.eqns.length, all.second.outputs.length]).toEqual([0, 0, 0]);
    const none = splitOutputs(backward, [false, false, false]);
    expect([none.kept.length, none.first.eqns.length, none.first.outputs.length]).toEqual([0, 0, 0]);
  });
});
