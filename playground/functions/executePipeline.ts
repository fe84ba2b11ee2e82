import { lax, Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { initSharded, ModelParallelismWrapper, PipelineModule } from "shardwise/parallel";

// GPipe: every device is a stage, microbatches pass through all of them.
const [numStages, numMicrobatches] = [4, 6];
const mesh = Mesh.create({ pipe: numStages });
const Stage = nn.module("Stage", () => (x: Tensor) => {
  const h = nn.silu(nn.Dense({ features: 32 })(nn.RMSNorm()(x)));
  return x.add(nn.Dense({ features: 16 })(h));
});
const model = PipelineModule({
  modelAxisName: "pipe",
  numMicrobatches,
  moduleFn: () => ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stage(config) }),
});

const x = random.normal(random.key(0), [24, 16]);
const variables = initSharded(model.init, { mesh })(random.key(1), x);
const loss = shardMap(
  (params: nn.Variables, batch: Tensor) => {
    // Only the last stage has the results.
    const isLast = lax.axisIndex("pipe").eq(numStages - 1);
    const value = np.mean(np.square(model.apply(params, batch)));
    return lax.psum(np.where(isLast, value, 0), "pipe");
  },
  { mesh, inSpecs: [nn.getPartitionSpec(variables), P()], outSpecs: P() },
);
console.log(await loss(variables, x).item());
