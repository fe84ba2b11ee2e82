import { jit, Mesh, np, type Tensor } from "shardwise";
import { expect, test } from "vitest";
import { createCollector } from "../src/engines/collector.js";
import { createEngine } from "./fixtures/turnsEngine.js";

const collector = createCollector();

test("a program that nobody can reach any more is released, and one that is in use is not", async () => {
  const engine = createEngine({ numDevices: 2 });
  const released: string[] = [];
  const compile = engine.compile.bind(engine);
  engine.compile = (program, options) => {
    const executable = compile(program, options);
    const release = () => {
      released.push(options.name ?? "");
      executable.release();
    };
    return { execute: executable.execute.bind(executable), release };
  };
  const mesh = Mesh.create({ x: 2 }, { engine });
  const kept = jit((x: Tensor) => x.add(1), { mesh, name: "kept" });
  const once = (i: number) => jit((x: Tensor) => x.mul(i), { mesh, name: "dropped" })(np.arange(2)).js();
  await kept(np.arange(2)).js();
  for (let i = 0; i < 5; i++) await once(i);
  await expect
    .poll(
      () => {
        collector.letGo();
        collector.collect();
        return released.length;
      },
      { timeout: 120_000 },
    )
    .toBeGreaterThan(0);
  expect(new Set(released)).toEqual(new Set(["dropped"]));
  expect(await kept(np.arange(2)).js()).toEqual([1, 2]);
});
