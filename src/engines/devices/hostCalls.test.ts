import { debug, type HostArray, makeProgram, np, type Tensor } from "shardwise";
import { afterAll, describe, expect, test } from "vitest";
import type { Engine } from "../../ir/engine.js";
import { at } from "../../ir/shape.js";
import { createThreadsEngine } from "../threads/engine.js";

const engines: Engine[] = [];

afterAll(async () => {
  await Promise.all(engines.map((engine) => engine.close()));
});

/** A program of one float that tells a function of it, ready on an engine of its own. */
function prepare(tell: (x: HostArray) => void) {
  const engine = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 24 });
  engines.push(engine);
  const program = makeProgram((x: Tensor) => {
    debug.callback(tell, x);
    return x.add(1);
  })(np.array(0));
  const executable = engine.compile(program, { mesh: { axes: [] }, devices: [0], name: "telling" });
  const input = (value: number) => engine.upload({ dtype: "float32", shape: [] }, Float32Array.of(value), 0);
  return { engine, run: (value: number) => at(at(executable.execute([[input(value)]]), 0), 0) };
}

describe("a device that calls the host", () => {
  test("is answered while the main thread waits for it to catch up", async () => {
    const seen: number[] = [];
    const { engine, run } = prepare((x) => seen.push(x.item()));
    const numRuns = 600;
    let last = run(0);
    for (let i = 1; i < numRuns; i++) last = run(i);
    expect(seen.length).toBeGreaterThan(0);
    expect(await engine.download(last)).toEqual(Float32Array.of(numRuns));
    expect(seen).toEqual(Array.from({ length: numRuns }, (_, i) => i));
  });

  test("fails with what the function threw, and says where", async () => {
    const { engine, run } = prepare(() => {
      throw new RangeError("too much");
    });
    const failure = engine.download(run(1));
    await expect(failure).rejects.toThrow(
      /device 0, program "telling", step \d+ \(callback\).*the host callback that it called threw RangeError: too much/,
    );
    await expect(failure).rejects.toHaveProperty("cause", new RangeError("too much"));
  });
});
