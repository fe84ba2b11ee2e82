import { describe, expect, test } from "vitest";
import "../../src/index.js";
import { at } from "../../src/ir/shape.js";
import { areAlternatives, outOfMemory, predict, publishedRuns, sources } from "./published.js";

/** `npm run test:published` predicts all runs; these are the quickest ones. */
describe("a published training run of Llama 3.1 8B on 8 GPUs", () => {
  const runs = publishedRuns.slice(0, 2);
  const predictions = runs.map(predict);

  test("takes as long as predicted within 20 %, and as much memory within 10 %", () => {
    for (const [i, run] of runs.entries()) {
      const { tokens, gib } = at(predictions, i);
      expect(Math.abs(tokens / run.tokens - 1)).toBeLessThan(0.2);
      expect(Math.abs(gib / (run.gib ?? 0) - 1)).toBeLessThan(0.1);
    }
  });

  test("is faster in float8 by as much as measured", () => {
    const [narrow, eight] = predictions.map(({ tokens }) => tokens);
    expect((eight ?? 0) / (narrow ?? 1)).toBeCloseTo(8532 / 6667, 0);
    expect((eight ?? 0) / (narrow ?? 1)).toBeGreaterThan(1.15);
  });
});

describe("another way to spread a published run over GPUs", () => {
  test("is predicted to be slower where it was measured to be", () => {
    const [alone] = publishedRuns;
    const split = publishedRuns.find(({ model, float8, mesh }) => model === "8 B" && !float8 && mesh.model);
    if (!alone || !split) throw new Error("two runs of the 8 B model");
    expect(areAlternatives(alone, split)).toBe(true);
    expect(split.tokens).toBeLessThan(0.8 * alone.tokens);
    const { tokens } = predict(split);
    expect(tokens).toBeLessThan(0.8 * predict(alone).tokens);
    expect(Math.abs(tokens / split.tokens - 1)).toBeLessThan(0.2);
  });

  test("needs more memory than there is where it ran out of memory, and the one that was run instead does not", () => {
    const { memoryGiB } = sources[outOfMemory.source].machine;
    const [run] = publishedRuns.filter(({ source }) => source === outOfMemory.source);
    if (!run) throw new Error("a run of the same source");
    expect(predict(outOfMemory).ownGib).toBeGreaterThan(memoryGiB);
    expect(predict(run).gib).toBeLessThan(memoryGiB);
  });
});
