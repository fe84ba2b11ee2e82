import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import { createReferenceEngine } from "../../engines/reference/engine.js";
import {
  DisposedError,
  grad,
  jit,
  Mesh,
  np,
  pureCallback,
  ShapeDtypeStruct,
  type Tensor,
  vmap,
} from "../../index.js";

describe("jit", () => {
  /** A function that counts how often it is traced. */
  function counted<A extends readonly unknown[], R>(fn: (...args: A) => R) {
    const calls = { count: 0 };
    return [
      calls,
      (...args: A): R => {
        calls.count++;
        return fn(...args);
      },
    ] as const;
  }

  test("traces once for every combination of shapes and data types", async () => {
    const [calls, fn] = counted((x: Tensor) => x.mul(2));
    const compiled = jit(fn);
    await expectClose(compiled(np.array([1, 2])), [2, 4]);
    await expectClose(compiled(np.array([3, 4])), [6, 8]);
    expect(calls.count).toBe(1);
    compiled(np.array([1, 2, 3]));
    compiled(np.array([1, 2], "int32"));
    expect(calls.count).toBe(3);
    compiled(np.array([5, 6]));
    expect(calls.count).toBe(3);
  });

  test("traces again for another tree, not for another order of keys", () => {
    const [calls, fn] = counted((p: Record<string, Tensor>) => Object.values(p).reduce((a, b) => a.add(b)));
    const compiled = jit(fn);
    const [a, b] = [np.array(1), np.array(2)];
    compiled({ a, b });
    compiled({ b, a });
    expect(calls.count).toBe(1);
    compiled({ a, c: b });
    expect(calls.count).toBe(2);
  });

  test("tells static arguments apart by value, objects by identity", async () => {
    const [calls, fn] = counted((x: Tensor, how: string, config: { n: number }) =>
      how === "add" ? x.add(config.n) : x.mul(config.n),
    );
    const compiled = jit(fn, { staticArgnums: [1, 2] });
    const config = { n: 3 };
    await expectClose(compiled(np.array(2), "add", config), 5);
    await expectClose(compiled(np.array(2), "mul", config), 6);
    await expectClose(compiled(np.array(4), "mul", config), 12);
    expect(calls.count).toBe(2);
    compiled(np.array(2), "mul", { n: 3 });
    expect(calls.count).toBe(3);
  });

  test("keeps what it closes over as it was when it was traced", async () => {
    let scale = np.array(2);
    const compiled = jit((x: Tensor) => x.mul(scale));
    await expectClose(compiled(np.array(5)), 10);
    scale = np.array(3);
    await expectClose(compiled(np.array(5)), 10);
  });

  test("inside another function does not keep what belongs to that function", async () => {
    const outer = (x: Tensor, y: Tensor) => {
      const inner = jit((v: Tensor) => v.mul(y));
      return np.sum(inner(x));
    };
    await expectClose(grad(outer, { argnums: 1 })(np.array([1, 2]), np.array(3)), 3);
    const shared = jit((v: Tensor, w: Tensor) => v.mul(w));
    const twice = (x: Tensor) => np.sum(shared(x, shared(x, x)));
    await expectClose(grad(twice)(np.array([2])), [12]);
    await expectClose(vmap(grad((x: Tensor) => shared(x, x)))(np.array([1, 2])), [2, 4]);
  });

  test("returns results that do not share memory with arguments or with each other", async () => {
    const x = np.array([1, 2]);
    const [same, again, constant] = jit((v: Tensor) => [v, v, np.ones([2])] as const)(x);
    x.dispose();
    await expectClose(same, [1, 2]);
    same.dispose();
    await expectClose(again, [1, 2]);
    await expectClose(constant, [1, 1]);
  });

  test("takes and returns trees, numbers and null", async () => {
    const compiled = jit((p: { a: number; b: null; c: [Tensor] }) => ({
      sum: np.add(p.a as unknown as Tensor, p.c[0]),
      nothing: p.b,
      five: 5,
    }));
    const out = compiled({ a: 1, b: null, c: [np.array([1, 2])] });
    await expectClose(out.sum, [2, 3]);
    expect(out.nothing).toBeNull();
    await expectClose(out.five as unknown as Tensor, 5);
  });

  test("gives the results of running op by op", async () => {
    const f = (x: Tensor, w: Tensor) => np.sum(np.tanh(np.matmul(x, w)).mul(np.sin(x)));
    const [x, w] = [np.linspace(-1, 1, 9).reshape([3, 3]), np.linspace(1, 0, 9).reshape([3, 3])];
    await expectClose(jit(f)(x, w), await f(x, w).item());
    await expectClose(jit(grad(f))(x, w), Array.from(await grad(f)(x, w).data()));
  });

  test("refuses to donate a tensor that is another argument too, and takes nothing", async () => {
    const add = (p: { w: Tensor }, x: Tensor) => p.w.add(x);
    const step = jit(add, { donate: 0 });
    const afterStatic = jit((_: string, p: { w: Tensor }, x: Tensor) => add(p, x), {
      staticArgnums: 0,
      donate: 1,
    });
    // One lies on the calling thread, the other where programs run.
    for (const w of [np.array([1, 2]), jit((x: Tensor) => x.add(1))(np.array([0, 1]))]) {
      expect(() => step({ w }, w)).toThrow(
        /argument 0\/w is donated, but the same tensor of f32\[2\] is also argument 1/,
      );
      expect(() => afterStatic("s", { w }, w)).toThrow(/argument 1\/w is donated, .* is also argument 2/);
      expect(() => jit((x: Tensor) => x.add(w), { donate: 0 })(w)).toThrow(/is also captured 0/);
      const both = jit((a: Tensor, b: Tensor) => a.add(b), { donate: [0, 1] });
      expect(() => both(w, w)).toThrow(/argument 0 is donated, .* is also argument 1/);
      await expectClose(jit(add)({ w }, w), [2, 4]);
      await expectClose(step({ w }, np.array([1, 1])), [2, 3]);
      expect(() => step({ w }, np.array([1, 1]))).toThrow(/was released/);
    }
  });

  test("takes donated arguments of a call that fails, and no others", async () => {
    const fail = () => {
      throw new Error("on purpose");
    };
    const mesh = Mesh.create({ x: 1 }, { engine: createReferenceEngine() });
    const step = jit(
      (a: Tensor, b: Tensor) => pureCallback(fail, ShapeDtypeStruct([2], "float32"), [a]).add(b),
      { donate: 0, mesh },
    );
    const here = jit((x: Tensor) => x.add(0), { mesh });
    const [a, b] = [here(np.array([1, 2])), here(np.array([3, 4]))];
    await expect((async () => step(a, b).data())()).rejects.toThrow(/on purpose/);
    await expect(a.data()).rejects.toThrow(DisposedError);
    await expectClose(b, [3, 4]);
    a.dispose();
  });

  test("runs what was lowered before, without tracing it again", async () => {
    const [calls, fn] = counted((x: Tensor) => x.mul(2));
    const compiled = jit(fn, { donate: 0 });
    const lowered = compiled.lower(ShapeDtypeStruct([2], "float32"));
    expect([calls.count, lowered.donated]).toEqual([1, [true]]);
    await expectClose(compiled(np.array([1, 2])), [2, 4]);
    expect(`${compiled.lower(np.array([1, 2]))}`).toBe(`${lowered}`);
    await expectClose(compiled(np.array([3, 4])), [6, 8]);
    expect(calls.count).toBe(1);
    compiled.lower(ShapeDtypeStruct([3], "float32"));
    expect(calls.count).toBe(2);
  });

  test("forgets nothing when the function throws", async () => {
    let fail = true;
    const compiled = jit((x: Tensor) => {
      if (fail) throw new Error("not yet");
      return x.add(1);
    });
    expect(() => compiled(np.array(1))).toThrow("not yet");
    fail = false;
    await expectClose(compiled(np.array(1)), 2);
  });
});
