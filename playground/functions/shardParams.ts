import { Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { initSharded, shardModuleParams } from "shardwise/parallel";

// Every device keeps a quarter of each large parameter.
const mesh = Mesh.create({ fsdp: 4 });
const Layer = nn.module("Layer", () => (x: Tensor) => nn.Dense({ features: 64 })(x));
const model = shardModuleParams(Layer, "fsdp", { minWeightSize: 100 })();

const x = random.normal(random.key(0), [32, 16]);
const variables = initSharded(model.init, { mesh, inSpecs: [P(), P("fsdp")] })(random.key(1), x);
console.log(nn.getPartitionSpec(variables));

// It gathers them where it needs them.
const apply = shardMap((params: nn.Variables, rows: Tensor) => model.apply(params, rows), {
  mesh,
  inSpecs: [nn.getPartitionSpec(variables), P("fsdp")],
  outSpecs: P("fsdp"),
});
console.log(`${np.mean(np.square(apply(variables, x)))}`);
