import { describe, expect, test } from "vitest";
import "../../src/index.js";
import { at } from "../../src/ir/shape.js";
import { predict, publishedRuns } from "./published.js";

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
