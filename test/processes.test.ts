/** What every process sees when several of them share the devices of a mesh. */
import {
  devicePut,
  grad,
  jit,
  lax,
  Mesh,
  NamedSharding,
  NotAddressableError,
  np,
  P,
  ShardwiseError,
  shardMap,
  type Tensor,
} from "shardwise";
import { describe, expect, test } from "vitest";
import type { Engine } from "../src/ir/engine.js";
import { at, range } from "../src/ir/shape.js";
import { openProcesses } from "./support/processes.js";

/** Runs the same program in every process; they wait for each other only where the engine does. */
function everywhere<T>(
  count: number,
  numDevices: number,
  main: (engine: Engine) => Promise<T>,
): Promise<T[]> {
  return Promise.all(openProcesses(count, numDevices).map(main));
}

const put = (x: Tensor, mesh: Mesh, ...spec: (string | null)[]) =>
  devicePut(x, new NamedSharding(mesh, P(...spec)));

const shardsOf = (x: Tensor) =>
  Promise.all(
    x.addressableShards.map(async ({ device, index, data }) => ({
      device: device.id,
      index,
      values: [...(await data.data())],
    })),
  );

describe("a process that holds two of four devices", () => {
  test("has the blocks of its own devices and no others", async () => {
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ x: 4 }, { engine, devices: [3, 0, 1, 2] });
      const x = await put(np.arange(8), mesh, "x");
      expect(mesh.addressablePositions).toEqual(engine.process.index === 0 ? [1, 2] : [0, 3]);
      expect(x.sharding?.isFullyAddressable).toBe(false);
      return shardsOf(x);
    });
    expect(seen).toEqual([
      [
        { device: 0, index: [[2, 4]], values: [2, 3] },
        { device: 1, index: [[4, 6]], values: [4, 5] },
      ],
      [
        { device: 3, index: [[0, 2]], values: [0, 1] },
        { device: 2, index: [[6, 8]], values: [6, 7] },
      ],
    ]);
  });

  test("is told so when it reads a whole of which a part is elsewhere", async () => {
    await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ x: 4 }, { engine });
      const x = await put(np.arange(8), mesh, "x");
      const { index } = engine.process;
      const error: unknown = await x.data().catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(NotAddressableError);
      expect(error instanceof ShardwiseError && error.code).toBe("not-addressable");
      expect(String(error)).toContain(
        `2 of its 4 blocks are in this process (${index} of 2), the others on devices ${index === 0 ? "2, 3" : "0, 1"} of other processes: read tensor.addressableShards, or gather it in every process with await processAllGather(tensor)`,
      );
      await x.ready();
    });
  });

  test("reads what it has a copy of, and gathers the rest with the others", async () => {
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ y: 2, x: 2 }, { engine });
      // The processes lie along y, so each of them has all blocks along x.
      const rows = await put(np.arange(4), mesh, "x");
      const columns = await put(np.arange(4), mesh, "y");
      const gathered = jit((x: Tensor) => x.add(1), { mesh, outShardings: P() })(columns);
      return [await rows.js(), await gathered.js()];
    });
    expect(seen).toEqual(
      range(2).map(() => [
        [0, 1, 2, 3],
        [1, 2, 3, 4],
      ]),
    );
  });

  test("takes part in collectives, gradients and donated steps", async () => {
    const data = np.reshape(np.arange(16), [8, 2]).div(8);
    const loss = (w: Tensor, x: Tensor) => np.mean(np.square(np.tanh(np.matmul(x, w))));
    const meanLoss = (w: Tensor, x: Tensor) => lax.pmean(loss(w, x), "data");
    let alone: Tensor = np.ones([2, 3]);
    for (const _ of range(3)) alone = alone.sub(grad(loss)(alone, data).mul(0.1));
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ data: 4 }, { engine });
      const step = jit(
        shardMap((w: Tensor, x: Tensor) => w.sub(grad(meanLoss)(w, x).mul(0.1)), {
          mesh,
          inSpecs: [P(), P("data")],
          outSpecs: P(),
        }),
        { donate: 0 },
      );
      const x = await put(data, mesh, "data");
      let w = await put(np.ones([2, 3]), mesh);
      for (const _ of range(3)) w = step(w, x);
      return [...(await w.data())];
    });
    const expected = [...(await alone.data())];
    for (const values of seen) {
      values.forEach((value, i) => {
        expect(value).toBeCloseTo(at(expected, i), 6);
      });
    }
  });

  test("moves a tensor to another sharding of the mesh together with the others, whoever is first", async () => {
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ x: 4 }, { engine });
      const w = await put(np.arange(16).reshape([4, 4]), mesh);
      const sum = jit((a: Tensor) => a.add(a), { mesh, inShardings: P("x"), outShardings: P(null, "x") });
      const same = jit((a: Tensor) => a.mul(1), { mesh, outShardings: P() })(w);
      // Only the first process could read the replicated tensor without waiting; it must not go a way of its own.
      if (engine.process.index === 0) await same.ready();
      const moved = sum(same);
      return shardsOf(moved);
    });
    expect(seen.flat().map(({ device, values }) => [device, values])).toEqual(
      range(4).map((c) => [c, range(4).map((r) => 2 * (4 * r + c))]),
    );
  });

  test("runs programs without a mesh on a device of its own", async () => {
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ x: 1 }, { engine, devices: [2 * engine.process.index + 1] });
      const x = await put(np.arange(3).add(engine.process.index), mesh, "x");
      const [shard] = x.addressableShards;
      return shard && [await shard.data.mul(2).js(), shard.data.mul(2).addressableShards[0]?.device.id];
    });
    expect(seen).toEqual([
      [[0, 2, 4], 1],
      [[2, 4, 6], 3],
    ]);
  });

  test("may have no device of a mesh at all", async () => {
    const seen = await everywhere(2, 2, async (engine) => {
      const mesh = Mesh.create({ x: 2 }, { engine, devices: [2, 3] });
      const x = await put(np.arange(4), mesh, "x");
      const y = engine.process.index === 1 ? jit((a: Tensor) => a.add(1), { mesh })(x) : x;
      expect(y.shape).toEqual([4]);
      if (engine.process.index === 0) await expect(y.data()).rejects.toThrow(/0 of its 2 blocks/);
      return shardsOf(y);
    });
    expect(seen.map((shards) => shards.length)).toEqual([0, 2]);
  });
});
