import { grad, jit, Mesh, np, random, type Tensor } from "shardwise";
import * as nn from "shardwise/nn";
import { CircularPipeline } from "shardwise/parallel";
import { describe, expect, test } from "vitest";
import { range } from "../../src/ir/shape.js";
import { costAnalysis } from "../../src/spmd/inspect/cost.js";
import { explainSharding } from "../../src/spmd/inspect/explain.js";
import { describePage } from "../support/pages.js";

const Layer = nn.module("Layer", () => (x: Tensor): Tensor => {
  const h = nn.gelu(nn.Dense({ features: 32, name: "up" })(x));
  return x.add(nn.Dense({ features: 8, name: "down" })(h));
});

const mesh = Mesh.create({ data: 2, stage: 2 });

const pipeline = CircularPipeline({
  layers: Layer({ parent: null }),
  mesh,
  numPipelineMicrobatches: 4,
  numPipelineRepeats: 2,
  logicalAxisRules: [
    ["activation_stage", "stage"],
    ["activation_batch", "data"],
    ["layers", "stage"],
  ],
});

const x = random.normal(random.key(0), [8, 16, 8]);
const variables = jit((key: Tensor) => pipeline.init(key, x), { mesh })(random.key(1));

const loss = (v: nn.Variables, inputs: Tensor) => np.mean(np.square(pipeline.apply(v, inputs)));
const grads = jit(grad(loss), { mesh })(variables, x);

/** One row for every stage: the microbatch and the round of each iteration. */
function schedule(): string {
  const { numStages, numMicrobatches, numRepeats } = pipeline.settings;
  const iterations = range(pipeline.totalIterations);
  const cell = (stage: number, i: number) => {
    const processed = i - stage;
    const round = Math.floor(processed / numMicrobatches);
    if (processed < 0 || round >= numRepeats) return " ··";
    return ` ${processed % numMicrobatches}${"abcd"[round]}`;
  };
  const line = (name: string, cells: readonly string[]) => `${name.padEnd(11)}${cells.join(" ")}`;
  return [
    line(
      "iteration",
      iterations.map((i) => String(i).padStart(3)),
    ),
    ...range(numStages).map((s) =>
      line(
        `stage ${s}`,
        iterations.map((i) => cell(s, i)),
      ),
    ),
  ].join("\n");
}

describe("the code of the page", () => {
  test("gives gradients of the weights' shapes", () => {
    const of = (v: nn.Variables) => v.params?.layers as { up: { kernel: Tensor } };
    expect(of(grads).up.kernel.shape).toEqual([2, 2, 8, 32]);
    expect(of(nn.unbox(variables)).up.kernel.shape).toEqual([2, 2, 8, 32]);
  });

  test("draws the schedule that the pipeline keeps", async () => {
    const rows = schedule().split("\n").slice(1);
    for (const i of range(pipeline.totalIterations)) {
      const [microbatches, repeats] = pipeline.getMicrobatchAndRepeatIds(i);
      const [m, r] = [await microbatches.data(), await repeats.data()];
      rows.forEach((row, s) => {
        const text = row.slice(11 + 4 * i, 11 + 4 * i + 3).trim();
        if (text !== "··") expect(text).toBe(`${m[s]}${"abcd"[r[s] ?? 0]}`);
      });
    }
  });
});

describePage("parallelism/circular-pipeline.md", import.meta.url, {
  schedule,
  shardings: () => {
    const { inputs, outputs } = explainSharding(grad(loss), { mesh })(variables, x);
    const lines = [...inputs, ...outputs].map(({ path, type, spec }) => [path, `[${type.shape}]`, `${spec}`]);
    const widths = [0, 1].map((i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)));
    return lines.map((line) => line.map((text, i) => text.padEnd(widths[i] ?? 0)).join("  ")).join("\n");
  },
  cost: () => `${costAnalysis(grad(loss), { mesh })(variables, x)}`,
});
