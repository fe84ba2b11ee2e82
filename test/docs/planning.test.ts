import { machinePrices, planTraining, readRunConfig } from "shardwise/train";
import { describe, expect, test } from "vitest";
import { describePage } from "../support/pages.js";

const { config } = readRunConfig({ model: { width: 64, numLayers: 2 }, data: { batch: 16, sequence: 32 } });
const prices = machinePrices(
  { flops: 989e12, efficiency: 0.6, memoryBandwidth: 3.35e12, launch: 4e-6 },
  {
    network: { bandwidth: 50e9, latency: 8e-6 },
    intra: { bandwidth: 900e9, latency: 3e-6 },
    nodeSize: 8,
  },
);
const plan = planTraining(config, { numDevices: 4, memoryBytes: 80 * 2 ** 30, prices, tries: 3 });
const [fastest] = plan.choices;

describe("the code of the page", () => {
  test("finds configurations of four devices, the fastest first", () => {
    expect(plan.choices).toHaveLength(3);
    const { data = 0, fsdp = 0, pipe = 0, model = 0 } = fastest?.config.mesh ?? {};
    expect(data * fsdp * pipe * model).toBe(4);
    expect(fastest?.seconds).toBeLessThanOrEqual(plan.choices[1]?.seconds ?? 0);
  });
});

describePage("planning.md", import.meta.url, {});
