/**
 * A step of a decoder whose sequences are split over `context` is that of one device. Both ways to split them take turns
 * with the decoders; `npm run test:meshes` tries all with both.
 */
import { expect, test } from "vitest";
import { expectTreeClose } from "../../../test/support/goldens.js";
import { tinyModel } from "../../../test/support/runs.js";
import { devicePut, Mesh, random } from "../../index.js";
import { sgd } from "../../optim/index.js";
import { createTraining } from "../step/training.js";
import type { ModelConfig } from "./config.js";

const tokens = random.randint(random.key(3), [4, 17], 0, 16);

/** The state after a step, with its loss and that of an evaluation. */
async function stepOn(
  axes: Readonly<Record<string, number>>,
  changes: Partial<ModelConfig>,
  context?: "allToAll",
) {
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
  const model = { ...tinyModel, ...changes };
  const training = createTraining({
    model,
    mesh,
    optimizer: sgd({ learningRate: 0.1 }),
    ...(context && { context }),
  });
  const batch = await devicePut(tokens, training.batchSharding);
  const before = training.init(0);
  const evaluated = await training.evaluate(before, batch).item();
  const [after, { loss }] = training.step(before, batch);
  return { params: after.params, loss: await loss.item(), evaluated, logits: training.logits(after, tokens) };
}

const decoders: Readonly<Record<string, Partial<ModelConfig>>> = {
  Llama: {},
  "a window and learned positions": {
    decoder: { window: 5, layers: "L", positions: "learned", maxLength: 16 },
  },
  "a soft cap": { decoder: { attentionCap: 3 } },
  "layers with and without a window": { decoder: { window: 5, layers: "LG", ropeLocalBase: 100 } },
  mLSTM: { kind: "mlstm", mlpWidth: 16 },
  "xLSTM 7B": { kind: "xlstm", decoder: { keySize: 4, gateCap: 15 } },
  experts: { kind: "moe", width: 16, experts: { numExperts: 4 } },
  "experts that drop tokens": { kind: "moe", width: 16, experts: { numExperts: 4, capacityFactor: 0.5 } },
};

const splits = [
  ["context=4", { context: 4 }],
  ["context=2 by all-to-all", { context: 2, fsdp: 2 }, "allToAll"],
] as const;
const all = process.env.SHARDWISE_ALL_MESHES === "1";
const cases = Object.entries(decoders).map(([name, changes], i) => {
  const tried = all ? splits : splits.slice(i % 2, (i % 2) + 1);
  return [name, tried.map(([split]) => split).join(", and "), changes, tried] as const;
});

test.each(cases)("%s on %s", { timeout: 60_000 }, async (_, __, changes, tried) => {
  const alone = await stepOn({}, changes);
  for (const [, axes, way] of tried) {
    const { params, loss, evaluated, logits } = await stepOn(axes, changes, way);
    expect(loss).toBeCloseTo(alone.loss, 5);
    expect(evaluated).toBeCloseTo(alone.evaluated, 5);
    await expectTreeClose(params, alone.params, { rtol: 1e-4, atol: 1e-6 });
    await expectTreeClose(logits, alone.logits, { rtol: 1e-4, atol: 1e-5 });
  }
});
