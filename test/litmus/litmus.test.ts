import { afterAll, beforeAll, expect, test } from "vitest";
import { bothOf, describeWith, nativeProducts, twoCores } from "../support/optional.js";
import { LitmusThreads } from "./litmus.js";
import { litmusTests, planted } from "./programs.js";

describeWith(bothOf(nativeProducts, twoCores), "threads that share memory", () => {
  let threads: LitmusThreads;
  beforeAll(async () => {
    threads = await LitmusThreads.start();
  });
  afterAll(() => threads.close());

  test("never see what the order of accesses forbids", async () => {
    for (const litmus of litmusTests) {
      const { numForbidden, numTimes, outcomes } = await threads.run(litmus, 20);
      expect(numTimes, litmus.name).toBeGreaterThan(0);
      expect(numForbidden, `${litmus.name}: ${[...outcomes].join("; ")}`).toBe(0);
    }
  });

  test.each(planted)(
    "$name",
    async (litmus) => {
      const end = performance.now() + 20_000;
      let numForbidden = 0;
      while (numForbidden === 0 && performance.now() < end)
        numForbidden = (await threads.run(litmus, 30)).numForbidden;
      expect(numForbidden).toBeGreaterThan(0);
    },
    40_000,
  );
});
