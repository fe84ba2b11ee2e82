import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { hostEngine } from "../../engines/host.js";
import {
  checkpointName,
  checkpointPolicies,
  customVjp,
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  printProgram,
  remat,
  shardMap,
  type Tensor,
  verify,
  vjp,
  vmap,
} from "../../index.js";

/** What test/jax/varying.py wrote: gradients taken by JAX inside a shard map, with and without check_vma. */
interface Case {
  readonly name: string;
  readonly checked: boolean;
  readonly gradients: readonly (readonly number[])[];
}

const cases = JSON.parse(
  readFileSync(new URL("../../../test/jax/varying.json", import.meta.url), "utf8"),
) as Case[];

const engine = hostEngine;
const line = Mesh.create({ i: 4 }, { engine });
const square = Mesh.create({ a: 2, b: 2 }, { engine });
const x = np.sin(np.arange(48).astype("float32")).reshape([16, 3]);
const w = np.cos(np.arange(12).astype("float32")).reshape([4, 3]);

const doubled = customVjp((v: Tensor, u: Tensor) => v.mul(u).mul(2), {
  forward: (v, u) => [v.mul(u).mul(2), [v, u] as const],
  backward: ([v, u], ct) => [ct.mul(u).mul(2), ct.mul(v).mul(2)],
});

const loop = (v: Tensor): Tensor =>
  lax.scan((c: Tensor): [Tensor, Tensor] => [np.sin(c).add(lax.psum(c, "i").mul(0.1)), c], v, null as never, {
    length: 3,
  })[0];

const choice = (v: Tensor): Tensor =>
  lax.cond(
    np.sum(lax.psum(v, "i")).gt(0),
    (u: Tensor) => np.sin(u).mul(lax.psum(u, "i")),
    (u: Tensor) => u.mul(2),
    v,
  );

const functions: Readonly<Record<string, (v: Tensor) => Tensor>> = {
  nothing: (v) => v,
  psum: (v) => lax.psum(v, "i"),
  pmean: (v) => lax.pmean(v, "i"),
  allGather: (v) => lax.allGather(v, "i", { tiled: true }),
  psumScatter: (v) => lax.psumScatter(v, "i", { tiled: true }),
  ppermute: (v) => lax.pshift(v, "i"),
  allToAll: (v) => lax.allToAll(v, "i", 0, 1, { tiled: true }),
  axisIndex: (v) => v.mul(lax.axisIndex("i").astype("float32")),
  "pmean, squared": (v) => np.square(v.sub(lax.pmean(v, "i"))),
  scan: loop,
  cond: choice,
  remat: remat((v: Tensor) => np.sin(lax.psum(np.sin(v), "i").mul(v))),
};

type Loss = (v: Tensor, u: Tensor) => Tensor;

function lossOf(name: string): Loss {
  if (name === "psum of what is shared") {
    return (v, u) => np.sum(np.sin(lax.psum(u, "i").mul(0.1)).mul(u)).add(np.sum(v.mul(u)));
  }
  if (name === "customVjp") return (v, u) => np.sum(np.sin(doubled(v, u)));
  if (name === "two axes") {
    return (v, u) =>
      np.sum(np.sin(lax.psum(v.mul(u), "a")).mul(lax.psum(v.mul(lax.axisIndex("b").astype("float32")), "b")));
  }
  const fn = functions[name];
  if (!fn) throw new Error(`no function for ${name}`);
  return (v, u) => np.sum(np.sin(fn(v.mul(u)).mul(0.5)));
}

const both = { argnums: [0, 1] } as const;

describe("gradients taken inside a shard map are JAX's", () => {
  test.each(cases)("of $name, replication check $checked", async ({ name, checked, gradients }) => {
    const axes = name === "two axes" ? ["a", "b"] : ["i"];
    const loss = lossOf(name);
    const total: Loss = (v, u) => lax.psum(loss(v, u), axes);
    const squares: Loss = (v, u) => {
      const [dv, du] = grad(loss, both)(v, u);
      return np.sum(np.square(dv)).add(np.sum(np.square(du)));
    };
    const inside = (v: Tensor, u: Tensor) => [loss, total, squares].flatMap((fn) => grad(fn, both)(v, u));
    const mapped = shardMap(inside, {
      mesh: name === "two axes" ? square : line,
      inSpecs: [P(axes), P()],
      outSpecs: P(axes),
      checkReplication: checked,
    });
    verify(makeProgram(mapped)(x, w));
    const results = mapped(x, w);
    for (const [i, result] of results.entries()) {
      await expectClose(result, gradients[i] ?? [], { rtol: 2e-4, atol: 5e-5 });
    }
  });
});

