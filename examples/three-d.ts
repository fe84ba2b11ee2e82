/**
 * Data, pipeline and tensor parallelism together on 2 x 2 x 2 devices: the batch is split over `data`, which
 * also splits the parameters, the layers over `pipe`, and each layer over `model`.
 *
 *   npm run example -- three-d
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
import {
  initSharded,
  ModelParallelismWrapper,
  PipelineModule,
  shardModuleParams,
  syncGradients,
  TPDense,
  type TPMode,
} from "shardwise/parallel";

const steps = Number(process.env.STEPS ?? 40);
const target = Number(process.env.TARGET ?? 0.35);
const [width, hidden] = [16, 64];

const mesh = Mesh.create({ data: 2, pipe: 2, model: 2 });
const numStages = mesh.axisSize("pipe");

/** A layer whose hidden features are split over `model`. */
const Layer = nn.module("Layer", () => (x: Tensor) => {
  const dense = (features: number, tpMode: TPMode, name: string) =>
    TPDense({ denseFn: (config) => nn.Dense({ features, ...config }), modelAxisName: "model", tpMode, name });
  const h = nn.gelu(dense(hidden / mesh.axisSize("model"), "gather", "up")(x));
  return x.add(dense(width, "scatter", "down")(h));
});

const Stage = shardModuleParams(Layer, "data", { minWeightSize: 64 });

const model = PipelineModule({
  modelAxisName: "pipe",
  numMicrobatches: 4,
  moduleFn: () => ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stage(config) }),
});

const x = random.normal(random.key(0), [32, width]);
const t = np.tanh(np.roll(x, 1, 1).mul(2));
const batch = P("data", "model");
let variables = initSharded(model.init, { mesh, inSpecs: [P(), batch] })(random.key(1), x);
const specs = nn.getPartitionSpec(variables);

console.log("how the parameters are split:");
for (const leaf of tree.flattenWithPath(variables, nn.isBoxed)) console.log(`  ${leaf.path}: ${leaf.leaf}`);

const step = shardMap(
  (params: nn.Variables, input: Tensor, truth: Tensor) => {
    const isLast = lax.axisIndex("pipe").eq(numStages - 1);
    const loss = (v: nn.Variables) =>
      np.where(isLast, np.mean(np.square(model.apply(v, input).sub(truth))), 0);
    const [value, grads] = valueAndGrad(loss)(params);
    const synced = syncGradients(grads, mesh.axisNames);
    const next = tree.map((p: Tensor, g: Tensor) => p.sub(g.mul(0.05)), params, synced);
    return [next, lax.pmean(lax.psum(value, "pipe"), ["data", "model"])] as const;
  },
  { mesh, inSpecs: [specs, batch, batch], outSpecs: [specs, P()], checkReplication: false },
);

console.log(
  `\nwhat a step costs each of the ${mesh.size} devices:\n${costAnalysis(step)(variables, x, t)}\n`,
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
