/** `WIDTH=2048 LAYERS=24 npx vitest run src/train/step/initialState.test.ts` initialises a model of 1.3 G parameters. */
import { Mesh, type Tensor, tree } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import * as optim from "shardwise/optim";
import { expect, test, vi } from "vitest";
import { bytesOf, range } from "../../ir/shape.js";
import { createTraining } from "./training.js";

const [width, numLayers] = [Number(process.env.WIDTH ?? 64), Number(process.env.LAYERS ?? 2)];

test("each device draws its own shard of the initial state, and the host holds none", async () => {
  const numDevices = 8;
  const engine = createThreadsEngine({ numDevices, threadsPerDevice: 1 });
  try {
    const mesh = Mesh.create({ data: 1, fsdp: numDevices, pipe: 1, model: 1 }, { engine });
    const [upload, download] = [vi.spyOn(engine, "upload"), vi.spyOn(engine, "download")];
    const { init } = createTraining({
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
    const tensors = tree.leaves(init(0)) as Tensor[];
    await Promise.all(tensors.map((tensor) => tensor.ready()));
    const bytes = tensors.reduce((sum, { type }) => sum + bytesOf(type), 0);
    const uploaded = upload.mock.calls.reduce((sum, [type]) => sum + bytesOf(type), 0);
    // The seed goes to every device.
    expect(uploaded).toBeLessThan(numDevices * 1024);
    expect(download).not.toHaveBeenCalled();
    // Norms are small and whole on every device, and kernels have constants.
    const room = 2 ** 17 + 16 * (2 + numLayers) * width * 4;
    for (const device of range(numDevices)) {
      expect(engine.memoryUsage?.(device).peak).toBeLessThan(bytes / numDevices + room);
    }
  } finally {
    await engine.close();
  }
}, 600_000);
