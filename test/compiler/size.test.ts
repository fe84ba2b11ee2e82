import { expect, test } from "vitest";
import { compileProgram } from "../../src/compiler/compile.js";
import { makeProgram, np, type Tensor } from "../../src/index.js";
import { visits } from "../support/visits.js";

const chain = (n: number) => (x: Tensor) => {
  let y = x;
  for (let i = 0; i < n; i++) y = np.tanh(y);
  return y;
};

test("a long chain compiles into kernels of bounded size, without deep recursion", () => {
  const { steps } = compileProgram(makeProgram(chain(1600))(np.ones([4])), { mesh: { axes: [] } });
  expect(steps.map(({ op }) => op)).toEqual(new Array(4).fill("kernel"));
});

test("a sum of twice as many inputs takes about twice the work to compile", () => {
  const sum = (...xs: Tensor[]) => xs.reduce((a, b) => a.add(b));
  const work = (n: number) => {
    const program = makeProgram(sum)(...Array.from({ length: n }, () => np.ones([4])));
    return visits(() => compileProgram(program, { mesh: { axes: [] } }));
  };
  expect(work(400) / work(200)).toBeLessThan(2.5);
});
