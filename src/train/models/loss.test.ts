import { grad, makeProgram, random, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { forEachEqn } from "../../ir/program.js";
import { bytesOf } from "../../ir/shape.js";
import { crossEntropy } from "./loss.js";

const [batch, length, vocabulary] = [2, 3, 40];
const logits = random.normal(random.key(1), [batch, length, vocabulary]).astype("bfloat16");
const targets = random.randint(random.key(2), [batch, length], 0, vocabulary);
const lossOf = (zLoss: number) => (x: Tensor) => crossEntropy(x, targets, zLoss).loss;

test("the backward pass of 16-bit logits reduces them no second time", () => {
  for (const zLoss of [0, 0.1]) {
    const reductions: string[] = [];
    const program = makeProgram(grad(lossOf(zLoss)))(logits);
    forEachEqn(program, ({ op, ins: [x] }) => {
      if (op.startsWith("reduce") && x && bytesOf(x.type) > 2 * batch * length * vocabulary)
        reductions.push(op);
    });
    // The largest logit, the sum of powers, and the logit of the target.
    expect(reductions.sort()).toEqual(["reduceMax", "reduceSum", "reduceSum"]);
  }
});

test("the gradient of 16-bit logits is that of the same logits in float32, rounded", async () => {
  const got = grad(lossOf(0.1))(logits);
  const wanted = grad(lossOf(0.1))(logits.astype("float32"));
  expect(got.dtype).toBe("bfloat16");
  expect(await got.data()).toEqual(await wanted.astype("bfloat16").data());
});
