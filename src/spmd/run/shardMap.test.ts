import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { hostEngine } from "../../engines/host.js";
import {
  AxisError,
  DimError,
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  printProgram,
  remat,
  ShapeError,
  ShardingError,
  type ShardwiseError,
  shardMap,
  type Tensor,
  TreeError,
  ValueError,
  verify,
  vmap,
} from "../../index.js";
import { range } from "../../ir/shape.js";
import type { PartitionSpec, SpecEntry } from "../mesh/partitionSpec.js";
import type { ShardMapOptions } from "./shardMap.js";

const seed = Number(process.env.SEED ?? 1);
const numRuns = Number(process.env.RUNS ?? 20);

const engine = hostEngine;
const cube = Mesh.create({ a: 2, b: 2, c: 2 }, { engine });
const line = Mesh.create({ i: 4 }, { engine });

async function dataOf(tensor: Tensor): Promise<number[]> {
  return Array.from(await tensor.data());
}

/** Disjoint axes for the dims of a tensor of two dims, from a shuffled list cut in three. */
const randomSpec = fc
  .record({
    axes: fc.shuffledSubarray(["a", "b", "c"], { minLength: 0, maxLength: 3 }),
    cut: fc.nat(3),
  })
  .map(({ axes, cut }): PartitionSpec => {
    const entry = (list: string[]): SpecEntry =>
      list.length === 0 ? null : list.length === 1 ? (list[0] ?? null) : list;
    return P(entry(axes.slice(0, cut)), entry(axes.slice(cut)));
  });

/** Functions of two tensors of one shape that treat every element alike. */
const elementwise: readonly ((x: Tensor, y: Tensor) => Tensor)[] = [
  (x, y) => x.mul(y).add(np.sin(x)),
  (x, y) => np.where(x.gt(y), np.tanh(x), y.mul(0.5)),
  (x, y) => np.maximum(x, y).sub(np.exp(x.neg())),
  (x, y) => np.sqrt(np.square(x).add(np.square(y)).add(1)),
];

describe(`shardMap equals the plain function (seed ${seed})`, () => {
  const [x, y] = [np.linspace(-2, 2, 64).reshape([8, 8]), np.linspace(1, -1, 64).reshape([8, 8])];

  test("for elementwise functions under any spec, values and gradients", async () => {
    const property = fc.asyncProperty(randomSpec, fc.nat(elementwise.length - 1), async (spec, which) => {
      const fn = elementwise[which] ?? ((v: Tensor) => v);
      const mapped = shardMap(fn, { mesh: cube, inSpecs: spec, outSpecs: spec });
      await expectClose(mapped(x, y), await dataOf(fn(x, y)));
      const loss = (f: (v: Tensor, u: Tensor) => Tensor) =>
        grad((v: Tensor, u: Tensor) => np.sum(np.square(f(v, u))), { argnums: [0, 1] });
      const [got, want] = [loss(mapped)(x, y), loss(fn)(x, y)];
      await expectClose(got[0], await dataOf(want[0]));
      await expectClose(got[1], await dataOf(want[1]));
    });
    await fc.assert(property, { seed, numRuns });
  });

  test("for reductions over what the collectives make whole again", async () => {
    const property = fc.asyncProperty(randomSpec, async (spec) => {
      const axes = spec.dims(2).flatMap((entry) => (entry === "unconstrained" ? [] : [...entry]));
      const total = shardMap((v: Tensor) => lax.psum(np.sum(np.sin(v)), axes), {
        mesh: cube,
        inSpecs: spec,
        outSpecs: P(),
      });
      await expectClose(total(x), await np.sum(np.sin(x)).item());
      await expectClose(grad(total)(x), await dataOf(np.cos(x)));
    });
    await fc.assert(property, { seed, numRuns });
  });

  test("for matrix products split over any of their dims", async () => {
    const axis = fc.constantFrom<SpecEntry>(null, "a", "b", ["c", "a"]);
    const property = fc.asyncProperty(axis, axis, axis, async (m, k, n) => {
      const names = [m, k, n].flatMap((entry) => (typeof entry === "symbol" || entry === null ? [] : entry));
      fc.pre(new Set(names).size === names.length);
      const contracted = typeof k === "symbol" || k === null ? [] : k;
      const product = shardMap((u: Tensor, v: Tensor) => lax.psum(np.matmul(u, v), contracted), {
        mesh: cube,
        inSpecs: [P(m, k), P(k, n)],
        outSpecs: P(m, n),
      });
      await expectClose(product(x, y), await dataOf(np.matmul(x, y)), { rtol: 1e-5, atol: 1e-5 });
      const gradient = (f: (u: Tensor, v: Tensor) => Tensor) =>
        grad((u: Tensor, v: Tensor) => np.sum(np.sin(f(u, v))), { argnums: [0, 1] })(x, y);
      const [got, want] = [gradient(product), gradient(np.matmul)];
      await expectClose(got[0], await dataOf(want[0]), { rtol: 1e-4, atol: 1e-4 });
      await expectClose(got[1], await dataOf(want[1]), { rtol: 1e-4, atol: 1e-4 });
    });
    await fc.assert(property, { seed, numRuns });
  });
});

