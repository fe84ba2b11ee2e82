import { jit, Mesh, np, P, type Tensor } from "shardwise";
import { createThreadsEngine, type ThreadsEngine } from "shardwise/engines";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { traceFlat } from "../../trace/builder.js";
import type { Storage } from "../../trace/storage.js";
import { allStarted, defer, hasDeferred } from "./deferred.js";
import { compile, runStored } from "./execute.js";

/** A call that is started when `release` is called, as if a thread had compiled its program until then. */
function later(mesh: Mesh, x: Tensor, compute: (x: Tensor) => Tensor) {
  const { program } = traceFlat(([x]) => (x ? [compute(x)] : []), [x.type]);
  const compiled = compile(program, { target: mesh.target, inSpecs: [undefined] });
  let release = () => {};
  const prepared = new Promise<void>((resolve) => {
    release = resolve;
  });
  const types = program.outputs.map(({ type }) => type);
  const [result] = defer(
    [x],
    types,
    () => prepared,
    () => runStored(compiled, [x]),
  );
  if (result === undefined) throw new Error("a call has one result");
  return { result, release };
}

describe("a deferred call", () => {
  let engine: ThreadsEngine;
  let mesh: Mesh;
  beforeAll(() => {
    engine = createThreadsEngine({ numDevices: 2 });
    mesh = Mesh.create({ data: 2 }, { engine });
  });
  afterAll(() => engine.close());
  const twice = () => jit((x: Tensor) => x.mul(2), { mesh, inShardings: [P("data")] });

  test("is started when it is prepared, and calls on its results follow", async () => {
    const [x, double] = [np.arange(4), twice()];
    const { result, release } = later(mesh, x, (x) => x.mul(2));
    const chained = double(result.add(1));
    expect(chained.shape).toEqual([4]);
    expect(`${result}`).toBe("Tensor i32[4]");
    let isRead = false;
    const reading = chained.js().then((values) => {
      isRead = true;
      return values;
    });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect([isRead, hasDeferred()]).toEqual([false, true]);
    release();
    expect(await reading).toEqual([2, 6, 10, 14]);
    expect(hasDeferred()).toBe(false);
  });

  test("is started at once by whoever asks where its results are, after the calls before it", async () => {
    const x = np.arange(4);
    const first = later(mesh, x, (x) => x.mul(2));
    const second = later(mesh, first.result, (x) => x.mul(2));
    expect(second.result.sharding).toBeDefined();
    expect(hasDeferred()).toBe(false);
    expect(await second.result.js()).toEqual([0, 4, 8, 12]);
    for (const { release } of [first, second]) release();
  });

  test("is awaited by whoever compiles a call on its results", async () => {
    const first = later(mesh, np.arange(4), (x) => x.mul(2));
    const double = twice();
    const compiling = double.compile(first.result);
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(hasDeferred()).toBe(true);
    first.release();
    await compiling;
    expect(await double(first.result).js()).toEqual([0, 4, 8, 12]);
  });

  test("keeps its inputs although they are released, and gives up results that were", async () => {
    const x = twice()(np.arange(4));
    const [kept, dropped] = [later(mesh, x, (x) => x.add(1)), later(mesh, x, (x) => x.add(2))];
    x.dispose();
    await expect(x.js()).rejects.toThrow("memory was released");
    dropped.result.dispose();
    kept.release();
    dropped.release();
    expect(await kept.result.js()).toEqual([1, 3, 5, 7]);
    await expect(dropped.result.js()).rejects.toThrow("memory was released");
    await expect(x.js()).rejects.toThrow("memory was released");
  });

  test("comes before a later one that takes its input", async () => {
    const x = await twice()(np.arange(4)).ready();
    const first = later(mesh, x, (x) => x.add(1));
    const taking = jit((x: Tensor) => x.mul(3), { mesh, donate: 0 })(x);
    first.release();
    expect(await first.result.js()).toEqual([1, 3, 5, 7]);
    expect(await taking.js()).toEqual([0, 6, 12, 18]);
    expect(() => x.add(1)).toThrow("memory was released");
  });

  test.each([
    [
      "when it is prepared",
      "the engine was closed",
      () => Promise.reject(new RangeError("the engine was closed")),
    ],
    ["when it starts", "no such program", () => Promise.resolve()],
  ])("that fails %s says why by its results, and by what was computed from them", async (_, why, prepare) => {
    const x = np.arange(4);
    const fails = (): Storage[] => {
      throw new RangeError("no such program");
    };
    const [result] = defer([x], [x.type], prepare, fails);
    const next = result?.add(1);
    await expect(result?.js()).rejects.toThrow(why);
    await expect(next?.ready()).rejects.toThrow(why);
    await allStarted();
    expect(hasDeferred()).toBe(false);
    expect(await x.js()).toEqual([0, 1, 2, 3]);
  });
});
