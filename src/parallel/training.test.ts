import { describe, expect, test } from "vitest";
import { agreement, expectClose, expectTreeClose } from "../../test/support/goldens.js";
import { messagesOf, normal } from "../../test/support/parallelChecks.js";
import { simulateDevices } from "../engines/index.js";
import { jit, lax, Mesh, np, P, random, shardMap, type Tensor, tree } from "../index.js";
import * as nn from "../nn/index.js";
import { sgd } from "../optim/index.js";
import { accumulateGradients, foldRngOverAxis, initializeMesh, initSharded, TrainState } from "./index.js";

const engine = simulateDevices(8);

describe("accumulateGradients", () => {
  const params = { w: normal(0, 3, 2) };
  const batch = { x: normal(1, 8, 3), t: normal(2, 8, 2) };
  const loss = ({ w }: typeof params, { x, t }: typeof batch): [Tensor, { count: Tensor }] => {
    const y = np.matmul(x, w);
    return [np.mean(np.square(np.subtract(y, t))), { count: np.array(t.shape[0] ?? 0) }];
  };
  const run = (numMinibatches: number, useScan: boolean) =>
    accumulateGradients(loss, params, batch, random.key(0), { numMinibatches, useScan });

  test.each([false, true])("averages gradients and adds metrics, with useScan %s", async (useScan) => {
    const [grads, metrics] = run(4, useScan);
    const [whole] = run(1, useScan);
    await expectTreeClose(grads, whole, agreement.gradient);
    expect(await metrics.count.item()).toBe(8);
  });

  test.each([false, true])("gives every minibatch a key of its own, with useScan %s", async (useScan) => {
    const drawn = (_: typeof params, __: typeof batch, key: Tensor): [Tensor, Tensor] => [
      np.sum(params.w),
      random.uniform(key, []),
    ];
    const [, sum] = accumulateGradients(drawn, params, batch, random.key(5), { numMinibatches: 2, useScan });
    const keys = random.split(random.key(5), 2);
    const each = [0, 1].map((i) => random.uniform(lax.indexInDim(keys, i, 0, false), []));
    await expectClose(sum, np.add(each[0] ?? 0, each[1] ?? 0));
  });

  test.each([false, true])(
    "stacks the variables that minibatches change, with useScan %s",
    async (useScan) => {
      const changing = (own: typeof params, part: typeof batch): [Tensor, null, { mean: Tensor }] => [
        loss(own, part)[0],
        null,
        { mean: np.mean(part.x, 0) },
      ];
      const options = { numMinibatches: 4, useScan };
      const [, , variables] = accumulateGradients(changing, params, batch, random.key(0), options);
      await expectTreeClose(variables, { mean: np.mean(np.reshape(batch.x, [4, 2, 3]), 1) });
      expect(run(2, useScan)[2]).toBe(null);
    },
  );

  test("refuses a batch that does not split", () => {
    expect(() => run(3, true)).toThrow(
      '[accumulateGradients] the batch at "t" [8,2] does not split into 3 minibatches (8 / 3 = 2.6666666666666665)',
    );
    expect(() => run(0, false)).toThrow("numMinibatches must be an integer of at least 1, got 0");
  });
});

describe("TrainState", () => {
  const model = nn.Dense({ features: 2, useBias: false });
  const create = (x: Tensor) =>
    TrainState.create({
      applyFn: model.apply,
      params: model.init(random.key(0), x),
      optimizer: sgd({ learningRate: 0.5 }),
      rng: random.key(1),
    });

  test("takes a step of its optimiser, also inside jit", async () => {
    const state = create(np.ones([1, 2]));
    const step = jit((s: typeof state) => s.applyGradients(s.params));
    const next = step(state);
    expect(next).toBeInstanceOf(TrainState);
    expect(await next.step.item()).toBe(1);
    const half = tree.map((p: Tensor) => p.mul(0.5), state.params);
    await expectTreeClose(next.params, half);
  });

  test("gives new keys", async () => {
    const [state, key] = create(np.ones([1, 2])).nextRng();
    const keys = random.split(random.key(1));
    await expectClose(state.rng, lax.indexInDim(keys, 0, 0, false));
    await expectClose(key, lax.indexInDim(keys, 1, 0, false));
  });

  test("is made on the devices of a mesh", () => {
    const mesh = Mesh.create({ data: 2 }, { engine });
    const state = initSharded(create, { mesh })(np.ones([1, 2]));
    expect(state.params.params).toMatchObject({ kernel: { shape: [2, 2] } });
  });
});

describe("initializeMesh", () => {
  test("gives the remaining devices to the axis of size -1", async () => {
    const { infos } = await messagesOf(() => {
      expect(initializeMesh({ modelAxisSize: 2 }, { engine }).shape).toEqual({
        data: 4,
        fsdp: 1,
        pipe: 1,
        model: 2,
      });
    });
    expect(infos).toEqual(["[initializeMesh] Mesh {data: 4, fsdp: 1, pipe: 1, model: 2} on reference"]);
    const named = { dataAxisSize: 1, fsdpAxisSize: -1, dataAxisName: "dp", modelAxisName: "tp" };
    expect(initializeMesh(named, { engine }).shape).toEqual({ dp: 1, fsdp: 8, pipe: 1, tp: 1 });
  });

  test.each([
    [{ modelAxisSize: 3 }, "needs a multiple of 3 devices, there are 8 (8 / 3 = 2.6666666666666665)"],
    [{ dataAxisSize: 4, modelAxisSize: 4 }, "needs 16 devices, there are 8"],
    [{ fsdpAxisSize: -1 }, "at most one -1 for the remaining devices"],
    [{ fsdpAxisSize: 1.5 }, "sizes must be integers of at least 1"],
    [{ fsdpAxisName: "data" }, "names an axis twice"],
  ])("refuses %o", (config, message) => {
    expect(() => initializeMesh(config, { engine })).toThrow(message);
  });
});

test("foldRngOverAxis gives every device a key of its own", async () => {
  const mesh = Mesh.create({ data: 4 }, { engine });
  const keys = shardMap(() => np.expandDims(foldRngOverAxis(random.key(0), "data"), 0), {
    mesh,
    inSpecs: P(),
    outSpecs: P("data"),
  })();
  await expectClose(keys, np.stack([0, 1, 2, 3].map((i) => random.foldIn(random.key(0), i))));
});
