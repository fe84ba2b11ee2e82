import { afterEach, describe, expect, test } from "vitest";
import { collectiveSpec, handProgram, place } from "../../../test/support/threadsPrograms.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { DeviceFailedError } from "../errors.js";
import { type TestOptions, ThreadsEngine } from "./engine.js";

const opened: ThreadsEngine[] = [];

function open(test: TestOptions, deadlineMs = 20_000): ThreadsEngine {
  const engine = new ThreadsEngine({ numDevices: 3, deadlineMs }, test);
  opened.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((engine) => engine.close()));
});

const mesh = { axes: [{ name: "x", size: 3 }] };
const type = tensorType("float32", [5000]);

/** All devices copy, sum and copy; step 2 is where the peers wait. */
const program = handProgram("train", [type], [type], {
  arenaBytes: 20_000,
  slots: [{ kind: "arena", offset: 0 }],
  collectives: [
    collectiveSpec(mesh, { kind: "allReduce", dtype: "float32", axes: ["x"], outer: 1, inner: 5000 }, 2, 1),
  ],
  infos: [
    { ops: ["mul", "add"], source: { text: "model.ts:3:5" }, flops: 0, bytes: 0 },
    { ops: ["psum"], source: { text: "model.ts:4:9" }, flops: 0, bytes: 0 },
  ],
  steps: [
    { op: "copy", source: place(0), target: place(2), bytes: 20_000, info: 0 },
    { op: "start", collective: 0, info: 1 },
    { op: "done", collective: 0, info: 1 },
  ],
});

function start(engine: ThreadsEngine): DeviceBuffer[] {
  const run = engine.load(program, { mesh, devices: range(3) });
  const inputs = range(3).map((device) => engine.upload(type, new Float32Array(5000).fill(device), device));
  run.execute([inputs]);
  const [outputs = []] = run.execute([inputs]);
  return outputs;
}

async function failuresOf(engine: ThreadsEngine): Promise<unknown[]> {
  const outputs = start(engine);
  const results = await Promise.allSettled(outputs.map((buffer) => engine.download(buffer)));
  return results.map((result) => (result.status === "rejected" ? result.reason : "no failure"));
}

describe("a device that fails", () => {
  test.each([
    ["throw", "its worker threw RangeError: injected fault"],
    ["exit", "its worker exited with code 0"],
    ["hang", "it made no progress for 1500 ms"],
  ] as const)(
    "by %s ends every run with one error that names it",
    { timeout: 15_000 },
    async (kind, reason) => {
      const fault = { device: 1, kind, program: "train", step: 1 };
      const engine = open({ faults: [fault] }, kind === "hang" ? 1500 : 20_000);
      const failures = await failuresOf(engine);
      const [first] = failures;
      expect(failures).toEqual([first, first, first]);
      expect(first).toBeInstanceOf(DeviceFailedError);
      expect(first).toMatchObject({
        code: "device-failed",
        message: `[engine] device 1, program "train", step 1 (psum) at model.ts:4:9: ${reason}; every run in flight has ended: close this engine and open another one`,
      });
      expect(() => start(engine)).toThrow(DeviceFailedError);
    },
  );

  test.each([
    ["throw", /its worker has ended/],
    ["exit", /its worker has ended/],
    ["hang", /it made no progress for 1500 ms/],
  ] as const)(
    "by %s also ends a loop that never lets the main thread go",
    { timeout: 15_000 },
    (kind, reason) => {
      const engine = open({ faults: [{ device: 1, kind, program: "train", step: 1 }] }, 1500);
      const run = engine.load(program, { mesh, devices: range(3) });
      const inputs = range(3).map((device) => engine.upload(type, new Float32Array(5000), device));
      const loop = () => {
        for (let i = 0; i < 1000; i++)
          for (const buffer of run.execute([inputs]).flat()) engine.release(buffer);
      };
      expect(loop).toThrow(reason);
      expect(loop).toThrow(DeviceFailedError);
    },
  );

  test("leaves what was computed before readable, and another engine can be opened", async () => {
    const engine = open({ faults: [{ device: 2, kind: "throw", program: "train", step: 0 }] });
    const kept = engine.upload(type, new Float32Array(5000).fill(7), 2);
    await failuresOf(engine);
    expect((await engine.download(kept))[4999]).toBe(7);
    expect(() => engine.upload(type, new Float32Array(5000), 0)).toThrow(DeviceFailedError);
    await engine.close();
    const second = open({});
    const results = await Promise.all(start(second).map((buffer) => second.download(buffer)));
    expect(results.map((result) => result[4999])).toEqual([3, 3, 3]);
  });

  test("is found when devices wait for something that nobody does", { timeout: 15_000 }, async () => {
    const engine = open({}, 1500);
    // Position 0 takes part in a collective that the others never begin.
    const skipped = handProgram("skipped", [tensorType("int32", [1])], [type], {
      arenaBytes: 20_000,
      slots: [{ kind: "arena", offset: 0 }],
      collectives: program.collectives,
      infos: program.infos,
      steps: [{ op: "cond", index: place(0), branches: [[], program.steps.slice(1)], info: 0 }],
    });
    const run = engine.load(skipped, { mesh, devices: range(3) });
    const takesPart = [1, 0, 0].map((flag, device) =>
      engine.upload(tensorType("int32", [1]), new Int32Array([flag]), device),
    );
    const [outputs = []] = run.execute([takesPart]);
    await expect(engine.download(at(outputs, 0))).rejects.toMatchObject({
      code: "device-failed",
      message: expect.stringMatching(
        /device 0, program "skipped", step 2 \(psum\) at model.ts:4:9: it has waited 1500 ms for (its peers|device \d)/,
      ),
    });
  });

  test("cannot happen to an engine that is closed while it works", async () => {
    const engine = open({ faults: [{ device: 0, kind: "hang", program: "train", step: 0 }] });
    const [output] = start(engine);
    if (output === undefined) throw new Error("no output");
    const result = engine.download(output);
    const closed = engine.close();
    await expect(result).rejects.toMatchObject({ code: "disposed" });
    await closed;
    await engine.close();
  });
});
