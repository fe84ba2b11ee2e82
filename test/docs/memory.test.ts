import { DisposedError, deviceMemoryStats, grad, jit, Mesh, np, type Tensor, tree } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import { afterAll, expect, test, vi } from "vitest";
import { describePage } from "../support/pages.js";

const told = vi.spyOn(console, "log").mockImplementation(() => {});

const engine = createThreadsEngine({ numDevices: 1 });
const mesh = Mesh.create({ data: 1 }, { engine });
afterAll(() => engine.close());

const x = jit((y: Tensor) => y.add(0.5), { mesh })(np.zeros([16, 256]));

test("a loop without care trains", async () => {
  const loss = (w: Tensor, x: Tensor) => np.mean(np.square(np.matmul(x, w).sub(1)));
  const x = np.full([16, 256], 0.5);
  const step = jit((w: Tensor, x: Tensor) => w.sub(grad(loss)(w, x).mul(0.1)));
  let w = np.zeros([256, 64]);
  for (let i = 0; i < 1000; i++) w = step(w, x); // every w but the last is given back on the way
  expect(await loss(w, x).item()).toBeLessThan(1e-6);

  const train = jit(step, { donate: 0 }); // w's memory becomes the result's; w must not be used again
  const before = w;
  w = train(w, x);
  await expect(before.data()).rejects.toThrow(DisposedError);
});

test("a block's own tensors are gone after it", async () => {
  {
    using y = np.exp(x);
    console.log(await y.sum().item());
  } // y's memory is free here
  expect(told.mock.lastCall?.[0]).toBeCloseTo(16 * 256 * Math.exp(0.5), 1);
});

test("a tree is disposed of but for what is kept", async () => {
  const [a, b] = [np.exp(x), np.sin(x)];
  tree.dispose({ a, b, c: [a, 3, null] }, [b]);
  await expect(a.data()).rejects.toThrow(DisposedError);
  expect(await b.sum().item()).toBeCloseTo(16 * 256 * Math.sin(0.5), 1);
});

test("devices tell how much they use", () => {
  const [first] = deviceMemoryStats();
  console.log(first); // such as { device: 0, bytesInUse: 65664, bytesReserved: 1088, bytesLimit: 2146435072 }
  const [before] = deviceMemoryStats(mesh);
  const y = np.exp(x);
  const [after] = deviceMemoryStats(mesh);
  expect(before?.device).toBe(0);
  expect((after?.bytesInUse ?? 0) - (before?.bytesInUse ?? 0)).toBeGreaterThanOrEqual(16 * 256 * 4);
  expect(after?.bytesLimit).toBeGreaterThan(64 * 1024 * 1024);
  y.dispose();
});

describePage("memory.md", import.meta.url, {});
