import { expect, test } from "vitest";
import { XlaEngine } from "../../src/engines/xla/engine.js";
import type { XlaClient } from "../../src/engines/xla/xlaClient.js";
import { jit, Mesh, np, type Tensor } from "../../src/index.js";

/** A client whose runs are started on another thread, as those are whose start takes long, and are over at once. */
function slowClient() {
  const counts = { started: 0, hurried: 0 };
  const client: XlaClient<number> = {
    platform: { name: "cuda", version: "none", deviceKind: "none", kernels: [] },
    numDevices: 1,
    process: { index: 0, count: 1 },
    isAddressable: () => true,
    upload: () => 0,
    download: async () => new Float32Array(1),
    copy: () => 0,
    destroy: () => {},
    close: async () => {},
    compile: async () => ({
      execute: async () => {
        counts.started++;
        return {
          outputs: [[0]],
          done: Promise.resolve(),
          poll: () => true,
          hurry: () => {
            counts.hurried++;
          },
        };
      },
      destroy: () => {},
    }),
  };
  return { client, counts };
}

test("runs that are over are forgotten, although none of them was started on the main thread", async () => {
  const { client, counts } = slowClient();
  const engine = new XlaEngine(client);
  const double = jit((x: Tensor) => x.mul(2), { mesh: Mesh.create({ data: 1 }, { engine }) });
  for (let i = 0; i < 100; i++) await double(np.ones([1])).ready();
  expect(counts.started).toBe(100);
  // An engine that closes hurries the runs that it knows.
  const { hurried } = counts;
  await engine.close();
  expect(counts.hurried - hurried).toBeLessThanOrEqual(16);
});