describe("values know along which axes they differ", () => {
  const rows = { mesh: line, inSpecs: [P("i"), P()] as const };
  const blocks = np.arange(1, 9).astype("float32");
  const scale = np.array([1, -2]);

  test("so a weight that all devices share gets the gradient of the whole loss, once", async () => {
    const loss = (v: Tensor, u: Tensor) => lax.psum(np.sum(v.mul(u)), "i");
    const inside = shardMap((v: Tensor, u: Tensor) => grad(loss, { argnums: 1 })(v, u), {
      ...rows,
      outSpecs: P(),
    });
    await expectClose(inside(blocks, scale), [16, 20]);
    const outside = shardMap(loss, { ...rows, outSpecs: P() });
    await expectClose(grad(outside, { argnums: 1 })(blocks, scale), [16, 20]);
  });

  test("so the gradient of a weight is equal on all devices and may leave unsplit", () => {
    const inside = (v: Tensor, u: Tensor) => grad((t: Tensor) => np.sum(v.mul(t)))(u);
    expect(() => shardMap(inside, { ...rows, outSpecs: P() })(blocks, scale)).not.toThrow();
  });

  test("and the printed program shows them", () => {
    const program = makeProgram(
      shardMap((v: Tensor, u: Tensor) => lax.psum(v.mul(u), "i"), { ...rows, outSpecs: P() }),
    )(blocks, scale);
    const text = printProgram(program);
    expect(text).toContain("f32[2]~{i: 4} = pvary %4 {over: {i: 4}}");
    expect(text).toMatch(/%\d+:f32\[2\] = psum/);
  });

  test("from outside, gradients need no sum where nothing differs", () => {
    const same = shardMap((u: Tensor) => np.sin(u), { mesh: line, inSpecs: P(), outSpecs: P() });
    const program = makeProgram(grad((u: Tensor) => np.sum(same(u))))(scale);
    expect(printProgram(program)).not.toContain("psum");
  });

  test("in loops whose carry starts equal and becomes different", async () => {
    const inside = (v: Tensor, u: Tensor) =>
      grad((t: Tensor) => {
        const [last] = lax.scan(
          (c: Tensor): [Tensor, Tensor] => [c.mul(t).add(v), c],
          np.zeros([2]),
          null as never,
          { length: 3 },
        );
        return lax.psum(np.sum(last), "i");
      })(u);
    // ((v·u) + v)·u + v summed over devices: Σv · (1 + 2u).
    const sums = [16, 20];
    await expectClose(
      shardMap(inside, { ...rows, outSpecs: P() })(blocks, scale),
      [1, -2].map((u, i) => (sums[i] ?? 0) * (1 + 2 * u)),
    );
  });

  test("in choices that devices make differently", async () => {
    const inside = (v: Tensor, u: Tensor) =>
      grad((t: Tensor) => {
        const y = lax.cond(
          lax.axisIndex("i").lt(1),
          (s: Tensor) => s.mul(3),
          (s: Tensor) => s.mul(s),
          t,
        );
        return lax.psum(np.sum(y.mul(v)), "i");
      })(u);
    // Device 0 has v = [1, 2] and triples; the others square.
    await expectClose(shardMap(inside, { ...rows, outSpecs: P() })(blocks, scale), [
      3 * 1 + 2 * 1 * 15,
      3 * 2 + 2 * -2 * 18,
    ]);
  });

  test("under vmap, split over another axis of the mesh", async () => {
    const mesh = Mesh.create({ i: 2, s: 2 }, { engine });
    const fn = shardMap((v: Tensor, u: Tensor) => lax.psum(np.sum(np.sin(v.mul(u))), "i"), {
      mesh,
      inSpecs: [P("i"), P()],
      outSpecs: P(),
      axisNames: ["i"],
    });
    const batch = np.arange(1, 17).astype("float32").reshape([4, 4]);
    const loss = (u: Tensor) => np.sum(vmap(fn, { inAxes: [0, null], spmdAxisName: "s" })(batch, u));
    const plain = (u: Tensor) => np.sum(np.sin(batch.reshape([8, 2]).mul(u)));
    await expectClose(jit(grad(loss))(scale), grad(plain)(scale), { rtol: 1e-4, atol: 1e-4 });
  });

  test("in what a remat policy keeps of a shard map", async () => {
    const body = (v: Tensor, u: Tensor) => {
      const same = checkpointName(np.sin(u), "same");
      const own = checkpointName(np.sin(v.mul(same)), "own");
      return lax.psum(np.sum(own.mul(own)), "i").add(np.sum(same.mul(same)));
    };
    const fn = shardMap(body, { ...rows, outSpecs: P() });
    const plain = (v: Tensor, u: Tensor) => {
      const same = np.sin(u);
      return np.sum(np.square(np.sin(v.reshape([4, 2]).mul(same)))).add(np.sum(same.mul(same)));
    };
    for (const names of [["same"], ["own"], ["same", "own"], []]) {
      const policy = checkpointPolicies.saveOnlyTheseNames(...names);
      const [dv, du] = grad(remat(fn, { policy }), both)(blocks, scale);
      const [wantV, wantU] = grad(plain, both)(blocks, scale);
      await expectClose(dv, wantV, { rtol: 1e-4, atol: 1e-5 });
      await expectClose(du, wantU, { rtol: 1e-4, atol: 1e-5 });
    }
  });

  test("a cotangent that differs, given to a result that does not, counts on every device", async () => {
    const inside = (v: Tensor, u: Tensor) => vjp((t: Tensor) => t.mul(2), [u])[1](v)[0];
    await expectClose(shardMap(inside, { ...rows, outSpecs: P() })(blocks, scale), [32, 40]);
  });

  test("pvary marks by hand: equal forward, the sum backward", async () => {
    const inside = (u: Tensor) => grad((t: Tensor) => np.sum(lax.pvary(t, "i")))(u);
    const options = { mesh: line, inSpecs: P(), outSpecs: P() };
    await expectClose(shardMap(inside, options)(scale), [4, 4]);
    const cast = (u: Tensor) => grad((t: Tensor) => np.sum(lax.pcast(t, "i", { to: "varying" })))(u);
    await expectClose(shardMap(cast, options)(scale), [4, 4]);
    await expectClose(shardMap(inside, { ...options, checkReplication: false })(scale), [1, 1]);
    const wrong = { to: "reduced" } as unknown as { to: "varying" };
    expect(() => shardMap((u: Tensor) => lax.pcast(u, "i", wrong), options)(scale)).toThrow(
      /\[pcast\] to must be "varying", got "reduced"/,
    );
  });
});

