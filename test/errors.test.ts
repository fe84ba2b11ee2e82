import { describe, expect, test } from "vitest";
import {
  AxisError,
  customVjp,
  DimError,
  DisposedError,
  DTypeError,
  type ErrorCode,
  GradientError,
  grad,
  jit,
  lax,
  Mesh,
  np,
  P,
  random,
  ShapeError,
  ShardwiseError,
  type Tensor,
  TracerError,
  TreeError,
  tree,
  ValueError,
  valueAndGrad,
  vjp,
  vmap,
} from "../src/index.js";
import * as nn from "../src/nn/index.js";
import * as optim from "../src/optim/index.js";

type ErrorClass = new (...args: never[]) => ShardwiseError;

/** What is done, what it throws, and the sentence that helps. */
type Case = readonly [what: string, run: () => unknown, type: ErrorClass, code: ErrorCode, message: RegExp];

/** A value of the wrong type, as JavaScript callers may pass it. */
const wrong = (value: unknown) => value as never;

function check(cases: readonly Case[]): void {
  test.each(cases)("%s", (_, run, type, code, message) => {
    let thrown: unknown;
    try {
      run();
    } catch (error) {
      thrown = error;
    }
    expect(thrown).toBeInstanceOf(type);
    expect(thrown).toBeInstanceOf(ShardwiseError);
    expect(thrown).toMatchObject({ code, name: type.name });
    expect(String(thrown)).toMatch(message);
  });
}

const x = np.ones([2, 3]);
const y = np.ones([4, 5]);

describe("a function that calls others is named before them", () => {
  const mask = np.array([true, false]);
  check([
    [
      "a mask",
      () => np.nanvar(x, 0, { where: mask }),
      ShapeError,
      "shape",
      /^ShapeError: \[nanvar: logicalAnd\] shapes \[2,3\] and \[2\]/,
    ],
    [
      "a loss",
      () => optim.softmaxCrossEntropy(x, y),
      ShapeError,
      "shape",
      /\[softmaxCrossEntropy: \w+\] shapes/,
    ],
    [
      "in a traced function",
      () => jit((v: Tensor) => nn.logSoftmax(v, -1, { where: mask }))(x),
      ShapeError,
      "shape",
      /\[logSoftmax: where\] shapes/,
    ],
    [
      "unless it is its own name",
      () => np.std(x, 0, { where: mask }),
      ShapeError,
      "shape",
      /^ShapeError: \[std\] shapes/,
    ],
    [
      "where no name was given",
      () =>
        lax.full(
          [2],
          wrong(() => 1),
        ),
      DTypeError,
      "dtype",
      /^DTypeError: \[full\] a scalar must be/,
    ],
    ["or the exported one", () => np.delete(x, wrong("q")), ValueError, "value", /^ValueError: \[delete\] /],
    ["an operand", () => lax.exp(wrong("1")), DTypeError, "dtype", /^DTypeError: \[lax\.exp\] an operand/],
  ]);

  test("in the message and in the stack", () => {
    const error = new Map<string, unknown>();
    try {
      np.nanvar(x, 0, { where: mask });
    } catch (thrown) {
      if (thrown instanceof Error) error.set("first line", thrown.stack?.split("\n")[0]);
    }
    expect(error.get("first line")).toContain("[nanvar: logicalAnd] shapes");
  });
});

