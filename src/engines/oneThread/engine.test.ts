import { afterAll, describe, expect, test } from "vitest";
import { jit, lax, Mesh, np, P, pureCallback, random, shardMap, type Tensor } from "../../index.js";
import { DisposedError } from "../../ir/errors.js";
import { range } from "../../ir/shape.js";
import { DesyncError, DeviceFailedError, OutOfMemoryError } from "../errors.js";
import { createThreadsEngine } from "../threads/engine.js";
import { createOneThreadEngine, type OneThreadEngine, type OneThreadEngineOptions } from "./engine.js";

/** Sums, gathers, exchanges and shifts, also in loops and branches that only some groups take. */
function everything(x: Tensor): Tensor {
  const group = lax.axisIndex("outer");
  const ring = lax.axisSize("inner");
  const shift = range(ring).map((i): [number, number] => [i, (i + 1) % ring]);
  const summed = lax.psum(np.exp(x), "inner");
  const halves = lax.psum(x.astype("bfloat16"), ["outer", "inner"]).astype("float32");
  const scattered = lax.allGather(lax.psumScatter(summed.mul(x), "inner", { tiled: true }), "inner", {
    tiled: true,
  });
  const chosen = lax.cond(
    np.equal(group, 0),
    (y: Tensor) => lax.psum(np.tanh(y), "inner"),
    (y: Tensor) => lax.pmax(np.sin(y), "inner"),
    scattered,
  );
  const [turned] = lax.whileLoop(
    ([, i]: readonly [Tensor, Tensor]) => np.less(i, group.add(2)),
    ([y, i]: readonly [Tensor, Tensor]) => [lax.ppermute(y.add(halves), "inner", shift), i.add(1)] as const,
    [chosen, np.array(0, "int32")] as const,
  );
  return lax.allToAll(turned, "inner", 0, 0, { tiled: true });
}

/** What becomes of a promise that fails. */
const failureOf = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => "no failure",
    (error: unknown) => error,
  );

describe("devices that take turns in one thread", () => {
  const engine = createOneThreadEngine();
  const threads = createThreadsEngine({ numDevices: 8, gemm: "wasm" });
  afterAll(async () => {
    await Promise.all([engine.close(), threads.close()]);
  });

  test.each([
    { outer: 1, inner: 2 },
    { outer: 2, inner: 2 },
    { outer: 2, inner: 4 },
  ])("compute what threads compute, bit for bit, on $outer x $inner", async (axes) => {
    const x = random.normal(random.key(3), [axes.outer * axes.inner * 8, 40]);
    const valuesOn = async (engine: OneThreadEngine | typeof threads) => {
      const mesh = Mesh.create(axes, { engine });
      const spec = P(["outer", "inner"]);
      const run = shardMap(everything, { mesh, inSpecs: [spec], outSpecs: spec, checkReplication: false });
      return new Uint32Array((await run(x).data()).slice().buffer);
    };
    const [got, want] = [await valuesOn(engine), await valuesOn(threads)];
    expect(got).toEqual(want);
    expect(new Set(want).size).toBeGreaterThan(40);
  });

  test("call functions of the thread that made the program, each in its turn", async () => {
    const seen: number[] = [];
    const mesh = Mesh.create({ x: 4 }, { engine });
    const twice = (block: Tensor) =>
      pureCallback(
        (values) => {
          seen.push(Number(values.data[0]));
          return Array.from(values.data, (value) => 2 * value);
        },
        block,
        [block],
      );
    const double = (block: Tensor) => lax.psum(twice(block), "x");
    const run = shardMap(double, { mesh, inSpecs: [P("x")], outSpecs: P(), checkReplication: false });
    expect(await run(np.array([1, 2, 3, 4])).js()).toEqual([20]);
    expect(seen.sort()).toEqual([1, 2, 3, 4]);
  });
});

describe("a failure of devices that take turns", () => {
  const opened: OneThreadEngine[] = [];
  const open = (options: OneThreadEngineOptions = {}) => {
    const engine = createOneThreadEngine(options);
    opened.push(engine);
    return { engine, mesh: Mesh.create({ x: 2 }, { engine }) };
  };
  afterAll(async () => {
    await Promise.all(opened.map((engine) => engine.close()));
  });
  const forever = (x: Tensor) =>
    lax.whileLoop(
      (y: Tensor) => np.less(np.sum(y), 100),
      (y: Tensor) => np.tanh(y),
      x,
    );

  test("to come to the same collective names where each of them is", async () => {
    const { engine, mesh } = open();
    const some = (x: Tensor) =>
      lax.cond(
        np.equal(lax.axisIndex("x"), 0),
        (y: Tensor) => lax.psum(y, "x"),
        (y: Tensor) => y,
        x,
      );
    const run = shardMap(some, { mesh, inSpecs: [P("x")], outSpecs: P("x"), checkReplication: false });
    const error = await failureOf(run(np.ones([4])).data());
    expect(error).toBeInstanceOf(DesyncError);
    expect(String(error)).toMatch(/device 0 +run 1 +collective 1 +allReduce.*\n +device 1 +run 1 /);
    expect(engine.state).toBe("failed");
  });

  test.each([
    [1, "both devices", 0],
    [2, "one device", 1],
  ])("to compute on the host keeps what was computed before (%d: %s)", async (first, _, device) => {
    const { engine, mesh } = open();
    const before = jit((x: Tensor) => x.add(1), { mesh })(np.ones([2]));
    const picky = (block: Tensor) =>
      pureCallback(
        (values) => {
          if (Number(values.data[0]) >= first) throw new Error("the host refuses");
          return values.data;
        },
        block,
        [block],
      );
    const run = shardMap(picky, { mesh, inSpecs: [P("x")], outSpecs: P("x"), checkReplication: false });
    const error = await failureOf(run(np.array([1, 2])).data());
    expect(error).toBeInstanceOf(DeviceFailedError);
    expect(String(error)).toContain(
      `device ${device}, program "shardMap": a host callback threw Error: the host`,
    );
    expect(await before.js()).toEqual([2, 2]);
    expect(engine.state).toBe("failed");
  });

  test("to end a loop is noticed after the deadline", async () => {
    const { mesh } = open({ deadlineMs: 200 });
    const error = await failureOf(jit(forever, { mesh })(np.ones([4])).data());
    expect(error).toBeInstanceOf(DeviceFailedError);
    expect(String(error)).toContain("it has not ended for 200 ms");
  });

  test("does not keep an engine from being closed", async () => {
    const { engine, mesh } = open();
    const waiting = failureOf(jit(forever, { mesh })(np.ones([4])).data());
    await engine.close();
    expect(await waiting).toBeInstanceOf(DisposedError);
    expect(engine.state).toBe("closed");
  });

  test("to find memory is told before anything runs, and ends nothing", async () => {
    const { engine, mesh } = open({ memoryBytes: 2 ** 20 });
    const wide = jit((x: Tensor) => np.broadcastTo(x, [2 ** 19]).add(1), { mesh });
    expect(() => wide(np.ones([1]))).toThrow(OutOfMemoryError);
    expect(() => wide(np.ones([1]))).toThrow(/f32\[524288\] takes 2 MiB on each of 2 devices/);
    expect(await jit((x: Tensor) => x.add(1), { mesh })(np.ones([2])).js()).toEqual([2, 2]);
    expect(engine.memoryUsage(0).capacity).toBe(2 ** 20);
  });
});
