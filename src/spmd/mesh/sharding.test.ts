import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { simulateDevices } from "../../engines/simulateDevices.js";
import {
  AxisError,
  addressableShards,
  devicePut,
  jit,
  Mesh,
  NamedSharding,
  np,
  P,
  type PartitionSpec,
  ShardingError,
  type Tensor,
  TracerError,
  ValueError,
  visualizeSharding,
} from "../../index.js";

const engine = simulateDevices();
const mesh = Mesh.create({ data: 2, model: 4 }, { engine });

describe("a mesh", () => {
  test("numbers its devices row-major over the axes in the order given", () => {
    expect(mesh.axisNames).toEqual(["data", "model"]);
    expect(mesh.shape).toEqual({ data: 2, model: 4 });
    expect(mesh.size).toBe(8);
    expect(mesh.devices[5]).toEqual({ id: 5, coordinates: { data: 1, model: 1 } });
    expect(mesh.axisSize("model")).toBe(4);
    expect(String(mesh)).toBe(`Mesh {data: 2, model: 4} on ${engine.name}`);
    const sharding = new NamedSharding(mesh, P("model"));
    expect([mesh, sharding.spec, sharding].map((value) => inspect(value))).toEqual([
      `Mesh {data: 2, model: 4} on ${engine.name}`,
      'P("model")',
      'NamedSharding({data: 2, model: 4}, P("model"))',
    ]);
  });

  test("may use the engine's devices in another order", () => {
    const reversed = Mesh.create({ i: 3 }, { engine, devices: [2, 1, 0] });
    expect(reversed.devices.map(({ id }) => id)).toEqual([2, 1, 0]);
  });

  test("has sub-axes", () => {
    const split = mesh.splitAxis("model", { fsdp: 2, tensor: 2 });
    expect(split.shape).toEqual({ data: 2, fsdp: 2, tensor: 2 });
    expect(split.devices.map(({ id }) => id)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
    expect(() => mesh.splitAxis("model", { fsdp: 3 })).toThrow(
      /axis "model" of size 4 does not split into \{fsdp: 3\} \(3 = 3\)/,
    );
    expect(() => mesh.splitAxis("model", { data: 2, x: 2 })).toThrow(/would have an axis name twice/);
    expect(() => mesh.splitAxis("pipe", { a: 1 })).toThrow(AxisError);
  });

  test("refuses sizes and devices that do not exist", () => {
    expect(() => Mesh.create({ a: 0 })).toThrow(/axis sizes must be integers of at least 1, got a: 0/);
    expect(() => Mesh.create({ a: 1.5 })).toThrow(AxisError);
    expect(() => Mesh.create({ a: 2 }, { engine, devices: [0] })).toThrow(/\{a: 2\} needs 2 devices, got 1/);
    expect(() => Mesh.create({ a: 2 }, { engine, devices: [0, 0] })).toThrow(ValueError);
    expect(() => Mesh.create({ a: 2 }, { engine, devices: [0, -1] })).toThrow(/different devices/);
    expect(() => mesh.axisSize("pipe")).toThrow(/axis "pipe" is not in the mesh \{data: 2, model: 4\}/);
  });
});

describe("devicePut", () => {
  const x = np.arange(32).reshape([4, 8]);

  test("splits a tensor over the mesh and gathers it when it is read", async () => {
    const placed = await devicePut(x, new NamedSharding(mesh, P("data", "model")));
    expect(String(placed.sharding)).toBe('NamedSharding({data: 2, model: 4}, P("data", "model"))');
    await expectClose(placed, x);
    expect(x.sharding).toBeUndefined();
  });

  test("gives every device its block", async () => {
    const placed = await devicePut(x, new NamedSharding(mesh, P(null, ["model"])));
    const shards = placed.addressableShards;
    expect(shards.length).toBe(8);
    const sixth = shards[6];
    expect(sixth?.device).toEqual({ id: 6, coordinates: { data: 1, model: 2 } });
    expect(sixth?.index).toEqual([
      [0, 4],
      [4, 6],
    ]);
    expect(sixth?.data.shape).toEqual([4, 2]);
    await expectClose(sixth?.data ?? x, [4, 5, 12, 13, 20, 21, 28, 29]);
    await expectClose(addressableShards(placed)[2]?.data ?? x, [4, 5, 12, 13, 20, 21, 28, 29]);
  });

  test("leaves a tensor alone that lies where it should", async () => {
    const sharding = new NamedSharding(mesh, P("data"));
    const placed = await devicePut(x, sharding);
    expect(await devicePut(placed, sharding)).toBe(placed);
  });

  test("takes trees, with one sharding or a prefix tree of them", async () => {
    const [rows, whole] = [new NamedSharding(mesh, P("data")), new NamedSharding(mesh, P())];
    const both = await devicePut({ a: x, b: [x] }, rows);
    expect(String(both.b[0]?.sharding)).toContain('P("data")');
    const each = await devicePut({ a: x, b: [x] }, { a: rows, b: whole });
    expect(String(each.b[0]?.sharding)).toContain("P()");
  });

  test("moves between shardings and meshes", async () => {
    const other = Mesh.create({ i: 4 }, { engine });
    let placed = await devicePut(x, new NamedSharding(mesh, P("data", "model")));
    for (const spec of [P("model", "data"), P(["model"]), P(null, ["data", "model"]), P()]) {
      placed = await devicePut(placed, new NamedSharding(mesh, spec));
      await expectClose(placed, x);
    }
    placed = await devicePut(placed, new NamedSharding(other, P("i")));
    expect(placed.sharding?.mesh).toBe(other);
    await expectClose(placed, x);
  });

  test("keeps copies apart: disposing of a shard leaves the tensor readable", async () => {
    const placed = await devicePut(x, new NamedSharding(mesh, P("data")));
    for (const { data } of placed.addressableShards) data.dispose();
    await expectClose(placed, x);
  });

  test("refuses what does not fit", async () => {
    const put = (value: unknown, spec: PartitionSpec = P("data")) =>
      devicePut(value, new NamedSharding(mesh, spec));
    await expect(put(x, P(null, null, "data"))).rejects.toThrow(ShardingError);
    await expect(put(np.zeros([3]))).rejects.toThrow(/dim 0 of \[3\] does not split.*\(3 \/ 2 = 1\.5\)/);
    await expect(put({ w: np.zeros([3]) })).rejects.toThrow(/\[devicePut\] w: dim 0/);
    await expect(put({ w: "text" })).rejects.toThrow(/the leaf at "w" is not a tensor/);
    await expect(put(x, P("pipe"))).rejects.toThrow(AxisError);
    // @ts-expect-error a spec names no mesh
    await expect(devicePut(x, P("data"))).rejects.toThrow(/no NamedSharding is given/);
  });
});

describe("computing with split tensors", () => {
  test("follows the arguments, inside jit and outside", async () => {
    const x = await devicePut(np.arange(8), new NamedSharding(mesh, P("data")));
    await expectClose(x.add(1), [1, 2, 3, 4, 5, 6, 7, 8]);
    const doubled = jit((v: Tensor) => v.mul(2))(x);
    await expectClose(doubled, [0, 2, 4, 6, 8, 10, 12, 14]);
    expect(doubled.sharding?.mesh).toBe(mesh);
  });

  test("mixes with tensors that lie on one device", async () => {
    const x = await devicePut(np.arange(4), new NamedSharding(mesh, P("data")));
    await expectClose(x.add(np.array([10, 20, 30, 40])), [10, 21, 32, 43]);
  });

  test("places results where outShardings says", async () => {
    const f = jit((v: Tensor) => v.mul(2), { outShardings: new NamedSharding(mesh, P("model")) });
    const y = f(np.arange(8));
    expect(String(y.sharding?.spec)).toBe('P("model")');
    await expectClose(y, [0, 2, 4, 6, 8, 10, 12, 14]);
  });

  test("has no sharding while a function is traced", () => {
    expect(() => jit((v: Tensor) => v.mul(v.sharding ? 1 : 2))(np.arange(4))).toThrow(TracerError);
    expect(() => jit((v: Tensor) => v.addressableShards[0]?.data ?? v)(np.arange(4))).toThrow(
      /\[Tensor\.addressableShards\].*placeholder while its function is being traced/,
    );
  });
});

describe("visualizeSharding", () => {
  test("shows which device holds which block", async () => {
    const x = np.zeros([4, 8]);
    const show = async (spec: ReturnType<typeof P>, value = x) =>
      visualizeSharding(await devicePut(value, new NamedSharding(mesh, spec)));
    expect(await show(P("data", "model"))).toBe(
      [
        "┌─────┬─────┬─────┬─────┐",
        "│  0  │  1  │  2  │  3  │",
        "├─────┼─────┼─────┼─────┤",
        "│  4  │  5  │  6  │  7  │",
        "└─────┴─────┴─────┴─────┘",
        'Tensor f32[4,8] P("data", "model") on {data: 2, model: 4}: 16 bytes a device',
      ].join("\n"),
    );
    expect(await show(P("data"))).toBe(
      [
        "┌─────────┐",
        "│ 0,1,2,3 │",
        "├─────────┤",
        "│ 4,5,6,7 │",
        "└─────────┘",
        'Tensor f32[4,8] P("data") on {data: 2, model: 4}: 64 bytes a device',
      ].join("\n"),
    );
    expect(await show(P("model"), np.zeros([8]))).toContain("│ 0,4 │ 1,5 │ 2,6 │ 3,7 │");
    expect(await show(P(null, null, "model"), np.zeros([1, 1, 4]))).toContain("dims 2 … are split 4 ways");
    expect(visualizeSharding(np.zeros([2]))).toContain("│  0  │");
  });
});
