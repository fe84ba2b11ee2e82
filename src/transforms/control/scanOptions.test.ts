import { grad, jit, lax, makeProgram, np, type Tensor } from "shardwise";
import { describe, expect, test } from "vitest";

const xs = np.sin(np.arange(14, "float32")).reshape([7, 2]);
const step = (carry: Tensor, x: Tensor): [Tensor, Tensor] => {
  const next = np.tanh(carry.mul(0.9).add(x));
  return [next, next.mul(x)];
};

describe("unroll", () => {
  test.each([
    [1, false],
    [2, false],
    [3, true],
    [7, false],
    [100, true],
    [true, true],
  ] as const)("of %s iterations (reversed: %s) changes nothing", async (unroll, reverse) => {
    const run = (options: lax.ScanOptions) => {
      const both = (x: Tensor) => lax.scan(step, np.zeros([2]), x, { reverse, ...options });
      const loss = (x: Tensor) => {
        const [last, ys] = both(x);
        return np.sum(last).add(np.sum(ys.mul(x)));
      };
      return jit((x: Tensor) => [...both(x), grad(loss)(x)])(xs);
    };
    const [want, got] = [run({}), run({ unroll })];
    for (const [i, tensor] of got.entries()) {
      expect(await np.allclose(tensor, want[i] ?? xs).item()).toBe(1);
      expect(tensor.shape).toEqual(want[i]?.shape);
    }
  });

  test("stands for fewer runs of the loop", () => {
    const program = makeProgram((x: Tensor) => lax.scan(step, np.zeros([2]), x, { unroll: 3 }))(xs);
    const lengths = program.eqns.flatMap((eqn) => (eqn.op === "scan" ? [eqn.params.length] : []));
    expect(lengths).toEqual([2, 1]);
    expect(() => lax.scan(step, np.zeros([2]), xs, { unroll: 0 })).toThrow(
      /unroll must be an integer of at least 1 or true or false, got 0/,
    );
  });
});

test("associativeScan goes along any dim, either way", async () => {
  const sums = lax.associativeScan((a: Tensor, b: Tensor) => a.add(b), xs, { dim: 1 });
  expect(await np.allclose(sums, np.cumsum(xs, 1)).item()).toBe(1);
  const back = lax.associativeScan((a: Tensor, b: Tensor) => a.add(b), xs, { dim: -2, reverse: true });
  expect(await np.allclose(back, np.flip(np.cumsum(np.flip(xs, 0), 0), 0)).item()).toBe(1);
});