describe("shardMap", () => {
  const rows = { mesh: line, inSpecs: P("i"), outSpecs: P("i") };
  const x = np.arange(8).astype("float32");

  test("gives the function one device's block", async () => {
    const seen: (readonly number[])[] = [];
    const mapped = shardMap(
      (v: Tensor, w: Tensor) => {
        seen.push(v.shape, w.shape);
        return v;
      },
      { mesh: cube, inSpecs: [P("a", ["b", "c"]), P(null, "c")], outSpecs: P("a", ["b", "c"]) },
    );
    await expectClose(mapped(np.arange(32).reshape([4, 8]), np.zeros([3, 2])), range(32));
    expect(seen).toEqual([
      [2, 2],
      [3, 1],
    ]);
  });

  test("takes specs as prefixes of trees, for arguments and results", async () => {
    const mapped = shardMap(
      (state: { w: Tensor; stats: [Tensor, Tensor] }, v: Tensor) => ({
        sums: [lax.psum(state.w, "i"), lax.psum(state.stats[0], "i")],
        scaled: v.mul(state.stats[1]),
      }),
      {
        mesh: line,
        inSpecs: [{ w: P("i"), stats: P() }, P("i")],
        outSpecs: { sums: P(), scaled: P("i") },
      },
    );
    const out = mapped({ w: x, stats: [np.array(1), np.array(3)] }, x);
    await expectClose(out.sums[0] ?? x, [12, 16]);
    await expectClose(out.sums[1] ?? x, 4);
    await expectClose(out.scaled, await dataOf(x.mul(3)));
  });

  test("lets the function close over tensors, whole on every device, and differentiates by them", async () => {
    const f = (w: Tensor) => np.sum(shardMap((v: Tensor) => np.sin(v.mul(w)), rows)(x));
    const plain = (w: Tensor) => np.sum(np.sin(x.mul(w)));
    const w = np.array(0.3);
    await expectClose(f(w), await plain(w).item());
    await expectClose(grad(f)(w), await grad(plain)(w).item());
  });

  test("stands in jit, scan, remat, vmap and cond, and is differentiated there", async () => {
    const sum = shardMap((v: Tensor) => np.sin(v).add(lax.pmean(v, "i")), rows);
    const plain = (v: Tensor) => {
      const blocks = v.reshape([4, 2]);
      return np.sin(blocks).add(np.mean(blocks, 0)).reshape([8]);
    };
    const wrap: Readonly<Record<string, (f: (v: Tensor) => Tensor) => (v: Tensor) => Tensor>> = {
      jit: (f) => jit(f),
      scan: (f) => (v) =>
        lax.scan((c: Tensor): [Tensor, Tensor] => [f(c), c], v, null as never, { length: 3 })[0],
      remat: (f) => remat(f),
      "remat in scan": (f) => (v) =>
        lax.scan((c: Tensor): [Tensor, Tensor] => [remat(f)(c), c], v, null as never, { length: 2 })[0],
      cond: (f) => (v) => lax.cond(np.sum(v).gt(0), f, (u: Tensor) => u.mul(2), v),
      vmap: (f) => (v) => np.sum(vmap(f)(np.stack([v, v.mul(0.5)])), 0),
      "jit of vmap of remat": (f) => jit((v: Tensor) => np.sum(vmap(remat(f))(np.stack([v, v.neg()])), 0)),
    };
    for (const [name, around] of Object.entries(wrap)) {
      const [mapped, expected] = [around(sum), around(plain)];
      const loss = (f: (v: Tensor) => Tensor) => (v: Tensor) => np.sum(np.sin(f(v)));
      try {
        await expectClose(mapped(x), await dataOf(expected(x)));
        await expectClose(grad(loss(mapped))(x), await dataOf(grad(loss(expected))(x)), {
          rtol: 1e-4,
          atol: 1e-5,
        });
        await expectClose(jit(grad(loss(mapped)))(x), await dataOf(grad(loss(expected))(x)), {
          rtol: 1e-4,
          atol: 1e-5,
        });
      } catch (error) {
        throw new Error(`in ${name}`, { cause: error });
      }
    }
  });

  test("holds scan, cond, remat and vmap inside", async () => {
    const body = (v: Tensor) => {
      const step = remat((c: Tensor) => np.sin(c).add(lax.pshift(c, "i")));
      const [last] = lax.scan((c: Tensor): [Tensor, Tensor] => [step(c), c], v, null as never, { length: 2 });
      const scaled = vmap((u: Tensor) => u.mul(lax.psum(u, "i")))(last);
      return lax.cond(
        lax.axisIndex("i").lt(2),
        (u: Tensor) => u.mul(2),
        (u: Tensor) => u,
        scaled,
      );
    };
    const plain = (v: Tensor) => {
      const step = (c: Tensor) => np.sin(c).add(np.roll(c, 2));
      const last = step(step(v)).reshape([4, 2]);
      const scaled = last.mul(np.sum(last, 0));
      return scaled.mul(np.array([[2], [2], [1], [1]])).reshape([8]);
    };
    const mapped = shardMap(body, rows);
    await expectClose(mapped(x), await dataOf(plain(x)));
    // The sine of numbers in the hundreds would magnify the last digits of the sines before.
    const loss = (f: (v: Tensor) => Tensor) => grad((v: Tensor) => np.sum(np.sin(f(v).mul(0.01))));
    await expectClose(loss(mapped)(x), await dataOf(loss(plain)(x)), { rtol: 1e-4, atol: 1e-4 });
  });

  test("has second derivatives", async () => {
    const f = shardMap((v: Tensor) => lax.psum(np.sum(np.sin(v)).mul(np.sum(v)), "i"), {
      mesh: line,
      inSpecs: P("i"),
      outSpecs: P(),
    });
    const plain = (v: Tensor) => {
      const blocks = v.reshape([4, 2]);
      return np.sum(np.sum(np.sin(blocks), 1).mul(np.sum(blocks, 1)));
    };
    const second = (g: (v: Tensor) => Tensor) => grad((v: Tensor) => np.sum(np.square(grad(g)(v))));
    await expectClose(second(f)(x), await dataOf(second(plain)(x)), { rtol: 1e-4, atol: 1e-4 });
  });

  test("may handle some axes and leave the others whole", async () => {
    const mapped = shardMap((v: Tensor) => lax.psum(v, "a"), {
      mesh: cube,
      inSpecs: P("a"),
      outSpecs: P(),
      axisNames: ["a"],
    });
    await expectClose(mapped(np.array([1, 2, 3, 4])), [4, 6]);
  });

  test("keeps residuals on their devices: the gradient's program has no gather", () => {
    const mapped = shardMap((v: Tensor) => np.sin(v).mul(v), rows);
    const program = verify(makeProgram(grad((v: Tensor) => np.sum(mapped(v))))(x));
    const text = printProgram(program);
    expect(program.eqns.filter((eqn) => eqn.op === "shardMap").length).toBe(2);
    expect(text).not.toMatch(/allGather|psum/);
  });

  test("is not confused by a mesh of one device", async () => {
    const one = Mesh.create({ i: 1 }, { engine });
    const mapped = shardMap((v: Tensor) => lax.psum(v, "i"), { mesh: one, inSpecs: P("i"), outSpecs: P() });
    await expectClose(mapped(x), await dataOf(x));
    await expectClose(grad((v: Tensor) => np.sum(mapped(v).mul(v)))(x), await dataOf(x.mul(2)));
  });
});

