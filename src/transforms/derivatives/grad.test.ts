import { describe, expect, test } from "vitest";
import { expectClose } from "../../../test/support/goldens.js";
import {
  customGradient,
  customVjp,
  evalShape,
  grad,
  jit,
  jvp,
  makeProgram,
  printProgram,
  remat,
  simplify,
  type Tensor,
  valueAndGrad,
  verify,
  vjp,
} from "../../index.js";
import { forEachEqn, type Program } from "../../ir/program.js";
import * as np from "../../numpy/index.js";
import * as ops from "../../trace/ops.js";
import { vmap } from "../batching/vmap.js";
import { cond } from "../control/cond.js";
import { scan } from "../control/scan.js";
import { foriLoop, whileLoop } from "../control/whileLoop.js";
import { vjpProgram } from "./grad.js";

const opsIn = (program: Program): string[] => {
  const names: string[] = [];
  forEachEqn(program, (eqn) => names.push(eqn.op));
  return names;
};

describe("grad", () => {
  test("gives a tree like the first argument", async () => {
    const loss = ({ w, b }: { w: Tensor; b: Tensor }, x: Tensor) =>
      np.sum(np.square(np.add(np.matmul(x, w), b)));
    const params = { w: np.array([[1, 2]]), b: np.array([0.5, -1]) };
    const gradients = grad(loss)(params, np.array([[3]]));
    // The result is (3.5, 5), so the gradients are 2 · (3.5, 5), times x for w.
    await expectClose(gradients.w, [21, 30]);
    await expectClose(gradients.b, [7, 10]);
  });

  test("of a gradient is the second derivative, to any order", async () => {
    const cube = (x: Tensor) => x.mul(x).mul(x);
    await expectClose(grad(cube)(np.array(2)), 12);
    await expectClose(grad(grad(cube))(np.array(2)), 12);
    await expectClose(grad(grad(grad(cube)))(np.array(2)), 6);
    await expectClose(grad(grad(grad(grad(cube))))(np.array(2)), 0);
  });

  test("takes plain numbers as arguments", async () => {
    const product = (x: Tensor, y: Tensor) => np.multiply(x, y);
    const gradient = grad(product as unknown as (x: number, y: number) => Tensor, { argnums: [0, 1] });
    const [dx, dy] = gradient(3, 4) as unknown as [Tensor, Tensor];
    await expectClose(dx, 4);
    await expectClose(dy, 3);
  });

  test("differentiates by the arguments that argnums names, in that order", async () => {
    const f = (x: Tensor, y: Tensor, z: Tensor) => x.mul(y).add(z.mul(5));
    const [x, y, z] = [np.array(2), np.array(3), np.array(4)];
    await expectClose(grad(f, { argnums: 1 })(x, y, z), 2);
    const [dz, dx] = grad(f, { argnums: [2, 0] })(x, y, z);
    await expectClose(dz, 5);
    await expectClose(dx, 3);
  });

  test("leaves aux alone and hands it back", async () => {
    const f = (x: Tensor) =>
      [np.sum(np.square(x)), { twice: x.mul(2), steps: np.array(3, "int32") }] as const;
    const x = np.array([1, 2]);
    await expectClose(grad(f, { hasAux: true })(x), [2, 4]);
    const [[value, aux], gradient] = valueAndGrad(f, { hasAux: true })(x);
    await expectClose(value, 5);
    await expectClose(aux.twice, [2, 4]);
    await expectClose(aux.steps, 3);
    await expectClose(gradient, [2, 4]);
  });

  test("is zero for arguments that the result does not depend on", async () => {
    const unused = grad((_: Tensor, y: Tensor) => np.sum(y));
    await expectClose(unused(np.array([1, 2]), np.array([3])), [0, 0]);
    const stopped = grad((x: Tensor) => np.sum(ops.stopGradient(x).mul(x)));
    await expectClose(stopped(np.array([2, 3])), [2, 3]);
  });

  test("of a tensor the function closes over is not taken", async () => {
    const scale = np.array([2, 3]);
    await expectClose(grad((x: Tensor) => np.sum(x.mul(scale)))(np.array([1, 1])), [2, 3]);
  });

  test("keeps the data type of its argument", () => {
    const gradient = grad((x: Tensor) => np.sum(x.mul(np.array([2, 2]))))(np.array([1, 2], "bfloat16"));
    expect(gradient.dtype).toBe("bfloat16");
  });

  test("flows through integer computations beside the floats", async () => {
    const f = (x: Tensor) => np.sum(np.take(x, np.argsort(x)).mul(np.arange(3).astype("float32")));
    await expectClose(grad(f)(np.array([5, 1, 3])), [2, 0, 1]);
  });
});

