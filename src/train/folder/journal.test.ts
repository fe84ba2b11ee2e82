import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Mesh } from "shardwise";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { readRunConfig } from "../config/runConfig.js";
import { runTrainingFunctions } from "../config/setup.js";
import { readMetrics } from "../report/metrics.js";
import { RunJournal } from "./journal.js";

let out: string;
beforeEach(() => {
  out = mkdtempSync(join(tmpdir(), "shardwise-journal-"));
  vi.useFakeTimers({ toFake: ["performance"] });
});
afterEach(() => {
  vi.useRealTimers();
  rmSync(out, { recursive: true, force: true });
});

test("the time of a step is that between ends of steps, without what comes between steps", async () => {
  const { config } = readRunConfig({
    out,
    model: { numLayers: 1, width: 16, numHeads: 2, numKvHeads: 2 },
    data: { batch: 4, sequence: 8 },
  });
  const mesh = Mesh.create({ data: 1, fsdp: 1, pipe: 1, model: 1 });
  const { types } = runTrainingFunctions(config, 256, mesh);
  const stream = { write: () => true };
  const journal = new RunJournal({
    config,
    types,
    from: undefined,
    isFirst: true,
    stream,
    onChange: () => {},
  });
  const values = { loss: 1, crossEntropy: 1, gradientNorm: 1, gradientSquares: [1], numUpdates: 0 };
  const now = performance.now();
  journal.startClock();
  // The host reads the second step late, and the third right after it.
  await journal.recordStep(1, values, now + 100);
  vi.advanceTimersByTime(290);
  await journal.recordStep(2, values, now + 200);
  await journal.recordStep(3, values, now + 300);
  vi.advanceTimersByTime(1000);
  journal.evaluated(3, 1);
  await journal.recordStep(4, values, now + 1390);
  vi.advanceTimersByTime(1000);
  journal.sampled(4, "text");
  await journal.recordStep(5, values, now + 2390);
  journal.close();
  const records = readMetrics(join(out, "metrics.jsonl")).filter(({ seconds }) => seconds !== undefined);
  expect(records.map(({ seconds }) => Number(seconds).toFixed(3))).toEqual(Array(5).fill("0.100"));
  expect(records.map(({ tokensPerSecond }) => Math.round(Number(tokensPerSecond)))).toEqual(
    Array(5).fill(320),
  );
});
