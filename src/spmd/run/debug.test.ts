import { expect, test } from "vitest";
import { debug, grad, jit, np, printProgram, type Tensor } from "../../index.js";

test("passes are shown in order, with the lines that equations come from, until it is ended", () => {
  const seen: { pass: string; stage: string; text: string }[] = [];
  const stop = debug.onPass((pass, program, stage) => {
    seen.push({ pass, stage, text: printProgram(program, { sources: true }) });
  });
  const f = (x: Tensor) => np.sum(np.tanh(x));
  jit(grad(f)).lower(np.ones([3]));
  stop();
  const traced = seen.find(({ text }) => text.includes("tanh"));
  expect(traced?.stage).toBe("traced");
  expect(traced?.text).toMatch(/tanh %\d+ {2}\/\/ .*debug\.test\.ts:9:\d+/);
  const stages = [...new Set(seen.map(({ stage }) => stage))];
  expect(stages).toEqual(["traced", "partitioned"]);
  const count = seen.length;
  jit(grad(f)).lower(np.ones([4]));
  expect(seen.length).toBe(count);
  expect(() => debug.onPass(3 as never)).toThrow("[debug.onPass] listener must be a function");
});