describe("shapes that do not fit", () => {
  check([
    ["a sum of two shapes", () => x.add(y), ShapeError, "shape", /add.*\[2,\s?3\].*\[4,\s?5\]/],
    [
      "labels with a dim too many",
      () => optim.softmaxCrossEntropyWithIntegerLabels(x, np.ones([2, 1], "int32")),
      ShapeError,
      "shape",
      /labels i32\[2,1\] do not fit logits f32\[2,3\]: use the shape \[2\]/,
    ],
    [
      "labels of another batch",
      () => optim.softmaxCrossEntropyWithIntegerLabels(x, np.ones([3], "int32")),
      ShapeError,
      "shape",
      /labels i32\[3\] do not fit logits f32\[2,3\]: use the shape \[2\]/,
    ],
    ["a matrix product", () => np.matmul(x, y), ShapeError, "shape", /matmul.*3.*4/],
    ["an einsum", () => np.einsum("ij,jk->ik", x, y), ShapeError, "shape", /einsum/],
    ["a reshape", () => x.reshape([4, 2]), ShapeError, "shape", /reshape.*6/],
    ["a reshape with an open dim", () => x.reshape([4, -1]), ShapeError, "shape", /reshape/],
    ["tensors to concatenate", () => np.concatenate([x, y]), ShapeError, "shape", /concatenate/],
    ["tensors to stack", () => np.stack([x, y]), ShapeError, "shape", /stack/],
    ["a broadcast", () => np.broadcastTo(x, [5, 3]), ShapeError, "shape", /broadcastTo/],
    ["a split into parts", () => np.split(x, 2, 1), ShapeError, "shape", /split.*3.*2/],
    ["a negative size", () => np.zeros([-1]), ShapeError, "shape", /zeros.*-1/],
    ["a fraction as size", () => np.zeros([1.5]), ShapeError, "shape", /zeros.*1\.5/],
    ["nested arrays of different lengths", () => np.array([[1, 2], [3]]), ShapeError, "shape", /array/],
    [
      "a slice that is too large",
      () => lax.dynamicSlice(x, [0, 0], [3, 3]),
      ShapeError,
      "shape",
      /dynamicSlice.*\[3,3\]/,
    ],
    [
      "scanned tensors of different lengths",
      () => lax.scan((c: Tensor): [Tensor, null] => [c, null], np.array(0), [np.ones([2]), np.ones([3])]),
      ShapeError,
      "shape",
      /\[scan\] all leaves need dim 0 of the same size, got 0: 2, 1: 3/,
    ],
    [
      "a scan over nothing",
      () => lax.scan((c: Tensor): [Tensor, null] => [c, null], np.array(0), null),
      ShapeError,
      "shape",
      /nothing to scan over: give \{ length \}/,
    ],
    [
      "a carry that changes its shape",
      () =>
        lax.scan((c: Tensor): [Tensor, null] => [np.stack([c, c]), null], np.array(0), null, { length: 2 }),
      ShapeError,
      "shape",
      /\[scan\] the carry must keep its types: leaf 0 comes in as f32\[\] and leaves as f32\[2\]/,
    ],
    [
      "a carry that changes its type",
      () => lax.foriLoop(0, 2, (_, c: Tensor) => c.astype("float32"), np.array(0, "int32")),
      ShapeError,
      "shape",
      /carry must keep its types.*i32\[\].*f32\[\]/,
    ],
    [
      "branches with different results",
      () =>
        lax.cond(
          np.array(true),
          () => np.zeros([2]),
          () => np.zeros([3]),
        ),
      ShapeError,
      "shape",
      /\[cond\] all branches must return the same types: leaf 0 is f32\[3\] in branch 0 and f32\[2\] in branch 1/,
    ],
    [
      "mapped dims of different sizes",
      () => vmap((a: Tensor, b: Tensor) => a.add(b))(np.ones([2]), np.ones([3])),
      ShapeError,
      "shape",
      /argument 0 f32\[2\] has 2 along dim 0\n.*argument 1 f32\[3\] has 3/,
    ],
    [
      "a cond on a vector",
      () =>
        lax.cond(
          np.array([true]),
          () => x,
          () => x,
        ),
      ShapeError,
      "shape",
      /predicate must be a scalar.*all\(\) or any\(\)/,
    ],
  ]);
});