describe("vjp", () => {
  test("pulls cotangents of all results back to all arguments", async () => {
    const f = (x: Tensor, y: Tensor) => ({ product: x.mul(y), sum: x.add(y) });
    const [out, pullback] = vjp(f, [np.array([1, 2]), np.array([3, 4])]);
    await expectClose(out.product, [3, 8]);
    const [dx, dy] = pullback({ product: np.array([1, 10]), sum: np.array([100, 1000]) });
    await expectClose(dx, [103, 1040]);
    await expectClose(dy, [101, 1020]);
  });

  test("can be called with several cotangents", async () => {
    const [, pullback] = vjp((x: Tensor) => np.sin(x), [np.array([0, Math.PI])]);
    await expectClose(pullback(np.array([1, 0]))[0], [1, 0]);
    await expectClose(pullback(np.array([0, 1]))[0], [0, -1]);
  });

  test("hands aux back", async () => {
    const f = (x: Tensor) => [x.mul(x), x.add(1)] as const;
    const [value, pullback, aux] = vjp(f, [np.array([3])], { hasAux: true });
    await expectClose(value, [9]);
    await expectClose(aux, [4]);
    await expectClose(pullback(np.array([1]))[0], [6]);
  });

  test("splits into programs that share only residuals", () => {
    const program = makeProgram((x: Tensor) => np.sum(np.sin(x).mul(x)))(np.zeros([4]));
    const { forward, backward, residuals } = vjpProgram(program);
    expect(opsIn(verify(forward))).toContain("cos");
    expect(opsIn(verify(backward))).not.toContain("cos");
    expect(backward.inputs.length).toBe(residuals.length + 1);
  });
});

describe("jvp", () => {
  test("pushes tangents forward", async () => {
    const f = (x: Tensor, y: Tensor) => np.sin(x).mul(y);
    const [value, tangent] = jvp(
      f,
      [np.array([1, 2]), np.array([3, 4])],
      [np.array([1, 0]), np.array([0, 1])],
    );
    await expectClose(value, [Math.sin(1) * 3, Math.sin(2) * 4]);
    await expectClose(tangent, [Math.cos(1) * 3, Math.sin(2)]);
  });

  test("agrees with the pullback: ⟨u, J v⟩ = ⟨Jᵀ u, v⟩", async () => {
    const f = (x: Tensor) => np.cumsum(np.tanh(np.matmul(x, x.T)), 0);
    const x = np.array([
      [0.1, 0.2],
      [0.3, -0.4],
    ]);
    const [u, v] = [
      np.array([
        [1, 2],
        [3, 4],
      ]),
      np.array([
        [-1, 0.5],
        [0.25, 2],
      ]),
    ];
    const [, tangent] = jvp(f, [x], [v]);
    const [gradient] = vjp(f, [x])[1](u);
    await expectClose(np.sum(tangent.mul(u)), await np.sum(gradient.mul(v)).item());
  });
});

