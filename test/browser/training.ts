import { devicePut, type Mesh, np } from "shardwise";
import { adamw } from "shardwise/optim";
import { byteTokenizer, createTraining, readRunConfig, tokensInMemory } from "shardwise/train";

/** The losses of a few steps of a small language model. @param mesh with the axes `data`, `fsdp`, `pipe` and `model` */
export async function lossesOn(mesh: Mesh): Promise<number[]> {
  const { model } = readRunConfig({
    model: { width: 32, numLayers: 2, numHeads: 2, numKvHeads: 2, mlpWidth: 64 },
  }).config;
  const { vocabSize, encode } = byteTokenizer();
  const training = createTraining({
    model: { ...model, vocabSize },
    optimizer: adamw({ learningRate: 1e-2 }),
    mesh,
  });
  const text = encode("the same program trains on a mesh of workers in a tab. ".repeat(8));
  const source = tokensInMemory(text, vocabSize);
  let state = training.init(0);
  const losses: number[] = [];
  for (let i = 0; i < 4; i++) {
    const tokens = np.reshape(np.array(await source.read(33 * i, 4 * 33), "int32"), [4, 33]);
    const [next, metrics] = training.step(state, await devicePut(tokens, training.batchSharding));
    state = next;
    losses.push(await metrics.loss.item());
  }
  return losses;
}
