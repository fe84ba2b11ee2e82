import { jit, Mesh, np, type Tensor, vmap } from "shardwise";
import { createThreadsEngine } from "shardwise/engines";
import * as optim from "shardwise/optim";
import { afterAll, describe, expect, test } from "vitest";
import { createInlineEngine } from "../src/engines/inline/engine.js";
import { createReferenceEngine } from "../src/engines/reference/engine.js";
import { range } from "../src/ir/shape.js";
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

/** The ways to compute a function of tensors: op by op, and as one program on each engine. */
const ways: readonly (readonly [string, Run])[] = [
  ["op by op", async (fn, ...args) => fn(...args)],
  ...Object.entries(engines).map(([name, engine]) => {
    const mesh = Mesh.create({}, { engine });
    const run: Run = async (fn, ...args) => jit(fn, { mesh })(...args);
    return [`as one program on ${name}`, run] as const;
  }),
];

/** The numbers of a tensor, with the signs of its zeros. */
const numbers = async (x: Tensor): Promise<number[]> => Array.from((await x.data()) as Float32Array);

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
});