describe("the gradient of a scan", () => {
  const length = 5;
  const recurrence = (w: Tensor, x: Tensor, zs: Tensor) => {
    const step = (c: Tensor, z: Tensor): [Tensor, Tensor] => {
      const next = np.sin(np.matmul(c, np.tanh(w))).add(z);
      return [next, np.sum(next)];
    };
    const [last, ys] = scan(step, x, zs);
    return np.sum(last).add(np.sum(ys.mul(ys)));
  };
  const unrolled = (w: Tensor, x: Tensor, zs: Tensor) => {
    let c = x;
    let total = np.array(0);
    for (let i = 0; i < length; i++) {
      c = np.sin(np.matmul(c, np.tanh(w))).add(np.take(zs, i, 0));
      total = total.add(np.square(np.sum(c)));
    }
    return np.sum(c).add(total);
  };
  const w = np.array([
    [0.5, -0.3],
    [0.2, 0.8],
  ]);
  const x = np.array([0.1, 0.7]);
  const zs = np.linspace(-1, 1, 10).reshape([length, 2]);

  test("is that of the unrolled loop, by carry, constants and slices", async () => {
    const argnums = [0, 1, 2] as const;
    const got = grad(recurrence, { argnums })(w, x, zs);
    const want = grad(unrolled, { argnums })(w, x, zs);
    for (const i of argnums) await expectClose(got[i], await dataOf(want[i]), { rtol: 1e-5, atol: 1e-6 });
  });

  test("stacks what differs from step to step, once a step, and nothing else", () => {
    const program = verify(makeProgram(grad(recurrence))(w, x, zs));
    const scans = program.eqns.filter((eqn) => eqn.op === "scan");
    expect(scans.length).toBe(2);
    const [forward, backward] = scans;
    // The forward scan stacks the ys and two residuals: the carry that came in, and the cosine.
    const stacked = forward?.outs.slice(1).map(({ type }) => type.shape) ?? [];
    expect(stacked).toEqual([[length], [length, 2], [length, 2]]);
    // tanh(w) is the same in all steps: the backward scan takes it as a constant, not as a stack.
    const shapes = backward?.ins.map(({ type }) => type.shape) ?? [];
    expect(shapes).not.toContainEqual([length, 2, 2]);
    expect(shapes).toContainEqual([2, 2]);
    expect(backward?.op === "scan" && backward.params.reverse).toBe(true);
  });

  test("has residuals that grow with the length and not faster", () => {
    const bytes = (n: number) => {
      const program = makeProgram(grad(recurrence))(w, x, np.zeros([n, 2]));
      return program.eqns
        .filter((eqn) => eqn.op === "scan")
        .flatMap((eqn) => eqn.outs)
        .reduce((total, { type }) => total + type.shape.reduce((a, b) => a * b, 1), 0);
    };
    expect(bytes(40) - bytes(20)).toBe(2 * (bytes(20) - bytes(10)));
  });

  test("runs the other way for a reversed scan", async () => {
    const f = (xs: Tensor) =>
      scan((c: Tensor, v: Tensor): [Tensor, null] => [c.mul(0.5).add(v), null], np.array(0), xs, {
        reverse: true,
      })[0];
    await expectClose(grad(f)(np.array([1, 1, 1])), [1, 0.5, 0.25]);
  });

  test("exists for a scan without steps", async () => {
    const f = (c: Tensor) =>
      scan((s: Tensor, v: Tensor): [Tensor, Tensor] => [s.mul(v), s], c, np.zeros([0]))[0];
    await expectClose(grad(f)(np.array(3)), 1);
  });

  test("of a gradient works too", async () => {
    const f = (v: Tensor) => foriLoop(0, 3, (_, c: Tensor) => c.mul(c), v);
    await expectClose(grad(f)(np.array(1.1)), 8 * 1.1 ** 7);
    await expectClose(grad(grad(f))(np.array(1.1)), 56 * 1.1 ** 6, { rtol: 1e-5 });
  });

  test("can be taken inside the body", async () => {
    const f = (v: Tensor) =>
      scan((c: Tensor): [Tensor, null] => [grad((u: Tensor) => u.mul(u).mul(u))(c), null], v, null, {
        length: 2,
      })[0];
    // 3 (3 v²)² = 27 v⁴
    await expectClose(f(np.array(2)), 432);
    await expectClose(grad(f)(np.array(2)), 27 * 4 * 8);
  });

  test("can be mapped, and mapping can be inside", async () => {
    const inner = (c: Tensor, v: Tensor) => np.sin(c).mul(v);
    const f = (xs: Tensor, vs: Tensor) => {
      const step = (c: Tensor): [Tensor, null] => [vmap(inner)(c, vs), null];
      return np.sum(scan(step, xs, null, { length: 2 })[0]);
    };
    const single = (c: Tensor, v: Tensor) => inner(inner(c, v), v);
    const [xs, vs] = [np.array([0.1, 0.2, 0.3]), np.array([1, 2, 3])];
    const want = await dataOf(vmap(grad(single))(xs, vs));
    await expectClose(grad(f)(xs, vs), want);
    await expectClose(jit(grad(f))(xs, vs), want);
    await expectClose(vmap(grad((a: Tensor, b: Tensor) => f(a.reshape([1]), b.reshape([1]))))(xs, vs), want);
  });
});

