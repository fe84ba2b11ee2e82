import { expect, test } from "vitest";
import { devicePut, Mesh, random, type Tensor, tree } from "../index.js";
import { adamw } from "../optim/index.js";
import type { ModelConfig } from "./models/config.js";
import { createTraining } from "./training.js";

const base: ModelConfig = {
  kind: "llama",
  vocabSize: 16,
  width: 16,
  numLayers: 4,
  numHeads: 4,
  numKvHeads: 2,
  mlpWidth: 32,
  tieEmbeddings: false,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
};

async function lossCurve(model: ModelConfig, axes: Record<string, number>, steps: number): Promise<number[]> {
  const { repeats = 1, ...sizes } = axes;
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...sizes });
  const training = createTraining({
    model,
    optimizer: adamw({ learningRate: 1e-2 }),
    mesh,
    zLoss: 1e-4,
    pipeline: { microbatches: 2, repeats },
  });
  let state = training.init(0);
  const losses: number[] = [];
  for (let i = 0; i < steps; i++) {
    const tokens = random.randint(random.foldIn(random.key(1), i % 2), [4, 9], 0, model.vocabSize);
    const placed = await devicePut(tokens, training.batchSharding);
    const [next, metrics] = training.step(state, placed);
    state = next;
    losses.push(await metrics.loss.item());
  }
  void tree.leaves(state).map((leaf) => (leaf as Tensor).dispose());
  return losses;
}

const meshes: readonly Record<string, number>[] = [
  { data: 2 },
  { fsdp: 2 },
  { model: 2 },
  { data: 2, model: 2 },
  { fsdp: 2, model: 2 },
  { pipe: 2 },
  { pipe: 2, repeats: 2 },
  { data: 2, pipe: 2 },
];

for (const kind of ["llama", "mlstm"] as const) {
  test(`the ${kind} model learns, and its loss curve is the same on every mesh`, async () => {
    const model = { ...base, kind };
    const alone = await lossCurve(model, {}, 4);
    expect(alone.at(-1)).toBeLessThan((alone[0] ?? 0) - 0.15);
    for (const axes of meshes) {
      const curve = await lossCurve(model, axes, 4);
      curve.forEach((loss, i) => {
        expect(Math.abs(loss / (alone[i] ?? 0) - 1), `${JSON.stringify(axes)} step ${i}`).toBeLessThan(1e-4);
      });
    }
  }, 300_000);
}
