import { afterEach, describe, expect, test } from "vitest";
import { copyStep, handProgram, place } from "../../../test/support/threadsPrograms.js";
import type { Step } from "../../compiler/steps.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { tensorType } from "../../ir/shape.js";
import { createThreadsEngine, type ThreadsEngine } from "./engine.js";

const opened: ThreadsEngine[] = [];

function open(options: ConstructorParameters<typeof ThreadsEngine>[0]): ThreadsEngine {
  const engine = createThreadsEngine(options);
  opened.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((engine) => engine.close()));
});

const one = { axes: [] };
const f4 = tensorType("float32", [4]);

function first(list: readonly DeviceBuffer[][], i = 0): DeviceBuffer {
  const buffer = list[i]?.[0];
  if (buffer === undefined) throw new Error("no such output");
  return buffer;
}

describe("the threads engine", () => {
  test("gives back what was uploaded", async () => {
    const engine = open({ numDevices: 2 });
    const a = engine.upload(f4, new Float32Array([1, 2, 3, 4]), 0);
    const b = engine.upload(f4, new Float32Array([5, 6, 7, 8]), 1);
    expect(await engine.download(b)).toEqual(new Float32Array([5, 6, 7, 8]));
    expect(await engine.download(a)).toEqual(new Float32Array([1, 2, 3, 4]));
    expect(engine.peek(a)).toEqual(new Float32Array([1, 2, 3, 4]));
  });

  test("lets a reader write into a device's memory, and frees it if that fails", async () => {
    const engine = open({ numDevices: 2 });
    const used = engine.memoryUsage(1).used;
    const failing = engine.uploadBy(f4, 1, () => Promise.reject(new Error("the disk is gone")));
    await expect(failing).rejects.toThrow("the disk is gone");
    expect(engine.memoryUsage(1).used).toBe(used);
    const buffer = await engine.uploadBy(f4, 1, async (memory) => {
      expect(memory).toHaveLength(16);
      memory.set(new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer));
    });
    if (buffer === undefined) throw new Error("nothing runs, so all free memory can be written");
    expect(await engine.download(buffer)).toEqual(Float32Array.of(1, 2, 3, 4));
  });

  test("runs programs in the order in which they were started", async () => {
    const engine = open({ numDevices: 1 });
    const copy = engine.load(handProgram("copy", [f4], [f4], { steps: [copyStep(0, 1, 16)] }), {
      mesh: one,
      devices: [0],
    });
    let buffer = engine.upload(f4, new Float32Array([1, 2, 3, 4]), 0);
    for (let i = 0; i < 1000; i++) {
      const next = first(copy.execute([[buffer]]));
      engine.release(buffer);
      buffer = next;
    }
    expect(await engine.download(buffer)).toEqual(new Float32Array([1, 2, 3, 4]));
    expect(engine.memoryUsage(0).used).toBeLessThan(1024);
  });

  test("runs loops, conditions and dynamic addresses", async () => {
    const engine = open({ numDevices: 1 });
    const i32 = tensorType("int32", [1]);
    // Copies rows of the input to the output in reverse, then one row chosen by an index over the last one.
    const program = handProgram(
      "rows",
      [tensorType("float32", [3, 4]), i32],
      [tensorType("float32", [3, 4])],
      {
        slots: [{ kind: "dynamic" }, { kind: "dynamic" }, { kind: "dynamic" }],
        steps: [
          {
            op: "loop",
            count: 3,
            sets: [
              { slot: 3, from: place(0) },
              { slot: 4, from: place(2, 32) },
            ],
            body: [copyStep(3, 4, 16)],
            advances: [
              { slot: 3, stride: 16 },
              { slot: 4, stride: -16 },
            ],
            swaps: [],
            info: 0,
          },
          {
            op: "cond",
            index: place(1),
            branches: [
              [],
              [
                {
                  op: "address",
                  slot: 5,
                  from: place(0),
                  terms: [{ index: place(1), max: 2, stride: 16 }],
                  info: 0,
                },
                { op: "copy", source: place(5), target: place(2, 32), bytes: 16, info: 0 },
              ],
            ],
            info: 0,
          },
        ],
      },
    );
    const run = engine.load(program, { mesh: one, devices: [0] });
    const rows = engine.upload(
      tensorType("float32", [3, 4]),
      new Float32Array(12).map((_, i) => i),
      0,
    );
    const at = (index: number) => engine.upload(i32, new Int32Array([index]), 0);
    expect(await engine.download(first(run.execute([[rows], [at(-3)]])))).toEqual(
      new Float32Array([8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]),
    );
    expect(await engine.download(first(run.execute([[rows], [at(7)]])))).toEqual(
      new Float32Array([8, 9, 10, 11, 4, 5, 6, 7, 8, 9, 10, 11]),
    );
  });

  test("copies buffers from device to device, also before they are computed", async () => {
    const engine = open({ numDevices: 2 });
    const copy = engine.load(handProgram("copy", [f4], [f4], { steps: [copyStep(0, 1, 16)] }), {
      mesh: one,
      devices: [0],
    });
    const source = first(copy.execute([[engine.upload(f4, new Float32Array([4, 3, 2, 1]), 0)]]));
    const target = engine.transfer(source, 1);
    engine.release(source);
    expect(await engine.download(target)).toEqual(new Float32Array([4, 3, 2, 1]));
  });

  test("hands a donated input's memory to the output and keeps it for a download under way", async () => {
    const engine = open({ numDevices: 1 });
    const program = handProgram("shift", [f4], [f4], {
      heirs: [0],
      arenaBytes: 16,
      slots: [{ kind: "arena", offset: 0 }],
      // Moves the last three elements one to the front.
      steps: [
        { op: "copy", source: place(0, 4), target: place(2), bytes: 12, info: 0 },
        { op: "copy", source: place(2), target: place(0), bytes: 12, info: 0 },
      ],
    });
    const shift = engine.load(program, { mesh: one, devices: [0], donated: [true] });
    const a = engine.upload(f4, new Float32Array([1, 2, 3, 4]), 0);
    const b = first(shift.execute([[a]]));
    await expect(engine.download(a)).rejects.toThrow(/was donated/);
    const early = engine.download(b);
    const c = first(shift.execute([[b]]));
    expect(await early).toEqual(new Float32Array([2, 3, 4, 4]));
    expect(await engine.download(c)).toEqual(new Float32Array([3, 4, 4, 4]));
    expect(() => shift.execute([[c, c]])).toThrow(/2 buffers for 1 devices/);
  });

  test("says what was needed and what there was when memory runs out, and goes on", async () => {
    const engine = open({ numDevices: 1, memoryBytes: 2 ** 20 + 4096 });
    const big = tensorType("float32", [1 << 16]);
    const kept = [1, 2, 3, 4].map((n) => engine.upload(big, new Float32Array(1 << 16).fill(n), 0));
    expect(() => engine.upload(big, new Float32Array(1 << 16), 0)).toThrow(
      /\[upload\] device 0 needs 256 KiB for f32\[65536\], but of its 1 MiB buffers take 1 MiB/,
    );
    const copy = handProgram("copy", [big], [big], { steps: [copyStep(0, 1, 4 << 16)] });
    const run = engine.load(copy, { mesh: one, devices: [0] });
    const input = kept[0];
    if (input === undefined) throw new Error("no input");
    expect(() => run.execute([[input]])).toThrow(
      expect.objectContaining({
        code: "out-of-memory",
        message: expect.stringContaining("output 0 (f32[65536])"),
      }),
    );
    for (const [i, buffer] of kept.entries()) {
      expect((await engine.download(buffer))[65535]).toBe(i + 1);
    }
    for (const buffer of kept.slice(1)) engine.release(buffer);
    expect((await engine.download(first(run.execute([[input]]))))[0]).toBe(1);
  });

  test("uploads in order into memory that earlier runs still use", async () => {
    const engine = open({ numDevices: 1, memoryBytes: 2 ** 20 });
    const half = tensorType("float32", [100 * 1024]);
    const copy = handProgram("copy", [half], [half], { steps: [copyStep(0, 1, 400 * 1024)] });
    const run = engine.load(copy, { mesh: one, devices: [0] });
    for (let i = 0; i < 20; i++) {
      const input = engine.upload(half, new Float32Array(100 * 1024).fill(i), 0);
      const output = first(run.execute([[input]]));
      engine.release(input);
      const result = engine.download(output);
      engine.release(output);
      if (i % 5 === 4) expect((await result)[99 * 1024]).toBe(i);
      else await result;
    }
  });

  test("records what its devices do", async () => {
    const engine = open({ numDevices: 2 });
    const copy = handProgram("copy", [f4], [f4], { steps: [copyStep(0, 1, 16), copyStep(0, 1, 16)] });
    const run = engine.load(copy, { mesh: { axes: [{ name: "d", size: 2 }] }, devices: [1, 0] });
    const input = [1, 0].map((device) => engine.upload(f4, new Float32Array(4), device));
    run.execute([input]);
    engine.tracer.start();
    const begin = performance.now();
    run.execute([input]);
    const events = await engine.tracer.stop();
    run.execute([input]);
    expect(events.map(({ device, program, step, kind }) => `${device} ${program} ${step} ${kind}`)).toEqual([
      "0 copy 0 copy",
      "0 copy 1 copy",
      "1 copy 0 copy",
      "1 copy 1 copy",
    ]);
    for (const event of events) {
      expect(event.source).toBe("model.ts:3:5");
      expect(event.begin).toBeGreaterThanOrEqual(begin - 1);
      expect(event.end).toBeGreaterThanOrEqual(event.begin);
      expect(event.end).toBeLessThanOrEqual(performance.now() + 1);
    }
  });

  test("records the iterations of loops, each around the steps that it ran", async () => {
    const engine = open({ numDevices: 1 });
    const fixed = { sets: [], advances: [], swaps: [], info: 0 };
    const inner: Step = { op: "loop", count: 2, body: [copyStep(0, 1, 16)], ...fixed };
    const outer: Step = { op: "loop", count: 3, body: [inner, copyStep(0, 1, 16)], ...fixed };
    const program = handProgram("loops", [f4], [f4], { steps: [copyStep(0, 1, 16), outer] });
    const run = engine.load(program, { mesh: one, devices: [0] });
    const input = [engine.upload(f4, new Float32Array(4), 0)];
    engine.tracer.start();
    run.execute([input]);
    const events = await engine.tracer.stop();
    const around = ["2 iteration 0", "2 iteration 1"];
    const body = ["3 copy", around[0], "3 copy", around[1], "2 loop", "4 copy"];
    const told = events.map(({ step, kind, iteration }) => [step, kind, iteration].join(" ").trim());
    expect(told).toEqual(["0 copy", ...[0, 1, 2].flatMap((i) => [...body, `1 iteration ${i}`]), "1 loop"]);
    const second = events.find((event) => event.step === 1 && event.iteration === 1);
    const inside = events.filter(
      ({ begin, end }) => begin >= (second?.begin ?? 0) && end <= (second?.end ?? 0),
    );
    expect(inside.filter(({ step }) => step === 4)).toHaveLength(1);
  });

  test("refuses inputs that are not what the program takes", async () => {
    const engine = open({ numDevices: 2 });
    const other = open({ numDevices: 1 });
    const run = engine.load(handProgram("copy", [f4], [f4], { steps: [copyStep(0, 1, 16)] }), {
      mesh: one,
      devices: [0],
    });
    const data = new Float32Array(4);
    expect(() => run.execute([])).toThrow(/0 inputs for 1/);
    expect(() => run.execute([[engine.upload(f4, data, 1)]])).toThrow(
      /on device 0, but is f32\[4\] on device 1/,
    );
    expect(() => run.execute([[other.upload(f4, data, 0)]])).toThrow(/belongs to another engine/);
    expect(() => engine.upload(f4, new Float32Array(3), 0)).toThrow(
      /f32\[4\] needs a Float32Array of 4 elements/,
    );
    expect(() => engine.upload(f4, data, 2)).toThrow(/no device 2/);
    expect(() => createThreadsEngine({ numDevices: 0 })).toThrow(/numDevices/);
    const released = engine.upload(f4, data, 0);
    engine.release(released);
    expect(() => engine.release(released)).toThrow(/was released/);
    expect(() => run.execute([[released]])).toThrow(expect.objectContaining({ code: "disposed" }));
  });
});
