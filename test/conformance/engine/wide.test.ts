import { describe, expect, test } from "vitest";
import { createThreadsEngine } from "../../../src/engines/index.js";
import { hasWideMemories } from "../../../src/engines/memory/memoryLayout.js";
import { runEngineSuite } from "./suite.js";

/** More than 32 bits can address: intermediate values lie behind the fourth gibibyte. */
const memoryBytes = 5 * 2 ** 30;

if (hasWideMemories()) {
  runEngineSuite({
    name: "threads with 64-bit memories",
    newEngine: (numDevices) => createThreadsEngine({ numDevices, memoryBytes, deadlineMs: 60_000 }),
  });
} else {
  describe("the threads engine without 64-bit memories", () => {
    test("says how much a device can have, and where it could have more", () => {
      expect(() => createThreadsEngine({ numDevices: 1, memoryBytes })).toThrow(
        /memoryBytes is 5368709120 \(5 GiB\).*a device can have 4 GiB on Node 2\d\.[\d.]+, and up to 16 GiB from Node 24/,
      );
    });
  });
}
