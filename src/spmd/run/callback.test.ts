import {
  debug,
  effectsBarrier,
  grad,
  type HostArray,
  ioCallback,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  parseProgram,
  printProgram,
  pureCallback,
  remat,
  ShapeDtypeStruct,
  shardMap,
  type Tensor,
  valueAndGrad,
  verify,
  vmap,
} from "shardwise";
import { describe, expect, test, vi } from "vitest";

/** What a function did: every call of `note` with its values. */
function notes(): { note: (...values: HostArray[]) => void; seen: () => Promise<unknown[]> } {
  const list: unknown[] = [];
  return {
    note: (...values) => {
      list.push(values.length === 1 ? values[0]?.js() : values.map((value) => value.js()));
    },
    seen: async () => {
      await effectsBarrier();
      return list.splice(0);
    },
  };
}

describe("debug.callback", () => {
  test("is called with values in order, at once outside of jit and in every run of a compiled function", async () => {
    const { note, seen } = notes();
    const f = (x: Tensor) => {
      debug.callback(note, x);
      const y = x.mul(2);
      debug.callback(note, y.add(1));
      return y;
    };
    f(np.array([1, 2]));
    expect(await seen()).toEqual([
      [1, 2],
      [3, 5],
    ]);
    const compiled = jit(f);
    expect(await compiled(np.array([3, 4])).js()).toEqual([6, 8]);
    await compiled(np.array([0, 1])).js();
    expect(await seen()).toEqual([
      [3, 4],
      [7, 9],
      [0, 1],
      [1, 3],
    ]);
  });

  test("is called although the function returns nothing", async () => {
    const { note, seen } = notes();
    jit((x: Tensor) => {
      debug.callback(note, np.sum(x));
    })(np.arange(4, "float32"));
    expect(await seen()).toEqual([6]);
  });

  test("is called in the turns of loops and in the branch that is taken", async () => {
    const { note, seen } = notes();
    const loop = (x: Tensor) =>
      lax.scan(
        (carry: Tensor, step: Tensor) => {
          debug.callback(note, carry, step);
          return [carry.add(step), null] as const;
        },
        x,
        np.array([1, 2, 3]),
      )[0];
    await jit(loop)(np.array(0)).js();
    expect(await seen()).toEqual([
      [0, 1],
      [1, 2],
      [3, 3],
    ]);
    const choose = (x: Tensor) =>
      lax.cond(
        np.greater(x, 0),
        (y: Tensor) => {
          debug.callback(note, y);
          return y;
        },
        (y: Tensor) => y.neg(),
        x,
      );
    await jit((x: Tensor) => [choose(x), choose(x.neg())])(np.array(5))[0]?.js();
    expect(await seen()).toEqual([5]);
    await jit((x: Tensor) =>
      lax.whileLoop(
        (y: Tensor) => np.less(y, 3),
        (y: Tensor) => {
          debug.callback(note, y);
          return y.add(1);
        },
        x,
      ),
    )(np.array(0)).js();
    expect(await seen()).toEqual([0, 1, 2]);
  });

  test("is called once under grad, in scans and in remat too, and changes no gradient", async () => {
    const { note, seen } = notes();
    const layer = (x: Tensor) => {
      const y = np.sin(x);
      debug.callback(note, y);
      return y.mul(x);
    };
    const looped = (f: (x: Tensor) => Tensor) => (x: Tensor) =>
      np.sum(lax.scan((carry: Tensor) => [f(carry), null] as const, x, null, { length: 2 })[0]);
    const plain = (x: Tensor) => np.sin(x).mul(x);
    for (const [f, reference, calls] of [
      [(x: Tensor) => np.sum(layer(x)), (x: Tensor) => np.sum(plain(x)), 1],
      [(x: Tensor) => np.sum(remat(layer)(x)), (x: Tensor) => np.sum(plain(x)), 1],
      [looped(layer), looped(plain), 2],
      [looped(remat(layer)), looped(plain), 2],
      [remat(looped(layer)), looped(plain), 2],
    ] as const) {
      const x = np.array([0.5, 1.5]);
      const [value, gradient] = jit(valueAndGrad(f))(x);
      expect(await np.allclose(gradient, grad(reference)(x)).item()).toBe(1);
      expect(await np.allclose(value, reference(x)).item()).toBe(1);
      expect(await seen()).toHaveLength(calls);
    }
  });

  test("is called for each element under vmap, and once for what is the same for all", async () => {
    const { note, seen } = notes();
    const f = (x: Tensor, y: Tensor) => {
      debug.callback(note, x, y);
      debug.callback(note, y);
      return x;
    };
    await jit(vmap(f, { inAxes: [0, null] }))(np.array([1, 2, 3]), np.array(7)).js();
    expect(await seen()).toEqual([[1, 7], [2, 7], [3, 7], 7]);
  });

  test("is called on every device of a shard map in its order, and once for whole tensors", async () => {
    const mesh = Mesh.create({ data: 2 });
    const { note, seen } = notes();
    const local = shardMap(
      (x: Tensor) => {
        debug.callback(note, lax.axisIndex("data"), np.sum(x));
        const total = lax.psum(np.sum(x), "data");
        debug.callback(note, lax.axisIndex("data"), total);
        return total;
      },
      { mesh, inSpecs: [P("data")], outSpecs: P() },
    );
    expect(await jit(local)(np.arange(4, "float32")).item()).toBe(6);
    const all = (await seen()) as [number, number][];
    expect(all.filter(([device]) => device === 0).map(([, value]) => value)).toEqual([1, 6]);
    expect(all.filter(([device]) => device === 1).map(([, value]) => value)).toEqual([5, 6]);
    const whole = jit(
      (x: Tensor) => {
        debug.callback(note, x);
        return x.mul(2);
      },
      { mesh, inShardings: [P("data")] },
    );
    expect(await whole(np.arange(4, "float32")).js()).toEqual([0, 2, 4, 6]);
    expect(await seen()).toEqual([[0, 1, 2, 3]]);
  });
});

