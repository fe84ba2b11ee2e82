import { expect, test } from "vitest";
import type { Program } from "../ir/program.js";
import { at, tensorType } from "../ir/shape.js";
import { inline, inlineOnce, traceFlat } from "./builder.js";
import * as ops from "./ops.js";
import { Tensor } from "./tensor.js";

const type = tensorType("float32", [3]);
const { program } = traceFlat(
  (args) => {
    const [x, y] = [at(args, 0), at(args, 1)];
    const product = ops.mul(x, y);
    return [ops.exp(product), product, ops.add(x, 1)];
  },
  [type, type],
);

const opsOf = ({ eqns }: Program) => eqns.map(({ op }) => op);

test("a program that is recorded once keeps its values", () => {
  const whole = traceFlat((args) => inlineOnce(program, args.map(ops.neg)), [type, type]).program;
  expect(opsOf(whole)).toEqual(["neg", "neg", ...opsOf(program)]);
  expect(whole.outputs).toEqual(program.outputs);
  expect(at(whole.eqns, 2).ins).toEqual(whole.eqns.slice(0, 2).flatMap(({ outs }) => outs));
  expect(at(whole.eqns, 2).source).toBe(at(program.eqns, 0).source);
});

test("a program that is recorded again has other values", () => {
  const whole = traceFlat((args) => inline(program, inline(program, args).slice(1)), [type, type]).program;
  const values = whole.eqns.flatMap(({ outs }) => outs.map(({ id }) => id));
  expect(new Set(values).size).toBe(2 * program.eqns.length);
  expect(opsOf(whole)).toEqual([...opsOf(program), ...opsOf(program)]);
});

test("operands of types other than the inputs are inferred anew", () => {
  const scalar = tensorType("float32", []);
  const { program: scalars } = traceFlat((args) => args.map(ops.exp), [scalar]);
  const literal = traceFlat(() => inlineOnce(scalars, [Tensor.scalar(2, "float32")]), []).program;
  expect(at(literal.eqns, 0).outs).not.toEqual(at(scalars.eqns, 0).outs);
  const longer = traceFlat(
    (args) => inline(program, args),
    [tensorType("float32", [5]), tensorType("float32", [5])],
  );
  expect(longer.program.outputs.map((output) => output.type.shape)).toEqual([[5], [5], [5]]);
});
