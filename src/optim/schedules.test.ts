import { jit, np } from "shardwise";
import { describe, expect, test } from "vitest";
import { constant, cosine, join, linear, type Schedule, warmupCosine, wsd } from "./schedules.js";

/** The values of optax 0.2.8 at the steps 0 to 8. */
const cases: readonly (readonly [string, Schedule, readonly number[]])[] = [
  ["constant", constant(0.3), [0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]],
  ["linear", linear({ from: 1, to: 0.1, steps: 4 }), [1, 0.775, 0.55, 0.325, 0.1, 0.1, 0.1, 0.1, 0.1]],
  [
    "cosine",
    cosine({ from: 2, to: 0.2, steps: 5 }),
    [2, 1.8281152, 1.3781153, 0.82188463, 0.37188464, 0.2, 0.2, 0.2, 0.2],
  ],
  [
    "cosine with an exponent",
    cosine({ from: 2, to: 0.2, steps: 5, exponent: 2 }),
    [2, 1.672644, 0.9710864, 0.41485584, 0.21641351, 0.2, 0.2, 0.2, 0.2],
  ],
  [
    "warmupCosine",
    warmupCosine({ peak: 0.1, to: 0.01, warmupSteps: 2, steps: 6 }),
    [0, 0.05, 0.1, 0.08681981, 0.054999996, 0.023180196, 0.010000001, 0.010000001, 0.010000001],
  ],
  [
    "wsd",
    wsd({ peak: 1, to: 0.1, warmupSteps: 2, stableSteps: 2, decaySteps: 3 }),
    [0, 0.5, 1, 1, 1, 0.7, 0.39999998, 0.1, 0.1],
  ],
];

describe("a schedule agrees with optax", () => {
  test.each(cases)("%s", async (_name, schedule, want) => {
    const traced = jit(schedule);
    for (const [step, value] of want.entries()) {
      expect(await schedule(step).item()).toBeCloseTo(value, 6);
      expect(await traced(np.array(step, "int32")).item()).toBeCloseTo(value, 6);
    }
  });
});

describe("a schedule", () => {
  test("without warm-up starts at its peak", async () => {
    expect(await warmupCosine({ peak: 1, warmupSteps: 0, steps: 4 })(0).item()).toBe(1);
    expect(await wsd({ peak: 1, warmupSteps: 0, stableSteps: 1, decaySteps: 1 })(0).item()).toBe(1);
  });

  test("refuses numbers of steps that make no sense", () => {
    expect(() => cosine({ from: 1, steps: 0 })).toThrow(
      "[cosine] steps must be an integer of at least 1, got 0",
    );
    expect(() => linear({ from: 1, to: 0, steps: 1.5 })).toThrow(
      "steps must be an integer of at least 0, got 1.5",
    );
    expect(() => warmupCosine({ peak: 1, warmupSteps: 5, steps: 5 })).toThrow("must be more");
    expect(() => join([constant(1)], [1])).toThrow("1 schedules need 0 boundaries, got 1");
  });
});
