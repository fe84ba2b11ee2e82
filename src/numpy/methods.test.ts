import { describe, expect, test } from "vitest";
import { expectClose } from "../../test/support/goldens.js";
import { jit, type Tensor, tree } from "../index.js";
import * as np from "./index.js";

const x = np.array([[-1.5, 0.25, 2]]);
const k = np.array([6, 3], "int32");
const flags = np.array([true, false]);

describe("the methods of a tensor", () => {
  test.each([
    ["add", x.add(1), np.add(x, 1)],
    ["sub", x.sub(1), np.subtract(x, 1)],
    ["mul", x.mul(x), np.multiply(x, x)],
    ["div", k.div(2), np.divide(k, 2)],
    ["floorDiv", k.floorDiv(2), np.floorDivide(k, 2)],
    ["mod", x.mod(2), np.mod(x, 2)],
    ["pow", x.pow(2), np.power(x, 2)],
    ["maximum", x.maximum(0), np.maximum(x, 0)],
    ["neg", x.neg(), np.negative(x)],
    ["abs", x.abs(), np.abs(x)],
    ["exp", x.exp(), np.exp(x)],
    ["tanh", x.tanh(), np.tanh(x)],
    ["round", x.round(), np.round(x)],
    ["clip", x.clip(-1, 1), np.clip(x, -1, 1)],
    ["eq", k.eq(3), np.equal(k, 3)],
    ["lt", x.lt(0), np.less(x, 0)],
    ["and", k.and(2), np.bitwiseAnd(k, 2)],
    ["not", flags.not(), np.logicalNot(flags)],
    ["matmul", x.matmul(x.T), np.matmul(x, x.T)],
    ["sum", x.sum(1, { keepdims: true }), np.sum(x, 1, { keepdims: true })],
    ["var", x.var(-1, { ddof: 1 }), np.var(x, -1, { ddof: 1 })],
    ["any", flags.any(), np.any(flags)],
    ["argmax", x.argmax(), np.argmax(x)],
    ["cumsum", x.cumsum(1), np.cumsum(x, 1)],
    ["sort", x.sort(), np.sort(x)],
    ["squeeze", x.squeeze(), np.squeeze(x)],
    ["expandDims", k.expandDims(0), np.expandDims(k, 0)],
    ["astype", x.astype("int32"), np.astype(x, "int32")],
    ["broadcastTo", x.broadcastTo([2, 3]), np.broadcastTo(x, [2, 3])],
    ["mT", x.mT, np.matrixTranspose(x)],
    ["get", x.get(0, np.s(1)), np.index(x, 0, np.s(1))],
    ["take", k.take([1, 0]), np.take(k, [1, 0])],
  ])("%s is the function of the same name", async (_, method, fn) => {
    await expectClose(method, fn);
  });

  test("reshape and transpose take lists and arguments", () => {
    expect(x.reshape(3, -1).shape).toEqual([3, 1]);
    expect(x.reshape([3, -1]).shape).toEqual([3, 1]);
    expect(np.zeros([2, 3, 4]).transpose(1, 0, 2).shape).toEqual([3, 2, 4]);
    expect(np.zeros([2, 3, 4]).transpose([1, 0, 2]).shape).toEqual([3, 2, 4]);
    expect(np.zeros([2, 3, 4]).transpose().shape).toEqual([4, 3, 2]);
    expect(np.array(3).reshape().shape).toEqual([]);
  });

  test("work on placeholders while tracing", async () => {
    const double = jit((y: Tensor) => y.add(y).sum(0));
    await expectClose(double(x), [-3, 0.5, 4]);
  });

  test("are not seen when a tensor is listed or put into a tree", () => {
    const names: string[] = [];
    for (const name in x) names.push(name);
    expect(names).not.toContain("add");
    expect(tree.leaves({ x })).toEqual([x]);
  });
});
