import { expect, test } from "vitest";
import { compileProgram } from "../../src/compiler/compile.js";
import { makeProgram, np, type Tensor } from "../../src/index.js";

const chain = (n: number) => (x: Tensor) => {
  let y = x;
  for (let i = 0; i < n; i++) y = np.tanh(y);
  return y;
};

test("a long chain compiles into kernels of bounded size, without deep recursion", () => {
  const { steps } = compileProgram(makeProgram(chain(1600))(np.ones([4])), { mesh: { axes: [] } });
  expect(steps.map(({ op }) => op)).toEqual(new Array(4).fill("kernel"));
});

/** The processor's time that a function takes in milliseconds, at best; that of other processes is not among it. */
function cost(fn: () => void, numTimes: number): number {
  const times = Array.from({ length: numTimes }, () => {
    const begin = process.cpuUsage();
    fn();
    const { user, system } = process.cpuUsage(begin);
    return (user + system) / 1000;
  });
  return Math.min(...times);
}

test("a sum of four times as many inputs takes about four times the work to compile", () => {
  const sum = (...xs: Tensor[]) => xs.reduce((a, b) => a.add(b));
  const compiling = (n: number) => {
    const program = makeProgram(sum)(...Array.from({ length: n }, () => np.ones([4])));
    return () => void compileProgram(program, { mesh: { axes: [] } });
  };
  compiling(100)();
  const [quarter, whole] = [cost(compiling(250), 3), cost(compiling(1000), 2)];
  // It was sixty times, and 35 s; what is quick enough may be as uneven as it likes.
  expect(whole).toBeLessThan(Math.max(12 * quarter, 1000));
});
