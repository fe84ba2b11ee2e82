/**
 * What each collective does to a small array on four devices.
 *
 *   npm run example -- collectives
 *
 * A mesh names devices along axes; inside `shardMap` a function sees the block of one device, and collectives
 * are how the devices talk along an axis.
 */
import {
  devicePut,
  grad,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  shardMap,
  type Tensor,
  visualizeSharding,
} from "shardwise";

const mesh = Mesh.create({ i: 4 });

/** The blocks of a tensor, device by device. */
function show(title: string, blocks: readonly unknown[]): void {
  console.log(`\n${title}`);
  blocks.forEach((block, device) => {
    console.log(`  device ${device}: ${JSON.stringify(block)}`);
  });
}

/** Runs a function on the blocks of x, one row of x for each device, and shows what each device gets. */
async function run(title: string, fn: (block: Tensor) => Tensor, x: Tensor): Promise<void> {
  const onRows = (row: Tensor) => np.expandDims(fn(np.squeeze(row, 0)), 0);
  // The check is off because here every device shows its own result, also where all are the same.
  const mapped = shardMap(onRows, { mesh, inSpecs: P("i"), outSpecs: P("i"), checkReplication: false });
  show(title, (await mapped(x).js()) as unknown[]);
}

// Device 0 has [1, 2], device 1 has [10, 20], and so on.
const x = np.array([
  [1, 2],
  [10, 20],
  [100, 200],
  [1000, 2000],
]);
const placed = await devicePut(x, new NamedSharding(mesh, P("i")));
console.log("Four devices, each with one row:");
console.log(visualizeSharding(placed));
show("the blocks", await Promise.all(placed.addressableShards.map(({ data }) => data.js())));

await run('axisIndex("i"): who am I?', () => lax.axisIndex("i"), x);
await run('psum(x, "i"): the sum of all, on all', (b) => lax.psum(b, "i"), x);
await run('pmean(x, "i"): the mean of all, on all', (b) => lax.pmean(b, "i"), x);
await run('pmax(x, "i"): the largest of all, on all', (b) => lax.pmax(b, "i"), x);
await run('pmin(x, "i"): the smallest of all, on all', (b) => lax.pmin(b, "i"), x);
await run('allGather(x, "i"): every block, stacked', (b) => lax.allGather(b, "i"), x);
await run(
  'allGather(x, "i", { tiled: true }): every block, in a row',
  (b) => lax.allGather(b, "i", { tiled: true }),
  x,
);

const wide = np.arange(16).reshape([4, 4]);
await run("arrays for the next two: one part for each device", (b) => b, wide);
await run(
  'psumScatter(x, "i", { tiled: true }): the sum of all, each keeps its part',
  (b) => lax.psumScatter(b, "i", { tiled: true }),
  wide,
);
await run(
  'allToAll(x, "i", 0, 0, { tiled: true }): part k goes to device k',
  (b) => lax.allToAll(b, "i", 0, 0, { tiled: true }),
  wide,
);

await run('pshift(x, "i"): everything moves one device on, around the ring', (b) => lax.pshift(b, "i"), x);
await run(
  'ppermute(x, "i", [[0, 2], [3, 0]]): who gets nothing has zeros',
  (b) =>
    lax.ppermute(b, "i", [
      [0, 2],
      [3, 0],
    ]),
  x,
);
console.log(`\npsum(1, "i") of a plain number is known at once: ${shapeOfAxis()}`);

/** A number is summed while the function is traced, so it can be used as a size. */
function shapeOfAxis(): number {
  let size = 0;
  const count = (row: Tensor) => {
    size = lax.psum(1, "i");
    return row;
  };
  shardMap(count, { mesh, inSpecs: P("i"), outSpecs: P("i") })(x);
  return size;
}

// Collectives have gradients: what was gathered on the way forward is summed and scattered on the way back.
const loss = shardMap((row: Tensor) => lax.psum(np.sum(np.square(row)), "i"), {
  mesh,
  inSpecs: P("i"),
  outSpecs: P(),
});
console.log(`\nThe sum of squares over all devices: ${await loss(x).item()}`);
show("its gradient, row by row", (await grad(loss)(x).js()) as unknown[]);