describe("debug.print", () => {
  test("writes values in their places when the program gets there", async () => {
    const log = vi.spyOn(console, "log").mockImplementation(() => {});
    try {
      await jit((x: Tensor) => {
        debug.print("x {} {{}} max {max:.2f} {0:8.1e}", x, { max: np.max(x) });
        debug.print("a tree {}", { w: x, b: [np.sum(x)] });
        return x;
      })(np.array([1.5, 2])).js();
      await effectsBarrier();
      expect(log.mock.calls.flat()).toEqual([
        "x [1.5, 2] {} max 2.00 [ 1.5e+00,  2.0e+00]",
        "a tree {b: [3.5], w: [1.5, 2]}",
      ]);
    } finally {
      log.mockRestore();
    }
  });

  test("refuses places without values and values without places", () => {
    expect(() => debug.print("{}")).toThrow(/has places for 1 values, 0 were given/);
    expect(() => debug.print("loss", np.array(1))).toThrow(/has places for 0 values, 1 were given/);
    expect(() => debug.print("{loss}", np.array(1))).toThrow(/names "loss": give \{ loss: … \}/);
    expect(() => debug.print("a { b")).toThrow(/lone "\{"/);
    expect(() => debug.print("{:abc}", np.array(1))).toThrow(/":abc" is not a number format/);
  });
});

