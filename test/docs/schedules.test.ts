import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { jit, Mesh, np, random, type Tensor } from "shardwise";
import { simulateDevices } from "shardwise/engines";
import {
  checkSchedule,
  drawSchedule,
  pipelineTrainStep,
  placeParts,
  scheduleOf,
  simulateSchedule,
  zeroBubbleH1,
} from "shardwise/parallel";
import { describe, expect, test } from "vitest";
import { makeSchedule, type ScheduleName, scheduleNames, scheduleSvg } from "../../src/parallel/index.js";
import { describePage } from "../support/pages.js";

const schedule = zeroBubbleH1({ numStages: 4, numMicrobatches: 6 });
console.log(drawSchedule(schedule));
const { bubble, activations } = checkSchedule(schedule);

const own = scheduleOf("mine", [
  ["0F0", "0F1", "0B0", "0B1"],
  ["1F0", "1I0", "1F1", "1I1", "1W0", "1W1"],
]);

const onPaper = simulateSchedule(schedule, {
  times: { F: 0.018, I: 0.018, W: 0.009 },
  link: { bytes: 28e6, bandwidth: 50e9, latency: 1e-5 },
  kept: { input: 1e8, weight: 3e8 },
});
console.log(onPaper.seconds, onPaper.bubble, onPaper.stages[0]?.peakBytes);

const mesh = Mesh.create({ pipe: 4 }, { engine: simulateDevices(4) });
const functions = {
  first: (w: { embed: Tensor }, x: Tensor) => np.matmul(x, w.embed),
  stage: (w: { kernel: Tensor }, h: Tensor) => h.add(np.tanh(np.matmul(h, w.kernel))),
  last: (w: { head: Tensor }, h: Tensor, y: Tensor) => np.mean(np.square(np.matmul(h, w.head).sub(y))),
};
const [x, y] = [random.normal(random.key(0), [12, 8]), random.normal(random.key(1), [12, 2])];
const weights = {
  first: { embed: random.normal(random.key(2), [8, 16]) },
  stages: placeParts(schedule, { kernel: random.normal(random.key(3), [4, 16, 16]) }),
  last: { head: random.normal(random.key(4), [16, 2]) },
};
const step = jit(pipelineTrainStep(schedule, functions, { mesh }), { mesh });
const { value, grads } = step(weights, x, y);

const severalChunks: readonly ScheduleName[] = ["circular", "interleaved", "breadth-first"];

/** Every schedule with 4 stages and 8 microbatches: its bubble, and what it keeps. */
function table(): string {
  const rows = scheduleNames.map((name) => {
    const chunks = severalChunks.includes(name) ? { numChunks: 2 } : {};
    const one = makeSchedule(name, { numStages: 4, numMicrobatches: 8, ...chunks });
    const report = checkSchedule(one);
    const kept = Math.max(...report.activations) / one.numChunks;
    const called = one.numChunks > 1 ? `${name}, ${one.numChunks} chunks` : name;
    return `${called.padEnd(26)}${`${(100 * report.bubble).toFixed(1)} %`.padStart(8)}${kept.toFixed(1).padStart(8)}`;
  });
  return [`${"".padEnd(26)}${"bubble".padStart(8)}${"kept".padStart(8)}`, ...rows].join("\n");
}

function refused(): string {
  try {
    scheduleOf("mine", [
      ["0F0", "0B0", "0F1", "0B1"],
      ["1F1", "1F0", "1B0", "1B1"],
    ]);
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
  return "";
}

describe("the code of the page", () => {
  test("computes what it says", async () => {
    expect(bubble).toBeCloseTo(3 / 21);
    expect(activations).toEqual([4, 4, 4, 4]);
    expect(own.stages).toHaveLength(2);
    expect(onPaper.seconds).toBeGreaterThan(6 * 0.045);
    expect(onPaper.stages[0]?.peakBytes).toBe(4 * 4e8);
    expect(Number.isFinite(await value.item())).toBe(true);
    expect(grads.stages.kernel.shape).toEqual([1, 4, 16, 16]);
  });
});

describe("the pictures of the page", () => {
  test.each(["1f1b", "zb-h1", "zb-v"] as const)("show %s as it is drawn", (name) => {
    const path = fileURLToPath(new URL(`../../docs/images/schedule-${name}.svg`, import.meta.url));
    const svg = scheduleSvg(makeSchedule(name, { numStages: 4, numMicrobatches: 8 }), { width: 860 });
    if (process.env.UPDATE) writeFileSync(path, svg);
    else expect(readFileSync(path, "utf8")).toBe(svg);
  });
});

describePage("parallelism/schedules.md", import.meta.url, {
  zbh1: () => drawSchedule(schedule).trimEnd(),
  table,
  refused,
});
