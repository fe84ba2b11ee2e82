import { afterEach, describe, expect, test } from "vitest";
import { testWith, wideMemories } from "../../../test/support/optional.js";
import { collectiveSpec, copyStep, handProgram } from "../../../test/support/threadsPrograms.js";
import { grad, jit, Mesh, np, P, type Tensor } from "../../index.js";
import { at, range, tensorType } from "../../ir/shape.js";
import { type LayoutChoice, layoutChoices } from "../memory/memoryLayout.js";
import { ThreadsEngine } from "../threads/engine.js";

const MiB = 2 ** 20;
const mesh = { axes: [{ name: "a", size: 2 }] };
const engines: ThreadsEngine[] = [];

afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.close()));
});

function open(choices: readonly LayoutChoice[]): ThreadsEngine {
  const engine = new ThreadsEngine({ numDevices: 2, deadlineMs: 60_000 }, { choices });
  engines.push(engine);
  return engine;
}

const small: readonly LayoutChoice[] = [
  { kind: "shared", addressType: "i32", reach: 8 * MiB },
  { kind: "separate", addressType: "i32", reach: 32 * MiB },
];

describe("devices that need more than the layout they begin in", () => {
  const type = tensorType("float32", [MiB / 4]);
  const filled = (value: number) => new Float32Array(MiB / 4).fill(value);

  test("move to a larger one with their tensors and programs", async () => {
    const engine = open(small);
    const sum = handProgram("sum", [type], [type], {
      collectives: [
        collectiveSpec(
          mesh,
          { kind: "allReduce", dtype: "float32", axes: ["a"], outer: 1, inner: MiB / 4 },
          0,
          1,
        ),
        // A small one is staged and keeps its place between runs.
        collectiveSpec(mesh, { kind: "allReduce", dtype: "float32", axes: ["a"], outer: 1, inner: 8 }, 1, 1),
      ],
      arenaBytes: MiB,
      slots: [{ kind: "arena", offset: 0 }],
      steps: [
        copyStep(0, 2, MiB),
        { op: "start", collective: 0, info: 0 },
        { op: "done", collective: 0, info: 0 },
        { op: "start", collective: 1, info: 0 },
        { op: "done", collective: 1, info: 0 },
      ],
    });
    const run = engine.load(sum, { mesh, devices: [0, 1] });
    const upload = (value: number) => range(2).map((d) => engine.upload(type, filled(value + d), d));
    const first = run.execute([upload(1)]);
    expect(engine.info().memoryLayout).toBe("shared");
    const kept = range(12).map((i) => engine.upload(type, filled(i), 1));
    expect(engine.info()).toMatchObject({ memoryLayout: "separate" });
    const second = run.execute([upload(10)]);
    const moved = engine.transfer(at(kept, 11), 0);
    const read = async (buffer: (typeof kept)[number]) => [...(await engine.download(buffer)).subarray(7, 9)];
    expect(await Promise.all(at(first, 0).map(read))).toEqual([
      [6, 3],
      [6, 3],
    ]);
    expect(await Promise.all(at(second, 0).map(read))).toEqual([
      [42, 21],
      [42, 21],
    ]);
    expect(await Promise.all(kept.map(read))).toEqual(range(12).map((i) => [i, i]));
    expect(await read(moved)).toEqual([11, 11]);
  });

  test("move for intermediate values, too, and are refused when no layout reaches so far", () => {
    const engine = open(small);
    const program = (arenaBytes: number) => handProgram("wide", [type], [type], { arenaBytes, steps: [] });
    const load = (bytes: number) => engine.load(program(bytes), { mesh, devices: [0, 1] });
    load(4 * MiB);
    expect(engine.info().memoryLayout).toBe("shared");
    load(20 * MiB);
    expect(engine.info().memoryLayout).toBe("separate");
    expect(() => load(32 * MiB)).toThrow(
      /device 0 needs 32 MiB for its intermediate values.*a device can have 32 MiB on Node/,
    );
    expect(engine.memoryUsage(0).arena).toBeLessThan(21 * MiB);
  });

  const wide = [
    { kind: "shared", addressType: "i32", reach: 8 * MiB },
    ...layoutChoices(2).slice(2),
  ] as const;

  testWith(wideMemories, "compile their programs anew for 64-bit memories", {}, async () => {
    const engine = open(wide);
    const mesh = Mesh.create({ data: 2 }, { engine });
    const loss = (w: Tensor, x: Tensor) => np.mean(np.square(np.tanh(np.matmul(x, w)).sub(x)));
    const step = jit((w: Tensor, x: Tensor) => w.sub(grad(loss)(w, x).mul(0.5)), {
      mesh,
      inShardings: [P(), P("data")],
    });
    const x = np.reshape(np.arange(64 * 16, { dtype: "float32" }).mul(1e-3), [64, 16]);
    const w = np.eye(16);
    const before = await step(w, x).data();
    expect(engine.info()).toMatchObject({ addressBits: 32, memoryLayout: "shared" });
    const kept = range(12).map((i) => engine.upload(type, filled(i), 1));
    expect(engine.info()).toMatchObject({ addressBits: 64, memoryLayout: "separate" });
    expect(await step(w, x).data()).toEqual(before);
    expect((await engine.download(at(kept, 11)))[5]).toBe(11);
  });

  test("report how far they can grow, in the layout they begin in already", () => {
    const { capacity, arena } = open(small).memoryUsage(0);
    expect(capacity + arena).toBeGreaterThan(28 * MiB);
  });
});
