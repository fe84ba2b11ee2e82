import { grad, jit, Mesh, np, random, type Tensor, tree } from "shardwise";
import * as nn from "shardwise/nn";
import { CircularPipeline } from "shardwise/parallel";

// Every stage has two parts of the model: microbatches go round the ring twice.
const mesh = Mesh.create({ data: 2, stage: 2 });
const Layer = nn.module("Layer", () => (x: Tensor): Tensor => {
  const h = nn.gelu(nn.Dense({ features: 32, name: "up" })(x));
  return x.add(nn.Dense({ features: 8, name: "down" })(h));
});
const pipeline = CircularPipeline({
  layers: Layer({ parent: null }),
  mesh,
  numPipelineMicrobatches: 4,
  numPipelineRepeats: 2,
  logicalAxisRules: [
    ["activation_stage", "stage"],
    ["activation_batch", "data"],
    ["layers", "stage"],
  ],
});

const x = random.normal(random.key(0), [8, 16, 8]);
const variables = jit((key: Tensor) => pipeline.init(key, x), { mesh })(random.key(1));
const loss = (v: nn.Variables, inputs: Tensor) => np.mean(np.square(pipeline.apply(v, inputs)));
const grads = jit(grad(loss), { mesh })(variables, x);
console.log(tree.map((leaf: Tensor) => `${leaf}`, grads));
