/** The training step of `npm start`: the default configuration, on random tokens. */
import { devicePut, random } from "shardwise";
import type { Engine } from "shardwise/engines";
import { readRunConfig } from "../src/train/config/runConfig.js";
import { runMesh, runTrainingFunctions } from "../src/train/config/setup.js";
import { stepFlops } from "../src/train/report/peak.js";
import type { StepMetrics } from "../src/train/step/state.js";

/** The name of this step beside those of decoders. */
export const startName = "npm start";

/** Tokens of a byte each, and one that ends texts. */
const VOCABULARY = 257;

/** A step that can be taken again and again, and its floating-point operations. */
export async function prepareStart(
  engine: Engine,
): Promise<{ readonly step: () => Promise<void>; readonly flops: number }> {
  const { config } = readRunConfig({}, [], engine.numDevices);
  const training = runTrainingFunctions(config, VOCABULARY, runMesh(config, engine));
  const { batch, sequence } = config.data;
  const tokens = random.randint(random.key(1), [batch, sequence + 1], 0, VOCABULARY);
  const onMesh = await devicePut(tokens, training.batchSharding);
  let state = training.init(config.seed);
  let before: StepMetrics | undefined;
  const step = async () => {
    const [next, metrics] = training.step(state, onMesh, before);
    [state, before] = [next, metrics];
    await metrics.loss.item();
  };
  return { step, flops: stepFlops(training.types, config) };
}
