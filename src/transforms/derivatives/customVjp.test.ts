import {
  customGradient,
  customJvp,
  customVjp,
  grad,
  jit,
  jvp,
  lax,
  linearize,
  np,
  type Tensor,
  vjp,
} from "shardwise";
import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";

type Wrap = (inner: (x: Tensor) => Tensor) => (x: Tensor) => Tensor;

/** Every part of the rule calls what it is wrapped around, and the way back is scaled, to tell it from the plain one. */
const byVjp: Wrap = (inner) =>
  customVjp((x: Tensor) => inner(x), {
    forward: (x: Tensor): [Tensor, Tensor] => [inner(x), x],
    backward: (x, ct) => [ct.mul(inner(x)).mul(10)],
  });

const byGradient: Wrap = (inner) =>
  customGradient((x: Tensor) => [inner(x), (ct: Tensor) => [ct.mul(inner(x)).mul(10)]]);

const byJvp: Wrap = (inner) =>
  customJvp(
    (x: Tensor) => inner(x),
    ([x], [t]) => [inner(x), t.mul(inner(x)).mul(10)],
  );

/** A function inside so many others, which counts how often it is called. */
function nested(wrap: Wrap, depth: number) {
  let numCalls = 0;
  let fn = (x: Tensor): Tensor => {
    numCalls++;
    return np.sin(x);
  };
  for (let i = 0; i < depth; i++) fn = wrap(fn);
  return {
    fn,
    callsOf: (run: () => unknown): number => {
      numCalls = 0;
      run();
      return numCalls;
    },
  };
}

const x = np.array(2);

describe.each([
  // The function alone, on the way forward, and on the way back.
  ["customVjp", byVjp, 3],
  ["customGradient", byGradient, 3],
  ["customJvp", byJvp, 5],
])("a function inside many by %s", (_, wrap, numCalls) => {
  test.each([1, 7])("is called once where nobody differentiates, %i deep", (depth) => {
    const { fn, callsOf } = nested(wrap, depth);
    expect(callsOf(() => fn(x))).toBe(1);
    expect(callsOf(() => jit(fn)(x))).toBe(1);
  });

  test.each([1, 7])("is called as often for a gradient as its rule calls it, %i deep", (depth) => {
    const { fn, callsOf } = nested(wrap, depth);
    expect(callsOf(() => grad(fn)(x))).toBe(numCalls);
    expect(callsOf(() => jit(grad(fn))(x))).toBe(numCalls);
  });

  test("has the derivatives that the rules say", async () => {
    const { fn } = nested(wrap, 4);
    await expectClose(grad(fn)(x), 10 * Math.sin(2), { rtol: 1e-6 });
    await expectClose(grad(grad(fn))(x), 100 * Math.sin(2), { rtol: 1e-6 });
    await expectClose(grad(grad(grad(fn)))(x), 1000 * Math.sin(2), { rtol: 1e-6 });
    await expectClose(jvp(fn, [x], [np.array(1)])[1], 10 * Math.sin(2), { rtol: 1e-6 });
    const along = (y: Tensor) => jvp(fn, [y], [np.array(1)])[1];
    await expectClose(jvp(along, [x], [np.array(1)])[1], 100 * Math.sin(2), { rtol: 1e-6 });
  });

  test("keeps its rule when it was compiled before", async () => {
    const fn = jit(nested(wrap, 2).fn);
    await expectClose(fn(x), Math.sin(2));
    await expectClose(grad(fn)(x), 10 * Math.sin(2), { rtol: 1e-6 });
    await expectClose(grad(grad(fn))(x), 100 * Math.sin(2), { rtol: 1e-6 });
  });
});

test("a forward rule that calls its own function gives it all its derivatives", async () => {
  // The plain function has no derivative.
  const sine: (y: Tensor) => Tensor = customJvp(
    (y: Tensor) => lax.stopGradient(np.sin(y)),
    ([y], [t]) => [sine(y), np.cos(y).mul(t)],
  );
  const fn = (y: Tensor) => np.square(sine(y)).mul(y);
  const along = (inner: typeof fn) => (y: Tensor) => jvp(inner, [y], [np.array(1)])[1];
  // From JAX 0.10.2.
  await expectClose(grad(grad(fn))(x), -4.12817907333374, { rtol: 1e-6 });
  await expectClose(along(along(fn))(x), -4.12817907333374, { rtol: 1e-6 });
  await expectClose(grad(grad(grad(fn)))(x), 2.1325583457946777, { rtol: 1e-6 });
});

