import { grad, Mesh, np, P, shardMap, type Tensor } from "shardwise";
import { gatherArrayWithMeanGrads } from "shardwise/parallel";

// Each device holds one row of the weights and gathers all of them.
const mesh = Mesh.create({ fsdp: 4 });
const weights = np.arange(8, { dtype: "float32" }).reshape([4, 2]);
const scale = np.array([1, 2, 3, 4], { dtype: "float32" });

const gradient = shardMap(
  (part: Tensor, s: Tensor) => {
    const loss = (row: Tensor) => np.sum(gatherArrayWithMeanGrads(row, 0, "fsdp")).mul(s.get(0));
    return grad(loss)(part);
  },
  { mesh, inSpecs: [P("fsdp"), P("fsdp")], outSpecs: P("fsdp"), checkReplication: false },
);

// On the way back each device gets the mean of all gradients of its row: (1 + 2 + 3 + 4) / 4.
console.log(await gradient(weights, scale).js());