describe("a decision that differs from device to device", () => {
  const own = (v: Tensor) => np.sum(v).gt(5);
  const total = (v: Tensor) => lax.psum(v, "i");
  const mesh = Mesh.create({ i: 4 }, { engine: hostEngine });
  const x = np.arange(1, 9).astype("float32");
  const run = (inside: (v: Tensor) => Tensor) => () =>
    shardMap(inside, { mesh, inSpecs: P("i"), outSpecs: P("i") })(x);

  test.each([
    ["cond", run((v) => lax.cond(own(v), total, (u: Tensor) => u, v)), "predicate"],
    [
      "cond",
      run((v) =>
        lax.cond(
          lax.axisIndex("i").eq(0),
          (u: Tensor) => jit(total)(u),
          (u: Tensor) => u,
          v,
        ),
      ),
      "predicate",
    ],
    ["switchCase", run((v) => lax.switchCase(lax.axisIndex("i"), [(u: Tensor) => u, total], v)), "index"],
    ["whileLoop", run((v) => lax.whileLoop((u: Tensor) => np.sum(u).lt(50), total, v)), "condition"],
    [
      "whileLoop",
      run((v) =>
        lax.whileLoop(
          (u: Tensor) => np.sum(total(u)).lt(50).and(own(u)),
          (u: Tensor) => u.mul(2),
          v,
        ),
      ),
      "condition",
    ],
  ])("cannot stand before a collective along the same axis: %s %#", (op, act, what) => {
    expect(act).toThrow(
      new RegExp(
        `^\\[${op}\\] the ${what} differs along axis "i", over which psum at .*varying.test.ts:\\d+:\\d+\\)? communicates`,
      ),
    );
  });

  test("may stand before one along another axis, and before any once all agree", async () => {
    const agreed = (v: Tensor) => lax.cond(lax.pmax(own(v), "i"), total, (u: Tensor) => u, v);
    await expectClose(run(agreed)(), [16, 20, 16, 20, 16, 20, 16, 20]);
    const square = Mesh.create({ i: 2, s: 2 }, { engine: hostEngine });
    const across = (v: Tensor) =>
      lax.cond(
        lax.axisIndex("i").eq(0),
        (u: Tensor) => lax.psum(u, "s"),
        (u: Tensor) => u.mul(2),
        v,
      );
    const split = shardMap(across, { mesh: square, inSpecs: P("i"), outSpecs: P("i") });
    await expectClose(split(np.array([1, 2])), [2, 4]);
  });
});

