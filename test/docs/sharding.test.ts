import {
  costAnalysis,
  devicePut,
  explainSharding,
  grad,
  jit,
  lax,
  Mesh,
  NamedSharding,
  np,
  P,
  random,
  shardMap,
  type Tensor,
  vmap,
  withShardingConstraint,
} from "shardwise";
import { describe, expect, test } from "vitest";
import { describePage } from "../support/pages.js";

const mesh = Mesh.create({ data: 2, model: 2 });

const mlp = ({ up, down }: { up: Tensor; down: Tensor }, x: Tensor) =>
  np.matmul(np.tanh(np.matmul(x, up)), down);

const loss = (params: { up: Tensor; down: Tensor }, x: Tensor) => np.mean(np.square(mlp(params, x)));

const params = { up: random.normal(random.key(0), [8, 32]), down: random.normal(random.key(1), [32, 8]) };
const x = random.normal(random.key(2), [16, 8]);

const tensorParallel = { up: P(null, "model"), down: P("model", null) };
const step = jit(grad(loss), {
  mesh,
  inShardings: [tensorParallel, P("data")],
  outShardings: tensorParallel,
});
const grads = step(params, x);

const hidden = (a: Tensor) => {
  const h = np.tanh(a);
  return withShardingConstraint(h, new NamedSharding(mesh, P(P.UNCONSTRAINED, "model")));
};

const perExample = vmap(hidden, { spmdAxisName: "data" });

const total = shardMap((block: Tensor) => lax.psum(np.sum(block, 0), "data"), {
  mesh,
  inSpecs: P("data"),
  outSpecs: P(),
  axisNames: ["data"],
});
const f = (a: Tensor) => np.sin(total(np.cos(a)));

const weight = np.array([1, -2]);
const rows = np.arange(8).reshape([4, 2]).astype("float32");
const perDevice = (w: Tensor, x: Tensor) => lax.psum(np.sum(x.mul(w)), ["data", "model"]);
const inSpecs = [P(), P(["data", "model"])] as const;
const inside = shardMap(grad(perDevice), { mesh, inSpecs, outSpecs: P() });
const outside = grad(shardMap(perDevice, { mesh, inSpecs, outSpecs: P() }));

const ownCopies = shardMap(grad(perDevice), {
  mesh,
  inSpecs,
  outSpecs: P(["data", "model"]),
  checkReplication: false,
});

const block = jit(mlp, {
  mesh,
  inShardings: [tensorParallel, P("data", "model")],
  outShardings: P("data", "model"),
  overlap: ["model"],
});

const ranks = (a: Tensor) => np.sort(a, 1);

describe("the code of the page", () => {
  test("takes gradients inside shard maps as it says", async () => {
    expect(await inside(weight, rows).js()).toEqual([12, 16]);
    expect(await outside(weight, rows).js()).toEqual([12, 16]);
    const unsummed = (w: Tensor, v: Tensor) => np.sum(v.mul(w));
    const alone = shardMap(grad(unsummed), { mesh, inSpecs, outSpecs: P() });
    expect(await alone(weight, rows).js()).toEqual([12, 16]);
    expect(await ownCopies(weight, rows).js()).toEqual([0, 4, 8, 12, 16, 20, 24, 28]);
  });

  test("computes what one device computes", async () => {
    const want = grad(loss)(params, x);
    const [got, expected] = [await grads.up.data(), await want.up.data()];
    got.forEach((value, i) => {
      expect(value).toBeCloseTo(expected[i] ?? Number.NaN, 5);
    });
    const whole = await mlp(params, x).data();
    (await block(params, x).data()).forEach((value, i) => {
      expect(value).toBeCloseTo(Number(whole[i]), 4);
    });
    expect(await jit(f, { mesh })(x).js()).toEqual(
      await jit(f, { mesh, inShardings: P("data", "model") })(x).js(),
    );
  });

  test("splits as it says", async () => {
    const placed = await devicePut(x, new NamedSharding(mesh, P("data", "model")));
    expect(String(explainSharding(f)(placed).outputs[0]?.spec)).toBe('P("model")');
    const batched = explainSharding(perExample, { mesh })(np.zeros([4, 3, 8]));
    expect(String(batched.outputs[0]?.spec)).toBe('P("data", null, "model")');
  });
});

const options = { mesh, inShardings: [tensorParallel, P("data")], outShardings: tensorParallel } as const;
const split = {
  mesh,
  inShardings: [tensorParallel, P("data", "model")],
  outShardings: P("data", "model"),
  overlap: ["model"],
} as const;

describePage("sharding.md", import.meta.url, {
  explained: () => `${explainSharding(grad(loss), options)(params, x)}`,
  cost: () => `${costAnalysis(grad(loss), options)(params, x)}`,
  gathered: () =>
    `${explainSharding(ranks, { mesh, inShardings: P("data", "model") })(x)}`.replace(
      /ranks \(.*\/test\/docs\/.*\)/,
      "ranks (/home/me/model.ts:7:32)",
    ),
  rings: () => `${costAnalysis(mlp, split)(params, x)}`,
});
