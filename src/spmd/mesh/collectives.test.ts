import { describe, expect, test } from "vitest";
import { agreement, expectClose, type GoldenCase, goldens } from "../../../test/support/goldens.js";
import { expectNumericGradients, randomHost } from "../../../test/support/gradientChecks.js";
import { randomNumbers } from "../../../test/support/vmapChecks.js";
import { hostEngine } from "../../engines/host.js";
import { grad, Mesh, makeProgram, P, shardMap, Tensor, verify } from "../../index.js";
import { allocateHost } from "../../ir/dtype.js";
import type { Engine } from "../../ir/engine.js";
import { axesSize, type MeshAxis } from "../../ir/mesh.js";
import { range, type Shape, sizeOf, tensorType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { withAxes } from "../../trace/axes.js";
import { traceFlat } from "../../trace/builder.js";
import * as lax from "./collectives.js";
import { raggedAllToAll } from "./raggedAllToAll.js";

const engine = hostEngine;

/** What a case of the reference values computes on each device. */
function functionOf(golden: GoldenCase): (x: Tensor) => Tensor {
  const kind = golden.name.replace(/_\d+$/, "");
  const n = golden.mesh.reduce((size, [, axis]) => size * axis, 1);
  const table: Readonly<Record<string, (x: Tensor) => Tensor>> = {
    psum: (x) => lax.psum(x, "i"),
    pmean: (x) => lax.pmean(x, "i"),
    all_gather_axis1_tiled: (x) => lax.allGather(x, "i", { dim: 1, tiled: true }),
    all_gather_axis0_stacked: (x) => lax.allGather(x, "i"),
    psum_scatter_axis1_tiled: (x) => lax.psumScatter(x, "i", { dim: 1, tiled: true }),
    psum_scatter_axis0_stacked: (x) => lax.psumScatter(x, "i"),
    ppermute_up: (x) => lax.pshift(x, "i"),
    ppermute_partial: (x) => lax.ppermute(x, "i", [[0, n - 1]]),
    all_to_all_0: (x) => lax.allToAll(x, "i", 0, 1, { tiled: true }),
    all_to_all_0_1: (x) => lax.allToAll(x, "i", 0, 1, { tiled: true }),
    axis_index: (x) => x.mul(lax.axisIndex("i").astype("float32")),
    psum_a_of_ab: (x) => lax.psum(x, "a"),
    psum_b_of_ab: (x) => lax.psum(x, "b"),
    psum_ab: (x) => lax.psum(x, ["a", "b"]),
    gather_b_then_scatter_a: (x) =>
      lax.psumScatter(lax.allGather(x, "b", { tiled: true }), "a", { tiled: true }),
  };
  const found = table[kind];
  if (!found) throw new Error(`no function for ${golden.name}`);
  return found;
}

const isReference = process.env.SHARDWISE_ENGINE === "reference";

/** Without a name the engine is the one that the suite runs on. */
const engines: readonly (readonly [name: string, options: { readonly engine?: Engine }])[] = [
  ["reference", { engine: hostEngine }],
  ...(isReference ? [] : [["default", {}] as const]),
];

describe.each(engines)("on the %s engine collectives agree with JAX", (_, options) => {
  for (const golden of goldens("collectives")) {
    const mesh = Mesh.create(Object.fromEntries(golden.mesh), options);
    const rows = P([...mesh.axisNames]);
    const onDevices = <R>(fn: (...blocks: Tensor[]) => R) =>
      shardMap((...blocks: Tensor[]) => fn(...blocks.map((block) => np.squeeze(block, 0))), {
        mesh,
        inSpecs: rows,
        outSpecs: rows,
        checkReplication: false,
      });
    const row = (y: Tensor) => np.expandDims(y, 0);

    if (golden.name === "pmax_b_pmin_a") {
      test("pmax and pmin along different axes", async () => {
        const both = onDevices((x) => [row(lax.pmax(x, "b")), row(lax.pmin(x, "a"))] as const);
        const [largest, smallest] = both(golden.tensor("x"));
        await expectClose(largest, golden.host("y", "0"), agreement.exact);
        await expectClose(smallest, golden.host("y", "1"), agreement.exact);
      });
      continue;
    }
    test(`${golden.name}, values and gradients`, async () => {
      const fn = functionOf(golden);
      const y = onDevices((x) => row(fn(x)))(golden.tensor("x"));
      await expectClose(y, golden.host("y"), agreement.value);
      const gradient = onDevices((x, w) => row(grad((v: Tensor) => np.sum(fn(v).mul(w)))(x)));
      await expectClose(
        gradient(golden.tensor("x"), golden.tensor("w")),
        golden.host("grad_x"),
        agreement.gradient,
      );
    });
  }
});

/** Device i sends a row to j where i + j is odd; they lie in the result in the order of the senders. */
function oddRows(x: Tensor, axes: string[], n: number): Tensor {
  const me = lax.axisIndex(axes);
  const counts = np.remainder(np.arange(n).add(np.arange(n).reshape([n, 1])), 2).astype("int32");
  const before = (dim: number) => np.cumsum(counts, dim).sub(counts);
  const [sizes, inputs, outputs] = [counts, before(1), before(0)].map((table) => np.take(table, me, 0));
  if (!sizes || !inputs || !outputs) throw new Error("three rows");
  return raggedAllToAll(x, x.mul(x), inputs, sizes, outputs, sizes, axes);
}

/** Collectives over `axes`, whose size is n, of a block [n, 3]. */
const collectives: Readonly<Record<string, (x: Tensor, axes: string[], n: number) => Tensor>> = {
  psum: (x, axes) => lax.psum(x, axes),
  pmean: (x, axes) => lax.pmean(x, axes),
  pmax: (x, axes) => lax.pmax(x, axes),
  pmin: (x, axes) => lax.pmin(x, axes),
  "allGather, tiled": (x, axes) => lax.allGather(x, axes, { dim: 1, tiled: true }),
  "allGather, stacked": (x, axes) => lax.allGather(x, axes, { dim: 1 }),
  "psumScatter, tiled": (x, axes) => lax.psumScatter(x, axes, { tiled: true }),
  "psumScatter, stacked": (x, axes, n) => lax.psumScatter(x.reshape([1, n, 3]), axes, { dim: 1 }),
  "ppermute, a ring": (x, axes) => lax.pshift(x, axes),
  "ppermute, partial": (x, axes, n) => lax.ppermute(x, axes, [[n - 1, 0]]),
  "allToAll, tiled": (x, axes) => lax.allToAll(x, axes, 0, 1, { tiled: true }),
  "allToAll, one dim": (x, axes) => lax.allToAll(x, axes, 0, 0, { tiled: true }),
  raggedAllToAll: oddRows,
  "allToAll, moved": (x, axes, n) => lax.allToAll(x.reshape([n, 1, 3]), axes, 0, 2),
};

/** Meshes, and the axes of them to talk over. */
const meshes: readonly { sizes: Record<string, number>; axes: string[] }[] = [
  ...[2, 3, 4, 8].map((i) => ({ sizes: { i }, axes: ["i"] })),
  ...[["a"], ["b"], ["c"], ["a", "c"], ["c", "a"], ["a", "b", "c"]].map((axes) => ({
    sizes: { a: 2, b: 2, c: 2 },
    axes,
  })),
];

const cases = Object.keys(collectives).flatMap((name) =>
  meshes.map(({ sizes, axes }) => ({ name, sizes, axes, where: `${JSON.stringify(sizes)} over ${axes}` })),
);

const zeros = (shape: Shape) =>
  Tensor.fromHost(tensorType("float64", shape), allocateHost("float64", sizeOf(shape)));

describe("the gradient agrees with central differences", () => {
  test.each(cases)("of $name on $where, from inside", ({ name, sizes, axes }) => {
    const random = randomNumbers(name.length);
    const mesh: { axes: MeshAxis[] } = {
      axes: Object.entries(sizes).map(([axis, size]) => ({ name: axis, size })),
    };
    const n = axes.reduce((size, axis) => size * (sizes[axis] ?? 1), 1);
    const type = tensorType("float64", [n, 3]);
    const { program } = withAxes(mesh.axes, () =>
      traceFlat(([x = zeros([])]) => [np.sin(collectives[name]?.(np.sin(x), axes, n) ?? x)], [type]),
    );
    const blocks = range(axesSize(mesh.axes)).map(() => randomHost(type, -1, 1, random));
    expectNumericGradients(verify(program), mesh, [blocks], random);
  });

  test.each(cases)("of $name on $where, from outside", ({ name, sizes, axes }) => {
    const random = randomNumbers(name.length + 1);
    const mesh = Mesh.create(sizes, { engine });
    const n = axes.reduce((size, axis) => size * (sizes[axis] ?? 1), 1);
    const all = [...mesh.axisNames];
    // Split over all axes, over the last axis only, and whole; w is the same on all devices.
    const specs = [P(all), P(all.at(-1) ?? null), P()];
    specs.forEach((inSpec, i) => {
      const mapped = shardMap(
        (x: Tensor, w: Tensor) => {
          const y = collectives[name]?.(np.sin(x), axes, n) ?? x;
          return np.expandDims(np.sum(np.sin(y)).mul(w), 0);
        },
        { mesh, inSpecs: [inSpec, P()], outSpecs: P(all) },
      );
      const parts = [mesh.size, sizes[all.at(-1) ?? ""] ?? 1, 1][i] ?? 1;
      const program = verify(makeProgram(mapped)(zeros([n * parts, 3]), zeros([2])));
      const inputs = program.inputs.map(({ type }) => [randomHost(type, -1, 1, random)]);
      expectNumericGradients(program, { axes: [] }, inputs, random);
    });
  });
});

describe("gradients from outside a shard map are JAX's", () => {
  const mesh = Mesh.create({ i: 4 }, { engine });
  const square = Mesh.create({ a: 2, b: 2 }, { engine });
  const x = np.arange(1, 9).astype("float32");
  const [w, c] = [np.array([1, -2]), np.array([3, 5])];
  const loose = { mesh, checkReplication: false };

  test("replicated inputs get the sum of their cotangents", async () => {
    const f = shardMap((v: Tensor, u: Tensor) => lax.psum(v.mul(u), "i"), {
      mesh,
      inSpecs: [P("i"), P()],
      outSpecs: P(),
    });
    await expectClose(f(x, w), [16, -40]);
    const [dx, dw] = grad((v: Tensor, u: Tensor) => np.sum(f(v, u).mul(c)), { argnums: [0, 1] })(x, w);
    await expectClose(dx, [3, -10, 3, -10, 3, -10, 3, -10]);
    await expectClose(dw, [48, 100]);
  });

  test("unmapped outputs hand each device its share", async () => {
    const same = shardMap((v: Tensor) => v.mul(2), { mesh, inSpecs: P(), outSpecs: P() });
    await expectClose(grad((v: Tensor) => np.sum(same(v).mul(c)))(w), [6, 10]);
    const first = shardMap((v: Tensor) => v, { ...loose, inSpecs: P("i"), outSpecs: P() });
    await expectClose(first(x), [1, 2]);
    await expectClose(
      grad((v: Tensor) => np.sum(first(v).mul(c)))(x),
      [0.75, 1.25, 0.75, 1.25, 0.75, 1.25, 0.75, 1.25],
    );
  });

  test("devices that scale differently add up", async () => {
    const f = shardMap((v: Tensor) => v.mul(lax.axisIndex("i").add(1).astype("float32")), {
      mesh,
      inSpecs: P(),
      outSpecs: P("i"),
    });
    await expectClose(f(w), [1, -2, 2, -4, 3, -6, 4, -8]);
    await expectClose(grad((v: Tensor) => np.sum(f(v).mul(x)))(w), [50, 60]);
  });

  test("on two axes, of which each tensor uses one", async () => {
    const f = shardMap(
      (v: Tensor, u: Tensor) => lax.psum(v, "a").mul(u).mul(lax.axisIndex("b").add(1).astype("float32")),
      { mesh: square, inSpecs: [P("a"), P()], outSpecs: P("b") },
    );
    const u = np.array([1, 2, 3, 4]);
    await expectClose(f(x, u), [6, 16, 30, 48, 12, 32, 60, 96]);
    const [dx, du] = grad((v: Tensor, t: Tensor) => np.sum(f(v, t).mul(x)), { argnums: [0, 1] })(x, u);
    await expectClose(dx, [11, 28, 51, 80, 11, 28, 51, 80]);
    await expectClose(du, [66, 112, 170, 240]);
  });

  test("of a mean over devices", async () => {
    const f = shardMap((v: Tensor) => lax.pmean(np.sum(v.mul(v)), "i"), {
      mesh,
      inSpecs: P("i"),
      outSpecs: P(),
    });
    await expectClose(f(x), 51);
    await expectClose(grad(f)(x), [0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]);
  });

  test("of a gather whose copies are used differently", async () => {
    const f = shardMap(
      (v: Tensor) => lax.allGather(v, "i", { tiled: true }).mul(lax.axisIndex("i").astype("float32")),
      { mesh, inSpecs: P("i"), outSpecs: P("i") },
    );
    const loss = (v: Tensor) => np.sum(f(v).mul(np.arange(16).astype("float32")));
    await expectClose(grad(loss)(np.array([1, 2, 3, 4])), [56, 62, 68, 74]);
  });

  test("taken inside, the gradient of a mean is that of every device's sum", async () => {
    const inside = (v: Tensor, u: Tensor) => grad((t: Tensor) => lax.pmean(np.sum(v.mul(t).mul(t)), "i"))(u);
    const f = shardMap(inside, { ...loose, inSpecs: [P("i"), P()], outSpecs: P("i") });
    await expectClose(f(x, w), [2, -8, 6, -16, 10, -24, 14, -32]);
  });
});

describe("collectives", () => {
  const mesh = Mesh.create({ i: 4 }, { engine });
  const run = <T>(fn: (x: Tensor) => T, x: Tensor) =>
    shardMap(fn, { mesh, inSpecs: P("i"), outSpecs: P("i"), checkReplication: false })(x);

  test("take trees", async () => {
    const out = run((x) => lax.psum({ a: x, b: [x.mul(2)] }, "i"), np.array([1, 2, 3, 4]));
    await expectClose(out.a, [10, 10, 10, 10]);
    await expectClose(out.b[0] ?? np.zeros([]), [20, 20, 20, 20]);
  });

  test("of a plain number fold to the axis size while tracing", () => {
    const seen: unknown[] = [];
    run(
      (x) => {
        seen.push(lax.psum(1, "i"), lax.psum(2.5, "i"), lax.pmean(3, "i"), lax.axisSize("i"));
        return x;
      },
      np.zeros([4]),
    );
    expect(seen).toEqual([4, 10, 3, 4]);
  });

  test.each(["int32", "uint32", "bfloat16", "float16", "float32", "float64"] as const)(
    "reduce %s in its own type",
    async (dtype) => {
      const x = np.array([1, 2, 3, 4], dtype);
      const out = run(
        (v) =>
          [lax.psum(v, "i"), lax.pmax(v, "i"), lax.psumScatter(np.tile(v, 4), "i", { tiled: true })] as const,
        x,
      );
      for (const part of out) expect(part.dtype).toBe(dtype);
      await expectClose(out[0], [10, 10, 10, 10]);
      await expectClose(out[1], [4, 4, 4, 4]);
      await expectClose(out[2], [10, 10, 10, 10]);
    },
  );

  test("of booleans: any and all", async () => {
    const flags = np.array([true, false, true, true]);
    const [any, all] = run((v) => [lax.pmax(v, "i"), lax.pmin(v, "i")] as const, flags);
    expect(await any.js()).toEqual([true, true, true, true]);
    expect(await all.js()).toEqual([false, false, false, false]);
  });

  test("move every type", async () => {
    for (const dtype of ["bool", "int32", "uint32", "bfloat16", "float64"] as const) {
      const x = np.array([1, 0, 1, 0], dtype);
      const moved = run((v) => lax.pshift(v, "i", -1), x);
      expect(moved.dtype).toBe(dtype);
      await expectClose(moved, [0, 1, 0, 1]);
    }
  });

  test("give zeros where a permutation sends nothing", async () => {
    await expectClose(
      run((v) => lax.ppermute(v, "i", [[2, 0]]), np.array([1, 2, 3, 4])),
      [3, 0, 0, 0],
    );
    await expectClose(
      run((v) => lax.ppermute(v, "i", []), np.array([1, 2, 3, 4])),
      [0, 0, 0, 0],
    );
  });

  test("over several axes count devices row-major in the order given", async () => {
    const both = Mesh.create({ a: 2, b: 3 }, { engine });
    const gather = (axes: string[]) =>
      shardMap((x: Tensor) => lax.allGather(x, axes, { tiled: true }), {
        mesh: both,
        inSpecs: P(["a", "b"]),
        outSpecs: P(),
      })(np.arange(6));
    await expectClose(gather(["a", "b"]), [0, 1, 2, 3, 4, 5]);
    await expectClose(gather(["b", "a"]), [0, 3, 1, 4, 2, 5]);
    const index = shardMap(() => lax.axisIndex(["b", "a"]).reshape([1]), {
      mesh: both,
      inSpecs: [],
      outSpecs: P(["a", "b"]),
    });
    await expectClose(index(), [0, 2, 4, 1, 3, 5]);
  });

  test("give the same bits in every run", async () => {
    const eight = Mesh.create({ i: 8 }, { engine });
    const random = randomNumbers(5);
    const x = np.array(range(64).map(() => random() * 10 ** Math.floor(random() * 12 - 6)));
    const sum = () =>
      shardMap((v: Tensor) => lax.psum(v, "i"), { mesh: eight, inSpecs: P("i"), outSpecs: P() })(x).data();
    const first = await sum();
    for (let i = 0; i < 5; i++) expect(await sum()).toEqual(first);
  });

  test("give a scattered sum the bits of the whole one", async () => {
    const random = randomNumbers(9);
    const x = np.array(range(64).map(() => random() * 10 ** Math.floor(random() * 12 - 6)));
    const whole = run((v) => lax.psum(v, "i"), x);
    const scattered = run((v) => lax.psumScatter(v, "i", { tiled: true }), x);
    await expectClose(scattered, Array.from((await whole.data()).slice(0, 16)), agreement.exact);
  });
});

describe.each(engines)("on the %s engine", (_, options) => {
  const mesh = Mesh.create({ i: 2 }, options);
  const x = np.array([
    [1, 2],
    [3, 4],
  ]);

  test("pshuffle takes blocks by their sources, and refuses what is no permutation", async () => {
    const specs = { mesh, inSpecs: P("i"), outSpecs: P("i") };
    const shuffled = (sources: readonly number[]) =>
      shardMap((block: Tensor) => lax.pshuffle(block, "i", sources), specs)(x);
    expect(await shuffled([1, 0]).js()).toEqual([
      [3, 4],
      [1, 2],
    ]);
    expect(() => shuffled([1, 1])).toThrow("must name each of the 2 devices once");
  });

  test("pbroadcast gives all devices one block, and that device the sum of the cotangents", async () => {
    const specs = { mesh, inSpecs: P("i"), outSpecs: P() };
    const first = shardMap((block: Tensor) => lax.pbroadcast(block, "i", 1), specs);
    expect(await first(x).js()).toEqual([[3, 4]]);
    expect(await grad((y: Tensor) => np.sum(first(y).mul(np.array([5, 7]))))(x).js()).toEqual([
      [0, 0],
      [5, 7],
    ]);
    expect(() => shardMap((block: Tensor) => lax.pbroadcast(block, "i", 2), specs)(x)).toThrow("use 0 … 1");
  });

  test("pswapaxes exchanges a dim with the axis", async () => {
    const specs = { mesh, inSpecs: P(null, "i"), outSpecs: P(null, "i") };
    const swapped = shardMap((block: Tensor) => lax.pswapaxes(block, "i", 0), specs)(x);
    expect(await swapped.js()).toEqual([
      [1, 3],
      [2, 4],
    ]);
  });
});
