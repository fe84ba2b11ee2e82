/**
 * A mixture of experts over a mesh axis: every device has two of four experts, tokens travel to theirs and back, and a
 * load-balance loss keeps all of them busy. The function to learn differs from quadrant to quadrant, so that each expert
 * has something of its own to learn.
 *
 *   npm run example -- experts
 */
import { costAnalysis, jit, Mesh, np, random, type Tensor, valueAndGrad, withMesh } from "shardwise";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";

const steps = Number(process.env.STEPS ?? 120);
const target = Number(process.env.TARGET ?? 0.1);
const [batch, length, width] = [8, 32, 8];

const mesh = Mesh.create({ data: 2, expert: 2 });

const Model = nn.module("Model", () => (x: Tensor) => {
  const hidden = nn.Dense({ features: width })(x);
  const { output, router } = nn.MoE({ numExperts: 4, features: 32, numExpertsPerToken: 2 })(hidden);
  return { y: nn.Dense({ features: 1 })(hidden.add(output)), router };
});
const model = Model();

const x = random.uniform(random.key(0), [batch, length, 2], { minval: -1, maxval: 1 });
const [a, b] = [np.take(x, np.array(0, "int32"), -1), np.take(x, np.array(1, "int32"), -1)];
const truth = np.where(
  np.greater(a, 0),
  np.sin(b.mul(3)),
  np.where(np.greater(b, 0), a.mul(b).mul(4), np.cos(a.mul(3))),
);

const optimizer = optim.adam({ learningRate: 0.01 });
let variables = model.init(random.key(1), x);
let state = optimizer.init(variables);

const train = (params: nn.Variables, memory: typeof state, inputs: Tensor, wanted: Tensor) => {
  const loss = (v: nn.Variables) => {
    const { y, router } = model.apply(v, inputs);
    const error = np.mean(np.square(y.reshape([batch, length]).sub(wanted)));
    return [
      error.add(np.mean(router.loadBalance).mul(0.01)),
      { error, load: np.mean(router.load, 0) },
    ] as const;
  };
  const [[, seen], grads] = valueAndGrad(loss, { hasAux: true })(params);
  const [updates, next] = optimizer.update(grads, memory, params);
  return [optim.applyUpdates(params, updates), next, seen] as const;
};

const step = jit(train, { mesh });
console.log("what a step sends, on every device:");
const cost = withMesh(mesh, () => costAnalysis(train, { mesh })(variables, state, x, truth));
for (const { op, count, bytes } of cost.collectives) console.log(`  ${count} ${op}: ${bytes} bytes`);
let error = Number.POSITIVE_INFINITY;
for (let i = 1; i <= steps; i++) {
  const [params, memory, seen] = withMesh(mesh, () => step(variables, state, x, truth));
  [variables, state] = [params, memory];
  if (i % 40 === 0 || i === steps) {
    error = await seen.error.item();
    const load = Array.from(await seen.load.data(), (share) => `${Math.round(100 * share)} %`);
    console.log(
      `step ${String(i).padStart(3)}  error ${error.toFixed(4)}  load of experts ${load.join(", ")}`,
    );
  }
}
if (!(error < target))
  throw new Error(`the error is ${error} after ${steps} steps, it should be below ${target}`);
