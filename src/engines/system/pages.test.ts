import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { bothOf, describeWith, hugePages, koffi, testWith } from "../../../test/support/optional.js";
import { createMemories } from "../memory/memoryLayout.js";
import { createThreadsEngine } from "../threads/engine.js";
import { nativeAddress, releaseNativeAddress } from "./nativeAddress.js";

const needed = bothOf(hugePages, koffi);

/** What the system notes about the pages at an address of this process. */
function flagsAt(address: number): string[] {
  let isInside = false;
  for (const line of readFileSync("/proc/self/smaps", "utf8").split("\n")) {
    const range = /^([0-9a-f]+)-([0-9a-f]+) /.exec(line);
    if (range) {
      const [begin, end] = range.slice(1).map((text) => Number.parseInt(text, 16));
      isInside = address >= (begin ?? 0) && address < (end ?? 0);
    } else if (isInside && line.startsWith("VmFlags:")) {
      return line.split(/\s+/).slice(1);
    }
  }
  return [];
}

describeWith(needed, "memories of devices", () => {
  test.each(["shared", "separate"] as const)("ask for huge pages: %s", (kind) => {
    const { memories } = createMemories({ kind, addressType: "i32" }, 2, 2 ** 26, true);
    for (const memory of memories) {
      expect(flagsAt(nativeAddress(memory))).toContain("hg");
      releaseNativeAddress(memory);
    }
  });
});

/** The real memory of this process, in MiB. */
function residentMiB(): number {
  return process.memoryUsage.rss() / 2 ** 20;
}

testWith(
  needed,
  "a closed engine gives its memory back, even while somebody holds a tensor of it",
  {},
  async () => {
    const engine = createThreadsEngine({ numDevices: 1 });
    const data = new Float32Array(2 ** 26).fill(1);
    const buffer = engine.upload({ dtype: "float32", shape: [data.length] }, data, 0);
    await engine.ready(buffer);
    const before = residentMiB();
    await engine.close();
    await expect.poll(() => before - residentMiB()).toBeGreaterThan(200);
    expect(buffer.type.shape).toEqual([data.length]);
  },
);
