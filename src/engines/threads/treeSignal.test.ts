import { afterAll, describe, expect, test } from "vitest";
import { collectiveSpec, copyStep, handProgram, place } from "../../../test/support/threadsPrograms.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { DesyncError } from "../errors.js";
import { ThreadsEngine } from "./engine.js";
import { prepareMeeting } from "./treeSignal.js";

const STRIDE = 64;
const WORDS = { members: 1, groups: 20, released: 40 };

describe("meetings of groups", () => {
  test.each([2, 3, 4, 5, 8, 9, 11, 15, 16, 17])("of %d let all go when the last has come", (size) => {
    const words = new Int32Array(size * STRIDE);
    const lines = range(size).map((i) => i * STRIDE);
    const meetings = lines.map((_, me) => prepareMeeting(words, lines, me, WORDS));
    for (let sequence = 1; sequence <= 50; sequence++) {
      // Another order each time, in which everybody comes once.
      const order = range(size).map((i) => (i * sequence * 7 + i + sequence) % size);
      const missing = range(size).filter((i) => !order.includes(i));
      const coming = [...new Set(order), ...missing];
      coming.forEach((me, i) => {
        expect(meetings.every(({ released }) => words[released] === sequence - 1)).toBe(true);
        expect(at(meetings, me).arrive(sequence)).toBe(i === size - 1);
      });
      expect(meetings.every(({ released }) => words[released] === sequence)).toBe(true);
    }
  });
});

describe("devices with a core each", () => {
  const engine = new ThreadsEngine(
    { numDevices: 16, deadlineMs: 120_000, threadsPerDevice: 1 },
    { numCores: 16 },
  );
  afterAll(() => engine.close());

  test.each([
    ...[2, 7, 8].map((size) => [size, 3] as const),
    ...[9, 11, 16].flatMap((size) => [[size, 3] as const, [size, 5000] as const]),
  ])("meet again and again: %d devices, %d elements", async (size, n) => {
    const mesh = { axes: [{ name: "a", size }] };
    const type = tensorType("float32", [n]);
    const rotate = {
      kind: "permute",
      dtype: "float32",
      ...{ axes: ["a"], outer: 1, inner: n },
      permutation: range(size).map((i) => [i, (i + 1) % size] as const),
    } as const;
    const gather = { ...rotate, kind: "allReduce", combine: "max" } as const;
    const count = 40;
    const both = (collective: number) =>
      [
        { op: "start", collective, info: 0 },
        { op: "done", collective, info: 0 },
      ] as const;
    // Slot 0 is what comes in, 1 the result: what went round; 2 and 3 lie in the arena.
    const program = handProgram("meet", [type], [type], {
      arenaBytes: 2 * 32_768,
      slots: range(2).map((i) => ({ kind: "arena", offset: i * 32_768 }) as const),
      collectives: [collectiveSpec(mesh, rotate, 1, 2), collectiveSpec(mesh, gather, 2, 3)],
      steps: [
        copyStep(0, 1, 4 * n),
        {
          ...{ op: "loop", count, sets: [], advances: [], swaps: [], info: 0 },
          body: [...both(0), ...both(1), copyStep(2, 1, 4 * n)],
        },
      ],
    });
    const run = engine.load(program, { mesh, devices: range(size) });
    const inputs = range(size).map((d) => engine.upload(type, new Float32Array(n).fill(d), d));
    const [outputs = []] = run.execute([inputs]);
    const results = await Promise.all(outputs.map((buffer) => engine.download(buffer)));
    expect(results.map((result) => result[n - 1])).toEqual(
      range(size).map((d) => (d - count + count * size) % size),
    );
    for (const buffer of [...inputs, ...outputs]) engine.release(buffer);
  });

  test("end with one error that says where each is, when one leaves a sum out", async () => {
    const size = 9;
    const lone = new ThreadsEngine(
      { numDevices: size, deadlineMs: 120_000, threadsPerDevice: 1 },
      { numCores: 9 },
    );
    const mesh = { axes: [{ name: "a", size }] };
    const sum = { kind: "allReduce", dtype: "float32", axes: ["a"], outer: 1, inner: 5000 } as const;
    const choice = tensorType("int32", [1]);
    // Slot 0 is what is chosen, 1 the result, 2 and 3 lie in the arena.
    const program = handProgram("choosing", [choice], [choice], {
      arenaBytes: 2 * 32_768,
      slots: range(2).map((i) => ({ kind: "arena", offset: i * 32_768 }) as const),
      collectives: [collectiveSpec(mesh, sum, 2, 3)],
      steps: [
        {
          ...{ op: "cond", index: place(0), info: 0 },
          branches: [
            [],
            [
              { op: "start", collective: 0, info: 0 },
              { op: "done", collective: 0, info: 0 },
            ],
          ],
        },
      ],
    });
    const run = lone.load(program, { mesh, devices: range(size) });
    const runs = [-1, 5].map((absent) =>
      run.execute([range(size).map((d) => lone.upload(choice, new Int32Array([d === absent ? 0 : 1]), d))]),
    );
    const results = await Promise.allSettled((runs.at(-1)?.[0] ?? []).map((buffer) => lone.download(buffer)));
    const reasons = new Set(
      results.flatMap((result) => (result.status === "rejected" ? [result.reason] : [])),
    );
    expect([...reasons]).toEqual([expect.any(DesyncError)]);
    expect(String([...reasons][0])).toMatch(/device 5 +run 2 +collective 0 +(has come|was its last)/);
    await lone.close();
  });
});
