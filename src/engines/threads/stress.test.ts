import { afterEach, describe, expect, test } from "vitest";
import { collectiveSpec, copyStep, handProgram } from "../../../test/support/threadsPrograms.js";
import type { Step } from "../../compiler/steps.js";
import type { DeviceBuffer } from "../../ir/engine.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { ThreadsEngine } from "./engine.js";

const opened: ThreadsEngine[] = [];

function open(...args: ConstructorParameters<typeof ThreadsEngine>): ThreadsEngine {
  const engine = new ThreadsEngine(...args);
  opened.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((engine) => engine.close()));
});

const f4 = tensorType("float32", [4]);

describe("the threads engine under load", () => {
  test("takes more commands than its ring holds", async () => {
    const engine = open({ numDevices: 1 });
    const types = range(500).map(() => f4);
    const program = handProgram("wide", types, types, {
      steps: range(500).map((i) => copyStep((i + 1) % 500, 500 + i, 16)),
    });
    const run = engine.load(program, { mesh: { axes: [] }, devices: [0] });
    let buffers = range(500).map((i) => [engine.upload(f4, new Float32Array(4).fill(i), 0)]);
    for (let i = 0; i < 400; i++) {
      const next = run.execute(buffers);
      for (const buffer of buffers.flat()) engine.release(buffer);
      buffers = next;
    }
    const results = await Promise.all(buffers.flat().map((buffer) => engine.download(buffer)));
    expect(results.map((result) => result[3])).toEqual(range(500).map((i) => (i + 400) % 500));
  });

  test("keeps eight devices in step through thousands of collectives", async () => {
    const engine = open({ numDevices: 8, deadlineMs: 120_000 });
    const mesh = {
      axes: [
        { name: "a", size: 2 },
        { name: "b", size: 4 },
      ],
    };
    const n = 3000;
    const type = tensorType("float32", [n]);
    const shift = (axis: string, size: number) =>
      ({
        kind: "permute",
        dtype: "float32",
        axes: [axis],
        outer: 1,
        inner: n,
        permutation: range(size).map((i) => [i, (i + 1) % size] as const),
      }) as const;
    const collectives = [
      collectiveSpec(mesh, shift("a", 2), 1, 2),
      collectiveSpec(mesh, shift("b", 4), 2, 3),
      collectiveSpec(mesh, { ...shift("b", 4), kind: "allReduce", combine: "max" }, 3, 4),
    ];
    const both = (collective: number): Step[] => [
      { op: "start", collective, info: 0 },
      { op: "done", collective, info: 0 },
    ];
    const program = handProgram("steps", [type], [type], {
      arenaBytes: 3 * 4 * 4096,
      slots: range(3).map((i) => ({ kind: "arena", offset: i * 4 * 4096 }) as const),
      collectives,
      steps: [
        copyStep(0, 1, 4 * n),
        {
          op: "loop",
          count: 300,
          sets: [],
          body: [...both(0), ...both(1), ...both(2), copyStep(3, 1, 4 * n)],
          advances: [],
          swaps: [],
          info: 0,
        },
      ],
    });
    const run = engine.load(program, { mesh, devices: range(8) });
    const inputs = range(8).map((d) => engine.upload(type, new Float32Array(n).fill(d), d));
    let outputs: DeviceBuffer[][] = [inputs];
    for (let i = 0; i < 3; i++) outputs = run.execute(outputs);
    const results = await Promise.all(at(outputs, 0).map((buffer) => engine.download(buffer)));
    // 900 turns along both axes bring every value home: 900 is a multiple of 2 and of 4.
    expect(results.map((result) => result[n - 1])).toEqual(range(8));
  });

  test("lets devices have more than 4 GiB together", async () => {
    const gibibyte = 2 ** 30;
    const engine = open({ numDevices: 3, memoryBytes: 2 * gibibyte });
    expect(engine.info()).toMatchObject({ memoryLayout: "separate", memoryBytes: 2 * gibibyte });
    const mesh = { axes: [{ name: "a", size: 3 }] };
    const spec = collectiveSpec(
      mesh,
      { kind: "allReduce", dtype: "float32", axes: ["a"], outer: 1, inner: 20_000 },
      0,
      1,
    );
    const type = tensorType("float32", [20_000]);
    const program = handProgram("sum", [type], [type], {
      collectives: [spec],
      steps: [
        { op: "start", collective: 0, info: 0 },
        { op: "done", collective: 0, info: 0 },
      ],
    });
    const run = engine.load(program, { mesh, devices: range(3) });
    const inputs = range(3).map((d) => engine.upload(type, new Float32Array(20_000).fill(d + 1), d));
    const [outputs = []] = run.execute([inputs]);
    const results = await Promise.all(outputs.map((buffer) => engine.download(buffer)));
    expect(results.map((result) => result[19_999])).toEqual([6, 6, 6]);
    const moved = engine.transfer(at(outputs, 2), 0);
    expect((await engine.download(moved))[0]).toBe(6);
  });

  test("can be opened and closed again and again", async () => {
    for (let i = 0; i < 10; i++) {
      const engine = open({ numDevices: 2 });
      const buffer = engine.upload(f4, new Float32Array([i, i, i, i]), 1);
      if (i % 2 === 0) expect((await engine.download(buffer))[0]).toBe(i);
      await engine.close();
    }
  });
});
