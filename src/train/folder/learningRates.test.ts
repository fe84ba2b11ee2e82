import { expect, test } from "vitest";
import { range } from "../../ir/shape.js";
import { runSchedule } from "../config/optimizer.js";
import { readRunConfig } from "../config/runConfig.js";
import { LearningRates } from "./learningRates.js";

test.each(["constant", "cosine", "linear", "wsd"])("are those of the schedule %s", async (schedule) => {
  const { config } = readRunConfig({ steps: 600, optimizer: { schedule, warmup: 20 } });
  const of = runSchedule(config);
  const rates = new LearningRates(of);
  // Also from the middle on, as in a resumed run, and back.
  for (const update of [...range(30), 255, 256, 511, 512, 599, 40]) {
    const want = await of(update).item();
    expect(Math.abs((await rates.at(update)) - want)).toBeLessThanOrEqual(1e-7 * want);
  }
});
