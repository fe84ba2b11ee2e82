import { grad, jit, lax, Mesh, np, P, shardMap, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { describePage } from "../support/pages.js";

const mesh = Mesh.create({ data: 2 });
const loss = (w: Tensor, x: Tensor) => np.mean(np.square(np.tanh(np.matmul(x, w))));

// Every device sees its part of the batch; the mean of the losses has the gradient of the whole batch.
const meanLoss = (w: Tensor, x: Tensor) => lax.pmean(loss(w, x), "data");
const step = jit(
  shardMap((w: Tensor, x: Tensor) => w.sub(grad(meanLoss)(w, x).mul(0.1)), {
    mesh,
    inSpecs: [P(), P("data")],
    outSpecs: P(),
  }),
);

test("the step of the README is the step of one device on the whole batch", async () => {
  const x = np.reshape(np.arange(32), [8, 4]).div(16);
  const w = np.reshape(np.arange(12), [4, 3]).div(12);
  const alone = await w.sub(grad(loss)(w, x).mul(0.1)).data();
  const split = await step(w, x).data();
  for (const [i, value] of alone.entries()) expect(split[i]).toBeCloseTo(value, 6);
});

describePage("../README.md", import.meta.url, {});
