import { costAnalysis, Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import { simulateDevices } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { initSharded, TPAsyncDense, TPDense } from "shardwise/parallel";
import { describe, expect, test } from "vitest";
import { flattenWithPath } from "../../src/trace/tree.js";
import { expectClose } from "../support/goldens.js";
import { describePage } from "../support/pages.js";

const numDevices = 4;
const mesh = Mesh.create({ model: numDevices }, { engine: simulateDevices(numDevices) });
const [width, hidden] = [16, 64];

const Block = nn.module("Block", () => (x: Tensor) => {
  const up = TPDense({
    denseFn: (config) => nn.Dense({ features: hidden / numDevices, ...config }),
    modelAxisName: "model",
    tpMode: "gather",
    name: "up",
  });
  const down = TPDense({
    denseFn: (config) => nn.Dense({ features: width, ...config }),
    modelAxisName: "model",
    tpMode: "scatter",
    kernelInitAdjustment: numDevices ** -0.5,
    name: "down",
  });
  return x.add(down(nn.gelu(up(x))));
});

const x = random.normal(random.key(0), [32, width]);
const features = P(null, "model");
const variables = initSharded(Block().init, { mesh, inSpecs: [P(), features] })(random.key(1), x);
const apply = shardMap((params: nn.Variables, part: Tensor) => Block().apply(params, part), {
  mesh,
  inSpecs: [nn.getPartitionSpec(variables), features],
  outSpecs: features,
});
const y = apply(variables, x);

const Ring = nn.module("Ring", () => (part: Tensor) => {
  const layer = TPAsyncDense({
    denseFn: (config) => nn.Dense({ features: hidden / numDevices, ...config }),
    modelAxisName: "model",
    tpMode: "gather",
    kernelInitAdjustment: numDevices ** -0.5,
  });
  return layer(part);
});
const ringVariables = initSharded(Ring().init, { mesh, inSpecs: [P(), features] })(random.key(1), x);

const cost = costAnalysis(apply)(variables, x);

describe("the code of the page", () => {
  test("computes what the block with whole kernels computes", async () => {
    const layer = (name: string) => {
      const { params = {} } =
        nn.unbox<Record<string, Record<string, { module: { sharded: Layer } }>>>(variables);
      const { kernel, bias } = params[name]?.module.sharded ?? { kernel: x, bias: x };
      return { kernel, bias };
    };
    interface Layer {
      readonly kernel: Tensor;
      readonly bias: Tensor;
    }
    const [up, down] = [layer("up"), layer("down")];
    const kernel = np.concatenate(
      np.split(up.kernel, numDevices).map((part) => np.squeeze(part, 0)),
      1,
    );
    const h = nn.gelu(np.matmul(x, kernel).add(up.bias.reshape([hidden])));
    const whole = np.matmul(h, down.kernel.reshape([hidden, width])).add(np.sum(down.bias, 0));
    await expectClose(y, x.add(whole), { rtol: 1e-5, atol: 1e-5 });
  });

  test("sends as many bytes as the formulas say", () => {
    const bytes = (4 * 32 * width * (numDevices - 1)) / numDevices;
    expect(cost.bytesMoved({ op: "allGather" })).toBe(bytes);
    expect(cost.bytesMoved({ op: "psumScatter" })).toBe(bytes);
  });

  test("makes one small layer for each device of the ring", () => {
    expect(Object.keys(ringVariables.params?.TPAsyncDense_0 ?? {})).toEqual([
      "shard_0",
      "shard_1",
      "shard_2",
      "shard_3",
    ]);
  });
});

describePage("parallelism/tensor.md", import.meta.url, {
  names: () =>
    flattenWithPath(variables, nn.isBoxed)
      .map(({ path, leaf }) => {
        const shape = leaf instanceof nn.Partitioned ? (leaf.value as Tensor).shape.join(", ") : "";
        return `${path.padEnd(34)} [${shape}] ${leaf}`;
      })
      .join("\n"),
  cost: () => `${cost}`,
});
