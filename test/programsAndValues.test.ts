import { inspect } from "node:util";
import {
  costAnalysis,
  customJvp,
  disableJit,
  evalShape,
  explainSharding,
  grad,
  jit,
  jvp,
  lax,
  Mesh,
  makeProgram,
  NamedSharding,
  namedScope,
  np,
  P,
  printProgram,
  ShapeDtypeStruct,
  Tensor,
  vmap,
} from "shardwise";
import { describe, expect, test } from "vitest";

const product = (x: Tensor, w: Tensor) => np.tanh(np.matmul(x, w));

describe("a ShapeDtypeStruct", () => {
  const x = ShapeDtypeStruct([4096, 65536], "bfloat16");
  const w = ShapeDtypeStruct([65536, 1024], "bfloat16");

  test("has a type that programs, costs and shardings are told of, however large it is", () => {
    expect(evalShape(product)(x, w)).toEqual({ shape: [4096, 1024], dtype: "bfloat16" });
    expect(makeProgram(product)(x, w).outputs[0]?.type.shape).toEqual([4096, 1024]);
    expect(costAnalysis(product)(x, w).flops).toBeGreaterThan(2 * 4096 * 65536 * 1024 - 1);
    const mesh = Mesh.create({ data: 2 });
    expect(`${explainSharding(product, { mesh, inShardings: [P("data"), P()] })(x, w)}`).toContain("data");
  });

  test("can be split, and what jit would run is told by lower", () => {
    const mesh = Mesh.create({ data: 2 });
    const split = ShapeDtypeStruct([8, 4], "float32", { sharding: new NamedSharding(mesh, P("data")) });
    const lowered = jit((a: Tensor) => np.sum(a)).lower(split);
    expect(lowered.mesh?.axisNames).toEqual(["data"]);
    expect(lowered.program.inputs[0]?.type.shape).toEqual([4, 4]);
    expect(`${lowered}`).toContain("psum");
  });

  test("has no values", () => {
    const small = ShapeDtypeStruct([2], "float32");
    expect(() => np.add(small, 1)).toThrow("is a ShapeDtypeStruct, which has a type and no values");
    expect(() => jit(np.sin)(small)).toThrow("jit(f).lower");
    expect(inspect(small)).toBe("Tensor f32[2]");
  });
});

describe("tensors show their values", () => {
  test("as nested lists with one row below the other", () => {
    expect(inspect(np.array([1, -2.5, 0.1]))).toBe("Tensor f32[3] [1, -2.5, 0.1]");
    expect(
      inspect(
        np.array([
          [1, -20],
          [300, 4],
        ]),
      ),
    ).toBe("Tensor f32[2,2]\n[[  1, -20],\n [300,   4]]");
    expect(inspect(np.array([true, false]))).toBe("Tensor bool[2] [true, false]");
    expect(inspect(np.zeros([2, 1, 2]))).toBe("Tensor f32[2,1,2]\n[[[0, 0]],\n\n [[0, 0]]]");
    expect(inspect(Tensor.scalar(2, "float32"))).toBe("Tensor f32[] 2");
  });

  test("shortened where they are many, and not where there are none", () => {
    const text = inspect(np.arange(4000).reshape([40, 100]));
    expect(text.split("\n")).toHaveLength(8);
    expect(text).toContain("[   0,    1,    2, …,   97,   98,   99],");
    const gone = np.zeros([2]);
    gone.dispose();
    expect(inspect(gone)).toBe("Tensor f32[2] (released)");
    let traced = "";
    jit((x: Tensor) => {
      traced = inspect(x);
      return x;
    })(np.zeros([2]));
    expect(traced).toBe("Tensor f32[2] (traced)");
  });
});

test("without jit functions see values, and numbers as tensors", async () => {
  const seen: string[] = [];
  const double = jit((x: Tensor, by: Tensor) => {
    seen.push(inspect(x));
    return x.mul(by);
  });
  const two = 2 as unknown as Tensor;
  const y = disableJit(() => double(np.array([1, 2]), two));
  expect(await y.js()).toEqual([2, 4]);
  await double(np.array([1, 2]), two).js();
  expect(seen).toEqual(["Tensor f32[2] [1, 2]", "Tensor f32[2] (traced)"]);
});

test("named scopes are the places of equations", () => {
  const program = makeProgram((x: Tensor) =>
    namedScope("outer", () => namedScope("inner", () => np.sin(x)).mul(2)),
  )(np.zeros([2]));
  expect(program.eqns.map(({ source }) => source?.module)).toEqual(["outer/inner", "outer"]);
  expect(printProgram(program)).toContain("sin");
});

describe("customJvp", () => {
  // A rule that is not the derivative shows which one is used.
  const odd = customJvp(
    (x: Tensor, y: Tensor) => np.sin(x).mul(y),
    ([x, y], [dx, dy]) => [np.sin(x).mul(y), dx.mul(3).add(dy.mul(x))],
  );
  const [x, y] = [np.array([1, 2]), np.array([5, 7])];

  test("is used forward and, transposed, backward", async () => {
    const [value, tangent] = jvp(odd, [x, y], [np.array([1, 1]), np.array([10, 100])]);
    expect(await np.allclose(value, np.sin(x).mul(y)).item()).toBe(1);
    expect(await tangent.js()).toEqual([13, 203]);
    const [dx, dy] = grad((a: Tensor, b: Tensor) => np.sum(odd(a, b)), { argnums: [0, 1] })(x, y);
    expect([await dx.js(), await dy.js()]).toEqual([
      [3, 3],
      [1, 2],
    ]);
  });

  test("in batches, compiled, and in loops", async () => {
    const slope = (a: Tensor) => grad((b: Tensor) => odd(b, np.array(1)))(a);
    expect(await jit(vmap(slope))(x).js()).toEqual([3, 3]);
    const loop = (a: Tensor) => lax.foriLoop(0, 2, (_, c: Tensor) => odd(c, np.array(1)), a);
    expect(await grad(loop)(np.array(1)).item()).toBe(9);
  });

  test("second derivatives differentiate the rule", async () => {
    const cube = customJvp(
      (a: Tensor) => a.mul(a).mul(a),
      ([a], [t]) => [a.mul(a).mul(a), t.mul(a.mul(a)).mul(3)],
    );
    expect(await grad(grad(cube))(np.array(2)).item()).toBe(12);
  });
});