describe("data types that do not fit", () => {
  check([
    [
      "a name that is no type",
      () => np.zeros([2], wrong("float8")),
      DTypeError,
      "dtype",
      /"float8" is not a data type: use "float32"/,
    ],
    [
      "bits of floats",
      () => np.bitwiseAnd(x, x),
      DTypeError,
      "dtype",
      /works on integers and bool, not on f32\[2,3\]/,
    ],
    [
      "a cond on a complex number",
      () =>
        lax.cond(
          lax.complex(x, x).get(0, 0),
          () => x,
          () => x,
        ),
      DTypeError,
      "dtype",
      /\[cond\] the predicate must be real, got Tensor c64\[\]/,
    ],
    [
      "a loop whose condition is a number",
      () =>
        lax.whileLoop(
          (c: Tensor) => c,
          (c: Tensor) => c,
          np.array(1),
        ),
      DTypeError,
      "dtype",
      /condition must return one bool scalar, it returned f32\[\]/,
    ],
    [
      "strict operations on two types",
      () => lax.add(x, x.astype("int32")),
      DTypeError,
      "dtype",
      /same data type/,
    ],
    [
      "a bitcast to a width that no integer has",
      () => lax.bitcastConvertType(x, "float64"),
      DTypeError,
      "dtype",
      /cannot read the bits of float32 as float64: it takes integers and floats of 8 to 32 bits/,
    ],
    ["float indices", () => np.take(x, np.array([0.5])), DTypeError, "dtype", /take/],
  ]);
});

describe("dims and values out of range", () => {
  check([
    [
      "options in the place of dims",
      () => np.sum(x, wrong({ keepdims: true })),
      DimError,
      "dim",
      /\[sum\] a dim is a number, and options come after it, got an object: use an integer from -2 to 1/,
    ],
    [
      "a tensor in the place of options",
      () => np.trapezoid(x, wrong(x)),
      ValueError,
      "value",
      /\[trapezoid\] the options must be an object of x, dx, dim, got Tensor f32\[2,3\]/,
    ],
    [
      "an option by its initials",
      () => optim.adam(wrong({ lr: 0.1 })),
      ValueError,
      "value",
      /unknown option "lr".*did you mean learningRate\?/,
    ],
    [
      "a dim to reduce",
      () => np.sum(x, 2),
      DimError,
      "dim",
      /\[sum\] dim 2 is out of range for a tensor of 2 dims: use an integer from -2 to 1/,
    ],
    [
      "a dim twice",
      () => np.sum(x, [0, -2]),
      DimError,
      "dim",
      /\[sum\] dims \[0,-2\] name a dimension twice/,
    ],
    ["a fraction as dim", () => np.sum(x, 0.5), DimError, "dim", /dim 0\.5/],
    ["a permutation", () => np.transpose(x, [0, 0]), DimError, "dim", /transpose/],
    [
      "a dim of a scalar",
      () => np.sum(np.array(1), 0),
      DimError,
      "dim",
      /tensor of 0 dims: use a tensor with at least one dim/,
    ],
    [
      "a dim to map over",
      () => vmap((v: Tensor) => v, { inAxes: 3 })(x),
      DimError,
      "dim",
      /inAxes 3 is out of range for argument 0 f32\[2,3\]/,
    ],
    ["a dim of size 1 to squeeze", () => np.squeeze(x, 0), ShapeError, "shape", /squeeze/],
    ["an endless range", () => np.arange(0, Number.POSITIVE_INFINITY), ValueError, "value", /does not end/],
    ["nothing to concatenate", () => np.concatenate([]), ValueError, "value", /concatenate/],
    [
      "switchCase without branches",
      () => lax.switch(0, []),
      ValueError,
      "value",
      /needs at least one branch/,
    ],
    [
      "a number that does not fit",
      () => np.array([1], "int32").add(2 ** 40),
      ValueError,
      "value",
      /does not fit into int32/,
    ],
    [
      "an object as operand",
      () => np.add(x, wrong({})),
      ValueError,
      "value",
      /expects tensors or numbers, got an object/,
    ],
  ]);
});

