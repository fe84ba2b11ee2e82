import { devicePut } from "../../../../src/spmd/mesh/sharding.js";
import * as tree from "../../../../src/trace/tree.js";
import { runOptimizer } from "../../../../src/train/config/optimizer.js";
import { type RunConfig, readRunConfig } from "../../../../src/train/config/runConfig.js";
import type { ModelConfig } from "../../../../src/train/models/config.js";
import type { LanguageModelState } from "../../../../src/train/step/state.js";
import { createTraining, type Training } from "../../../../src/train/step/training.js";
import { type GoldenCase, isRecord } from "../cases.js";
import { type AreaRunner, expectAll } from "../check.js";
import { expectClose, expectTreeClose, Mismatch } from "../compare.js";
import { aloneMesh } from "../onMesh.js";

/** Every point of a curve agrees to this, relative to its value. */
const curve = { rtol: 1e-4 };
/** Norms of gradients and parameters add up what rounding did to each of many steps. */
const gradientNorm = { rtol: 1e-3 };
const parameters = { rtol: 1e-4, atol: 1e-4 };

/** Language models trained from given parameters on given tokens: the curves, and the parameters at the end. */
export const runLanguageModel: AreaRunner = async (golden, engine) => {
  const { config, model } = readConfig(golden);
  const training = createTraining({
    model,
    optimizer: runOptimizer(config),
    mesh: aloneMesh(engine, ["data", "fsdp", "pipe", "model"]),
    zLoss: config.optimizer.zLoss,
  });
  let state = await startFrom(training, golden);
  const curves = { loss: [] as number[], crossEntropy: [] as number[], gradientNorm: [] as number[] };
  const tokens = golden.host("tokens");
  for (let step = 0; step < config.steps; step++) {
    const batch = await devicePut(tokens.row(step).toTensor(), training.batchSharding);
    const [next, metrics] = training.step(state, batch);
    state = next;
    curves.loss.push(await metrics.loss.item());
    curves.crossEntropy.push(await metrics.crossEntropy.item());
    curves.gradientNorm.push(await metrics.gradientNorm.item());
  }
  await expectAll(
    () => expectClose(curves.loss, golden.host("loss"), curve, "loss"),
    () => expectClose(curves.crossEntropy, golden.host("cross_entropy"), curve, "cross_entropy"),
    () => expectClose(curves.gradientNorm, golden.host("gradient_norm"), gradientNorm, "gradient_norm"),
    () => expectTreeClose(state.params, golden.tree("final"), parameters),
  );
};

/** The run that a case describes, with the trainer's own optimiser. */
function readConfig(golden: GoldenCase): { config: RunConfig; model: ModelConfig } {
  const given = golden.value("model");
  const { vocabSize: _, ...sizes } = isRecord(given) ? given : {};
  const { config, violations } = readRunConfig({
    model: sizes,
    mesh: { data: 1 },
    optimizer: golden.value("optimizer"),
    steps: golden.number("steps"),
  });
  if (violations.length > 0) throw new Mismatch(violations.join("; "));
  return { config, model: { ...config.model, vocabSize: golden.number("model", "vocabSize") } };
}

/** The state before the first step, with the case's parameters in place of those of a seed. */
async function startFrom(training: Training, golden: GoldenCase): Promise<LanguageModelState> {
  const seeded = training.init(0);
  const given = golden.tree("variables");
  const paths = (values: unknown) =>
    tree
      .flattenWithPath(values)
      .map(({ path }) => path)
      .join(", ");
  if (paths(seeded.params) !== paths(given)) {
    throw new Mismatch(`the model has the parameters ${paths(seeded.params)}, expected ${paths(given)}`);
  }
  const params = tree.unflatten<typeof seeded.params>(tree.structure(seeded.params), tree.leaves(given));
  return devicePut({ ...seeded, params }, training.shardings);
}
