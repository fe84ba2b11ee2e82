import { expect, test } from "vitest";
import { np, type Tensor } from "../../index.js";
import { readRunConfig } from "../config/runConfig.js";
import { fromCanonical, toCanonical } from "./layerOrder.js";

test("layers of a V lie in the order in which stages run them, and come back in their own", async () => {
  const layout = { numStages: 2, numRepeats: 2, layersPerStage: 1, placement: "v" } as const;
  const placed = fromCanonical({ layers: { w: np.arange(4) } }, layout) as unknown as {
    layers: { layers: { stack: { w: Tensor } } };
  };
  const { w } = placed.layers.layers.stack;
  expect([w.shape, [...(await w.data())]]).toEqual([
    [2, 2, 1],
    [0, 1, 3, 2],
  ]);
  const back = toCanonical(placed, layout) as unknown as { layers: { w: Tensor } };
  expect([...(await back.layers.w.data())]).toEqual([0, 1, 2, 3]);
});

test("schedules say what they need of layers, repeats and microbatches", () => {
  const problems = (pipeline: object, numLayers = 4) =>
    readRunConfig({ mesh: { pipe: 2 }, model: { numLayers }, data: { batch: 12 }, pipeline }).violations;
  expect(problems({ schedule: "1f1b", microbatches: 3 })).toEqual([]);
  expect(problems({ schedule: "circular", microbatches: 3 })).toHaveLength(1);
  expect(problems({ schedule: "zb-v" }, 6)).toEqual([
    "model.numLayers is 6, which does not split 4 ways (mesh.pipe x two parts of zb-v: 6 / 4 = 1.5): use 4 or 8",
  ]);
  expect(problems({ schedule: "zb-h1", repeats: 2 })).toEqual([
    "pipeline.repeats is 2, but every stage has one part of the model with pipeline.schedule zb-h1: leave it out, or use circular, interleaved or breadth-first",
  ]);
});