describe("rules inside rules", () => {
  const tripled = byVjp((y) => y);
  const twice = customVjp((y: Tensor) => y.mul(2), {
    forward: (y: Tensor) => [y.mul(2), null],
    backward: (_: null, ct: Tensor) => [ct.mul(7)],
  });
  const backBySeven = customVjp((y: Tensor) => y, {
    forward: (y: Tensor) => [y, null],
    backward: (_: null, ct: Tensor) => [twice(ct)],
  });

  test("hold in gradients that a function with a rule takes itself", async () => {
    const fn = customVjp((y: Tensor) => grad(tripled)(y), {
      forward: (y: Tensor) => [grad(tripled)(y), null],
      backward: (_: null, ct: Tensor) => [ct],
    });
    await expectClose(fn(x), 20);
    await expectClose(jit(fn)(x), 20);
    await expectClose(grad(fn)(x), 1);
  });

  test("hold in the way back that a user keeps and differentiates later", async () => {
    const [, pullback] = vjp(backBySeven, [x]);
    const pulled = (ct: Tensor) => pullback(ct)[0];
    await expectClose(pulled(x), 4);
    await expectClose(grad(pulled)(x), 7);
    const inside = jit((y: Tensor) => {
      const [, pull] = vjp(backBySeven, [y]);
      return grad((ct: Tensor) => pull(ct)[0])(y);
    });
    await expectClose(inside(x), 7);
  });

  test("hold where directions are pushed through the transpose of the way back", async () => {
    await expectClose(jvp(backBySeven, [x], [np.array(1)])[1], 7);
    const [, push] = linearize(backBySeven, [x]);
    await expectClose(push(np.array(1)), 7);
  });
});

describe("null as a cotangent", () => {
  type Params = { w: Tensor; rest: { b: Tensor; c: [Tensor, Tensor] } };
  const params = (): Params => ({
    w: np.array([1, 2]),
    rest: { b: np.ones([2]), c: [np.ones([2]), lax.complex(np.ones([2]), np.ones([2]))] },
  });
  const apply = (p: Params, x: Tensor) => np.sum(p.w.mul(x).add(p.rest.b).add(p.rest.c[0]));

  test("stands for zeros of a whole subtree", async () => {
    const fn = customVjp(apply, {
      forward: (p: Params, x: Tensor): [Tensor, Tensor] => [apply(p, x), x],
      backward: (x, ct) => [{ w: ct.mul(x), rest: null }, null],
    });
    const [dp, dx] = grad(fn, { argnums: [0, 1] })(params(), np.array([3, 4])) as [Params, Tensor];
    await expectClose(dp.w, [3, 4]);
    await expectClose(dp.rest.b, [0, 0]);
    expect(dp.rest.c[1].dtype).toBe("complex64");
    await expectClose(dx, [0, 0]);
    const inner = customGradient((p: Params, x: Tensor) => [
      apply(p, x),
      (ct: Tensor) => [{ w: null, rest: { b: ct.mul(x), c: [null, null] as const } }, null],
    ]);
    const slopes = grad(inner)(params(), np.array([3, 4])) as Params;
    await expectClose(slopes.rest.b, [3, 4]);
    await expectClose(slopes.w, [0, 0]);
  });

  test("does not let a tensor stand for a subtree", () => {
    const fn = customVjp(apply, {
      forward: (p: Params, x: Tensor): [Tensor, Tensor] => [apply(p, x), x],
      backward: (x, ct) => [{ w: ct.mul(x), rest: x as unknown as Params["rest"] }, null],
    });
    expect(() => grad(fn)(params(), np.array([3, 4]))).toThrow(
      /\[customVjp\] the cotangent of argument 0 has 2 leaves, the argument has 4/,
    );
  });
});