describe("trees that do not fit", () => {
  check([
    [
      "a typed array as an argument",
      () => jit((a: Tensor) => a)(wrong(new Float32Array([1, 2]))),
      TreeError,
      "tree",
      /the leaf at "0" is a Float32Array, not a tensor or number: convert it with np\.array/,
    ],
    [
      "a promise as an argument",
      () => jit((a: Tensor) => a)(wrong(Promise.resolve(x))),
      TreeError,
      "tree",
      /the leaf at "0" is a Promise, not a tensor or number: await it first/,
    ],
    [
      "trees to map together",
      () => tree.map((a: number) => a, { a: 1 }, { b: 1 }),
      TreeError,
      "tree",
      /must have the same tree structure:\n.*\{a: \*\}\n.*\{b: \*\}/,
    ],
    [
      "a carry that changes its structure",
      () =>
        lax.scan(
          (c: [Tensor, Tensor]) => [c[0], null] as never,
          [np.array(0), np.array(0)] as [Tensor, Tensor],
          null,
          { length: 1 },
        ),
      TreeError,
      "tree",
      /\[scan\] the carry and the carry that the body returns must have the same tree structure/,
    ],
    [
      "a body without ys",
      () =>
        lax.scan(
          wrong((c: Tensor) => c),
          np.array(0),
          null,
          { length: 1 },
        ),
      TreeError,
      "tree",
      /the body must return \[carry, y\], it returned one tensor/,
    ],
    [
      "cotangents unlike the results",
      () => vjp((v: Tensor) => [v, v] as const, [x])[1](wrong(x)),
      TreeError,
      "tree",
      /\[vjp\] the results and the cotangents must have the same tree structure/,
    ],
    [
      "inAxes for other arguments",
      // @ts-expect-error one dim too many
      () => vmap((v: Tensor) => v, { inAxes: [0, 0] })(x),
      TreeError,
      "tree",
      /inAxes has 2 entries for 1 arguments/,
    ],
    [
      "argnums that name no argument",
      () => grad((v: Tensor) => np.sum(v), { argnums: 1 })(x),
      TreeError,
      "tree",
      /argnums 1 names no argument: the function was called with 1/,
    ],
    [
      "a date as argument",
      () => jit((v: unknown) => v)(new Date()),
      TreeError,
      "tree",
      /the leaf at "0" is a Date, not a tensor or number: pass it as a static argument or close over it/,
    ],
    ["a result that is no tensor", () => jit(() => new Map())(), TreeError, "tree", /is a Map/],
    [
      "an async function",
      // @ts-expect-error the checker refuses it, too
      () => jit(async (v: Tensor) => v)(x),
      TreeError,
      "tree",
      /the function is async; a function of tensors must return its results, not a promise/,
    ],
    [
      "hasAux without aux",
      () => grad((v: Tensor) => np.sum(v), { hasAux: true })(x),
      TreeError,
      "tree",
      /with hasAux the function must return \[loss, aux\], it returned \*/,
    ],
    [
      "a custom rule without residuals",
      () => {
        const f = customVjp((v: Tensor) => v, { forward: wrong((v: Tensor) => v), backward: () => [null] });
        return grad((v: Tensor) => f(v).sum())(x);
      },
      TreeError,
      "tree",
      /forward must return \[result, residuals\], it returned \*/,
    ],
    [
      "a custom rule with too few cotangents",
      () => {
        const f = customVjp((a: Tensor, b: Tensor) => a.add(b), {
          forward: (a: Tensor, b: Tensor) => [a.add(b), null],
          backward: wrong(() => [null]),
        });
        return grad((v: Tensor) => f(v, v).sum())(x);
      },
      TreeError,
      "tree",
      /one cotangent \(or null\) for each of the 2 arguments/,
    ],
    [
      "branches with different trees",
      () =>
        lax.cond(
          np.array(true),
          () => [x],
          wrong(() => x),
        ),
      TreeError,
      "tree",
      /\[cond\] branch 0's result and branch 1's result/,
    ],
  ]);

  test("a custom rule whose cotangent has another shape", () => {
    const f = customVjp((v: Tensor) => v, {
      forward: (v: Tensor) => [v, null],
      backward: () => [np.zeros([7])],
    });
    expect(() => grad((v: Tensor) => f(v).sum())(x)).toThrow(
      /the cotangent of argument 0 is f32\[7\] but must be f32\[2,3\]/,
    );
  });
});

