import { describe, expect, test } from "vitest";
import { Mesh, np } from "../../index.js";
import type { CollectiveOp } from "../../ir/opFacts.js";
import { adamw } from "../../optim/index.js";
import type { ModelConfig } from "../models/config.js";
import { createTraining } from "./training.js";

const model: ModelConfig = {
  kind: "llama",
  vocabSize: 32,
  width: 16,
  numLayers: 2,
  numHeads: 4,
  numKvHeads: 2,
  mlpWidth: 32,
  tieEmbeddings: false,
  ropeBase: 10_000,
  normEpsilon: 1e-6,
  dtype: "float32",
  remat: "none",
};
const [batch, length] = [4, 8];
/** Bytes of the kernels of a layer, of its norms, and of embedding, head and last norm. */
const layer = 4 * (2 * 16 * 16 + 2 * 16 * 8 + 3 * 16 * 32);
const norms = 4 * 2 * 16;
const ends = 4 * (2 * 32 * 16 + 16);
const parameters = model.numLayers * (layer + norms) + ends;
const activation = 4 * batch * length * model.width;

function cost(axes: Record<string, number>, tensor: "sync" | "async" = "sync") {
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1, ...axes });
  const training = createTraining({ model, optimizer: adamw({ learningRate: 1e-2 }), mesh, tensor });
  const report = training.cost(training.init(0), np.zeros([batch, length + 1], "int32"));
  const of = (op: CollectiveOp, axis: string) => report.bytesMoved({ op, axis });
  const ops = new Set(report.collectives.map(({ op }) => op));
  return { of, ops };
}

describe("the annotated transformer communicates as one written by hand", () => {
  test("data parallel: every gradient is summed once, and nothing else moves but scalars", () => {
    const { of, ops } = cost({ data: 2 });
    expect([...ops]).toEqual(["psum"]);
    expect(of("psum", "data")).toBeGreaterThanOrEqual(parameters);
    expect(of("psum", "data")).toBeLessThan(parameters + 64);
  });

  test("fully sharded: weights are gathered for each pass, gradients are scattered once", () => {
    const { of } = cost({ fsdp: 2 });
    // A device sends half of a tensor that two devices gather or scatter.
    expect(of("psumScatter", "fsdp")).toBe((model.numLayers * layer + ends - 4 * 16) / 2);
    expect(of("allGather", "fsdp")).toBeLessThanOrEqual(2 * (parameters / 2));
    expect(of("allGather", "fsdp")).toBeGreaterThan(parameters / 2);
  });

  test("tensor parallel: two sums of activations a layer and pass, and those of embedding and loss", () => {
    const { of, ops } = cost({ model: 2 });
    expect(ops.has("allGather")).toBe(false);
    const sums = model.numLayers * 4 * activation;
    const rest = 2 * activation + 8 * 4 * batch * length;
    expect(of("psum", "model")).toBeGreaterThanOrEqual(sums);
    expect(of("psum", "model")).toBeLessThanOrEqual(sums + rest);
  });

  test("tensor parallel in rings: two gathers and two scatters a layer and pass, hop by hop", () => {
    for (const axes of [{ model: 2 }, { data: 2, model: 2 }]) {
      const { of, ops } = cost(axes, "async");
      const own = activation / ("data" in axes ? 2 : 1);
      // Those of the layers, the one of the output layer, and what comes back from it.
      expect(of("ppermute", "model")).toBe((model.numLayers * 8 + 2) * (own / 2));
      expect(ops.has("allGather")).toBe(false);
      // The embedding's look-up is no product.
      expect(of("psumScatter", "model")).toBe(own / 2);
      expect(of("psum", "model")).toBeLessThan(own);
    }
  });

  test("data x model: each axis carries only its own", () => {
    const { of, ops } = cost({ data: 2, model: 2 });
    expect(ops.has("allGather")).toBe(false);
    const split = parameters - 4 * (2 * model.numLayers + 1) * 16;
    expect(of("psum", "data")).toBeLessThan(split / 2 + 4 * 16 * 5 + 64);
    expect(of("psum", "model")).toBeLessThanOrEqual(
      (model.numLayers * 4 + 2) * (activation / 2) + 8 * 4 * batch * length,
    );
  });
});
