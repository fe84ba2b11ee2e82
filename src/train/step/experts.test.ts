import { describe, expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../../test/support/goldens.js";
import { tinyModel } from "../../../test/support/runs.js";
import { Mesh, np, tree } from "../../index.js";
import { sgd } from "../../optim/index.js";
import type { ScheduleName } from "../../parallel/schedule/makers.js";
import type { Tensor } from "../../trace/tensor.js";
import type { ModelConfig } from "../models/config.js";
import { toCanonical } from "../models/layerOrder.js";
import { deviceLoads, routerMetrics } from "../models/moeDecoder.js";
import { createTraining } from "./training.js";

const all = process.env.SHARDWISE_ALL_MESHES === "1";

const model: ModelConfig = {
  ...tinyModel,
  kind: "moe",
  vocabSize: 32,
  width: 16,
  experts: { numExperts: 4, balanceLoss: 0.1, zLoss: 0.01, numSharedExperts: 1, biasRate: 0.01 },
};
const tokens = np
  .remainder(np.arange(16 * 9).mul(7), 31)
  .reshape([16, 9])
  .astype("int32");

interface Case {
  readonly mesh: Readonly<Record<string, number>>;
  readonly schedule?: ScheduleName;
  readonly change?: Partial<ModelConfig>;
}

/** Two steps: the metrics of the second, and the parameters after it, in canonical order. */
async function twoSteps({ mesh: axes, schedule, change }: Case) {
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
  const training = createTraining({
    model: { ...model, ...change },
    optimizer: sgd({ learningRate: 0.1 }),
    mesh,
    ...(schedule ? { pipeline: { microbatches: 4, repeats: 1, schedule } } : {}),
  });
  const [state] = training.step(training.init(0), tokens);
  const [after, metrics] = training.step(state, tokens);
  return { metrics, params: toCanonical(after.params, training.layout) };
}

const alone = twoSteps({ mesh: {} });

/** Meshes that pair `expert` with every axis; `npm run test:meshes` tries others too. */
const cases: readonly Case[] = [
  { mesh: { data: 2, expert: 2, model: 2 } },
  { mesh: { fsdp: 2, expert: 2 } },
  { mesh: { data: 2, expert: 2, pipe: 2 }, schedule: "zb-h1" },
  { mesh: { expert: 2, context: 2, model: 2 } },
  { mesh: { context: 2, expert: 2, pipe: 2 }, schedule: "circular" },
];
const others: readonly Case[] = [
  { mesh: { expert: 2 } },
  { mesh: { expert: 2, pipe: 2 }, schedule: "circular" },
  { mesh: { expert: 2, pipe: 2, model: 2 }, schedule: "1f1b" },
  { mesh: { context: 4 } },
  { mesh: { context: 2, fsdp: 2, pipe: 2 }, schedule: "1f1b" },
];

test("metrics tell the load of the fullest expert and of the fullest device", () => {
  const statistics = [2, 0.5, 0, 0.25, 1.5, 0.5, 0.1, 0.1, 0.3];
  const common = {
    routerBalance: 2,
    routerZ: 0.5,
    routerDropped: 0.25,
    routerEntropy: 1.5,
    routerImbalance: 2,
  };
  expect(routerMetrics(statistics)).toEqual(common);
  expect(routerMetrics(statistics, 2)).toEqual({ ...common, routerDeviceImbalance: 1.2 });
  expect(deviceLoads(statistics, 2)).toEqual([1.2, 0.8]);
});

describe("training a mixture of experts", () => {
  test.each(all ? [...cases, ...others] : cases)("is on $mesh $schedule as on one device", async (one) => {
    const [given, wanted] = [await twoSteps(one), await alone];
    await expectClose(given.metrics.loss, wanted.metrics.loss, agreement.gradient);
    await expectClose(given.metrics.gradientNorm, wanted.metrics.gradientNorm, agreement.gradient);
    const router = (result: typeof given) => result.metrics.router ?? np.zeros([]);
    await expectClose(router(given), router(wanted), agreement.gradient);
    await expectTreeClose(given.params, wanted.params, agreement.gradient);
  });

  test("adds the losses of routers, and moves biases against the surplus", async () => {
    const { metrics, params } = await alone;
    const [loss, entropy] = [await metrics.loss.item(), await metrics.crossEntropy.item()];
    const [balance = 0, z = 0, , dropped, , ...load] = Array.from((await metrics.router?.data()) ?? []);
    expect(loss).toBeCloseTo(entropy + 0.1 * balance + 0.01 * z, 5);
    expect(dropped).toBe(0);
    expect(load.reduce((a, b) => a + b, 0)).toBeCloseTo(1, 5);
    const biases = tree.flattenWithPath(params).filter(({ path }) => path.includes("balanceBias"));
    expect(biases).toHaveLength(1);
    const values = await np.max(np.abs(biases[0]?.leaf as Tensor)).item();
    expect(values).toBeCloseTo(0.02, 6);
  });

  test("keeps the statistics of routers exact in 16-bit streams", async () => {
    const [narrow, wide] = [
      await twoSteps({ mesh: { expert: 2 }, change: { dtype: "bfloat16" } }),
      await alone,
    ];
    const load = async (result: typeof narrow) =>
      Array.from((await result.metrics.router?.data()) ?? []).slice(5);
    const sum = (await load(narrow)).reduce((a, b) => a + b, 0);
    expect(sum).toBeCloseTo(1, 4);
    expect(await narrow.metrics.loss.item()).toBeCloseTo(await wide.metrics.loss.item(), 1);
  });
});