describe("gradients that do not exist", () => {
  check([
    [
      "of a vector",
      () => grad((v: Tensor) => v)(x),
      GradientError,
      "no-gradient",
      /\[grad\] the function must return one float scalar, it returned f32\[2,3\]: reduce it with sum\(\) or mean\(\), or use vjp/,
    ],
    [
      "of a tree",
      () => valueAndGrad((v: Tensor) => [np.sum(v)])(x),
      GradientError,
      "no-gradient",
      /\[valueAndGrad\].*it returned \[\*\]/,
    ],
    [
      "of an integer result",
      () => grad((v: Tensor) => np.argmax(v))(x),
      GradientError,
      "no-gradient",
      /it returned i32\[\]/,
    ],
    [
      "by integers",
      () => grad((p: { n: Tensor }) => np.sum(p.n).astype("float32"))({ n: np.array([1], "int32") }),
      GradientError,
      "no-gradient",
      /argument 0 at "n" is i32\[1\]; only floats have gradients/,
    ],
    [
      "by a boolean",
      () => grad((flag: boolean) => np.array(flag ? 1 : 2))(true),
      GradientError,
      "no-gradient",
      /argument 0 is boolean true, a static value that has no gradient: choose other argnums/,
    ],
    [
      "of a loop of dynamic length",
      () =>
        grad((v: Tensor) =>
          lax.whileLoop(
            (c: Tensor) => c.lt(9),
            (c: Tensor) => c.mul(2),
            v,
          ),
        )(np.array(1)),
      GradientError,
      "no-gradient",
      /use lax\.scan or lax\.foriLoop/,
    ],
    [
      "with a cotangent of another type",
      () => vjp((v: Tensor) => np.sin(v), [x])[1](np.zeros([3])),
      GradientError,
      "no-gradient",
      /cotangent 0 is f32\[3\] but the result is f32\[2,3\]/,
    ],
  ]);
});

describe("traced values used as plain ones", () => {
  const traced = (use: (t: Tensor) => unknown) => () =>
    jit((t: Tensor) => {
      use(t);
      return t;
    })(np.array(3));
  check([
    [
      "as a number",
      traced((t) => Number(t)),
      TracerError,
      "traced-value",
      /Tensor f32\[\] \(traced\) was used as a JavaScript number: use tensor arithmetic/,
    ],
    [
      "in a comparison",
      traced((t) => wrong(t) > 0),
      TracerError,
      "traced-value",
      /used as a JavaScript number.*lax\.cond/,
    ],
    [
      "in an addition",
      traced((t) => wrong(t) + 1),
      TracerError,
      "traced-value",
      /used as a JavaScript number/,
    ],
    [
      "as an array length",
      traced((t) => Array.from({ length: wrong(t) })),
      TracerError,
      "traced-value",
      /used as a JavaScript number/,
    ],
    [
      "as a size",
      traced((t) => np.zeros([wrong(t)])),
      TracerError,
      "traced-value",
      /a shape holds Tensor f32\[\] \(traced\), but sizes must be known when a function is traced/,
    ],
    [
      "as a new shape",
      traced((t) => x.reshape([wrong(t)])),
      TracerError,
      "traced-value",
      /sizes must be known/,
    ],
    [
      "as a dim",
      traced((t) => np.sum(x, wrong(t))),
      DimError,
      "dim",
      /a dim is a number.*got Tensor f32\[\] \(traced\)/,
    ],
    [
      "with its memory",
      traced((t) => t.storage("test")),
      TracerError,
      "traced-value",
      /placeholder while its function is being traced and has no values yet/,
    ],
  ]);

  test("reading values while tracing is refused when the promise is awaited", async () => {
    const promises: Promise<unknown>[] = [];
    jit((t: Tensor) => {
      promises.push(t.data(), t.js(), t.item());
      return t;
    })(np.array(1));
    for (const promise of promises) await expect(promise).rejects.toThrow(/has no values yet/);
  });

  test("what an async function throws after it was refused does not end the process", async () => {
    const unhandled: unknown[] = [];
    const listen = (reason: unknown) => unhandled.push(reason);
    process.on("unhandledRejection", listen);
    const read = async (a: Tensor) => a.mul(await a.item());
    expect(() => jit(wrong(read))(x)).toThrow(/the function is async/);
    const Reader = nn.module("Reader", () => read);
    expect(() => Reader().init(random.key(0), x)).toThrow(/\[Reader\] is async/);
    await new Promise((resolve) => setTimeout(resolve, 10));
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });

  test("in a text they show their type", () => {
    let text = "";
    jit((t: Tensor) => {
      text = `${t}`;
      return t;
    })(x);
    expect(text).toBe("Tensor f32[2,3] (traced)");
  });

  test("a concrete tensor is no number either", () => {
    expect(() => Number(np.array(2))).toThrow(/await x\.item\(\)/);
  });
});