describe("programs that JAX rejects until values are marked", () => {
  const mark = (v: Tensor) => lax.pvary(v, "i");
  const plain = (v: Tensor) => v;
  type Make = (mark: (v: Tensor) => Tensor) => (v: Tensor, u: Tensor) => Tensor;
  const programs: readonly (readonly [string, Make])[] = [
    [
      "a carry that starts to vary",
      (marked) => (v, u) =>
        lax.scan(
          (c: Tensor, row: Tensor) => [np.sin(c.add(row.mul(u.get(0)))), null],
          marked(u.get(1)),
          v,
        )[0],
    ],
    [
      "a carry that stops to vary",
      (marked) => (v, u) =>
        lax.scan((c: Tensor) => [marked(lax.psum(np.sin(c.mul(u)), "i")), null], v, null, { length: 2 })[0],
    ],
    [
      "a carry of foriLoop that starts to vary",
      (marked) => (v, u) => lax.foriLoop(0, 3, (_, c: Tensor) => np.sin(c.add(v)).mul(u), marked(u)),
    ],
    [
      "branches that differ in how they vary",
      (marked) => (v, u) =>
        lax
          .cond(
            np.sum(u).gt(0),
            () => np.sin(v.mul(u)),
            () => marked(u),
          )
          .add(
            lax.cond(
              np.sum(u).gt(0),
              () => marked(np.sin(u)),
              () => v,
            ),
          ),
    ],
  ];

  test.each(programs)("%s: values and gradients are those of the marked program", async (_, make) => {
    const results = [make(mark), make(plain)].map((fn) => {
      const mapped = shardMap((v: Tensor, u: Tensor) => fn(v, u), {
        mesh: line,
        inSpecs: [P("i"), P()],
        outSpecs: P("i"),
      });
      const loss = (v: Tensor, u: Tensor) => np.sum(np.sin(mapped(v, u).mul(1.5)));
      return [mapped(x, w), ...grad(loss, { argnums: [0, 1] })(x, w)];
    });
    const [marked = [], unmarked = []] = await Promise.all(
      results.map((list) => Promise.all(list.map(async (tensor) => Array.from(await tensor.data())))),
    );
    expect(unmarked).toEqual(marked);
    expect(unmarked.flat().some((value) => Number(value) !== 0)).toBe(true);
  });

  test("allGather as a replicated result is the identity, and so is its gradient", async () => {
    const whole = shardMap((v: Tensor) => lax.allGather(v, "i", { tiled: true }), {
      mesh: line,
      inSpecs: P("i"),
      outSpecs: P(),
    });
    expect(await whole(x).js()).toEqual(await x.js());
    const weights = np.cos(x);
    expect(await grad((v: Tensor) => np.sum(whole(v).mul(weights)))(x).js()).toEqual(await weights.js());
  });

  test("a carry that stopped to vary cannot be returned as replicated", () => {
    const summed = (v: Tensor) =>
      lax.scan((c: Tensor) => [lax.psum(c, "i"), null], v, null, { length: 2 })[0];
    expect(() => shardMap(summed, { mesh: line, inSpecs: P("i"), outSpecs: P() })(x)).toThrow(
      /must be equal along it/,
    );
  });
});
