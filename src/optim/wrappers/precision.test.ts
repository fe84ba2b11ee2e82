import { jit, Mesh, np, P, shardMap, type Tensor, valueAndGrad } from "shardwise";
import { describe, expect, test } from "vitest";
import { Partitioned } from "../../nn/modules/partitioned.js";
import {
  allFinite,
  applyIfFinite,
  applyUpdates,
  castFloats,
  computeIn,
  dynamicLossScale,
  masterWeights,
  microbatch,
  roundedMaster,
  sgd,
} from "../index.js";

describe("computeIn", () => {
  test("computes in the narrow type and gives gradients in that of the parameters", () => {
    let seen = "";
    const loss = (params: { w: Tensor; ids: Tensor }, x: Tensor) => {
      seen = `${params.w.dtype} ${params.ids.dtype}`;
      return params.w.mul(x).sum().astype("float32");
    };
    const ids = np.array(3, "int32");
    const [value, grads] = valueAndGrad((w: Tensor, x: Tensor) => computeIn("bfloat16", loss)({ w, ids }, x))(
      np.array([1, 2]),
      np.array([3, 4], "bfloat16"),
    );
    expect(seen).toBe("bfloat16 int32");
    expect([value.dtype, grads.dtype]).toEqual(["float32", "float32"]);
  });
});

describe("masterWeights", () => {
  test("add up updates that are too small for the parameters' type", async () => {
    const optimizer = masterWeights(sgd({ learningRate: 1 }));
    const grads = np.array([-(2 ** -10)], "bfloat16");
    let params = np.array([1], "bfloat16");
    let plain = params;
    let state = optimizer.init(params);
    for (let i = 0; i < 16; i++) {
      const [updates, next] = optimizer.update(grads, state, params);
      params = applyUpdates(params, updates);
      plain = applyUpdates(plain, grads.neg());
      state = next;
    }
    expect(await plain.item()).toBe(1);
    expect(await params.item()).toBe(1 + 2 ** -6);
    expect(params.dtype).toBe("bfloat16");
  });

  test("round to the parameters, even where a weight moves by many times its size", async () => {
    const optimizer = masterWeights(sgd({ learningRate: 1 }));
    const params = np.array([1, 1, -3, 2 ** -20], "bfloat16");
    const target = np.array([2 ** -20, 1.01, -0.5001, 1000.1]);
    const [, state] = optimizer.update(params.astype("float32").sub(target), optimizer.init(params), params);
    const rounded = roundedMaster(params, state);
    expect(rounded.dtype).toBe("bfloat16");
    expect([...(await rounded.astype("float32").data())]).toEqual([2 ** -20, 1.0078125, -0.5, 1000]);
  });
});

describe("dynamicLossScale", () => {
  const lossScale = dynamicLossScale({ initial: 4, growthInterval: 2, min: 1 });

  test("grows after good steps, backs off after an overflow and never falls below its least", async () => {
    let state = lossScale.init();
    const scales: number[] = [];
    for (const finite of [true, true, true, false, true, false, false, false, true, true]) {
      state = lossScale.update(state, np.array(finite));
      scales.push(await state.scale.item());
    }
    expect(scales).toEqual([4, 8, 8, 4, 4, 2, 1, 1, 1, 2]);
  });

  test("keeps float16 gradients that would vanish, and skips steps that overflow", async () => {
    const scaling = dynamicLossScale({ initial: 2 ** 12 });
    const state = scaling.init();
    const tiny = (w: Tensor) => w.mul(np.array(1e-4, "float16")).mul(np.array(1e-4, "float16")).sum();
    const w = np.array([1], "float16");
    const [, lost] = valueAndGrad(tiny)(w);
    const [, scaled] = valueAndGrad((x: Tensor) => scaling.scale(state, tiny(x)))(w);
    expect(await lost.item()).toBe(0);
    expect(await scaling.unscale(state, scaled).item()).toBeCloseTo(1e-8, 10);
    const bad = allFinite({ a: np.array([1, Number.NaN]), b: np.ones([2]) });
    expect(await applyIfFinite(bad, { w: np.array(2) }, { w: np.array(1) }).w.item()).toBe(1);
    expect(await allFinite([w]).item()).toBe(1);
  });

  test("sees an overflow in any device's block", async () => {
    const mesh = Mesh.create({ model: 2 });
    const check = shardMap((x: Tensor) => allFinite(new Partitioned(x, ["model"])).astype("float32"), {
      mesh,
      inSpecs: P("model"),
      outSpecs: P(),
    });
    expect(await check(np.array([1, 2, Number.POSITIVE_INFINITY, 4])).item()).toBe(0);
    expect(await check(np.array([1, 2, 3, 4])).item()).toBe(1);
  });
});

describe("microbatch", () => {
  const loss = (params: { w: Tensor }, batch: { x: Tensor }) => params.w.mul(batch.x).tanh().mean();
  const params = { w: np.array([0.5, -1]) };
  const batch = { x: np.arange(16).reshape(8, 2).div(10) };

  test.each([2, 4, 8])("of %i microbatches equals the whole batch", async (numMicrobatches) => {
    const [value, grads] = valueAndGrad(loss)(params, batch);
    const [sum, mean] = jit(microbatch(valueAndGrad(loss), numMicrobatches))(params, batch);
    expect(await sum.item()).toBeCloseTo(await value.item(), 6);
    const [got, want] = [await mean.w.data(), await grads.w.data()];
    got.forEach((g, i) => {
      expect(g).toBeCloseTo(want[i] ?? 0, 6);
    });
  });

  test("adds up 16-bit gradients in float32, and gives parts rows of the whole batch", async () => {
    const narrow = (params: Tensor, x: Tensor) => [params.mul(x.sum()), x];
    const x = np.array([256, 1, 1, 1, 256, 1, 1, 1]).astype("bfloat16");
    const [sum, rows] = jit(microbatch(narrow, 4))(np.array(1, "bfloat16"), x);
    // 512 + 2 + 2 + 2, of which bfloat16 would keep 512.
    expect([sum?.dtype, await sum?.item()]).toEqual(["float32", 518 / 4]);
    expect([...((await rows?.data()) ?? [])]).toEqual([259 / 4, 259 / 4]);
  });

  test("says why a batch does not split", () => {
    expect(() => microbatch(valueAndGrad(loss), 3)(params, batch)).toThrow(
      'the batch leaf at "x" of 8 rows does not split into 3 microbatches',
    );
    expect(() => microbatch(valueAndGrad(loss), 0)).toThrow("at least 1, got 0");
  });
});

test("castFloats leaves integers alone", () => {
  const cast = castFloats({ a: np.ones([1]), b: np.ones([1], "int32") }, "float16");
  expect([cast.a.dtype, cast.b.dtype]).toEqual(["float16", "int32"]);
});
