import { Mesh, np, P, shardMap, type Tensor } from "shardwise";
import { asyncGather } from "shardwise/parallel";

// Blocks travel round the ring; each can be used as soon as it arrives, while the next one is on its way.
const mesh = Mesh.create({ model: 4 });
const x = np.arange(8).reshape([4, 2]);

const gathered = shardMap(
  (own: Tensor) => np.stack(asyncGather(own, "model").map((block) => np.sum(block))).reshape([1, 4]),
  { mesh, inSpecs: P("model"), outSpecs: P("model"), checkReplication: false },
);

// Row d: the sums of the blocks in the order in which they reach device d.
console.log(await gathered(x).js());