describe("the gradient of a choice", () => {
  const f = (x: Tensor, w: Tensor) =>
    cond(
      np.sum(x).gt(0),
      (v: Tensor) => np.sin(v).mul(w),
      (v: Tensor) => v.div(w).mul(v),
      x,
    );

  test("is that of the branch that is taken, also by what the branches close over", async () => {
    const g = grad((x: Tensor, w: Tensor) => np.sum(f(x, w)), { argnums: [0, 1] });
    const [dx, dw] = g(np.array([1, 2]), np.array([3, 4]));
    await expectClose(dx, [Math.cos(1) * 3, Math.cos(2) * 4]);
    await expectClose(dw, [Math.sin(1), Math.sin(2)]);
    const [ex, ew] = g(np.array([-1, -2]), np.array([4, 5]));
    await expectClose(ex, [-0.5, -0.8]);
    await expectClose(ew, [-1 / 16, -4 / 25]);
  });

  test("computes one branch only, forward and backward", () => {
    const program = verify(
      makeProgram(grad((x: Tensor, w: Tensor) => np.sum(f(x, w))))(np.zeros([2]), np.ones([2])),
    );
    expect(program.eqns.filter((eqn) => eqn.op === "cond").length).toBe(2);
    expect(program.eqns.map((eqn) => eqn.op)).not.toContain("sin");
  });

  test("has finite second derivatives when it is mapped", async () => {
    const second = vmap(grad((x: Tensor) => np.sum(grad((v: Tensor) => np.sum(f(v, np.array(2))))(x))));
    await expectClose(second(np.array([1, -1])), [-2 * Math.sin(1), 1]);
  });
});

describe("loops", () => {
  test("of a known length are differentiated", async () => {
    const power = (x: Tensor) =>
      foriLoop(2, 5, (i, c: Tensor) => c.mul(x).mul(i.astype("float32")), np.array(1));
    await expectClose(power(np.array(2)), 8 * 24);
    await expectClose(grad(power)(np.array(2)), 3 * 4 * 24);
  });

  test("of a dynamic length are not, and say so", () => {
    const f = (x: Tensor) =>
      whileLoop(
        (c: Tensor) => c.lt(10),
        (c: Tensor) => c.mul(x),
        x,
      );
    expect(() => grad(f)(np.array(2))).toThrow(/while: .*use lax\.scan or lax\.foriLoop with fixed bounds/);
  });
});

