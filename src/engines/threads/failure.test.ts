import { afterEach, describe, expect, test, vi } from "vitest";
import { collectiveSpec, handProgram, place } from "../../../test/support/threadsPrograms.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { DesyncError, DeviceFailedError } from "../errors.js";
import { findBlame } from "../flight/flightAnalysis.js";
import type { TestOptions } from "../workers/workersOptions.js";
import { ThreadsEngine } from "./engine.js";

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
    // Half a second at 1 GFLOP/s, which the watchdog adds to the deadline.
    { ops: ["psum"], source: { text: "model.ts:4:9" }, flops: 5e8, bytes: 0 },
  ],
  steps: [
    { op: "copy", source: place(0), target: place(2), bytes: 20_000, info: 0 },
    { op: "start", collective: 0, info: 1 },
    { op: "done", collective: 0, info: 1 },
  ],
});

/** A deadline that no test lives to see: what ends before it ends for another reason. */
const never = 3_600_000;

/** A deadline that tests wait for: longer than workers take to start on a machine that is busy with other things. */
const soon = 3000;

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
    ["hang", `it made no progress for ${soon + 500} ms`],
  ] as const)("by %s ends every run with one error that names it", async (kind, reason) => {
    const emit = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const fault = { device: 1, kind, program: "train", step: 1 };
    const engine = open({ faults: [fault] }, kind === "hang" ? soon : never);
    const failures = await failuresOf(engine);
    const warned = emit.mock.calls.map(([text]) => text);
    emit.mockRestore();
    const [first] = failures;
    expect(failures).toEqual([first, first, first]);
    expect(first).toBeInstanceOf(DeviceFailedError);
    expect(first).toMatchObject({
      code: "device-failed",
      message: `[engine] device 1, program "train", step 1 (psum) at model.ts:4:9: ${reason}; every run in flight has ended: close this engine and open another one`,
    });
    expect(() => start(engine)).toThrow(DeviceFailedError);
    // Who is slow is warned of before it counts as failed.
    const slow =
      /^\[engine\] device 1, program "train", step 1 \(psum\) at model.ts:4:9: it has made no progress for [\d.]+ s; after 3.5 s it counts as failed/;
    expect(warned).toEqual(kind === "hang" ? [expect.stringMatching(slow)] : []);
  });

  test.each([
    ["throw", /its worker has ended/],
    ["exit", /its worker has ended/],
    ["hang", /it made no progress for 3500 ms/],
  ] as const)("by %s also ends a loop that never lets the main thread go", (kind, reason) => {
    const fault = { device: 1, kind, program: "train", step: 1 };
    const engine = open({ faults: [fault] }, kind === "hang" ? soon : never);
    const run = engine.load(program, { mesh, devices: range(3) });
    const inputs = range(3).map((device) => engine.upload(type, new Float32Array(5000), device));
    const loop = () => {
      for (let i = 0; i < 1000; i++)
        for (const buffer of run.execute([inputs]).flat()) engine.release(buffer);
    };
    expect(loop).toThrow(reason);
    expect(loop).toThrow(DeviceFailedError);
  });

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

/** Each device takes the branch that its input names: none, the sum, the sum twice in other words, or a gather. */
const branching = handProgram("branching", [tensorType("int32", [1])], [type], {
  arenaBytes: 80_000,
  slots: [
    { kind: "arena", offset: 0 },
    { kind: "arena", offset: 20_032 },
  ],
  collectives: [
    ...program.collectives,
    collectiveSpec(mesh, { kind: "allGather", dtype: "float32", axes: ["x"], outer: 1, inner: 1250 }, 2, 3),
  ],
  infos: program.infos,
  steps: [
    {
      op: "cond",
      index: place(0),
      branches: [
        [],
        program.steps.slice(1),
        [
          { op: "start", collective: 1, info: 1 },
          { op: "done", collective: 1, info: 1 },
        ],
      ],
      info: 0,
    },
  ],
});

