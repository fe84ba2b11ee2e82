import { describe, expect, test } from "vitest";
import { hostEngine } from "../engines/host.js";
import {
  GradientError,
  grad,
  jit,
  lax,
  Mesh,
  makeProgram,
  np,
  P,
  remat,
  shardMap,
  type Tensor,
  TreeError,
  valueAndGrad,
  vjp,
  vmap,
} from "../index.js";

const mesh = Mesh.create({ i: 2 }, { engine: hostEngine });
const x = np.array([1, 2]);

/** Doubles in training, negates otherwise; says which mode it saw. */
function modal(seen: unknown[]) {
  return (v: Tensor, train: boolean, { mode }: { mode: string }) => {
    seen.push(train, mode);
    return (train ? v.mul(2) : v.neg()).mul(mode === "up" ? 10 : 1);
  };
}

type Modal = ReturnType<typeof modal>;

const transforms: Readonly<Record<string, (fn: Modal) => Modal>> = {
  jit: (fn) => jit(fn),
  vmap: (fn) => vmap(fn),
  remat: (fn) => remat(fn),
  shardMap: (fn) => shardMap(fn, { mesh, inSpecs: P("i"), outSpecs: P("i") }),
  "shardMap with a spec for each": (fn) =>
    shardMap(fn, { mesh, inSpecs: [P("i"), null, null], outSpecs: P("i") }),
  "grad of the square": (fn) => (v, train, options) =>
    grad((u: Tensor, t: boolean, o: { mode: string }) => np.sum(fn(u, t, o).mul(u)))(v, train, options).mul(
      0.5,
    ),
  "jit of vmap of remat": (fn) => jit(vmap(remat(fn))),
};

describe("booleans and strings among arguments are what they are", () => {
  test.each(Object.keys(transforms))("in %s", async (name) => {
    const seen: unknown[] = [];
    const run = transforms[name]?.(modal(seen));
    if (!run) throw new Error(name);
    expect(await run(x, true, { mode: "up" }).js()).toEqual([20, 40]);
    expect(await run(x, false, { mode: "up" }).js()).toEqual([-10, -20]);
    expect(await run(x, false, { mode: "down" }).js()).toEqual([-1, -2]);
    expect(await run(x, true, { mode: "up" }).js()).toEqual([20, 40]);
    expect(seen.every((value) => typeof value === "boolean" || typeof value === "string")).toBe(true);
  });

  test("jit traces once for each of their values", () => {
    const seen: unknown[] = [];
    const run = jit(modal(seen));
    for (const train of [true, false, true, false]) run(x, train, { mode: "true" });
    expect(seen).toEqual([true, "true", false, "true"]);
  });

  test("results keep theirs", async () => {
    const run = jit((v: Tensor, train: boolean) => ({ y: v.mul(2), train, label: train ? "a" : "b" }));
    const { y, train, label } = run(x, false);
    expect([await y.js(), train, label]).toEqual([[2, 4], false, "b"]);
  });

  test("gradients have them where the argument has them", async () => {
    const loss = (params: { w: Tensor; frozen: boolean }) =>
      np.sum(params.frozen ? params.w : params.w.mul(params.w));
    const gradient = grad(loss)({ w: x, frozen: false });
    expect(gradient.frozen).toBe(false);
    expect(await gradient.w.js()).toEqual([2, 4]);
  });

  test("a loop's carry cannot change one", () => {
    const flip = () =>
      lax.scan(
        (c: { v: Tensor; on: boolean }): [typeof c, null] => [{ v: c.v, on: !c.on }, null],
        { v: x, on: true },
        null,
        { length: 2 },
      );
    expect(flip).toThrow(TreeError);
    expect(flip).toThrow(/on: boolean true.*\n.*on: boolean false/);
  });

  test("by one itself there is no gradient", () => {
    const by = () => grad((v: Tensor, _on: boolean) => np.sum(v), { argnums: 1 })(x, true);
    expect(by).toThrow(GradientError);
    expect(by).toThrow(/argument 1 is boolean true, a static value/);
  });

  test("numbers are traced, so they can be differentiated and compile once", async () => {
    let traces = 0;
    const run = jit((v: Tensor, scale: number) => {
      traces++;
      return v.mul(scale);
    });
    expect(await run(x, 2).js()).toEqual([2, 4]);
    expect(await run(x, 3).js()).toEqual([3, 6]);
    expect(traces).toBe(1);
  });
});

describe("staticArgnums", () => {
  const power = (v: Tensor, n: number) => {
    let y = v;
    for (let i = 1; i < n; i++) y = y.mul(v);
    return y;
  };
  const loss = (v: Tensor, n: number) => np.sum(power(v, n));
  const statics = { staticArgnums: 1 } as const;

  test("gives every transform real numbers", async () => {
    expect(await jit(power, statics)(x, 3).js()).toEqual([1, 8]);
    expect(await vmap(power, statics)(x, 3).js()).toEqual([1, 8]);
    expect(await remat(power, statics)(x, 3).js()).toEqual([1, 8]);
    const options = { mesh, inSpecs: P("i"), outSpecs: P("i"), ...statics };
    expect(await shardMap(power, options)(x, 3).js()).toEqual([1, 8]);
    expect(await grad(loss, statics)(x, 3).js()).toEqual([3, 12]);
    const [value, gradient] = valueAndGrad(loss, statics)(x, 2);
    expect([await value.item(), await gradient.js()]).toEqual([5, [2, 4]]);
    const [y, pullback] = vjp(power, [x, 3], statics);
    expect([await y.js(), await pullback(np.ones([2]))[0].js()]).toEqual([
      [1, 8],
      [3, 12],
    ]);
  });

  test("takes functions, counted from the end", async () => {
    const apply = (v: Tensor, fn: (u: Tensor) => Tensor) => np.sum(fn(v));
    expect(await grad(apply, { staticArgnums: -1 })(x, (u) => u.mul(u)).js()).toEqual([2, 4]);
    expect(await grad(apply, { staticArgnums: -1 })(x, np.sin).js()).toEqual(await np.cos(x).js());
  });

  test("and argument numbers of no argument are refused", () => {
    const one = (v: Tensor) => v;
    expect(() => jit(one, { donate: 3 })(x)).toThrow(
      /\[one\] donate 3 names no argument: the function was called with 1, use -1 to 0/,
    );
    expect(() => jit(one, { staticArgnums: 1 })(x)).toThrow(/\[one\] staticArgnums 1 names no argument/);
    expect(() => vmap(one, { staticArgnums: -2 })(x)).toThrow(/\[vmap\] staticArgnums -2 names no argument/);
    expect(() => grad(loss, { argnums: 2 })(x, 2)).toThrow(/\[grad\] argnums 2 names no argument/);
    expect(() => makeProgram(one)(x)).not.toThrow();
  });
});
