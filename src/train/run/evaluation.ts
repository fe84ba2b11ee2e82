import { devicePut } from "../../spmd/mesh/sharding.js";
import { Tensor } from "../../trace/tensor.js";
import { type Batch, openBatches } from "../data/batches.js";
import type { TokenSource } from "../data/tokenShards.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";
import type { RunConfig } from "./config.js";

/** How many batches are taken at most, unless more are asked for. */
const defaultBatches = 4;

/** The mean loss on the first batches of a text. */
export async function evaluateOn(
  training: Training,
  state: LanguageModelState,
  source: TokenSource,
  { data }: RunConfig,
  maxBatches = defaultBatches,
): Promise<number> {
  const batches = openBatches(source, {
    sequenceLength: data.sequence,
    batchSize: data.batch,
    shuffle: false,
  });
  const count = Math.max(1, Math.min(maxBatches, Math.floor(batches.rowsPerEpoch / data.batch)));
  let total = 0;
  for (let i = 0; i < count; i++) {
    const tokens = await placeBatch(await batches.next(), training);
    const loss = training.evaluate(state, tokens);
    total += await loss.item();
    tokens.dispose();
    loss.dispose();
  }
  return total / count;
}

/** A batch on the devices of a training. */
export function placeBatch(batch: Batch, { batchSharding }: Training): Promise<Tensor> {
  return devicePut(rowsOf(batch), batchSharding);
}

/** Rows with the token after each, [batch, length + 1]. */
function rowsOf({ inputs, targets, shape: [batch, length] }: Batch): Tensor {
  const all = new Int32Array(batch * (length + 1));
  for (let row = 0; row < batch; row++) {
    all.set(inputs.subarray(row * length, (row + 1) * length), row * (length + 1));
    all[row * (length + 1) + length] = targets[(row + 1) * length - 1] ?? 0;
  }
  return Tensor.fromHost({ dtype: "int32", shape: [batch, length + 1] }, all);
}