describe("devices that come to different collectives", () => {
  /** What one run after the other ends with, when every device takes these branches. */
  async function endOf(runs: readonly (readonly number[])[]): Promise<unknown> {
    const engine = open({}, never);
    const run = engine.load(branching, { mesh, devices: range(3) });
    const outputs = runs.map((choices) => {
      const inputs = choices.map((choice, device) =>
        engine.upload(tensorType("int32", [1]), new Int32Array([choice]), device),
      );
      return run.execute([inputs])[0] ?? [];
    });
    const results = await Promise.allSettled((outputs.at(-1) ?? []).map((buffer) => engine.download(buffer)));
    const reasons = results.map((result) => (result.status === "rejected" ? result.reason : "no failure"));
    // Whoever left the run before has its result.
    const errors = new Set(reasons.filter((reason) => reason !== "no failure"));
    expect(errors.size).toBeLessThan(2);
    const [error] = errors;
    if (error !== undefined) expect(() => run.execute([[]])).toThrow(DesyncError);
    return error;
  }

  test("are no failure when all of them decide alike", async () => {
    expect(
      await endOf([
        [1, 1, 1],
        [0, 0, 0],
        [2, 2, 2],
        [1, 1, 1],
      ]),
    ).toBeUndefined();
  });

  test.each([
    [
      "one leaves a sum out",
      [
        [1, 1, 1],
        [1, 0, 1],
      ],
      /device 1 +run 2 +collective 0 +(has come|was its last)/,
    ],
    [
      "one makes up for it in the next run",
      [
        [1, 0, 1],
        [1, 1, 1],
        [1, 1, 1],
      ],
      /run 1 +collective 1 +allReduce/,
    ],
    ["one gathers what others sum", [[1, 1, 2]], /device 2 +run 1 +collective 1 +allGather/],
  ] as const)("end everywhere with one error that says where each is, when %s", async (_, runs, table) => {
    const error = await endOf(runs);
    expect(error).toBeInstanceOf(DesyncError);
    expect(String(error)).toMatch(table);
    expect(String(error)).toContain('the devices of program "branching" came to different collectives');
  });

  test("leave a recording that names the one that left", async () => {
    await endOf([
      [1, 1, 1],
      [1, 1, 0],
    ]);
    const recording = at(opened, opened.length - 1).flightRecording("a test");
    expect(findBlame([recording])).toMatchObject({ devices: [2] });
    // Who missed it was in the second run; one of the others may not have begun that.
    const [first, second, left] = recording.devices.map(
      ({ records }) => records.filter(({ kind }) => kind === "run").length,
    );
    expect([Math.max(first ?? 0, second ?? 0), left]).toEqual([2, 2]);
  });
});

/** A loop whose condition is its input, which nothing changes. */
const endless = handProgram("endless", [tensorType("int32", [1])], [tensorType("int32", [1])], {
  slots: [{ kind: "dynamic" }],
  infos: [{ ops: ["while"], source: { text: "model.ts:7:1" }, flops: 0, bytes: 0 }],
  steps: [
    {
      op: "while",
      sets: [{ slot: 2, from: place(0) }],
      condition: [{ op: "copy", source: place(0), target: place(1), bytes: 4, info: 0 }],
      predicate: place(2),
      body: [{ op: "copy", source: place(0), target: place(1), bytes: 4, info: 0 }],
      swaps: [],
      info: 0,
    },
  ],
});

test("a loop that never ends is reported after the deadline", async () => {
  const engine = open({}, soon);
  const run = engine.load(endless, { mesh, devices: range(3) });
  const flags = [0, 1, 0].map((flag, device) =>
    engine.upload(tensorType("int32", [1]), new Int32Array([flag]), device),
  );
  const [outputs = []] = run.execute([flags]);
  await expect(engine.download(at(outputs, 1))).rejects.toMatchObject({
    code: "device-failed",
    message: expect.stringMatching(/device 1, program "endless", .*its whileLoop has not ended for 3000 ms/),
  });
});
