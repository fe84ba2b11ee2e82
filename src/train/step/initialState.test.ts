/**
 * The initial state of a model that no host could hold: what each device is planned to need, at the size of a model of 8
 * billion parameters, and what it then takes, at a size at which tests can run it
 * (`WIDTH=2048 LAYERS=24 npx vitest run src/train/step/initialState.test.ts` runs a larger one).
 */
import { Mesh, type Tensor, tree } from "shardwise";
import { createReferenceEngine, createThreadsEngine, type Engine } from "shardwise/engines";
import * as optim from "shardwise/optim";
import { expect, test, vi } from "vitest";
import { bytesOf, range } from "../../ir/shape.js";
import { abstractTree } from "./abstractTensor.js";
import { compileAs } from "./compileAs.js";
import { createTraining } from "./training.js";

const numDevices = 8;

interface Size {
  readonly width: number;
  readonly numLayers: number;
}

function trainingOf({ width, numLayers }: Size, engine: Engine) {
  const mesh = Mesh.create({ data: 1, fsdp: numDevices, pipe: 1, model: 1 }, { engine });
  const training = createTraining({
    model: {
      kind: "llama",
      width,
      numLayers,
      numHeads: 2,
      numKvHeads: 2,
      mlpWidth: 4 * width,
      vocabSize: 2048,
      dtype: "float32",
      ropeBase: 10_000,
      normEpsilon: 1e-6,
      tieEmbeddings: true,
      remat: "none",
    },
    optimizer: optim.adamw({ learningRate: 1e-3 }),
    mesh,
  });
  return { mesh, training };
}

/** What a device may need besides its shard: norms are small and whole on every device, and kernels have constants. */
const room = ({ width, numLayers }: Size) => 2 ** 17 + 16 * (2 + numLayers) * width * 4;

test("each device draws its own shard of the initial state, and the host holds none", async () => {
  const size = { width: Number(process.env.WIDTH ?? 64), numLayers: Number(process.env.LAYERS ?? 2) };
  const engine = createThreadsEngine({ numDevices, threadsPerDevice: 1 });
  try {
    const [upload, download] = [vi.spyOn(engine, "upload"), vi.spyOn(engine, "download")];
    const tensors = tree.leaves(trainingOf(size, engine).training.init(0)) as Tensor[];
    await Promise.all(tensors.map((tensor) => tensor.ready()));
    const bytes = tensors.reduce((sum, { type }) => sum + bytesOf(type), 0);
    const uploaded = upload.mock.calls.reduce((sum, [type]) => sum + bytesOf(type), 0);
    // The seed goes to every device.
    expect(uploaded).toBeLessThan(numDevices * 1024);
    expect(download).not.toHaveBeenCalled();
    for (const device of range(numDevices)) {
      expect(engine.memoryUsage?.(device).peak).toBeLessThan(bytes / numDevices + room(size));
    }
  } finally {
    await engine.close();
  }
}, 600_000);

test("a device of eight needs no more than its shard of the state of 8 billion parameters", () => {
  const size = { width: 4096, numLayers: 30 };
  const { mesh, training } = trainingOf(size, createReferenceEngine({ numDevices }));
  const state = tree.leaves(abstractTree(training.types)) as Tensor[];
  const bytes = state.reduce((sum, { type }) => sum + bytesOf(type), 0);
  expect(bytes).toBeGreaterThan(12 * 8e9);
  const { program } = training.init.lower(0);
  const { outputs, arenaBytes } = compileAs(mesh, program, { name: "init" });
  const needed = outputs.reduce((sum, output) => sum + output.bytes, arenaBytes);
  // Norms, which are whole on every device, and intermediate values are small beside the shard.
  expect(needed).toBeLessThan((1.005 * bytes) / numDevices);
});
