import { expect, test } from "vitest";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { devicePut, jit, lax, Mesh, NamedSharding, np, P, shardMap, type Tensor } from "../../index.js";
import { ValueError } from "../../ir/errors.js";
import { createWebGpuEngine } from "./engine.js";

describeWith(webGpu, "a trace of the GPU", () => {
  test("has every step with its device, name and times on the host's clock", async ({ skip }) => {
    const engine = createWebGpuEngine({ numDevices: 2 });
    await engine.opened;
    const { tracer } = engine;
    if (!tracer) return skip("the adapter has no timestamp-query");
    const mesh = Mesh.create({ x: 2 }, { engine });
    const body = (a: Tensor) => lax.psum(np.matmul(np.tanh(a), a), "x");
    const step = jit(shardMap(body, { mesh, inSpecs: P("x"), outSpecs: P() }), { name: "traced" });
    const x = await devicePut(np.ones([32, 16]).mul(0.1), new NamedSharding(mesh, P("x")));
    await step(x).ready();
    const from = performance.now();
    tracer.start();
    await step(x).ready();
    const events = await tracer.stop();
    const to = performance.now();
    await step(x).ready();

    const ofTraced = events.filter(({ program }) => program === "traced");
    expect(ofTraced).toEqual(events);
    for (const device of [0, 1]) {
      const own = events.filter((event) => event.device === device);
      expect(own.map(({ kind }) => kind)).toEqual(expect.arrayContaining(["gemm", "kernel", "done"]));
      expect(own.find(({ kind }) => kind === "gemm")?.ops).toEqual(["dotGeneral"]);
      expect(own.flatMap(({ ops }) => ops)).toEqual(expect.arrayContaining(["tanh", "psum"]));
      expect(own.every(({ source }) => source?.includes("gpuTrace.test.ts"))).toBe(true);
    }
    for (const { begin, end } of events) {
      expect(begin).toBeGreaterThanOrEqual(from - 1);
      expect(end).toBeGreaterThanOrEqual(begin);
      expect(end).toBeLessThanOrEqual(to + 1);
    }
    await expect(tracer.stop()).rejects.toThrow(ValueError);
    tracer.start(1);
    await step(x).ready();
    expect(await tracer.stop()).toHaveLength(2);
    await engine.close();
  });
});
