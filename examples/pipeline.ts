/**
 * Pipeline parallelism: the layers are divided into stages on different devices, and microbatches follow each
 * other through them.
 *
 *   npm run example -- pipeline
 */
import { jit, lax, Mesh, np, P, random, shardMap, type Tensor, tree, valueAndGrad } from "shardwise";
import * as nn from "shardwise/nn";
import { initSharded, ModelParallelismWrapper, PipelineModule } from "shardwise/parallel";

const steps = Number(process.env.STEPS ?? 60);
const target = Number(process.env.TARGET ?? 0.25);
const [numStages, numMicrobatches, width] = [4, 8, 16];

const mesh = Mesh.create({ pipe: numStages });

/** The layers of one stage. */
const Stage = nn.module("Stage", () => (x: Tensor) => {
  const h = nn.silu(nn.Dense({ features: 2 * width })(nn.RMSNorm()(x)));
  return x.add(nn.Dense({ features: width })(h));
});

const model = PipelineModule({
  modelAxisName: "pipe",
  numMicrobatches,
  moduleFn: () => ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stage(config) }),
});

console.log(`the schedule of ${numMicrobatches} microbatches and ${numStages} stages:`);
const numIterations = numMicrobatches + numStages - 1;
for (let stage = 0; stage < numStages; stage++) {
  const cells = Array.from({ length: numIterations }, (_, i) => {
    const microbatch = i - stage;
    return microbatch >= 0 && microbatch < numMicrobatches ? String(microbatch) : "·";
  });
  console.log(`  stage ${stage}  ${cells.join(" ")}`);
}
const idle = (numStages - 1) / numIterations;
console.log(
  `idle: (${numStages} − 1) / (${numMicrobatches} + ${numStages} − 1) = ${(100 * idle).toFixed(0)} %\n`,
);

const x = random.normal(random.key(0), [32, width]);
const t = np.tanh(np.roll(x, 1, 1).mul(2));
let variables = initSharded(model.init, { mesh })(random.key(1), x);
const specs = nn.getPartitionSpec(variables);

const step = shardMap(
  (params: nn.Variables, input: Tensor, truth: Tensor) => {
    // Only the last stage has results, so only there the loss counts.
    const isLast = lax.axisIndex("pipe").eq(numStages - 1);
    const loss = (v: nn.Variables) =>
      np.where(isLast, np.mean(np.square(model.apply(v, input).sub(truth))), 0);
    const [value, grads] = valueAndGrad(loss)(params);
    const next = tree.map((p: Tensor, g: Tensor) => p.sub(g.mul(0.2)), params, grads);
    return [next, lax.psum(value, "pipe")] as const;
  },
  { mesh, inSpecs: [specs, P(), P()], outSpecs: [specs, P()], checkReplication: false },
);

const train = jit(step, { donate: 0 });
let loss = Number.POSITIVE_INFINITY;
for (let i = 1; i <= steps; i++) {
  const [next, value] = train(variables, x, t);
  variables = next;
  if (i % 10 === 0 || i === steps) {
    loss = await value.item();
    console.log(`step ${String(i).padStart(3)}  loss ${loss.toFixed(4)}`);
  }
}
if (!(loss < target))
  throw new Error(`the loss is ${loss} after ${steps} steps, it should be below ${target}`);
