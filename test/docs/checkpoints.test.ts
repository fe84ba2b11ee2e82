import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { evalShape, Mesh, np } from "shardwise";
import {
  type ExchangeOptions,
  exportSafetensors,
  importSafetensors,
  openBatches,
  openCheckpoints,
  readSafetensors,
  tokensInMemory,
} from "shardwise/train";
import { afterAll, beforeAll, expect, test } from "vitest";

let folder = "";
let file = "";
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "shardwise-docs-"));
  file = join(folder, "model.safetensors");
});
afterAll(() => rm(folder, { recursive: true }));

const mesh = Mesh.create({ data: 2 });
const source = tokensInMemory(
  Int32Array.from({ length: 100 }, (_, i) => i),
  100,
);
const options = { sequenceLength: 4, batchSize: 2 };
const makeState = (value: number) => ({
  params: { Dense_0: { kernel: np.full([4, 2], value).add(np.arange(2)), bias: np.full([2], value) } },
  mu: np.full([4, 2], -value),
});
const kernelOf = (value: number) => Array.from({ length: 4 }, () => [value, value + 1]);

test("a run is saved", async () => {
  const [step, state, config] = [7, makeState(3), { width: 4 }];
  const batches = openBatches(source, options);
  await batches.next();
  const checkpoints = openCheckpoints(folder, { keep: 3 });

  // Returns when the elements are copied; the files are written while training continues.
  await checkpoints.save(step, state, { data: batches.position(), config });

  // Before the process ends: waits for the disk, throws if a save failed.
  await checkpoints.finished();
  expect((await checkpoints.list()).map((entry) => entry.step)).toEqual([7]);
});

test("and loaded on a mesh", async () => {
  const target = evalShape(() => makeState(0))();
  const checkpoint = await openCheckpoints(folder).latest();
  if (!checkpoint) throw new Error("nothing was saved yet");
  const restored = await checkpoint.restore(target, { mesh });
  const batches = openBatches(source, { ...options, position: checkpoint.manifest.data });
  expect(await restored.params.Dense_0.kernel.js()).toEqual(kernelOf(3));
  const through = openBatches(source, options);
  await through.next();
  expect((await batches.next()).inputs).toEqual((await through.next()).inputs);
});

test("in parts, or into more than was saved", async () => {
  const fresh = makeState(0);
  const target = evalShape(() => makeState(0))();
  const checkpoint = await openCheckpoints(folder).load(7);
  // Only the parameters: what else was saved is not read.
  const { params } = await checkpoint.restore({ params: target.params }, { partial: true, mesh });

  // A model that has grown: leaves that were not saved keep the values of the target.
  const grown = await checkpoint.restore({ ...fresh, adapter: np.zeros([4, 2]) }, { missing: "keep" });
  expect(await params.Dense_0.kernel.js()).toEqual(kernelOf(3));
  expect(await grown.mu.js()).toEqual(Array.from({ length: 4 }, () => [-3, -3]));
  expect(await grown.adapter.js()).toEqual(Array.from({ length: 4 }, () => [0, 0]));
});

test("tensors are exchanged under the names and in the order of PyTorch", async () => {
  const { params } = makeState(5);
  await exportSafetensors(file, params); // names like Dense_0.kernel
  const loaded = await importSafetensors(file, params, { mesh }); // or a folder, or several files
  expect([...(await readSafetensors(file)).tensors.keys()]).toEqual(["Dense_0.bias", "Dense_0.kernel"]);
  expect(await loaded.Dense_0.kernel.js()).toEqual(kernelOf(5));

  const torch: ExchangeOptions = {
    rename: (path) => path.replace("Dense_", "layers.").replace("/kernel", ".weight").replace("/", "."),
    transpose: (path) => path.endsWith("kernel"),
  };
  await exportSafetensors(file, params, torch); // layers.0.weight, [out, in]
  const back = await importSafetensors(file, params, torch);
  const { tensors } = await readSafetensors(file);
  expect([...tensors.keys()]).toEqual(["layers.0.bias", "layers.0.weight"]);
  expect(tensors.get("layers.0.weight")).toMatchObject({
    shape: [2, 4],
    data: Float32Array.of(5, 5, 5, 5, 6, 6, 6, 6),
  });
  expect(await back.Dense_0.kernel.js()).toEqual(kernelOf(5));
  expect(await back.Dense_0.bias.js()).toEqual([5, 5]);
});