describe("an axis name that vmap and shardMap share", () => {
  const rows = np.arange(8).astype("float32").reshape([2, 4]);
  const total = shardMap((v: Tensor) => lax.psum(v, "i"), { mesh: line, inSpecs: P("i"), outSpecs: P() });

  test("is the mesh's in a shardMap inside a vmap", async () => {
    const mapped = vmap((row: Tensor) => total(row).add(np.sum(lax.psum(row, "i"))), { axisName: "i" });
    for (const f of [mapped, jit(mapped, { mesh: line })]) expect(await f(rows).js()).toEqual([[34], [50]]);
    const slopes = grad((x: Tensor) => np.sum(mapped(x).mul(np.array([[1], [10]]))));
    expect(await slopes(rows).js()).toEqual([
      [12, 12, 12, 12],
      [21, 21, 21, 21],
    ]);
  });

  test("is the mapped dim in a vmap inside a shardMap", async () => {
    const fn = (block: Tensor) =>
      vmap((v: Tensor) => lax.psum(v, "i"), { axisName: "i" })(block).add(lax.psum(block, "i"));
    const f = shardMap(fn, { mesh: line, inSpecs: P(null, "i"), outSpecs: P(null, "i") });
    // Sums over the 2 rows of a device's block, and over the 4 devices.
    expect(await f(rows).js()).toEqual([
      [4 + 6, 6 + 6, 8 + 6, 10 + 6],
      [4 + 22, 6 + 22, 8 + 22, 10 + 22],
    ]);
    const slopes = grad((x: Tensor) => np.sum(f(x)));
    expect(await slopes(rows).js()).toEqual([
      [6, 6, 6, 6],
      [6, 6, 6, 6],
    ]);
  });
});

