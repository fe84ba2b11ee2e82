import { costAnalysis, lax, Mesh, np, P, random, shardMap, type Tensor } from "shardwise";
import { simulateDevices } from "shardwise/engines";
import * as nn from "shardwise/nn";
import { initSharded, ModelParallelismWrapper, PipelineModule } from "shardwise/parallel";
import { describe, expect, test } from "vitest";
import { range } from "../../src/ir/shape.js";
import { map } from "../../src/trace/tree.js";
import { expectClose } from "../support/goldens.js";
import { describePage } from "../support/pages.js";

const Stage = nn.module("Stage", () => (x: Tensor) => {
  const h = nn.silu(nn.Dense({ features: 32 })(nn.RMSNorm()(x)));
  return x.add(nn.Dense({ features: 16 })(h));
});

const numStages = 4;
const numMicrobatches = 6;
const mesh = Mesh.create({ pipe: numStages }, { engine: simulateDevices(numStages) });
const model = PipelineModule({
  modelAxisName: "pipe",
  numMicrobatches,
  moduleFn: () => ModelParallelismWrapper({ modelAxisName: "pipe", moduleFn: (config) => Stage(config) }),
});

const x = random.normal(random.key(0), [24, 16]);
const variables = initSharded(model.init, { mesh })(random.key(1), x);

const loss = shardMap(
  (params: nn.Variables, batch: Tensor) => {
    const isLast = lax.axisIndex("pipe").eq(numStages - 1);
    const value = np.mean(np.square(model.apply(params, batch)));
    return lax.psum(np.where(isLast, value, 0), "pipe");
  },
  { mesh, inSpecs: [nn.getPartitionSpec(variables), P()], outSpecs: P() },
);
const value = loss(variables, x);

const cost = costAnalysis(loss)(variables, x);

/** One row for every stage: the microbatch of each iteration. */
function schedule(): string {
  const numIterations = numMicrobatches + numStages - 1;
  return range(numStages)
    .map((stage) => {
      const cells = range(numIterations).map((i) =>
        i >= stage && i - stage < numMicrobatches ? String(i - stage) : "·",
      );
      return `stage ${stage}   ${cells.join(" ")}`;
    })
    .join("\n");
}

describe("the code of the page", () => {
  test("computes what the stages compute one after the other", async () => {
    const { ModelParallelismWrapper_0: wrapper } = nn.unbox<{
      params: { ModelParallelismWrapper_0: { sharded: nn.VariableTree } };
    }>(variables).params;
    const y = range(numStages).reduce(
      (h, s) =>
        Stage().apply({ params: map((p: Tensor) => lax.indexInDim(p, s, 0, false), wrapper.sharded) }, h),
      x,
    );
    await expectClose(value, np.mean(np.square(y)), { rtol: 1e-5 });
  });

  test("sends as many bytes as the formula says", () => {
    const bytes = 4 * (24 / numMicrobatches) * 16 * (numMicrobatches + numStages - 1);
    expect(cost.bytesMoved({ op: "ppermute" })).toBe(bytes);
  });
});

describePage("parallelism/pipeline.md", import.meta.url, { schedule, cost: () => `${cost}` });
