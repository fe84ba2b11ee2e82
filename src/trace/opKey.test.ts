import { expect, test } from "vitest";
import { np, Tensor } from "../index.js";
import { newLiteral } from "../ir/program.js";
import { opKey } from "./opKey.js";

const scalar = (value: number, dtype: "float32" | "int32" = "float32") =>
  Tensor.literal(newLiteral(value, dtype));
const x = np.zeros([2, 3]);

test("applications of ops have one key only if their programs are equal", () => {
  const keys = [
    opKey("add", [x, x], {}),
    opKey("mul", [x, x], {}),
    opKey("add", [x, np.zeros([3, 2])], {}),
    opKey("add", [x, scalar(0)], {}),
    opKey("add", [x, scalar(-0)], {}),
    opKey("add", [x, scalar(Number.NaN)], {}),
    opKey("add", [x, scalar(Number.POSITIVE_INFINITY)], {}),
    opKey("add", [scalar(0), x], {}),
    opKey("add", [scalar(0, "int32"), scalar(0, "int32")], {}),
    opKey("reduceSum", [x], { dims: [0] }),
    opKey("reduceSum", [x], { dims: [0, 1] }),
    opKey("convert", [x], { dtype: "int32" }),
    opKey("convert", [x], { dtype: "bool" }),
  ];
  expect(new Set(keys).size).toBe(keys.length);
  expect(opKey("add", [np.ones([2, 3]), np.ones([2, 3])], {})).toBe(keys[0]);
});

test("ops that carry programs have no key of their own", () => {
  const body = { inputs: [], eqns: [], outputs: [] };
  expect(opKey("cond", [scalar(0, "int32")], { branches: [body, body] })).toBeUndefined();
});

test("a kept program is not used for another constant", async () => {
  const one = np.ones([1]);
  const signs = await Promise.all([0, -0, 0].map((zero) => np.divide(one, one.mul(zero)).item()));
  expect(signs).toEqual([Infinity, -Infinity, Infinity]);
});