describe("misuse of shardMap is caught while tracing", () => {
  const x = np.zeros([8, 6]);
  const call = (
    options: { inSpecs?: unknown; outSpecs?: unknown; axisNames?: string[]; mesh?: Mesh },
    fn: (v: Tensor) => unknown = (v) => v,
  ) => {
    const all = { mesh: line, inSpecs: P("i"), outSpecs: P("i"), ...options };
    return () => shardMap(fn, all as ShardMapOptions<[v: Tensor]>)(x);
  };

  const cases: readonly (readonly [
    string,
    () => unknown,
    new (...args: never[]) => ShardwiseError,
    RegExp,
  ])[] = [
    [
      "a dim that does not divide",
      call({ inSpecs: P(null, "i"), outSpecs: P(null, "i") }),
      ShardingError,
      /\[shardMap\] argument 0: dim 1 of \[8,6\] does not split over P\(null, "i"\) on the mesh \{i: 4\} \(6 \/ 4 = 1\.5\): use a size that is a multiple of 4/,
    ],
    [
      "an unknown axis in a spec",
      call({ inSpecs: P("j") }),
      AxisError,
      /axis "j" is not in the mesh \{i: 4\}/,
    ],
    [
      "an unknown axis in outSpecs",
      call({ outSpecs: P("j") }),
      AxisError,
      /result leaf 0.*axis "j" is not in the mesh/,
    ],
    ["an axis used twice", call({ inSpecs: P("i", "i") }), AxisError, /P\("i", "i"\) uses axis "i" twice/],
    [
      "more entries than dims",
      call({ inSpecs: P("i", null, null) }),
      ShardingError,
      /P\("i", null, null\) has 3 entries but the tensor \[8,6\] has 2 dims/,
    ],
    [
      "a result split over more dims than it has",
      call({ outSpecs: P("i") }, (v) => np.sum(v)),
      ShardingError,
      /result leaf 0 \(f32\[\] on each device\): P\("i"\) has 1 entries for 0 dims/,
    ],
    [
      "a result that differs from device to device but is said to be the same",
      call({ outSpecs: P() }),
      ShardingError,
      /must be equal along it on the mesh \{i: 4\}:\n.*may differ along "i"\n.*lax\.psum.*checkReplication: false/,
    ],
    [
      "specs that do not fit the tree",
      call({ inSpecs: [P("i"), P("i")] }),
      TreeError,
      /prefix tree does not fit/,
    ],
    [
      "something that is no spec",
      call({ inSpecs: "i" }),
      ShardingError,
      /PartitionSpecs made with P\(…\), found i/,
    ],
    ["unknown axisNames", call({ axisNames: ["k"] }), AxisError, /axis "k" is not in the mesh/],
    [
      "a spec with an axis that is not handled",
      call({ mesh: cube, axisNames: ["a"], inSpecs: P("b"), outSpecs: P("b") }),
      ShardingError,
      /names axis "b", which is not among axisNames \[a\]/,
    ],
    [
      "P.UNCONSTRAINED",
      call({ inSpecs: P(P.UNCONSTRAINED) }),
      ShardingError,
      /allowed only in withShardingConstraint/,
    ],
    [
      "an unknown axis in a collective",
      call({}, (v) => lax.psum(v, "j")),
      AxisError,
      /\[psum\] unknown axis "j": the axes here are "i"/,
    ],
    [
      "an axis twice in a collective",
      call({}, (v) => lax.psum(v, ["i", "i"])),
      AxisError,
      /axes \[i, i\] name an axis twice/,
    ],
    [
      "a collective that does not divide",
      call({}, (v) => lax.psumScatter(v, "i", { dim: 1, tiled: true })),
      ShapeError,
      /\[psumScatter\] dim 1 of size 6 does not split over axis i \(6 \/ 4 = 1\.5\)/,
    ],
    [
      "a stacked scatter whose dim has a different size from the axis",
      call({}, (v) => lax.psumScatter(v, "i")),
      ShapeError,
      /without tiled, dim 0 of \[2,6\] must have the size 4 of axis "i", it has 2: pass \{ tiled: true \}/,
    ],
    [
      "a dim out of range",
      call({}, (v) => lax.allGather(v, "i", { dim: 5 })),
      DimError,
      /\[allGather\] dim 5 is out of range/,
    ],
    [
      "a target twice",
      call({}, (v) =>
        lax.ppermute(v, "i", [
          [0, 1],
          [1, 1],
        ]),
      ),
      ValueError,
      /targets \[1,1\] must be different/,
    ],
    [
      "a source that does not exist",
      call({}, (v) => lax.ppermute(v, "i", [[4, 1]])),
      ValueError,
      /sources \[4\] must be different numbers from 0 to 3/,
    ],
    [
      "a leaf that is no tensor",
      call({}, (v) => lax.psum({ v, label: "x" }, "i")),
      TreeError,
      /\[psum\] the leaf at "label" is "x"/,
    ],
    [
      "an axis that is bound already",
      call({}, () => call({})()),
      AxisError,
      /axis "i" is bound already by a surrounding shardMap/,
    ],
  ];

  test.each(cases)("%s", (_, run, type, message) => {
    expect(run).toThrow(type);
    expect(run).toThrow(message);
  });

  test("collectives outside of a shard map", () => {
    expect(() => lax.psum(x, "i")).toThrow(AxisError);
    expect(() => lax.psum(x, "i")).toThrow(/no axis is bound here; call it inside shardMap or vmap/);
    expect(() => lax.axisIndex("i")).toThrow(/\[axisIndex\] unknown axis "i"/);
  });

  test("several results that are not replicated are named together", () => {
    const run = call({ outSpecs: P() }, (v) => [v, v.mul(2), lax.psum(v, "i")]);
    expect(run).toThrow(/result leaf 0.*\n.*result leaf 1/);
    expect(run).not.toThrow(/result leaf 2/);
  });

  test("the replication check can be switched off", async () => {
    const first = shardMap((v: Tensor) => v, {
      mesh: line,
      inSpecs: P("i"),
      outSpecs: P(),
      checkReplication: false,
    });
    await expectClose(first(np.array([1, 2, 3, 4])), [1]);
  });

  test("the replication check follows values through loops, choices and nested functions", () => {
    const options = { mesh: line, inSpecs: P("i"), outSpecs: P() };
    const summed = (v: Tensor) =>
      lax.scan((c: Tensor): [Tensor, Tensor] => [c.add(lax.psum(v, "i")), c], np.zeros([1]), null as never, {
        length: 2,
      })[0];
    expect(() => shardMap(summed, options)(np.zeros([4]))).not.toThrow();
    const leaking = (v: Tensor) =>
      lax.scan((c: Tensor): [Tensor, Tensor] => [v, c], np.zeros([1]), null as never, { length: 2 })[0];
    expect(() => shardMap(leaking, options)(np.zeros([4]))).toThrow(/may differ along "i"/);
    const chosen = (v: Tensor) =>
      lax.cond(
        np.sum(v).gt(0),
        () => np.ones([1]),
        () => np.zeros([1]),
      );
    expect(() => shardMap(chosen, options)(np.zeros([4]))).toThrow(/may differ along "i"/);
  });
});
