import { jit, lax, Mesh, np, type Tensor, vmap } from "shardwise";
import { createThreadsEngine, type Engine } from "shardwise/engines";
import * as nn from "shardwise/nn";
import * as optim from "shardwise/optim";
import { afterAll, describe, expect, test } from "vitest";
import { createInlineEngine } from "../src/engines/inline/engine.js";
import { createReferenceEngine } from "../src/engines/reference/engine.js";
import { at, range, sizeOf } from "../src/ir/shape.js";
import { Random } from "./compiler/randomProgram.js";

/**
 * What the arithmetic of a program comes to, bit by bit: every op is rounded once and for itself, whoever computes it.
 * On x86 the kernels of worker threads are machine code, elsewhere WebAssembly.
 */

const threads = createThreadsEngine({ numDevices: 1 });
const engines = {
  reference: createReferenceEngine(),
  "kernels on the calling thread": createInlineEngine({ patience: 0 }),
  "worker threads": threads,
};

afterAll(() => threads.close());

type Fn = (...args: Tensor[]) => Tensor;
type Run = (fn: Fn, ...args: Tensor[]) => Promise<Tensor>;

function runOn(engine: Engine): Run {
  const mesh = Mesh.create({}, { engine });
  return async (fn, ...args) => jit(fn, { mesh })(...args);
}

const interpreted = runOn(engines.reference);

/** The ways to compute a function of tensors: op by op, and as one program on each engine. */
const ways: readonly (readonly [string, Run])[] = [
  ["op by op", async (fn, ...args) => fn(...args)],
  ...Object.entries(engines).map(([name, engine]) => [`as one program on ${name}`, runOn(engine)] as const),
];

/** The numbers of a tensor, with the signs of its zeros. */
const numbers = async (x: Tensor): Promise<number[]> => Array.from((await x.data()) as Float32Array);

/** Floats of moderate size with all their digits. */
function draw(seed: number, shape: readonly number[]): Tensor {
  const random = new Random(seed);
  const values = Float32Array.from({ length: sizeOf(shape) }, () => (random.next() - 0.5) * 8);
  return np.array(values).reshape(shape);
}

/** A function of tensors whose shapes broadcast to that of the first, made of ops that IEEE 754 rounds. */
function randomArithmetic(random: Random): Fn {
  const places = range(12).map(() => [random.next(), random.next(), random.next()] as const);
  const kinds: readonly ((x: Tensor, y: Tensor) => Tensor)[] = [
    (x, y) => x.add(y),
    (x, y) => x.sub(y),
    (x, y) => x.mul(y),
    (x, y) => x.div(y),
    (x, y) => x.mul(y).add(x),
    (x, y) => x.sub(y.mul(x)),
    (x, y) => x.mul(x).sub(y.mul(y)),
    (x, y) => np.maximum(x, y),
    (x, y) => np.where(x.lt(y), x, y.neg()),
    (x) => np.sqrt(np.abs(x)),
    (x) => np.divide(1, np.sqrt(np.abs(x))),
    (x) => x.div(3),
    (x) => x.mul(0.1),
    (x) => np.floor(x.div(0.7)),
  ];
  return (...args) => {
    const values = [...args];
    // Later values are likelier, so that chains grow.
    const pick = (p: number) => at(values, Math.floor(Math.sqrt(p) * values.length));
    for (const [kind, x, y] of places)
      values.push(at(kinds, Math.floor(kind * kinds.length))(pick(x), pick(y)));
    return values.reduce((sum, x) => np.where(np.isfinite(x), sum.add(x), sum));
  };
}

/** Functions that no processor computes in one instruction, for arguments between 0 and 1. */
const functions: Readonly<Record<string, Fn>> = {
  exp: np.exp,
  expm1: np.expm1,
  log: np.log,
  log1p: np.log1p,
  tanh: np.tanh,
  sin: np.sin,
  cos: np.cos,
  cbrt: np.cbrt,
  erf: lax.erf,
  erfInv: lax.erfInv,
  logistic: lax.logistic,
  pow: (x) => np.power(x, x),
  atan2: (x) => np.arctan2(x, x.mul(x)),
};

