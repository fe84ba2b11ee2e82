import { evalShape, jit, Mesh, np, P, random, type Tensor, valueAndGrad, withMesh } from "shardwise";
import * as nn from "shardwise/nn";
import { adamw, applyUpdates } from "shardwise/optim";
import { expect, test, vi } from "vitest";
import { describePage } from "../support/pages.js";

const told = vi.spyOn(console, "log").mockImplementation(() => {});

const mesh = Mesh.create({ data: 2, model: 2 });
const rules: nn.LogicalRules = [
  ["batch", "data"],
  ["hidden", "model"],
];
const named = <T>(fn: () => T): T => withMesh(mesh, () => nn.logicalAxisRules(rules, fn));
const weight = (...names: string[]) => nn.withLogicalPartitioning(random.initializers.lecunNormal(), names);

const Mlp = nn.module("Mlp", ({ hidden }: { hidden: number }) => (x: Tensor): Tensor => {
  const up = nn.Dense({ name: "up", features: hidden, useBias: false, kernelInit: weight("in", "hidden") });
  const down = nn.Dense({ name: "down", features: 1, useBias: false, kernelInit: weight("hidden", "out") });
  return down(nn.withLogicalConstraint(nn.gelu(up(x)), ["batch", "hidden"]));
});

const model = Mlp({ hidden: 64 });
const optimizer = adamw({ learningRate: 1e-2 });

const init = (key: Tensor) =>
  named(() => {
    const params = model.init(key, np.zeros([2, 8]));
    return { params, state: optimizer.init(params) };
  });
const step = (run: ReturnType<typeof init>, x: Tensor, y: Tensor) =>
  named(() => {
    const loss = (params: nn.Variables) => np.mean(np.square(model.apply(params, x).sub(y)));
    const [value, grads] = valueAndGrad(loss)(run.params);
    const [updates, state] = optimizer.update(grads, run.state, run.params);
    return [{ params: applyUpdates(run.params, updates), state }, value] as const;
  });

// The names of the dims say where parameters and optimiser state lie, before any of them is made.
const specs = nn.getPartitionSpec(evalShape(init)(random.key(0)));
const shardings = nn.logicalToMeshSharding(specs, mesh, rules);
const train = jit(step, {
  mesh,
  inShardings: [shardings, P("data"), P("data")],
  outShardings: [shardings, P()],
  donate: 0,
});

let run = jit(init, { mesh, outShardings: shardings })(random.key(0));
for (let i = 0; i < 100; i++) {
  const x = random.normal(random.foldIn(random.key(1), i), [8, 8]);
  const [next, loss] = train(run, x, np.sum(x, 1, { keepdims: true }));
  run = next;
  if (i % 20 === 19) console.log(i + 1, await loss.item());
}

const layer = (x: Tensor, scale: number, training: boolean, repeat: number) => {
  let y = x.mul(scale);
  for (let i = 1; i < repeat; i++) y = np.sin(y);
  return training ? y : y.mul(0.5);
};
const fast = jit(layer, { staticArgnums: 3 });
const slope = valueAndGrad((x: Tensor, repeat: number) => np.sum(layer(x, 2, true, repeat)), {
  staticArgnums: 1,
});

test("flags are what they are, numbers are traced", async () => {
  const x = np.array([1, 2]);
  expect(await fast(x, 3, true, 1).js()).toEqual([3, 6]);
  expect(await fast(x, 4, false, 1).js()).toEqual([2, 4]);
  expect(await fast(x, 4, false, 2).js()).toEqual(await np.sin(x.mul(4)).mul(0.5).js());
  expect(await slope(x, 1)[1].js()).toEqual([2, 2]);
  const misuse = jit((v: Tensor, n: number) => v.mul(n > 1 ? 1 : 2));
  expect(() => misuse(x, 2)).toThrow(/used as a JavaScript number/);
});

const table = np.arange(12).reshape([3, 4]);
const row = table.get(1); // a position drops its dim: [4, 5, 6, 7]
const columns = table.get(":", np.s(1, 3)); // np.s(start, stop, step) is a slice: [3, 2]
const picked = table.get(np.array([2, 0], "int32")); // an integer tensor is a list of positions: rows 2 and 0
const last = table.get("...", -1); // "..." is all dims that are not named: [3, 7, 11]
const wider = table.get(null, np.s(null, null, 2)); // null is a new dim, and an open end: [1, 2, 4]
const changed = table.at(0, np.s(0, 2)).set(-1);

test("parts of tensors are NumPy's", async () => {
  expect(await row.js()).toEqual([4, 5, 6, 7]);
  expect(columns.shape).toEqual([3, 2]);
  expect(await picked.get(":", 0).js()).toEqual([8, 0]);
  expect(await last.js()).toEqual([3, 7, 11]);
  expect(wider.shape).toEqual([1, 2, 4]);
  expect(await changed.get(0).js()).toEqual([-1, -1, 2, 3]);
  expect(() => table.get([0, 2] as never)).toThrow(
    /a list of 2 is not an index: a slice is written np\.s\(0, 2\), a list of positions np\.array\(\[0, 2\], "int32"\)/,
  );
});

const { debug } = await import("shardwise");

const seen: number[] = [];
const watched = jit((x: Tensor) => {
  const norm = np.sqrt(np.sum(x.mul(x)));
  debug.print("norm {norm:.3f} of {}", x, { norm });
  debug.callback((value) => seen.push(value.item()), norm);
  return x.div(norm);
});
await watched(np.array([3, 4])).ready(); // norm 5.000 of [3, 4]

test("values are shown while a function runs", () => {
  expect(told.mock.calls).toContainEqual(["norm 5.000 of [3, 4]"]);
  expect(seen).toEqual([5]);
});

test("the model of the guide learns, with its hidden width split over the mesh", () => {
  const losses = told.mock.calls.flatMap(([, loss]) => (loss === undefined ? [] : [loss]));
  const [first, last] = [losses[0], losses.at(-1)];
  expect(last).toBeLessThan(first / 5);
  expect(String(nn.logicalToMeshAxes(["in", "hidden"], rules))).toBe('P(null, "model")');
});

describePage("guide.md", import.meta.url, {});
