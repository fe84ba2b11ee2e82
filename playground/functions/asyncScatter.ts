import { lax, Mesh, np, P, shardMap, type Tensor } from "shardwise";
import { asyncScatter } from "shardwise/parallel";

// Row e: what device e contributes to each of four sums.
const mesh = Mesh.create({ model: 4 });
const contributions = np.array([
  [1, 2, 3, 4],
  [10, 20, 30, 40],
  [100, 200, 300, 400],
  [1000, 2000, 3000, 4000],
]);

const scattered = shardMap(
  (row: Tensor) => {
    const own = np.squeeze(row, 0);
    const me = lax.axisIndex("model");
    // Partial sums travel round the ring; at hop i this device adds to the one that still has 3 − i hops to go.
    const parts = [0, 1, 2, 3].map((i) => () => np.take(own, np.remainder(me.add(3 - i), 4)).reshape([1]));
    return asyncScatter(parts, "model");
  },
  { mesh, inSpecs: P("model"), outSpecs: P("model") },
);

// Device d keeps the sum of column d.
console.log(await scattered(contributions).js());
