import { expect, test } from "vitest";
import { at } from "../../ir/shape.js";
import { hostTensor, numbersOf } from "./hostTensor.js";
import { onEveryLane } from "./rule.js";

const [one, two] = [1, 2].map((value) => hostTensor("float32", [], [value]));

test("lanes that hold the very same operands are computed once, others each for itself", () => {
  if (!one || !two) throw new Error("two tensors");
  let calls = 0;
  const rule = onEveryLane<"add">((ins) => {
    calls++;
    const sum = ins.reduce((total, x) => total + at(numbersOf(x), 0), 0);
    return [hostTensor("float32", [], [sum])];
  });
  const context = { mesh: { axes: [] }, devices: [0, 1, 2], run: () => [], limitLoop: () => () => {} };
  const run = (...ins: (typeof one)[][]) => {
    calls = 0;
    const [sums = []] = rule(ins, {}, [one.type], context);
    return [calls, sums.map((x) => at(numbersOf(x), 0))];
  };
  expect(run([one, one, one], [two, two, two])).toEqual([1, [3, 3, 3]]);
  expect(run([one, one, one], [one, two, two])).toEqual([3, [2, 3, 3]]);
  expect(run([one, one, two], [two, two, two])).toEqual([3, [3, 3, 4]]);
});
