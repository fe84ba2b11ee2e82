/**
 * Devices on several adapters: those that `SHARDWISE_WEBGPU_ADAPTERS` lists, else the two that WebGPU prefers for speed
 * and for little power. Where these are the same one, it is opened twice, and values pass through the host all the same.
 */
import { afterEach, describe, expect, test, vi } from "vitest";
import { DeviceFailedError, EngineLoadError } from "../../src/engines/errors.js";
import { createWebGpuEngine, type WebGpuEngine } from "../../src/engines/webgpu/engine.js";
import { findGpu } from "../../src/engines/webgpu/findGpu.js";
import {
  devicePut,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  type Tensor,
} from "../../src/index.js";
import { leftToDriver } from "../conformance/engine/leftToDriver.js";
import { runEngineSuite } from "../conformance/engine/suite.js";
import { describeWith, webGpu } from "../support/optional.js";
import { withoutFloat64 } from "../support/withoutFloat64.js";

const adapters = process.env.SHARDWISE_WEBGPU_ADAPTERS?.split(",") ?? ["high-performance", "low-power"];

describeWith(webGpu, "WebGPU on several adapters", () => {
  runEngineSuite({
    name: "webgpu",
    newEngine: (numDevices) => createWebGpuEngine({ numDevices, adapters }),
    skip: [withoutFloat64],
    allowances: leftToDriver,
  });

  /** Every collective, inside and outside of loops, over axes within an adapter and between adapters. */
  const everyCollective = (x: Tensor): Tensor => {
    const turn = (y: Tensor) =>
      lax.ppermute(y, "across", [
        [0, 1],
        [1, 0],
      ] as const);
    const sums = lax.psum(x, ["across", "within"]).add(lax.pmax(x, "across"));
    const gathered = np.sum(lax.allGather(x, "across"), 0);
    const scattered = lax.psumScatter(x, "across", { tiled: true });
    const exchanged = lax.allToAll(x, "across", 0, 1, { tiled: true });
    const one = lax.ppermute(x, "across", [[1, 0]] as const);
    const looped = lax.foriLoop(0, 3, (_, y: Tensor) => turn(y).add(lax.psum(y, "within")), x);
    const ended = lax.whileLoop(
      (y: Tensor) => np.less(lax.pmax(np.max(y), ["across", "within"]), 1000),
      (y: Tensor) => lax.psum(y, "across").add(1),
      x,
    );
    return sums.add(gathered).add(one).add(looped).add(ended).add(np.sum(scattered)).add(np.sum(exchanged));
  };

  async function valuesOf(engine: WebGpuEngine): Promise<number[]> {
    const mesh = Mesh.create({ across: 2, within: 2 }, { engine });
    const there = new NamedSharding(mesh, P("across", "within"));
    const x = await devicePut(random.randint(random.key(3), [8, 6], 0, 9).astype("float32"), there);
    const [inSpecs, outSpecs] = [P("across", "within"), P("across", "within")];
    const step = jit(shardMap(everyCollective, { mesh, inSpecs, outSpecs }));
    return [...(await step(x).data())].map(Number);
  }

  test("gives the values of one adapter, and says what the devices are", async () => {
    const values: number[][] = [];
    for (const named of [adapters.slice(0, 1), adapters]) {
      const engine = createWebGpuEngine({ numDevices: 4, adapters: named });
      await engine.opened;
      values.push(await valuesOf(engine));
      const { gemm = "" } = engine.info();
      expect(gemm.match(/\(WebGPU, /g)).toHaveLength(named.length);
      await engine.close();
    }
    expect(values[1]).toEqual(values[0]);
  });

  test("copies a tensor from one adapter to another, and traces both", async ({ skip }) => {
    const engine = createWebGpuEngine({ numDevices: 2, adapters });
    await engine.opened;
    const mesh = Mesh.create({ x: 2 }, { engine });
    const x = await devicePut(np.arange(6), new NamedSharding(mesh, P("x")));
    const everywhere = await devicePut(x, new NamedSharding(mesh, P()));
    for (const shard of everywhere.addressableShards)
      expect([...(await shard.data.data())]).toEqual([0, 1, 2, 3, 4, 5]);
    const { tracer } = engine;
    if (!tracer) return skip("an adapter has no timestamp-query");
    const total = jit(shardMap((y: Tensor) => lax.psum(y, "x"), { mesh, inSpecs: P("x"), outSpecs: P() }));
    tracer.start();
    expect([...(await total(x).data())]).toEqual([3, 5, 7]);
    const events = await tracer.stop();
    for (const device of [0, 1])
      expect(events.filter((event) => event.device === device && event.kind === "done")).toHaveLength(1);
    await engine.close();
  });

  describe("fails", () => {
    afterEach(() => {
      vi.unstubAllGlobals();
    });

    test("with the device whose adapter was lost, whatever the others wait for", async () => {
      const gpu = await findGpu(false);
      const devices: GPUDevice[] = [];
      const requestAdapter: GPU["requestAdapter"] = async (options) => {
        const adapter = await gpu.requestAdapter(options);
        if (adapter === null) return null;
        const { limits, features, info } = adapter;
        const requestDevice: GPUAdapter["requestDevice"] = async (description) => {
          const device = await adapter.requestDevice(description);
          devices.push(device);
          return device;
        };
        return { limits, features, info, requestDevice } as GPUAdapter;
      };
      vi.stubGlobal("navigator", { gpu: { requestAdapter } });
      const engine = createWebGpuEngine({ numDevices: 4, adapters: ["high-performance", "low-power"] });
      await valuesOf(engine);
      expect(devices).toHaveLength(2);
      devices[1]?.destroy();
      const error = await valuesOf(engine).catch((reason: unknown) => reason);
      expect(error).toBeInstanceOf(DeviceFailedError);
      expect(error).toMatchObject({ place: { device: 2 }, message: expect.stringContaining("was lost") });
      await engine.close();
    });

    test("for a name that no adapter has, with those that there are", async () => {
      const engine = createWebGpuEngine({ adapters: ['no such "adapter"'] });
      await expect(engine.opened).rejects.toThrow(EngineLoadError);
      await expect(engine.opened).rejects.toThrow(/finds no adapter "no such \\"adapter\\""/);
      await engine.close();
    });

    test("for a list without names, or memory without a byte", () => {
      expect(() => createWebGpuEngine({ memoryBytes: -1 })).toThrow("memoryBytes must be an integer");
      expect(() => createWebGpuEngine({ adapters: [] })).toThrow("adapters must name one adapter or more");
      expect(() => createWebGpuEngine({ adapters: ["", "x"] })).toThrow("adapters must name one adapter");
    });
  });
});
