import { availableParallelism } from "node:os";
import { afterEach, describe, expect, test } from "vitest";
import { createThreadsEngine, type ThreadsEngine } from "../src/engines/index.js";
import { createInlineEngine } from "../src/engines/inline/engine.js";
import { grad, jit, Mesh, np, random, type Tensor } from "../src/index.js";
import { reclaim } from "../src/ir/reclaim.js";
import * as nn from "../src/nn/index.js";
import { createRuntime } from "../src/spmd/run/execute.js";
import { currentRuntime, installRuntime } from "../src/trace/runtime.js";
import { growthPerTurn } from "./support/growth.js";
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
    const { mesh, engine } = smallMesh(24 * MiB);
    let turns = 0;
    let most = 0;
    const turn = () => {
      turns++;
      most = Math.max(most, engine.memoryUsage(0).used);
    };
    // Each turn makes 1 MiB or more, so that the device's memory is used up several times over.
    await naiveLoops[name]?.({ mesh, numTurns: 60, elements: MiB / 4, turn });
    expect(turns).toBe(60);
    // No more than 4 MiB live at a time: what is retained stays at twice of that or at a quarter of the memory.
    expect(most).toBeLessThanOrEqual(8 * MiB);
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
    await hostLoops[name]?.({ numTurns: 100, elements: MiB / 4, turn });
    const { compiledRuns, interpretedRuns } = engine.statistics;
    expect(most).toBeGreaterThan(MiB);
    expect(most).toBeLessThan(40 * MiB);
    // Nothing had to be computed outside of the memory but what is small.
    expect(compiledRuns).toBeGreaterThanOrEqual(100);
    expect(interpretedRuns).toBeLessThan(10);
  });
});

describe("what a dropped jit held", () => {
  test("is given back in a loop that never leaves its task, without memory being short", () => {
    const { mesh, engine } = smallMesh(256 * MiB);
    const used: number[] = [];
    for (let i = 0; i < 200; i++) {
      jit((y: Tensor) => y.add(i), { mesh })(np.zeros([16]));
      used.push(engine.memoryUsage(0).used);
    }
    // Programs are looked for when there are 128; what they took is free when they are unloaded.
    expect(Math.max(...used.slice(150))).toBeLessThanOrEqual(1.2 * Math.max(...used.slice(0, 150)));
  });

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

describe("a jit that is kept", () => {
  test("holds neither its arguments nor what the code around its first call closes over", async () => {
    const { mesh } = smallMesh(24 * MiB);
    const double = jit((y: Tensor) => y.add(y).tanh(), { mesh });
    const dropped: WeakRef<object>[] = [];
    const callOnce = () => {
      const surroundings = { argument: np.ones([64]) };
      dropped.push(new WeakRef(surroundings), new WeakRef(surroundings.argument));
      // The frame of this function is among those that tell where the equations come from.
      const caller = () => double(surroundings.argument);
      caller();
    };
    callOnce();
    await double(np.zeros([64])).ready();
    reclaim();
    expect(dropped.map((ref) => ref.deref())).toEqual([undefined, undefined]);
  });
});

describe("the growth of memory in a loop", () => {
  // Peaks and steps of some megabytes, as the sizes of a process have them.
  const noisy = (leak: number) =>
    Array.from({ length: 200 }, (_, i) => ({
      turn: 100 * i,
      bytes: 400 * MiB + leak * 100 * i + ((i * 7919) % 13) * MiB + (i % 37 === 0 ? 40 * MiB : 0),
    }));

  test("is not seen in noise, and a kilobyte a turn is", () => {
    expect(Math.abs(growthPerTurn(noisy(0)))).toBeLessThan(256);
    expect(growthPerTurn(noisy(1024))).toBeGreaterThan(768);
  });

  test("does not count what a loop takes to become warm", () => {
    const warming = noisy(0).map(({ turn, bytes }) => ({
      turn,
      bytes: bytes - Math.max(0, 8000 - turn) * 40_000,
    }));
    expect(Math.abs(growthPerTurn(warming))).toBeLessThan(256);
  });
});

describe("attention", () => {
  test("of 32,768 tokens and its gradient need memory for the tokens, not for their pairs", async () => {
    const { mesh, engine } = smallMesh(64 * MiB);
    const x = random.normal(random.key(0), [1, 32_768, 1, 8]);
    const loss = (x: Tensor) => np.sum(nn.attention(x, x, x, { causal: true }).output);
    const gradient = await jit(grad(loss), { mesh })(x).data();
    expect(gradient.every(Number.isFinite)).toBe(true);
    // All scores in float32 are 4 GiB; every thread has a block of them.
    const { arena = 0, peak = 0 } = engine.memoryUsage(0);
    const blocks = availableParallelism() * 512 * 1024;
    expect(arena + peak).toBeLessThan(12 * x.size * 4 + blocks);
  }, 300_000);
});
