import { afterAll, describe, expect, test } from "vitest";
import { createReferenceEngine, createThreadsEngine } from "../../engines/index.js";
import {
  checkpointPolicies,
  customVjp,
  devicePut,
  findNonFinite,
  grad,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  remat,
  shardMap,
  Tensor,
  valueAndGrad,
} from "../../index.js";
import * as nn from "../../nn/index.js";

const engines = {
  reference: createReferenceEngine(),
  threads: createThreadsEngine({ numDevices: 4, memoryBytes: 2 ** 26 }),
};
afterAll(() => engines.threads.close());

/** The line of this file on which it is called. */
function lineHere(): number {
  const [, , caller = ""] = (new Error().stack ?? "").split("\n");
  return Number(/:(\d+):\d+\)?$/.exec(caller)?.[1]);
}

const rows = (...values: readonly (readonly number[])[]) =>
  Tensor.fromHost(
    { dtype: "float32", shape: [values.length, values[0]?.length ?? 0] },
    Float32Array.from(values.flat()),
  );

for (const [name, engine] of Object.entries(engines)) {
  const one = Mesh.create({ data: 1 }, { engine });
  const two = Mesh.create({ data: 2 }, { engine });
  const four = Mesh.create({ data: 2, model: 2 }, { engine });

  describe(`findNonFinite on the ${name} engine`, () => {
    test("finds nothing where all is finite", async () => {
      const found = await findNonFinite((x: Tensor) => np.sum(np.exp(x)), { mesh: one })(rows([1, 2]));
      expect(found).toBeUndefined();
    });

    test("names the op, its type and the line", async () => {
      let line = 0;
      const f = (x: Tensor) => {
        const y = x.mul(2);
        line = lineHere() + 1;
        return np.sum(np.exp(y)).sub(1);
      };
      const found = await findNonFinite(f, { mesh: one })(rows([1, 2, 60]));
      expect(found).toMatchObject({ op: "exp", value: "infinite", device: 0, iterations: [] });
      expect(found?.type).toEqual({ dtype: "float32", shape: [1, 3] });
      expect(found?.source).toContain(`nonFinite.test.ts:${line}`);
      expect(`${found}`).toMatch(
        /^exp f32\[1,3\], on device 0, with infinite values \(.*nonFinite\.test\.ts:\d+:\d+\)$/,
      );
    });

    test("names the device whose rows are bad, not those that a sum brings it to", async () => {
      const loss = (w: Tensor, x: Tensor) => np.mean(np.exp(np.matmul(x, w)));
      const x = rows([1, 1], [1, 1], [1, 1], [1, 200]);
      const options = { mesh: two, inShardings: [P(), P("data")] } as const;
      const found = await findNonFinite(valueAndGrad(loss), options)(np.ones([2, 3]), x);
      expect(found).toMatchObject({ op: "exp", device: 1 });
      expect(found?.type.shape).toEqual([2, 3]);
      const first = await findNonFinite(loss, options)(
        np.ones([2, 3]),
        rows([200, 1], [1, 1], [1, 1], [1, 200]),
      );
      expect(first).toMatchObject({ op: "exp", device: 0 });
    });

    test("blames a sum over devices only when it overflows by itself", async () => {
      const sum = shardMap((x: Tensor) => lax.psum(x.mul(1), "data"), {
        mesh: two,
        inSpecs: P("data"),
        outSpecs: P(),
      });
      expect(await findNonFinite(sum)(rows([3e38], [3e38]))).toMatchObject({ op: "psum", device: 0 });
      const log = shardMap((x: Tensor) => lax.psum(np.log(x), "data"), {
        mesh: two,
        inSpecs: P("data"),
        outSpecs: P(),
      });
      expect(await findNonFinite(log)(rows([1], [0]))).toMatchObject({ op: "log", device: 1 });
    });

    test("follows values that travel from device to device in a loop", async () => {
      const around = shardMap(
        (x: Tensor) =>
          lax.scan(
            (c: Tensor, i: Tensor) => {
              const sent = lax.ppermute(c, "data", [
                [0, 1],
                [1, 0],
              ]);
              return [np.exp(sent.mul(i)), null];
            },
            x,
            np.array([1, 1, 50, 1]),
          )[0],
        { mesh: two, inSpecs: P("data"), outSpecs: P("data") },
      );
      // Device 0 starts with log 1 = 0, device 1 with something so small that e^e^x stays near e.
      const found = await findNonFinite(around)(rows([-50], [-0.5]));
      expect(found).toMatchObject({ op: "exp", iterations: [2] });
      const values = { 0: -50, 1: -0.5 };
      const after = (start: number) => Math.exp(Math.exp(start));
      const culprit = [0, 1].find((d) => Math.exp(50 * after(values[((d + 1) % 2) as 0 | 1])) > 3.4e38);
      expect(found?.device).toBe(culprit);
    });

    test("names the iteration of a scan", async () => {
      const loop = (x: Tensor) =>
        lax.scan((c: Tensor, s: Tensor) => [c.add(1), np.log(s.add(c))], np.array(0), x);
      const x = np.array([1, 2, 3, -3, 5]);
      expect(await findNonFinite(loop, { mesh: one })(x)).toMatchObject({ op: "log", iterations: [3] });
      expect(await findNonFinite((y: Tensor) => loop(y)[0], { mesh: one })(x)).toBeUndefined();
      const nested = (y: Tensor) => lax.scan((c: Tensor, s: Tensor) => [c, loop(s)[1]], np.array(0), y)[1];
      expect(await findNonFinite(nested, { mesh: one })(np.stack([x.add(9), x.add(9), x]))).toMatchObject({
        op: "log",
        iterations: [2, 3],
      });
    });

    test("names the first iteration that runs in a loop from the end", async () => {
      const loop = (x: Tensor) =>
        lax.scan((c: Tensor, s: Tensor) => [c.mul(s), null], np.array(1), x, { reverse: true })[0];
      const found = await findNonFinite(loop, { mesh: one })(np.array([1e30, 1e30, 1e30, 1e30]));
      expect(found).toMatchObject({ op: "mul", iterations: [2], value: "infinite" });
    });

    test("looks into while loops and branches", async () => {
      const loop = (x: Tensor) =>
        lax.whileLoop(
          ([i]: [Tensor, Tensor]) => np.less(i, 9),
          ([i, y]: [Tensor, Tensor]): [Tensor, Tensor] => [i.add(1), y.mul(y)],
          [np.array(0), x] as [Tensor, Tensor],
        )[1];
      expect(await findNonFinite(loop, { mesh: one })(np.array([2, 10]))).toMatchObject({
        op: "mul",
        iterations: [5],
      });
      expect(await findNonFinite(loop, { mesh: one })(np.array([1, 1]))).toBeUndefined();
      const choice = (x: Tensor) =>
        lax.cond(
          np.less(np.sum(x), 0),
          (y: Tensor) => np.sqrt(y),
          (y: Tensor) => np.log(y).mul(np.exp(y)),
          x,
        );
      expect(await findNonFinite(choice, { mesh: one })(np.array([-1, -2]))).toMatchObject({
        op: "sqrt",
        value: "NaN",
      });
      expect(await findNonFinite(choice, { mesh: one })(np.array([1, 0]))).toMatchObject({ op: "log" });
      expect(await findNonFinite(choice, { mesh: one })(np.array([1, 2]))).toBeUndefined();
    });

    test("names the op of the backward pass where only the gradient is bad", async () => {
      let line = 0;
      const f = (x: Tensor) => {
        line = lineHere() + 1;
        return np.sum(np.sqrt(x));
      };
      expect(await findNonFinite(f, { mesh: one })(np.array([0, 1]))).toBeUndefined();
      const found = await findNonFinite(grad(f), { mesh: one })(np.array([0, 1]));
      expect(found?.op).toBe("div");
      expect(found?.source).toContain(`nonFinite.test.ts:${line}`);
      for (const wrapped of [remat(f), remat(f, { policy: checkpointPolicies.dotsSaveable })]) {
        expect((await findNonFinite(grad(wrapped), { mesh: one })(np.array([0, 1])))?.op).toBe("div");
      }
    });

    test("looks into derivatives that the user wrote", async () => {
      const f = customVjp((x: Tensor) => np.sin(x), {
        forward: (x) => [np.sin(x), x],
        backward: (x, ct) => [np.log(x).mul(ct)],
      });
      const found = await findNonFinite(
        grad((x: Tensor) => np.sum(f(x))),
        { mesh: one },
      )(np.array([0, 1]));
      expect(found?.op).toBe("log");
    });

    test("does not blame masks, but what makes a NaN of them", async () => {
      const causal = (x: Tensor) => {
        const n = x.shape[0] ?? 0;
        const mask = np.tril(np.ones([n, n])).astype("bool");
        const masked = np.where(mask, x, Number.NEGATIVE_INFINITY);
        const weights = np.exp(masked.sub(np.max(masked, -1, { keepdims: true })));
        return weights.div(np.sum(weights, -1, { keepdims: true }));
      };
      const scores = rows([1, 2, 3], [4, 5, 6], [7, 8, 9]);
      expect(await findNonFinite(causal, { mesh: one })(scores)).toBeUndefined();
      const empty = (x: Tensor) => {
        const masked = np.where(np.greater(x, 100), x, Number.NEGATIVE_INFINITY);
        return np.sum(np.exp(masked.sub(np.max(masked, -1, { keepdims: true }))));
      };
      expect(await findNonFinite(empty, { mesh: one })(scores)).toMatchObject({ op: "sub", value: "NaN" });
    });

    test("blames what uses a NaN that the function was written with", async () => {
      const found = await findNonFinite((x: Tensor) => x.mul(2).add(Number.NaN), { mesh: one })(rows([1, 2]));
      expect(found).toMatchObject({ op: "add", value: "NaN", reachesResult: true });
    });

    test("prefers what made a result bad to what was lost on the way, and tells which it is", async () => {
      const f = (x: Tensor) => {
        const harmless = np.where(np.greater(x, 0), x, np.exp(x.mul(-100)));
        return [harmless, np.log(x.mul(0))] as const;
      };
      const x = np.array([1, 2]);
      expect(await findNonFinite(f, { mesh: one })(x)).toMatchObject({ op: "log", reachesResult: true });
      const lost = await findNonFinite((y: Tensor) => np.minimum(np.exp(y), 5), { mesh: one })(
        np.array([99]),
      );
      expect(lost).toMatchObject({ op: "exp", reachesResult: false });
      expect(`${lost}`).toContain("; no result is worse for it");
    });

    test("names an argument that is bad itself, and where it is bad", async () => {
      const f = ({ w, b }: { w: Tensor; b: Tensor }, x: Tensor) => np.matmul(x, w).add(b);
      const sharding = { mesh: two, inShardings: [P(), P("data")] } as const;
      const params = { w: np.ones([2, 2]), b: np.array([0, Number.NaN]) };
      const bias = await findNonFinite(f, sharding)(params, rows([1, 2], [3, 4]));
      expect(bias).toMatchObject({ argument: "argument 0/b", value: "NaN", device: 0 });
      expect(bias?.op).toBeUndefined();
      const input = await findNonFinite(f, sharding)(
        { ...params, b: np.zeros([2]) },
        await devicePut(rows([1, 2], [3, Number.POSITIVE_INFINITY]), new NamedSharding(two, P("data"))),
      );
      expect(`${input}`).toBe("argument 1 f32[1,2], on device 1, with infinite values");
    });

    test("sees where a number no longer fits a narrower type", async () => {
      const f = (x: Tensor) => np.sum(x.astype("float16").astype("float32"));
      expect(await findNonFinite(f, { mesh: one })(np.array([7e4]))).toMatchObject({
        op: "convert",
        type: { dtype: "float16", shape: [1] },
      });
    });

    test("names module and iteration of a layer, on a mesh that splits data and weights", async () => {
      const Block = nn.module("Block", (_: object) => (x: Tensor, _xs: null): [Tensor, null] => {
        const up = nn.Dense({ features: 4, name: "up" })(x);
        return [nn.Dense({ features: 4, name: "down" })(np.exp(up)), null];
      });
      const Stack = nn.scan(Block, { variableAxes: { params: 0 }, splitRngs: { params: true }, length: 3 });
      const Model = nn.module("Model", (_: object) => (x: Tensor) => Stack({ name: "layers" })(x, null)[0]);
      const model = Model({});
      const up = np.zeros([3, 4, 4]);
      const bias = np.array([
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 99],
      ]);
      const variables = {
        params: {
          layers: {
            up: { kernel: up, bias },
            down: { kernel: np.ones([3, 4, 4]), bias: np.zeros([3, 4]) },
          },
        },
      };
      const split = { up: { kernel: P(null, null, "model"), bias: P(null, "model") }, down: P() };
      const loss = (v: typeof variables, x: Tensor) => np.mean(model.apply(v, x));
      const found = await findNonFinite(grad(loss), {
        mesh: four,
        inShardings: [{ params: { layers: split } }, P("data")],
      })(variables, np.ones([4, 4]));
      expect(found).toMatchObject({ op: "exp", module: "layers", iterations: [2], device: 1 });
      expect(`${found}`).toContain("in layers, iteration 2, on device 1");
    });
  });
}
