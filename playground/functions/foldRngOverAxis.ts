import { Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import { foldRngOverAxis } from "shardwise/parallel";

// All devices have the same key; each folds its place along the axis into it.
const mesh = Mesh.create({ data: 4 });
const draw = shardMap((key: Tensor) => np.expandDims(random.uniform(foldRngOverAxis(key, "data"), []), 0), {
  mesh,
  inSpecs: P(),
  outSpecs: P("data"),
  checkReplication: false,
});
console.log(await draw(random.key(0)).js());
