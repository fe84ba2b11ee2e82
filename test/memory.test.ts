import { afterEach, describe, expect, test } from "vitest";
import { createThreadsEngine, type ThreadsEngine } from "../src/engines/index.js";
import { createInlineEngine } from "../src/engines/inline/engine.js";
import { jit, Mesh, np, type Tensor } from "../src/index.js";
import { reclaim } from "../src/ir/reclaim.js";
import { createRuntime } from "../src/spmd/run/execute.js";
import { currentRuntime, installRuntime } from "../src/trace/runtime.js";
import { hostLoops, naiveLoops } from "./support/naiveLoops.js";

const MiB = 1024 * 1024;

const opened: ThreadsEngine[] = [];

function smallMesh(memoryBytes: number): { readonly mesh: Mesh; readonly engine: ThreadsEngine } {
  const engine = createThreadsEngine({ numDevices: 1, memoryBytes });
  opened.push(engine);
  return { engine, mesh: Mesh.create({ data: 1 }, { engine }) };
}

afterEach(async () => {
  await Promise.all(opened.splice(0).map((engine) => engine.close()));
});

describe("an ordinary loop", () => {
  test.each(Object.keys(naiveLoops))("never runs out of memory: %s", async (name) => {
    const { mesh } = smallMesh(24 * MiB);
    let turns = 0;
    // Each turn makes 1 MiB or more, so that the device's memory is used up several times over.
    const place = { mesh, numTurns: 80, elements: MiB / 4, turn: () => turns++ };
    await naiveLoops[name]?.(place);
    expect(turns).toBe(80);
  });

  test("is not stopped from holding what it still needs", async () => {
    const { mesh } = smallMesh(24 * MiB);
    const add = jit((x: Tensor, y: Tensor) => x.add(y), { mesh });
    const x = add(np.zeros([MiB / 4]), np.zeros([]));
    const kept: Tensor[] = [];
    for (let i = 0; i < 100; i++) {
      const y = add(x, np.array(i));
      if (i % 10 === 0) kept.push(y);
    }
    const values = await Promise.all(kept.map((tensor) => tensor.mean().item()));
    expect(values).toEqual([0, 10, 20, 30, 40, 50, 60, 70, 80, 90]);
  });

  test("that keeps more than there is is refused, with the figures", () => {
    const { mesh } = smallMesh(24 * MiB);
    const add = jit((x: Tensor, y: Tensor) => x.add(y), { mesh });
    const kept = [add(np.zeros([MiB / 4]), np.zeros([]))];
    const fill = () => {
      for (let i = 0; i < 100; i++) kept.push(add(kept[0] ?? np.zeros([]), np.array(i)));
    };
    expect(fill).toThrow(/device 0 needs 1 MiB for output 0 .* of its 24 MiB buffers take 2\d MiB/);
  });
});

describe("an ordinary loop of eager ops on the calling thread", () => {
  const before = currentRuntime();
  afterEach(() => installRuntime(before));

  test.each(Object.keys(hostLoops))("stays in its memory: %s", async (name) => {
    const engine = createInlineEngine({ memoryBytes: 64 * MiB });
    installRuntime(createRuntime(engine));
    let most = 0;
    const turn = () => {
      most = Math.max(most, engine.statistics.usedBytes);
    };
    await hostLoops[name]?.({ numTurns: 200, elements: MiB / 4, turn });
    const { compiledRuns, interpretedRuns } = engine.statistics;
    expect(most).toBeGreaterThan(MiB);
    expect(most).toBeLessThan(40 * MiB);
    // Nothing had to be computed outside of the memory but what is small.
    expect(compiledRuns).toBeGreaterThanOrEqual(200);
    expect(interpretedRuns).toBeLessThan(10);
  });
});

describe("what a dropped jit held", () => {
  test("is given back, closed-over tensors and programs alike", async () => {
    const { mesh, engine } = smallMesh(24 * MiB);
    const x = jit((y: Tensor) => y.add(1), { mesh })(np.zeros([64]));
    const closures: WeakRef<Tensor>[] = [];
    const makeOne = (i: number): void => {
      const closedOver = x.add(i);
      closures.push(new WeakRef(closedOver));
      jit((y: Tensor) => y.mul(closedOver).tanh(), { mesh })(x);
    };
    for (let i = 0; i < 4; i++) makeOne(i);
    await x.ready();
    const before = engine.memoryUsage(0).used;
    reclaim();
    expect(closures.filter((closure) => closure.deref() !== undefined)).toEqual([]);
    await x.ready();
    expect(engine.memoryUsage(0).used).toBeLessThan(before);
  });
});