describe("pureCallback", () => {
  const type = ShapeDtypeStruct([3], "float32");
  const squares = (x: HostArray) => Array.from(x.data, (value) => value * value);
  const f = (x: Tensor) => pureCallback(squares, type, [x]);
  const x = np.array([1, 2, 3]);

  test("gives what the function returns, as a tree of the types that were declared", async () => {
    expect(await f(x).js()).toEqual([1, 4, 9]);
    const both = jit((v: Tensor) =>
      pureCallback(
        (a: HostArray) => ({ sum: Array.from(a.data).reduce((n, m) => n + m, 0), sign: [[true, false]] }),
        { sum: ShapeDtypeStruct([], "float32"), sign: ShapeDtypeStruct([1, 2], "bool") },
        [v.mul(2)],
      ),
    )(x);
    expect(await both.sum.js()).toBe(12);
    expect(await both.sign.js()).toEqual([[true, false]]);
  });

  test("works on batches as its vmapMethod says, and on every device", async () => {
    const rows = np.stack([x, x.add(1)]);
    expect(() => vmap(f)(rows)).toThrow(/give vmapMethod "sequential"/);
    const shapes: number[][] = [];
    for (const vmapMethod of ["sequential", "expandDims", "broadcastAll"] as const) {
      const g = (a: Tensor, b: Tensor) =>
        pureCallback(
          (u: HostArray, v: HostArray) => {
            shapes.push([...u.shape], [...v.shape]);
            return u.data.map((value, i) => value + (v.data[i % v.size] ?? 0));
          },
          type,
          [a, b],
          { vmapMethod },
        );
      const got = jit(vmap(g, { inAxes: [0, null] }))(rows, x);
      expect(await np.allclose(got, rows.add(x)).item()).toBe(1);
      const want = { sequential: [3], expandDims: [2, 3], broadcastAll: [2, 3] }[vmapMethod];
      expect(shapes[0]).toEqual(want);
      expect(shapes[1]).toEqual({ sequential: [3], expandDims: [1, 3], broadcastAll: [2, 3] }[vmapMethod]);
      shapes.length = 0;
    }
    const mesh = Mesh.create({ data: 2 });
    const doubled = jit((v: Tensor) => pureCallback(squares, ShapeDtypeStruct([4], "float32"), [v]).add(v), {
      mesh,
      inShardings: [P("data")],
      outShardings: P("data"),
    });
    expect(await doubled(np.arange(4, "float32")).js()).toEqual([0, 2, 6, 12]);
  });

  test("is not called when nobody reads its results, and has no derivative", async () => {
    let calls = 0;
    const counted = (v: Tensor) =>
      pureCallback(
        (a: HostArray) => {
          calls++;
          return a;
        },
        type,
        [v],
      );
    await jit((v: Tensor) => {
      counted(v);
      return v;
    })(x).js();
    expect(calls).toBe(0);
    expect(() => grad((v: Tensor) => np.sum(counted(v)))(x)).toThrow(/\[grad\] callback: .*customJvp/);
  });

  test("refuses results that are not what was declared", () => {
    const give = (value: unknown) => () => pureCallback(() => value as number[], type, []);
    expect(give([1, 2])).toThrow(/result 0 has 2 elements, but f32\[3\] was declared/);
    expect(give("text")).toThrow(/result 0 is string/);
    expect(give(Promise.resolve(1))).toThrow(/is async/);
    expect(() => pureCallback(() => [1], [type, type], [])).toThrow(/must return \[\*, \*\]/);
  });
});

describe("ioCallback", () => {
  test("reads in every run, once for all devices that compute with whole tensors", async () => {
    let next = 0;
    const read = () => [next++, -0];
    const mesh = Mesh.create({ data: 2 });
    const f = (x: Tensor) => x.add(ioCallback(read, ShapeDtypeStruct([2], "float32"), []));
    for (const step of [jit(f), jit(f, { mesh, inShardings: [P("data")] })]) {
      next = 0;
      const got = [step(np.zeros([2])), step(np.zeros([2]))];
      expect(await Promise.all(got.map((value) => value.js()))).toEqual([
        [0, 0],
        [1, 0],
      ]);
    }
  });

  test("is not called again by remat, whose way back takes what it gave", async () => {
    let calls = 0;
    const noise = () => {
      calls++;
      return 3;
    };
    const f = remat((x: Tensor) => np.sin(x.mul(ioCallback(noise, ShapeDtypeStruct([], "float32"), []))));
    const gradient = jit(grad((x: Tensor) => f(x)))(np.array(0.1));
    expect(await gradient.item()).toBeCloseTo(3 * Math.cos(0.3), 5);
    expect(calls).toBe(1);
  });
});

describe("a program that calls the host", () => {
  const seen: number[] = [];
  const note = (x: HostArray) => void seen.push(x.item());
  const program = makeProgram((x: Tensor) => {
    debug.callback(note, np.sum(x));
    return x;
  })(np.ones([2]));

  test("names the function by a label, by which its text is read where the function is", () => {
    const text = printProgram(program);
    expect(text).toMatch(
      /callback %1 \{fn: "note#\d+", kind: debug, batching: sequential, results: \[\], once: \{\}\}/,
    );
    expect(printProgram(verify(parseProgram(text)))).toBe(text);
    expect(() => parseProgram(text.replace(/note#\d+/, "note#9999999"))).toThrow(
      /a function of this process: programs that call the host can only be read in the process that made them/,
    );
  });
});
