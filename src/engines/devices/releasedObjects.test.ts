import { expect, test } from "vitest";
import { startWorker } from "../../platform/startWorker.js";
import type { CollectionExtent } from "../collector.js";
import { bundleWorker } from "../system/bundleWorker.js";
import { RECLAIM_THRESHOLD, ReleasedObjects } from "./releasedObjects.js";

test("a thread looks for what it let go of when that was much", () => {
  const looks: (CollectionExtent | undefined)[] = [];
  const released = new ReleasedObjects((extent) => looks.push(extent));
  for (let i = 1; i < RECLAIM_THRESHOLD.programs; i++) released.program();
  released.message(RECLAIM_THRESHOLD.bytes - 1);
  expect(looks).toEqual([]);
  released.message(1);
  released.program();
  expect(looks).toEqual(["young", "all"]);
  for (let i = 0; i < 2 * RECLAIM_THRESHOLD.programs; i++) released.program();
  expect(looks).toEqual(["young", "all", "all", "all"]);
});

test("what it finds is given back in the middle of the thread's task", async () => {
  const fixture = new URL("../../../test/fixtures/collectingThread.ts", import.meta.url);
  const worker = startWorker(bundleWorker(fixture), {});
  const found = await new Promise((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
  });
  await worker.terminate();
  expect(found).toEqual({ program: true });
});