describe.each(ways)("%s", (_, run) => {
  const expectNumbers = async (want: readonly number[], fn: Fn, ...args: Tensor[]) => {
    const got = await numbers(await run(fn, ...args));
    const wrong = want.findIndex((x, i) => !Object.is(x, got[i]));
    expect({ wrong, value: got[wrong] }).toEqual({ wrong: -1, value: want[wrong] });
  };

  test("the floor of a multiple over its divisor is whole", async () => {
    await expectNumbers([1, 2, 3, 4], (x) => np.floor(x.div(41)), np.array([41, 82, 123, 164]));
  });

  test("a number over itself is 1, so that roots and angles at the end of their domain are numbers", async () => {
    const root: Fn = (x) => np.sqrt(np.subtract(1, x.div(10)));
    await expectNumbers([1, 0, 0, 0], root, np.array([0, 10, 10, 10]));
    await expectNumbers([0, 0, 0, 0], (x) => np.arccos(x.div(3)), np.array([3, 3, 3, 3]));
  });

  test("the floor over the largest element is 1 there", async () => {
    await expectNumbers([0, 0, 1, 0], (x) => np.floor(x.div(np.max(x))), np.array([7, 40, 41, 12]));
  });

  test.each([10, 41])("a polynomial schedule of %d steps ends where it should", async (steps) => {
    const schedule = optim.polynomial({ from: 1, to: 0.25, power: 0.5, steps });
    const last = vmap((count: Tensor) => np.asarray(schedule(count)));
    await expectNumbers([0.25, 0.25, 0.25], last, np.array([steps, steps + 1, 100], "int32"));
  });

  test.each([
    ["a number each", [40, 33]],
    ["one number", []],
    ["a number for each row", [40, 1]],
    ["a number for each column", [33]],
  ])("quotients by %s are correctly rounded", async (_, shape) => {
    const random = new Random(shape.length * 41 + (shape[0] ?? 0));
    // Exponents over the whole range, so that quotients overflow and underflow too.
    const number = () =>
      Math.fround((random.chance(0.5) ? 1 : -1) * (1 + random.next()) * 2 ** (random.below(250) - 124));
    const special = [0, -0, Number.POSITIVE_INFINITY, Number.NaN, 2 ** -149, 3.4028234663852886e38];
    const draw = () => (random.chance(0.05) ? (special[random.below(special.length)] ?? 0) : number());
    for (const _ of range(8)) {
      const x = np.array(Float32Array.from({ length: 40 * 33 }, draw)).reshape([40, 33]);
      const y = np
        .array(Float32Array.from({ length: shape.reduce((n, d) => n * d, 1) }, draw))
        .reshape(shape);
      const [a, b] = [await numbers(x), await numbers(np.broadcastTo(y, [40, 33]))];
      await expectNumbers(
        a.map((p, i) => Math.fround(p / (b[i] ?? 0))),
        (v, w) => v.div(w),
        x,
        y,
      );
    }
  });

  test.each([3, 41, 1 / 3, -7, 8, -0.25, 2 ** 126, 2 ** 127, 2 ** -126, 2 ** -127, 2 ** -149, 0, 1e-40])(
    "quotients by the number %d are correctly rounded",
    async (divisor) => {
      const random = new Random(7);
      const x = Float32Array.from(
        { length: 999 },
        () => (random.next() - 0.5) * 2 ** (random.below(240) - 120),
      );
      const want = Array.from(x, (p) => Math.fround(p / Math.fround(divisor)));
      await expectNumbers(want, (v) => v.div(divisor), np.array(x));
    },
  );

  test("a difference of equal products is 0, and so is that of a product and itself stored", async () => {
    const [x, y] = [draw(11, [40, 33]), draw(12, [40, 33])];
    const zeros = range(40 * 33).map(() => 0);
    await expectNumbers(zeros, (a, b) => a.mul(b).sub(b.mul(a)), x, y);
    await expectNumbers(zeros, (a, b, c) => a.mul(b).sub(c), x, y, x.mul(y));
    await expectNumbers(zeros, (a, b, c) => c.add(a.neg().mul(b)), x, y, x.mul(y));
  });

  test("nothing is cancelled that is not finite, and zeros keep their signs", async () => {
    const x = np.array([Number.POSITIVE_INFINITY, Number.NaN, -0, 0, 1]);
    const nan = Number.NaN;
    await expectNumbers([nan, nan, 0, 0, 0], (v) => v.sub(v), x);
    await expectNumbers([nan, nan, nan, nan, 1], (v) => v.div(v), x);
    await expectNumbers([nan, nan, -0, 0, 0], (v) => v.mul(0), x);
    await expectNumbers([Number.POSITIVE_INFINITY, nan, 0, 0, 1], (v) => v.add(0), x);
    await expectNumbers([Number.POSITIVE_INFINITY, nan, -0, 0, 1], (v) => v.sub(0), x);
    await expectNumbers([Number.NEGATIVE_INFINITY, nan, 0, -0, -1], (v) => v.neg(), x);
    await expectNumbers([Number.NEGATIVE_INFINITY, nan, 0, 0, -1], (v) => np.subtract(0, v), x);
    // As in JAX: to one number nothing is added, to two there is.
    await expectNumbers([-0, -0], (v) => np.sum(v, 1), np.array([[-0], [-0]]));
    await expectNumbers([0], (v) => np.sum(v, 1), np.array([[-0, -0]]));
  });

  test("means and variances divide the sum by the number of elements", async () => {
    // Sums of these integers are exact, in whatever order they are added.
    const x = np.array([41, 82, 123, 1, 7, 9, 40, 2, 3, 5, 1, 1]).reshape([4, 3]);
    const thirds = (...sums: number[]) => sums.map((sum) => Math.fround(sum / 3));
    await expectNumbers(thirds(246, 17, 45, 7), (v) => np.mean(v, 1), x);
    await expectNumbers([Math.fround(315 / 12)], (v) => np.mean(v).reshape([1]), x);
    const y = np.array([0, 3, 6, 1, 4, 7]).reshape([2, 3]);
    await expectNumbers([6, 6], (v) => np.var(v, 1), y);
  });

  test("a softmax divides each weight by their sum", async () => {
    const parts: Fn = (x) => {
      const weights = np.exp(x.sub(np.max(x, 1, { keepdims: true })));
      const sum = np.sum(weights, 1, { keepdims: true });
      return np.stack([weights, np.broadcastTo(sum, x.shape), nn.softmax(x, 1), weights.div(sum)]);
    };
    const all = await numbers(await run(parts, draw(13, [40, 33])));
    const size = 40 * 33;
    const part = (i: number) => all.slice(i * size, (i + 1) * size);
    const want = part(0).map((weight, i) => Math.fround(weight / (part(1)[i] ?? 0)));
    expect(part(3)).toEqual(want);
    expect(part(2)).toEqual(want);
  });

  test.each(Object.entries(functions))("%s of float64 has the bits of the interpreter", async (_, fn) => {
    const x = np
      .abs(draw(14, [500]))
      .div(4.5)
      .astype("float64");
    await expectNumbers(await numbers(await interpreted(fn, x)), fn, x);
  });

  test.each([
    ["float32", 12],
    ["bfloat16", 4],
    ["float16", 4],
    ["float64", 4],
  ] as const)("random arithmetic of %s has the bits of the interpreter", async (dtype, count) => {
    for (const seed of range(count)) {
      const fn = randomArithmetic(new Random(1000 + seed));
      const args = [[12, 33], [12, 33], [33], [12, 1], []].map((shape, i) =>
        draw(100 * seed + i, shape).astype(dtype),
      );
      await expectNumbers(await numbers(await interpreted(fn, ...args)), fn, ...args);
    }
  });
});

describe("kernels on the calling thread", () => {
  const [late, early] = [Number.POSITIVE_INFINITY, 0].map((patience) =>
    runOn(createInlineEngine({ patience })),
  );

  test.each(Object.entries(functions))("%s has the same bits interpreted and compiled", async (_, fn) => {
    for (const dtype of ["float32", "bfloat16", "float16", "float64"] as const) {
      const x = np
        .abs(draw(15, [1100]))
        .div(4.5)
        .astype(dtype);
      const [before, after] = await Promise.all(
        [late, early].map(async (run) => run && numbers(await run(fn, x))),
      );
      expect(after).toEqual(before);
    }
  });

  test.each([10, 3000])("what is computed again and again of %d elements keeps its bits", async (size) => {
    const x = draw(16, [size]);
    const fn: Fn = (v) =>
      np
        .tanh(v)
        .mul(np.sum(np.exp(v)))
        .add(np.mean(v.mul(v)));
    const again = jit(fn, { mesh: Mesh.create({}, { engine: createInlineEngine() }) });
    const first = await numbers(again(x));
    for (const _ of range(40)) expect(await numbers(again(x))).toEqual(first);
  });
});