describe("calls of jit", () => {
  const twice = (t: Tensor) => t.mul(2);

  test("specs that name axes are refused where no mesh has them", () => {
    for (const options of [{ inShardings: P("data") }, { outShardings: [P(["data"])] }]) {
      expect(() => jit(twice, wrong(options))(x)).toThrow(
        '[twice] P("data") names axes, but the call has no mesh: pass one as the option mesh',
      );
    }
    expect(() => jit(twice, { overlap: ["data"] })(x)).toThrow('[twice] overlap "data" names axes');
    const mesh = Mesh.create({ data: 2 });
    expect(jit(twice, { inShardings: P(null) })(jit(twice, { mesh })(x)).shape).toEqual([2, 3]);
  });

  test("specs that do not fit name their option", () => {
    const mesh = Mesh.create({ data: 2 });
    expect(() => jit(twice, wrong({ mesh, inShardings: [P(), P()] }))(x)).toThrow(
      "[twice inShardings] the prefix tree does not fit",
    );
  });

  test("a function without a name is called anonymous", () => {
    expect(() => jit((t: Tensor) => t, { donate: 3 })(x)).toThrow("[anonymous] donate 3 names no argument");
  });
});

describe("methods of tensors", () => {
  test("are named where an inner function found the problem", () => {
    expect(() => x.get(5)).toThrow("[get: index] index 5 is out of range");
    expect(() => x.astype(wrong("float3"))).toThrow('[astype: convert] "float3" is not a data type');
  });
});

describe("values used too late", () => {
  test("a tracer that leaked out of its function", () => {
    const kept: Tensor[] = [];
    jit((t: Tensor) => {
      kept.push(t.mul(2));
      return t;
    })(x);
    const [leaked] = kept;
    const use = () => leaked?.add(1);
    expect(use).toThrow(TracerError);
    expect(use).toThrow(/used after the function that made it had been traced: return it from that function/);
    expect(() => jit((t: Tensor) => (leaked ? t.add(leaked) : t))(x)).toThrow(
      expect.objectContaining({ code: "leaked-tracer" }),
    );
  });

  test("a tracer that leaked into a later function of the same transform", () => {
    let kept: Tensor | undefined;
    const f = (t: Tensor) => {
      const result = kept ? t.add(kept) : t;
      kept = t;
      return np.sum(result);
    };
    grad(f)(x);
    expect(() => grad(f)(x)).toThrow(/leaked|used after the function/);
  });

  test("a tensor after dispose", async () => {
    const value = np.array([1, 2]);
    value.dispose();
    value.dispose();
    await expect(value.data()).rejects.toThrow(DisposedError);
    expect(() => value.add(1)).toThrow(
      /memory was released \(by dispose\(\), using, or as a donated argument\): keep a copy/,
    );
  });

  test("a tensor after its block", () => {
    let outside: Tensor | undefined;
    {
      using value = np.array([1]);
      outside = value;
    }
    expect(() => outside?.add(1)).toThrow(expect.objectContaining({ code: "disposed" }));
  });

  test("an argument after it was donated", async () => {
    const step = jit((v: Tensor) => v.add(1), { donate: 0 });
    const value = np.array([1, 2]);
    expect(await step(value).js()).toEqual([2, 3]);
    expect(() => step(value)).toThrow(DisposedError);
    await expect(value.data()).rejects.toThrow(/donated argument/);
  });

  test("only the donated argument is lost", async () => {
    const step = jit((p: { w: Tensor }, g: Tensor) => ({ w: p.w.sub(g) }), { donate: 0 });
    const [params, gradient] = [{ w: np.array([3]) }, np.array([1])];
    expect(await step(params, gradient).w.js()).toEqual([2]);
    expect(await gradient.js()).toEqual([1]);
    await expect(params.w.data()).rejects.toThrow(DisposedError);
  });
});

