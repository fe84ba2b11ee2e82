import { Mesh, np, P, shardMap, type Tensor } from "shardwise";
import { syncGradients } from "shardwise/parallel";

// Each device computed a gradient from its own part of the batch.
const mesh = Mesh.create({ data: 4 });
const gradients = np.array(
  [
    [1, 1],
    [2, 2],
    [3, 3],
    [6, 6],
  ],
  { dtype: "float32" },
);

const mean = shardMap((own: Tensor) => syncGradients({ w: own }, "data").w, {
  mesh,
  inSpecs: P("data"),
  outSpecs: P("data"),
  checkReplication: false,
});

// After that all devices have the mean.
console.log(await mean(gradients).js());
