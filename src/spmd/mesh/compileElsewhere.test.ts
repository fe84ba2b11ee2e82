import { afterAll, expect, test } from "vitest";
import "../../index.js";
import { createThreadsEngine } from "../../engines/threads/engine.js";
import { onPass } from "../../ir/passes.js";
import { range } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import type { Tensor } from "../../trace/tensor.js";
import { grad } from "../../transforms/derivatives/grad.js";
import { pureCallback } from "../run/callback.js";
import { jit } from "../run/jit.js";
import { Mesh } from "./mesh.js";
import { P } from "./partitionSpec.js";

const engine = createThreadsEngine({ numDevices: 2, memoryBytes: 2 ** 26 });
const mesh = Mesh.create({ data: 2 }, { engine });
afterAll(() => engine.close());

const loss = (w: Tensor, x: Tensor) => np.sum(np.square(np.tanh(np.matmul(x, w))));
const [w, x] = [np.linspace(-1, 1, 32).reshape([8, 4]), np.linspace(0, 1, 64).reshape([8, 8])];

/** The passes that this thread runs meanwhile. */
async function passesDuring(action: () => Promise<unknown>): Promise<Set<string>> {
  const passes = new Set<string>();
  const end = onPass((pass) => passes.add(pass));
  await action();
  end();
  return passes;
}

test("a program is partitioned and compiled in another thread, and calls then start at once", async () => {
  const options = { mesh, inShardings: [P(), P("data")] } as const;
  const compiled = jit(grad(loss), options);
  const passes = await passesDuring(() => compiled.compile(w, x));
  expect([...passes].filter((pass) => /partition|normalise|joinSums/.test(pass))).toEqual([]);
  expect(await passesDuring(() => compiled(w, x).data())).toEqual(new Set());
  expect(await compiled(w, x).data()).toEqual(await jit(grad(loss), options)(w, x).data());
  // What was compiled before is not compiled again.
  expect(await passesDuring(() => compiled.compile(w, x))).toEqual(new Set());
});

test("host callbacks, which no thread can be sent, are compiled by this one", async () => {
  const twice = (x: Tensor) => pureCallback(({ data }) => Array.from(data, (v) => 2 * v), x, [x]).add(1);
  const compiled = jit(twice, { mesh });
  expect(await passesDuring(() => compiled.compile(np.ones([4])))).toContain("partition");
  expect(await compiled(np.ones([4])).js()).toEqual([3, 3, 3, 3]);
});

test("what cannot be compiled is told as a call tells it", async () => {
  // Of its own, for the error tells how much memory is free.
  const own = createThreadsEngine({ numDevices: 1, memoryBytes: 2 ** 26 });
  const mesh = Mesh.create({ data: 1 }, { engine: own });
  const wide = jit((x: Tensor) => np.sum(np.sort(np.broadcastTo(x, [2 ** 26]))), { mesh });
  const x = np.ones([1]);
  const error = await wide.compile(x).then(
    () => new Error("compiled"),
    (error: Error) => error,
  );
  expect(() => wide(x)).toThrow(error.message);
  await own.close();
});

test("a program compiled by the thread that compiled another computes the same", async () => {
  const options = { mesh, inShardings: [P(), P("data")] } as const;
  const deeper = (w: Tensor, x: Tensor) => loss(np.matmul(np.matmul(w, w.T), w), x);
  for (const fn of [loss, deeper, grad(deeper)]) {
    const [compiled, direct] = [jit(fn, options), jit(fn, options)];
    const passes = await passesDuring(() => compiled.compile(w, x));
    expect(passes).not.toContain("partition");
    expect(await compiled(w, x).data()).toEqual(await direct(w, x).data());
  }
});

test("closing the engine ends what is compiled for it", async () => {
  const own = createThreadsEngine({ numDevices: 1 });
  const mesh = Mesh.create({ x: 1 }, { engine: own });
  // Starts the thread.
  await jit((x: Tensor) => x.add(1), { mesh }).compile(np.ones([4]));
  const deep = (x: Tensor) => range(200).reduce((y: Tensor) => np.tanh(np.sum(y.mul(2)).add(y)), x);
  const compiled = jit(
    grad((x: Tensor) => np.sum(deep(x))),
    { mesh },
  );
  const compiling = compiled.compile(np.ones([4]));
  // The thread has its program by then, and has not compiled it.
  setTimeout(() => void own.close(), 10);
  await expect(compiling).rejects.toThrow(
    /\[compile\] the engine was closed before the program was compiled/,
  );
});
