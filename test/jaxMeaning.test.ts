import {
  customVjp,
  evalShape,
  grad,
  jit,
  lax,
  Mesh,
  np,
  P,
  shardMap,
  type Tensor,
  type TensorType,
  tree,
  valueAndGrad,
  vjp,
  vmap,
} from "shardwise";
import { describe, expect, expectTypeOf, test } from "vitest";
import { simulateDevices } from "../src/engines/index.js";
import { random } from "../src/index.js";
import * as nn from "../src/nn/index.js";
import { asyncScatterSplit, TPAsyncDense } from "../src/parallel/index.js";
import { expectClose, expectTreeClose } from "./support/goldens.js";

const engine = simulateDevices(4);
const x = np.array(2);

describe("argument numbers", () => {
  const f = (a: Tensor, b: { w: Tensor }) => a.mul(b.w).mul(b.w);

  test("of gradients count from the end when negative", async () => {
    const last = grad(f, { argnums: -1 })(x, { w: np.array(3) });
    expectTypeOf(last).toEqualTypeOf<{ w: Tensor }>();
    await expectTreeClose(last, { w: np.array(12) });
    const [, grads] = valueAndGrad(f, { argnums: [-1, 0] })(x, { w: np.array(3) });
    expectTypeOf(grads).toEqualTypeOf<readonly [{ w: Tensor }, Tensor]>();
    await expectTreeClose(grads, [{ w: np.array(12) }, np.array(9)]);
    expect(() => grad(f, { argnums: -3 })(x, { w: x })).toThrow(
      "argnums -3 names no argument: the function was called with 2, use -2 to 1",
    );
  });

  test("of static and donated arguments count from the end when negative", async () => {
    const seen: unknown[] = [];
    const scale = (a: Tensor, how: string) => {
      seen.push(how);
      return how === "twice" ? a.mul(2) : a;
    };
    const scaled = jit(scale, { staticArgnums: -1 });
    await expectClose(scaled(x, "twice"), 4);
    await expectClose(scaled(x, "once"), 2);
    expect(seen).toEqual(["twice", "once"]);
    const given = np.array([1, 2, 3]);
    const sum = jit((a: Tensor, b: Tensor) => a.add(b), { donate: -1 })(
      x,
      await given.ready().then(() => given),
    );
    await sum.ready();
    await expect((async () => given.data())()).rejects.toThrow("donated");
  });
});

test("null in a tree of cotangents stands for zeros", async () => {
  const [, pullback] = vjp(
    (a: Tensor): [Tensor, { s: Tensor; n: Tensor }] => [
      a.mul(a),
      { s: np.sin(a), n: np.array([1], "int32") },
    ],
    [x],
  );
  const given = pullback as (cotangents: unknown) => [Tensor];
  await expectClose(given([np.array(1), null])[0], 4);
  await expectClose(given([null, { s: np.array(1), n: null }])[0], Math.cos(2));
  expect(() => given([np.array(1), np.array(1)])).toThrow("must have the same tree structure");
});

test("psum of bools counts those that are true", async () => {
  const mesh = Mesh.create({ i: 4 }, { engine });
  const count = shardMap((b: Tensor) => lax.psum(b.sum().gt(0), "i"), {
    mesh,
    inSpecs: P("i"),
    outSpecs: P(),
  });
  const total = jit(count)(np.array([1, 0, 1, 1]));
  expect(total.dtype).toBe("int32");
  await expectClose(total, 3);
  await expectClose(
    vmap((b: Tensor) => lax.psum(b, "i"), { axisName: "i" })(np.array([true, false, true])),
    [2, 2, 2],
  );
});

test("outAxes null gives results that all elements share once", async () => {
  const [each, shared] = vmap((a: Tensor, b: Tensor) => [a, b] as const, {
    inAxes: [0, null],
    outAxes: [0, null],
  })(np.ones([3]), x);
  expect([each.shape, shared.shape]).toEqual([[3], []]);
});

test("evalShape gives a type for every leaf of its tree", () => {
  const shapes = evalShape((a: Tensor) => ({ y: a.sum(), rows: [a, a] as [Tensor, Tensor] }))(
    np.ones([2, 3]),
  );
  expectTypeOf(shapes).toEqualTypeOf<{ y: TensorType; rows: [TensorType, TensorType] }>();
  expect(shapes.rows[1].shape).toEqual([2, 3]);
});

test("tree.mapUntil stops where it is told to", () => {
  const isPair = (node: unknown) => Array.isArray(node);
  const sums = tree.mapUntil(isPair, (pair: number[]) => pair.length, { a: [1, 2], b: [3] });
  expect(sums).toEqual({ a: 2, b: 1 });
  expect(
    tree.mapUntil(
      (node) => node === null,
      (a: unknown, b: unknown) => a ?? b,
      [null, 1],
      [2, 3],
    ),
  ).toEqual([2, 1]);
});

test("specs are equal when their entries are", () => {
  expect(P("a", null).equals(P("a", null))).toBe(true);
  expect(P(["a"]).equals(P("a"))).toBe(true);
  expect(P([]).equals(P(null))).toBe(true);
  expect(P("a").equals(P("a", null))).toBe(false);
  expect(P(["a", "b"]).equals(P(["b", "a"]))).toBe(false);
  expect(P(P.UNCONSTRAINED).equals(P(null))).toBe(false);
  expect(P(P.UNCONSTRAINED).equals(P(P.UNCONSTRAINED))).toBe(true);
});