describe("axes", () => {
  check([
    [
      "an unknown axis",
      () => vmap((v: Tensor) => lax.psum(v, "j"), { axisName: "i" })(x),
      AxisError,
      "axis",
      /\[psum\] unknown axis "j": the axes here are "i"; call it inside shardMap or vmap/,
    ],
    ["no axis at all", () => lax.axisIndex("i"), AxisError, "axis", /no axis is bound here/],
  ]);
});

test("item of a tensor with several elements says what to use instead", async () => {
  await expect(x.item()).rejects.toThrow(ShapeError);
  await expect(x.item()).rejects.toThrow(/has 6 elements: use data\(\) or js\(\)/);
});

describe("wrong numbers that were taken before", () => {
  const fn = (v: Tensor) => np.sum(v);
  check([
    [
      "lists as operands of lax",
      () => lax.add(wrong([1, 2]), wrong([3, 4])),
      DTypeError,
      "dtype",
      /lax\.add.*a list of 2.*np\.array/,
    ],
    ["an index beyond 32 bits", () => np.take(x, [2 ** 32]), ValueError, "value", /take.*4294967296/],
    ["half an index", () => np.take(x, [0.5]), ValueError, "value", /take.*0\.5/],
    [
      "a sum of 2^35 elements",
      () => np.sum(np.broadcastTo(1, [2 ** 35])),
      ShapeError,
      "shape",
      /34359738368 elements, more than 2\^34/,
    ],
    [
      "a negative norm to clip by",
      () => optim.clipByGlobalNorm(-1),
      ValueError,
      "value",
      /clipByGlobalNorm.*-1/,
    ],
    ["no norm to clip by", () => optim.clipByGlobalNorm(wrong(Number.NaN)), ValueError, "value", /NaN/],
    [
      "a misspelt option of adamw",
      () => optim.adamw(wrong({ learningRate: 1, beta1: 0.5 })),
      ValueError,
      "value",
      /\[adamw\] unknown option "beta1": the options are b1, b2/,
    ],
    [
      "a misspelt option of sgd",
      () => optim.sgd(wrong({ learningRate: 1, Momentum: 1 })),
      ValueError,
      "value",
      /"Momentum"/,
    ],
    [
      "no learning rate",
      () => optim.adam(wrong({})),
      ValueError,
      "value",
      /\[adam\] learningRate must be a finite number or a schedule, got undefined/,
    ],
    [
      "a misspelt option of jit",
      () => jit(fn, wrong({ donateArgnums: 0 })),
      ValueError,
      "value",
      /\[jit\] unknown option "donateArgnums"/,
    ],
    [
      "a misspelt option of grad",
      () => grad(fn, wrong({ argNums: 1 }))(x),
      ValueError,
      "value",
      /\[grad\].*argNums/,
    ],
    [
      "a misspelt option of vmap",
      () => vmap(fn, wrong({ in_axes: 0 })),
      ValueError,
      "value",
      /\[vmap\].*in_axes/,
    ],
    [
      "a misspelt option of a mesh",
      () => Mesh.create({ i: 1 }, wrong({ device: [0] })),
      ValueError,
      "value",
      /Mesh\.create.*device/,
    ],
    [
      "a number for options",
      () => jit(fn, wrong(3)),
      ValueError,
      "value",
      /\[jit\] the options must be an object.*3/,
    ],
  ]);
});
