/** A GPU that is lost in the middle of a run, in Node. Chromium's is in test/browser. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, expect, test, vi } from "vitest";
import { chooseEngine, sharedEngine } from "../../src/engines/default.js";
import { findGpu } from "../../src/engines/webgpu/findGpu.js";
import { checkpointFolder } from "../../src/train/config/setup.js";
import { said } from "../support/cliHere.js";
import { describeWith, webGpu } from "../support/optional.js";
import { temporaryFolder, writeText } from "../support/runs.js";

describeWith(webGpu, "a run whose GPU is lost", () => {
  const folder = temporaryFolder();
  const data = { source: writeText(folder.path), sequence: 8, batch: 2 };
  const model = { width: 8, numLayers: 1, numHeads: 1, numKvHeads: 1, mlpWidth: 8 };
  const config = join(folder.path, "config.json");
  const settings = { steps: 8, checkpointEvery: 2, evalEvery: 8, sample: 0 };
  writeFileSync(config, JSON.stringify({ model, data, mesh: { data: 1 }, ...settings }));
  afterAll(async () => {
    vi.unstubAllGlobals();
    await chooseEngine(undefined);
    folder.remove();
  });

  const linesOf = (out: string): { step: number; loss: number }[] => {
    const file = join(folder.path, out, "metrics.jsonl");
    if (!existsSync(file)) return [];
    const lines = readFileSync(file, "utf8").split("\n").slice(0, -1);
    return lines.map((line) => JSON.parse(line)).filter(({ loss }) => loss !== undefined);
  };

  /** Trains; the first GPUs that the process opens are lost once there is a checkpoint. */
  async function train(out: string, numLost: number, ...more: readonly string[]) {
    const run = join(folder.path, out);
    const first = join(checkpointFolder(run), "step-00000002");
    const opened = await watchDevices((number) => number < numLost && existsSync(first));
    const ended = await said("train", config, "--out", run, "--engine", "webgpu", ...more);
    const count = opened();
    // The next run opens its own.
    await sharedEngine(1).close();
    return { ...ended, opened: count };
  }

  test("is an error that names the newest checkpoint", { timeout: 300_000 }, async () => {
    const { code, err } = await train("ended", 1);
    expect(code).toBe(1);
    expect(err).toMatch(
      /the GPU was lost \(destroyed\).*the checkpoint of step [246] is complete: continue from it with --resume/,
    );
  });

  test("continues on a new GPU with --max-restarts, to the losses of an undisturbed run", {
    timeout: 600_000,
  }, async () => {
    const whole = await train("whole", 0);
    expect(whole.code, whole.err).toBe(0);
    const { code, err, opened } = await train("restarted", 1, "--max-restarts", "2");
    expect(code, err).toBe(0);
    expect(err).toContain("restarting (1 of 2) from the newest checkpoint");
    expect(opened).toBe(2);
    expect(linesOf("restarted").map(({ step }) => step)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(linesOf("restarted").map(({ loss }) => loss)).toEqual(linesOf("whole").map(({ loss }) => loss));
  });
});

/**
 * Lets the process find its GPU in `navigator`, and destroys devices when they are used.
 *
 * @param isLost whether the device with this number is lost now
 * @returns how many devices were opened
 */
async function watchDevices(isLost: (number: number) => boolean): Promise<() => number> {
  vi.unstubAllGlobals();
  const gpu = await findGpu(false);
  let opened = 0;
  const requestAdapter: GPU["requestAdapter"] = async (options) => {
    const adapter = await gpu.requestAdapter(options);
    if (adapter === null) return null;
    const requestDevice: GPUAdapter["requestDevice"] = async (description) => {
      const device = await adapter.requestDevice(description);
      const number = opened++;
      const create = device.createCommandEncoder.bind(device);
      device.createCommandEncoder = (options) => {
        if (isLost(number)) device.destroy();
        return create(options);
      };
      return device;
    };
    const { limits, features, info } = adapter;
    return { limits, features, info, requestDevice } as GPUAdapter;
  };
  vi.stubGlobal("navigator", { gpu: { requestAdapter } });
  return () => opened;
}