describe("custom rules", () => {
  test("stand in for the derivative", async () => {
    const clipped = customVjp((x: Tensor) => x.mul(3), {
      forward: (x: Tensor) => [x.mul(3), null],
      backward: (_: null, ct: Tensor) => [np.clip(ct, -1, 1)],
    });
    await expectClose(clipped(np.array(2)), 6);
    await expectClose(grad((x: Tensor) => clipped(x).mul(10))(np.array(2)), 1);
  });

  test("are given what forward keeps, and may give null for zeros", async () => {
    const f = customVjp((x: Tensor, y: Tensor) => x.mul(y), {
      forward: (x: Tensor, y: Tensor): [Tensor, { y: Tensor }] => [x.mul(y), { y }],
      backward: ({ y }, ct) => [ct.mul(y).mul(100), null],
    });
    const [dx, dy] = grad((x: Tensor, y: Tensor) => f(x, y), { argnums: [0, 1] })(np.array(2), np.array(3));
    await expectClose(dx, 300);
    await expectClose(dy, 0);
  });

  test("skip integer arguments", async () => {
    const f = customVjp((x: Tensor, i: Tensor) => np.take(x, i), {
      forward: (x: Tensor, i: Tensor): [Tensor, Tensor] => [np.take(x, i), i],
      backward: (i, ct) => [np.multiply(np.equal(np.arange(3), i), ct.mul(2)), null],
    });
    await expectClose(grad((x: Tensor) => f(x, np.array(1, "int32")))(np.array([1, 2, 3])), [0, 2, 0]);
  });

  test("are differentiated themselves for second derivatives", async () => {
    const f = customVjp((x: Tensor) => np.sin(x), {
      forward: (x: Tensor): [Tensor, Tensor] => [np.sin(x), x],
      backward: (x, ct) => [ct.mul(x).mul(x)],
    });
    await expectClose(grad(grad(f))(np.array(3)), 6);
  });

  test("work inside jit, scan, vmap and remat", async () => {
    const f = customVjp((x: Tensor) => np.sin(x), {
      forward: (x: Tensor): [Tensor, Tensor] => [np.sin(x), x],
      backward: (x, ct) => [ct.mul(np.cos(x)).mul(2)],
    });
    const g = (x: Tensor) =>
      scan((c: Tensor): [Tensor, null] => [remat(f)(c), null], x, null, { length: 1 })[0];
    await expectClose(jit(vmap(grad(g)))(np.array([1, 2])), [2 * Math.cos(1), 2 * Math.cos(2)]);
  });

  test("refuse to be differentiated by what the function closes over", () => {
    const f = (x: Tensor) =>
      customVjp((y: Tensor) => y.mul(x), {
        forward: (y: Tensor) => [y.mul(x), null],
        backward: (_: null, ct: Tensor) => [ct.mul(x)],
      })(np.array(1));
    expect(() => grad(f)(np.array(3))).toThrow(
      /\[grad\] .*customVjp, customJvp.* closes over a f32\[\].*pass the value as an argument/,
    );
  });

  test("can be written as a function that returns its own pullback", async () => {
    const f = customGradient((x: Tensor) => {
      const y = np.exp(x);
      return [y, (ct: Tensor) => [ct.mul(y).mul(5)]];
    });
    await expectClose(f(np.array(1)), Math.E);
    await expectClose(grad(f)(np.array(1)), 5 * Math.E);
    await expectClose(jit(vmap(grad(f)))(np.array([0, 1])), [5, 5 * Math.E]);
  });
});

describe("evalShape and makeProgram", () => {
  test("tell the types of results without computing them", () => {
    const f = (x: Tensor) => ({ y: np.matmul(x, x.T), index: np.argmax(x) });
    expect(evalShape(f)(np.zeros([3, 2]))).toEqual({
      y: { dtype: "float32", shape: [3, 3] },
      index: { dtype: "int32", shape: [] },
    });
  });

  test("print gradients, mapped functions and loops as one program", () => {
    const program = makeProgram(vmap(grad((x: Tensor) => np.sum(np.sin(x)))))(np.zeros([2, 3]));
    expect(printProgram(simplify(verify(program)))).toBe(
      ["(%0:f32[2,3]) {", "  %1:f32[2,3] = cos %0", "  return %1", "}"].join("\n"),
    );
  });
});

async function dataOf(tensor: Tensor): Promise<number[]> {
  return Array.from(await tensor.data());
}

test("where two are equal, each gets exactly half of the gradient of the larger", async () => {
  const gradients = grad((a: Tensor, b: Tensor) => np.maximum(a, b).add(np.minimum(a, b).mul(3)), {
    argnums: [0, 1],
  })(np.array(2), np.array(2));
  expect(await Promise.all(gradients.map((gradient) => gradient.item()))).toEqual([2, 2]);
  expect(await grad((a: Tensor) => np.maximum(a, np.array(2)))(np.array(2)).item()).toBe(0.5);
});

test("a custom rule's way back reads all that it closes over of a surrounding trace", async () => {
  const ruled = (a: Tensor, b: Tensor, x: Tensor) =>
    customVjp((v: Tensor) => v.mul(a), {
      forward: (v: Tensor) => [v.mul(a), null],
      backward: (_: null, ct: Tensor) => [ct.mul(a).add(b)],
    })(x);
  const gradient = grad(ruled, { argnums: 2 })(np.array(2), np.array(3), np.array(7));
  await expectClose(gradient, 5);
});