describe("customVjp", () => {
  test("may call the function itself in its forward rule", async () => {
    const cubed: (a: Tensor) => Tensor = customVjp((a: Tensor) => a.mul(a).mul(a), {
      forward: (a: Tensor): [Tensor, Tensor] => [cubed(a), a],
      backward: (a: Tensor, ct: Tensor) => [ct.mul(a).mul(a).mul(3)],
    });
    await expectClose(cubed(x), 8);
    await expectClose(grad(cubed)(x), 12);
    await expectClose(grad(grad(cubed))(x), 12);
  });

  test("refuses a forward rule with results of another type", () => {
    const wrong = customVjp((a: Tensor) => a, {
      forward: (a: Tensor): [Tensor, null] => [np.stack([a, a]), null],
      backward: (_: null, ct: Tensor) => [ct],
    });
    expect(() => grad((a: Tensor) => wrong(a).sum())(x)).toThrow(
      "[customVjp] the function returns f32[] but forward returns f32[2]",
    );
  });
});

describe("vmap and gradients", () => {
  test("a branch that an element did not choose leaves its gradient alone", async () => {
    const chosen = np.array([true, false]);
    const rootOrOne = (p: Tensor, a: Tensor, s: Tensor) =>
      lax.cond(
        p,
        (b: Tensor) => np.sqrt(b).mul(s),
        (b: Tensor) => b.mul(0).add(1),
        a,
      );
    const loss = (a: Tensor) => vmap(rootOrOne, { inAxes: [0, 0, null] })(chosen, a, np.array(1)).sum();
    await expectClose(grad(loss)(np.array([4, 0])), [0.25, 0]);
    const shared = (a: Tensor) =>
      vmap((p: Tensor, k: Tensor) =>
        lax.cond(
          p,
          () => np.sqrt(a.sub(k)),
          () => a,
        ),
      )(chosen, np.array([0, 4])).sum();
    await expectClose(grad(shared)(np.array(4)), 1.25);
  });

  test("spmdAxisName splits the batch of the gradient of a shardMap", async () => {
    const mesh = Mesh.create({ a: 2, b: 2 }, { engine });
    const rows = random.normal(random.key(0), [4, 6]);
    const local = shardMap((y: Tensor) => np.sin(y), { mesh, inSpecs: P("b"), outSpecs: P("b") });
    const total = shardMap((y: Tensor) => lax.psum(np.sin(y).sum(), "b"), {
      mesh,
      inSpecs: P("b"),
      outSpecs: P(),
    });
    for (const loss of [(y: Tensor) => local(y).sum(), total]) {
      const each = jit(vmap(grad(loss), { spmdAxisName: "a" }), { mesh })(rows);
      await expectClose(each, np.cos(rows));
    }
  });

  test("collectives over the axis of a vmap around a shardMap pass the check of replication", async () => {
    const mesh = Mesh.create({ b: 2 }, { engine });
    const numbered = shardMap((y: Tensor) => y.add(lax.axisIndex("v")), {
      mesh,
      inSpecs: P("b"),
      outSpecs: P("b"),
    });
    const each = jit(vmap(numbered, { axisName: "v" }), { mesh })(np.zeros([3, 2]));
    await expectClose(
      each,
      np.array([
        [0, 0],
        [1, 1],
        [2, 2],
      ]),
    );
    const whole = shardMap((y: Tensor) => lax.psum(y.sum().add(lax.axisIndex("v")), "b"), {
      mesh,
      inSpecs: P("b"),
      outSpecs: P(),
    });
    await expectClose(jit(vmap(whole, { axisName: "v" }), { mesh })(np.zeros([3, 2])), [0, 2, 4]);
  });
});

describe("rings", () => {
  test("asyncScatterSplit takes an odd number of features", async () => {
    const mesh = Mesh.create({ tp: 4 }, { engine });
    const parts = random.normal(random.key(1), [4, 4, 3]);
    const sum = shardMap(
      (own: Tensor) =>
        np.expandDims(
          asyncScatterSplit(
            [0, 1, 2, 3].map((i) => lax.indexInDim(np.squeeze(own, 0), i, 0, false)),
            "tp",
          ),
          0,
        ),
      { mesh, inSpecs: P("tp"), outSpecs: P("tp") },
    );
    const got = (await jit(sum)(parts).js()) as number[][];
    const given = (await parts.js()) as number[][][];
    got.forEach((row, d) => {
      row.forEach((value, f) => {
        // The first feature travels up the ring, the two others down.
        const from = (i: number) => (f === 0 ? d - (3 - i) + 4 : d + (3 - i)) % 4;
        const want = [0, 1, 2, 3].reduce((s, i) => s + (given[from(i)]?.[i]?.[f] ?? Number.NaN), 0);
        expect(value).toBeCloseTo(want, 5);
      });
    });
  });

  test("TPAsyncDense takes a denseName as TPDense does; its layers keep their own names", () => {
    const mesh = Mesh.create({ tp: 2 }, { engine });
    const layer = TPAsyncDense({
      denseFn: (config) => nn.Dense({ features: 4, ...config }),
      modelAxisName: "tp",
      tpMode: "gather",
      denseName: "module",
    });
    const init = shardMap((h: Tensor) => nn.unbox<nn.Variables>(layer.init(random.key(0), h)), {
      mesh,
      inSpecs: P(null, "tp"),
      outSpecs: P("tp"),
      checkReplication: false,
    });
    const { params = {} } = jit(init)(np.ones([2, 8]));
    expect(Object.keys(params).sort()).toEqual(["shard_0", "shard_1"]);
  });
});
