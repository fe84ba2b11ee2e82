import { Mesh, P, random, shardMap, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { initSharded, TPDense } from "shardwise/parallel";

// Each device has a part of every matrix: the first layer gathers its inputs, the second scatters its sums.
const numDevices = 4;
const [width, hidden] = [16, 64];
const mesh = Mesh.create({ model: numDevices });

const Block = nn.module("Block", () => (x: Tensor) => {
  const up = TPDense({
    denseFn: (config) => nn.Dense({ features: hidden / numDevices, ...config }),
    modelAxisName: "model",
    tpMode: "gather",
    name: "up",
  });
  const down = TPDense({
    denseFn: (config) => nn.Dense({ features: width, ...config }),
    modelAxisName: "model",
    tpMode: "scatter",
    kernelInitAdjustment: numDevices ** -0.5,
    name: "down",
  });
  return x.add(down(nn.gelu(up(x))));
});

const x = random.normal(random.key(0), [32, width]);
const features = P(null, "model");
const variables = initSharded(Block().init, { mesh, inSpecs: [P(), features] })(random.key(1), x);
const apply = shardMap((params: nn.Variables, part: Tensor) => Block().apply(params, part), {
  mesh,
  inSpecs: [nn.getPartitionSpec(variables), features],
  outSpecs: features,
});
console.log(`${apply(variables, x)}`);
