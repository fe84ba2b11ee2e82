import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { temporaryFolder } from "../../../test/support/runs.js";
import { pricesOfDevices } from "../../cli/machineArguments.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import "../../index.js";
import { writeFigures } from "./calibration.js";
import { measureDevices, readMeasuredDevices } from "./measureDevices.js";

const folder = temporaryFolder();
afterAll(folder.remove);

describe("the devices of an engine", () => {
  const engine = createThreadsEngine({ numDevices: 2, threadsPerDevice: 1 });
  afterAll(() => engine.close());

  test("are measured, kept in a file and priced", async () => {
    const seen: string[] = [];
    const measured = await measureDevices(engine, {
      leastSeconds: 1e-4,
      onProgress: (what) => seen.push(what),
    });
    expect(seen).toEqual([
      "products",
      "float32 products",
      "attention",
      "memory",
      "starts",
      "exchange of 2 devices",
    ]);
    expect(measured).toMatchObject({ engine: "threads", numDevices: 2 });
    const { flops, float32 = 0, attention = 0, memoryBandwidth, launch } = measured.device;
    // Slower than any processor, and faster than any.
    for (const rate of [flops, float32, flops * attention, memoryBandwidth, measured.link?.bandwidth ?? 0]) {
      expect(rate).toBeGreaterThan(1e6);
      expect(rate).toBeLessThan(1e15);
    }
    expect(launch).toBeLessThan(1);
    const file = join(folder.path, "deeper", "calibration-xla.json");
    expect(readMeasuredDevices(file)).toBeUndefined();
    writeFigures(file, measured);
    expect(readMeasuredDevices(file)).toEqual(measured);
    const options = { efficiency: 0.6, attention: 0.35 };
    const { prices, note } = pricesOfDevices(options, measured, 2);
    expect(prices.device).toEqual(measured.device);
    expect(note).toContain("as measured on");
    const { link: _, ...alone } = measured;
    expect(() => pricesOfDevices(options, { ...alone, numDevices: 1 }, 2)).toThrow(
      "one device was measured: give --intra, --network or both for several",
    );
  });
});

test.each([
  ["{", "cannot be read"],
  ['{"version":3}', "holds no measurements of devices"],
  ['{"version":1,"device":{"flops":-1}}', "has no flops"],
])("the file %s is refused: it %s", (text, reason) => {
  const file = join(folder.path, "wrong.json");
  writeFileSync(file, text);
  expect(() => readMeasuredDevices(file)).toThrow(`${reason}`);
});
