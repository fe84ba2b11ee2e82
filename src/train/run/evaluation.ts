import * as tree from "../../trace/tree.js";
import type { RunConfig } from "../config/runConfig.js";
import type { LanguageModelState } from "../step/state.js";
import type { Training } from "../step/training.js";
import { openRunBatches } from "./runBatches.js";
import type { RunRows } from "./runData.js";

/** Default maximum number of batches. */
const defaultBatches = 4;

/** The mean loss on the first batches of a text. */
export async function evaluateOn(
  training: Training,
  state: LanguageModelState,
  source: RunRows,
  config: RunConfig,
  maxBatches = defaultBatches,
): Promise<number> {
  const batches = openRunBatches(source, training, config, { shuffle: false });
  const count = Math.max(1, Math.min(maxBatches, Math.floor(batches.rowsPerEpoch / config.data.batch)));
  let total = 0;
  for (let i = 0; i < count; i++) {
    const { tokens } = await batches.next();
    const loss = training.evaluate(state, tokens);
    total += await loss.item();
    tree.dispose([tokens, loss]);
  }
  return total / count;
}
