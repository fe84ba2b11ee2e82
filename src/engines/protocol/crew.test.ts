import { existsSync, readdirSync, readFileSync } from "node:fs";
import { MessageChannel } from "node:worker_threads";
import { afterAll, describe, expect, it } from "vitest";
import { nativeProducts, testWith, twoCores } from "../../../test/support/optional.js";
import { ModuleBuilder } from "../../compiler/wasm/assembler.js";
import { jit, Mesh, np, random, type Tensor } from "../../index.js";
import { at } from "../../ir/shape.js";
import { startWorker } from "../../platform/startWorker.js";
import { allowedCores } from "../system/pinning.js";
import { createThreadsEngine, type ThreadsEngine } from "../threads/engine.js";
import { workerCode } from "../threads/workerCode.js";
import { Crew, JOB, JOB_FIELD, newCrewMemory } from "./crew.js";

/** A kernel of parts: writes 7 plus the part's number to the word of its first row. */
function markingKernel(): WebAssembly.Module {
  const builder = new ModuleBuilder();
  const name = { module: "env", name: "memory" };
  builder.importMemory({ ...name, shared: true, minimumPages: 0, maximumPages: 65536 });
  const params = ["i32", "i32", "i32", "i32", "i32"] as const;
  builder.function(
    { params, results: [] },
    (code) => {
      code.get(code.param(2)).i32(4).op("i32.mul");
      code.get(code.param(4)).i32(7).op("i32.add").memory("i32.store");
    },
    "k0",
  );
  return new WebAssembly.Module(builder.toBytes() as Uint8Array<ArrayBuffer>);
}

describe("a device and its helpers", () => {
  it("share the parts of a job", async () => {
    const crew = newCrewMemory(true);
    const memory = new WebAssembly.Memory({ initial: 1, maximum: 1, shared: true });
    const words = new Int32Array(memory.buffer);
    const { port1, port2 } = new MessageChannel();
    const exports = ["k0"];
    port1.postMessage({
      kind: "kernels",
      id: 1,
      sending: 9,
      memory,
      modules: [{ module: markingKernel(), exports, native: [] }],
    });
    const worker = startWorker(workerCode(), {
      workerData: { data: { role: "helper", setup: { crew, core: undefined } }, port: port2 },
      transferList: [port2],
    });
    const device = new Crew(crew, 2);
    for (const round of [1, 2, 3]) {
      words.fill(0);
      const here: number[] = [];
      const describeJob = (job: Float64Array): void => {
        job.set([JOB.kernel, job[JOB_FIELD.count] ?? 0, 9, 0, 0, 0, 0, 4]);
      };
      device.share(4, describeJob, (part) => {
        here.push(part);
        words[part] = 7 + part;
        // The others are left to the helper: who waits for it here knows that it takes parts.
        const other = part === 3 ? 2 : part + 1;
        const deadline = performance.now() + 60_000;
        while (Atomics.load(words, other) === 0 && performance.now() < deadline);
      });
      expect(here.length, `round ${round}`).toBeLessThan(4);
      expect([...words.slice(0, 5)]).toEqual([7, 8, 9, 10, 0]);
    }
    await worker.terminate();
    port1.close();
  });
});

const engines: ThreadsEngine[] = [];
afterAll(() => Promise.all(engines.map((engine) => engine.close())));

/** Products, softmax rows, long loops and sums, large enough to be shared. */
function layer(x: Tensor, w: Tensor): Tensor {
  const scores = np.matmul(x, np.transpose(x)).mul(0.1);
  const weights = np.exp(scores.sub(np.max(scores, -1, { keepdims: true })));
  const mixed = np.matmul(weights.div(np.sum(weights, -1, { keepdims: true })), x);
  return np.tanh(np.matmul(mixed, w)).add(mixed.mul(np.sum(w, 0)));
}

describe("devices of several threads", () => {
  const run = async (threadsPerDevice: number): Promise<Uint8Array[]> => {
    const engine = createThreadsEngine({ numDevices: 1, threadsPerDevice });
    engines.push(engine);
    const mesh = Mesh.create({ x: 1 }, { engine });
    expect(engine.info().threadsPerDevice).toBe(threadsPerDevice);
    const step = jit(layer, { mesh });
    const [x, w] = [random.normal(random.key(0), [256, 192]), random.normal(random.key(1), [192, 192])];
    const results: Uint8Array[] = [];
    let y = x;
    for (let i = 0; i < 4; i++) {
      y = step(y, w);
      const data = await y.data();
      results.push(new Uint8Array(data.buffer.slice(data.byteOffset, data.byteOffset + data.byteLength)));
    }
    return results;
  };

  testWith(nativeProducts, "compute the same bits as devices of one", {}, async () => {
    const alone = await run(1);
    for (const threads of [2, 3]) {
      const shared = await run(threads);
      shared.forEach((bytes, i) => {
        expect(Buffer.compare(bytes, at(alone, i)), `${threads} threads, step ${i}`).toBe(0);
      });
    }
  });

  testWith(twoCores, "stay on processors of their own when asked to", {}, async () => {
    const engine = createThreadsEngine({ numDevices: 2, threadsPerDevice: 1, pinned: true });
    engines.push(engine);
    const mesh = Mesh.create({ x: 2 }, { engine });
    await jit((x: Tensor) => x.add(1), { mesh })(np.ones([2])).data();
    const places = () =>
      readdirSync("/proc/self/task").flatMap((thread) => {
        const file = `/proc/self/task/${thread}/status`;
        // A thread may end while its neighbours are read.
        const status = existsSync(file) ? readFileSync(file, "utf8") : "";
        return /^Cpus_allowed_list:\s*(\S+)$/m.exec(status)?.[1] ?? [];
      });
    // A device that has nothing to do yet may still be starting.
    const cores = allowedCores().slice(0, 2).map(String);
    await expect.poll(places, { timeout: 60_000 }).toEqual(expect.arrayContaining(cores));
  });

  it("are refused where their number makes no sense", () => {
    expect(() => createThreadsEngine({ numDevices: 1, threadsPerDevice: 0.5 })).toThrow(
      /from 1 to 64, not 0.5/,
    );
  });
});
