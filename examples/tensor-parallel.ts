/**
 * Tensor parallelism: the layers themselves are split. The first layer of a block gathers its inputs and makes
 * a part of the hidden features on every device, the second sums over the devices, of which each keeps a part
 * of the result. The asynchronous layers send the parts around a ring while they multiply.
 *
 *   npm run example -- tensor-parallel
 */
import {
  costAnalysis,
  jit,
  lax,
  Mesh,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  tree,
  valueAndGrad,
} from "shardwise";
import * as nn from "shardwise/nn";
import { initSharded, syncGradients, TPAsyncDense, TPDense, type TPMode } from "shardwise/parallel";

const steps = Number(process.env.STEPS ?? 60);
const target = Number(process.env.TARGET ?? 0.1);
const numDevices = 4;
const [width, hidden] = [32, 128];

const mesh = Mesh.create({ model: numDevices });

/** x + down(gelu(up(x))); every device has `width / numDevices` of the features. */
const Block = nn.module("Block", ({ isAsync }: { isAsync: boolean }) => (x: Tensor) => {
  const dense = (features: number, tpMode: TPMode, name: string) => {
    const denseFn = (config: object) => nn.Dense({ features, ...config });
    // A sum of n parts varies n times as much as one of them, so its kernels start smaller.
    const isSummed = isAsync || tpMode === "scatter";
    const kernelInitAdjustment = isSummed ? numDevices ** -0.5 : 1;
    const common = { denseFn, modelAxisName: "model", tpMode, name, kernelInitAdjustment };
    return isAsync ? TPAsyncDense(common) : TPDense(common);
  };
  // The ring makes the parts of the outputs one by one, the collective all of them at once.
  const outputs = isAsync ? width / numDevices : width;
  const h = nn.gelu(dense(hidden / numDevices, "gather", "up")(x));
  return x.add(dense(outputs, "scatter", "down")(h));
});

const x = random.normal(random.key(0), [64, width]);
const t = np.tanh(np.roll(x, 1, 1).mul(2));
const features = P(null, "model");

for (const isAsync of [false, true]) {
  const model = Block({ isAsync });
  let variables = initSharded(model.init, { mesh, inSpecs: [P(), features] })(random.key(1), x);
  const specs = nn.getPartitionSpec(variables);
  const step = shardMap(
    (params: nn.Variables, input: Tensor, truth: Tensor) => {
      const loss = (v: nn.Variables) => np.mean(np.square(model.apply(v, input).sub(truth)));
      const [value, grads] = valueAndGrad(loss)(params);
      const synced = syncGradients(grads, "model");
      const next = tree.map((p: Tensor, g: Tensor) => p.sub(g.mul(0.2)), params, synced);
      return [next, lax.pmean(value, "model")] as const;
    },
    { mesh, inSpecs: [specs, features, features], outSpecs: [specs, P()], checkReplication: false },
  );
  console.log(`${isAsync ? "\nTPAsyncDense" : "TPDense"}: what a step sends, on every device:`);
  for (const { op, count, bytes } of costAnalysis(step)(variables, x, t).collectives) {
    console.log(`  ${count} ${op}: ${bytes} bytes`);
  }
  const train = jit(step, { donate: 0 });
  let loss = Number.POSITIVE_INFINITY;
  for (let i = 1; i <= steps; i++) {
    const [next, value] = train(variables, x, t);
    variables = next;
    if (i % 20 === 0 || i === steps) {
      loss = await value.item();
      console.log(`  step ${String(i).padStart(3)}  loss ${loss.toFixed(4)}`);
    }
  }
  if (!(loss < target))
    throw new Error(`the loss is ${loss} after ${steps} steps, it should be below ${target}`);
}
