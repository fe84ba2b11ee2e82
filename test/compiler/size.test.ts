import { expect, test } from "vitest";
import { compileProgram } from "../../src/compiler/compile.js";
import { makeProgram, np, type Tensor } from "../../src/index.js";

/** How long a program takes to compile, in milliseconds, and what its steps are. */
function compiled(fn: (...args: Tensor[]) => Tensor, ...args: readonly Tensor[]) {
  const program = makeProgram(fn)(...args);
  const begin = performance.now();
  const { steps } = compileProgram(program, { mesh: { axes: [] } });
  return { ms: performance.now() - begin, steps };
}

const chain = (n: number) => (x: Tensor) => {
  let y = x;
  for (let i = 0; i < n; i++) y = np.tanh(y);
  return y;
};

test("a long chain compiles into kernels of bounded size, without deep recursion", () => {
  const { steps } = compiled(chain(1600), np.ones([4]));
  expect(steps.map(({ op }) => op)).toEqual(new Array(4).fill("kernel"));
});

test("a sum of a thousand inputs takes about twice as long as one of five hundred", () => {
  const sum = (...xs: Tensor[]) => xs.reduce((a, b) => a.add(b));
  const inputs = (n: number) => Array.from({ length: n }, () => np.ones([4]));
  compiled(sum, ...inputs(100));
  const [half, whole] = [compiled(sum, ...inputs(500)).ms, compiled(sum, ...inputs(1000)).ms];
  // It was eight times, and 35 s; a busy machine measures badly.
  expect(whole).toBeLessThan(Math.max(5 * half, 5000));
});
