import { describe, expect, test } from "vitest";
import { isNear } from "../../../test/support/near.js";
import { tripled } from "../../../test/support/opCases.js";
import { asTensor } from "../../../test/support/vmapChecks.js";
import { customVjp, makeProgram, Tensor } from "../../index.js";
import { DimError, ShapeError, TreeError, ValueError } from "../../ir/errors.js";
import { forEachEqn } from "../../ir/program.js";
import { at, range, type TensorType, tensorType } from "../../ir/shape.js";
import { printProgram } from "../../ir/text/print.js";
import { verify } from "../../ir/verify.js";
import { lookUpAxes } from "../../trace/axes.js";
import { bind, bind1, traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { switchCase } from "../control/cond.js";
import { grad } from "../derivatives/grad.js";
import { vmap } from "./vmap.js";

function numbers(shape: readonly number[], values: readonly number[]): Tensor {
  return Tensor.fromHost(tensorType("float32", shape), new Float32Array(values));
}

const square = (x: Tensor): Tensor => ops.mul(x, x);
const total = (x: Tensor): Tensor => ops.reduceSum(x, range(x.ndim));

describe("vmap", () => {
  const matrix = numbers([2, 3], [1, 2, 3, 4, 5, 6]);

  test("maps the first dim of every argument", async () => {
    expect(await vmap(total)(matrix).js()).toEqual([6, 15]);
    expect(await vmap((x: Tensor, y: Tensor) => total(ops.mul(x, y)))(matrix, matrix).js()).toEqual([14, 77]);
  });

  test("maps the dims that inAxes gives, also from the end and in trees", async () => {
    expect(await vmap(total, { inAxes: 1 })(matrix).js()).toEqual([5, 7, 9]);
    expect(await vmap(total, { inAxes: -1 })(matrix).js()).toEqual([5, 7, 9]);
    const weights = numbers([3], [1, 10, 100]);
    const scaled = vmap(({ x, w }: { x: Tensor; w: Tensor }, k: Tensor) => ops.mul(ops.mul(x, w), k), {
      inAxes: [{ x: 0, w: null }, null],
    });
    expect(await scaled({ x: matrix, w: weights }, numbers([3], [1, 1, 2])).js()).toEqual([
      [1, 20, 600],
      [4, 50, 1200],
    ]);
  });

  test("puts the mapped dim of results where outAxes says", async () => {
    const f = vmap((x: Tensor) => ({ same: x, constant: ops.full([2], 7, "float32"), one: total(x) }), {
      outAxes: { same: 1, constant: -1, one: 0 },
    });
    const { same, constant, one } = f(matrix);
    expect(await same.js()).toEqual([
      [1, 4],
      [2, 5],
      [3, 6],
    ]);
    expect(await constant.js()).toEqual([
      [7, 7],
      [7, 7],
    ]);
    expect(await one.js()).toEqual([6, 15]);
  });

  test("leaves results alone that are the same for all, where outAxes is null", async () => {
    const f = vmap((x: Tensor, y: Tensor): [Tensor, Tensor] => [ops.add(x, y), square(y)], {
      inAxes: [0, null],
      outAxes: [0, null],
    });
    const [, same] = f(numbers([2], [1, 2]), numbers([], [5]));
    expect(await same.js()).toBe(25);
  });

  test("nests, and reads values from outside", async () => {
    const outer = numbers([3], [1, 2, 3]);
    const products = vmap((x: Tensor) => vmap((y: Tensor) => ops.mul(ops.mul(x, y), total(outer)))(outer))(
      outer,
    );
    expect(await products.js()).toEqual([
      [6, 12, 18],
      [12, 24, 36],
      [18, 36, 54],
    ]);
  });

  test("nests with names: collectives say which dim they mean", async () => {
    const sum = (name: string) => (x: Tensor) => ops.psum(x, lookUpAxes(name, "test"));
    const nested = (name: string) =>
      vmap(vmap(sum(name), { axisName: "columns" }), { axisName: "rows" })(matrix);
    expect(await nested("rows").js()).toEqual([
      [5, 7, 9],
      [5, 7, 9],
    ]);
    expect(await nested("columns").js()).toEqual([
      [6, 6, 6],
      [15, 15, 15],
    ]);
  });

  test("hides an outer axis of the same name", async () => {
    const sum = (x: Tensor) => ops.psum(x, lookUpAxes("i", "test"));
    const both = vmap((row: Tensor) => ops.add(vmap(sum, { axisName: "i" })(row), sum(row)), {
      axisName: "i",
    });
    // The sum of the row, and that of the column.
    expect(await both(matrix).js()).toEqual([
      [6 + 5, 6 + 7, 6 + 9],
      [15 + 5, 15 + 7, 15 + 9],
    ]);
    const product = vmap(
      (row: Tensor) => vmap((e: Tensor) => sum(ops.mul(e, ops.reduceSum(row, [0]))), { axisName: "i" })(row),
      { axisName: "i" },
    );
    expect(await product(matrix).js()).toEqual([
      [36, 36, 36],
      [225, 225, 225],
    ]);
  });

  test("takes the size of the dim from axisSize when nothing is mapped", async () => {
    const index = vmap(() => ops.axisIndex(lookUpAxes("rows", "test")), { axisSize: 3, axisName: "rows" });
    expect(await index().js()).toEqual([0, 1, 2]);
  });

  test("computes once what is the same for all", () => {
    const program = makeProgram(
      vmap((x: Tensor, w: Tensor) => ops.mul(x, ops.exp(w)), { inAxes: [0, null] }),
    );
    const exps: TensorType[] = [];
    forEachEqn(verify(program(numbers([2], [1, 2]), numbers([], [1]))), (eqn) => {
      if (eqn.op === "exp") exps.push(...eqn.outs.map(({ type }) => type));
    });
    expect(exps.map(({ shape }) => shape)).toEqual([[]]);
  });

  test("keeps one matrix product when a batch meets shared weights", () => {
    const dot = (x: Tensor, w: Tensor) => ops.dotGeneral(x, w, { lhsContract: [0], rhsContract: [0] });
    const program = makeProgram(vmap(dot, { inAxes: [0, null] }))(
      matrix,
      numbers([3, 2], [1, 2, 3, 4, 5, 6]),
    );
    expect(printProgram(program)).toContain("dotGeneral");
    expect(program.eqns.map(({ op }) => op)).toEqual(["dotGeneral"]);
  });

  test("works on an empty batch", async () => {
    expect(await vmap(total)(numbers([0, 3], [])).js()).toEqual([]);
  });
});

describe("vmap and gradients", () => {
  const factor = numbers([], [3]);
  const own = (x: Tensor, w: Tensor): [Tensor, Tensor] => {
    const [y, e] = bind("customVjp", [factor, x, w], tripled);
    return [asTensor(y), asTensor(e)];
  };
  const xs = numbers([2, 3], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
  const w = numbers([3], [1, 2, 3]);
  const loss = (x: Tensor, weights: Tensor): Tensor => {
    const [y, e] = own(x, weights);
    return ops.add(total(square(y)), total(e));
  };
  const row = (i: number) => ops.reshape(ops.sliceDim(xs, 0, i, i + 1), [3]);

  test("the gradient by an argument that a custom rule shares is the sum over the batch", async () => {
    const mapped = (x: Tensor, weights: Tensor) => total(vmap(loss, { inAxes: [0, null] })(x, weights));
    const [dx, dw] = grad(mapped, { argnums: [0, 1] })(xs, w);
    const each = [0, 1].map((i) => grad(loss, { argnums: [0, 1] })(row(i), w));
    const expectedW = ops.add(at(at(each, 0), 1), at(at(each, 1), 1));
    expect(close(await dw.data(), await expectedW.data())).toBe(true);
    const expectedX = ops.concatenate(
      each.map(([g]) => g),
      0,
    );
    expect(close(await dx.data(), await expectedX.data())).toBe(true);
  });

  test("a result of a custom rule that all share is differentiated once", async () => {
    const shared = (weights: Tensor) => {
      const [y, e] = vmap(own, { inAxes: [0, null] })(xs, weights);
      return ops.add(total(y), total(ops.sliceDim(e, 0, 0, 1)));
    };
    const expected = (weights: Tensor) => {
      const [first, second] = [own(row(0), weights), own(row(1), weights)];
      return ops.add(ops.add(total(first[0]), total(second[0])), total(first[1]));
    };
    const [actual, wanted] = [grad(shared)(w), grad(expected)(w)];
    expect(close(await actual.data(), await wanted.data())).toBe(true);
  });

  test("a cotangent that a custom rule gives whatever comes is counted for every element", async () => {
    const fixed = customVjp((x: Tensor, v: Tensor) => ops.mul(x, v), {
      forward: (x: Tensor, v: Tensor) => [ops.mul(x, v), null],
      backward: (_: null, ct: Tensor) => [ct, ops.ones(w.type)],
    });
    const mapped = (v: Tensor) => total(vmap(fixed, { inAxes: [0, null] })(xs, v));
    expect(await grad(mapped)(w).js()).toEqual([2, 2, 2]);
  });

  test("of a choice reach the chosen branch alone, the first and the last for indices outside", async () => {
    const choose = (i: Tensor, x: Tensor) =>
      switchCase(
        i,
        [(v: Tensor) => ops.mul(v, 2), (v: Tensor) => ops.sqrt(v), (v: Tensor) => ops.mul(v, 3)],
        x,
      );
    const indices = Tensor.fromHost(tensorType("int32", [5]), new Int32Array([-4, 0, 1, 2, 9]));
    const sum = (x: Tensor) => total(vmap(choose)(indices, x));
    expect(await grad(sum)(numbers([5], [0, 0, 4, 0, 0])).js()).toEqual([2, 2, 0.25, 3, 3]);
  });

  test("of a choice are not spoilt by the first branch where the second is chosen", async () => {
    const choose = (i: Tensor, x: Tensor) =>
      switchCase(i, [(v: Tensor) => ops.sqrt(v), (v: Tensor) => ops.mul(v, 2)], x);
    const indices = Tensor.fromHost(tensorType("int32", [2]), new Int32Array([1, 0]));
    const sum = (x: Tensor) => total(vmap(choose)(indices, x));
    expect(await grad(sum)(numbers([2], [0, 4])).js()).toEqual([2, 0.25]);
  });

  test("a custom rule that talks over the mapped axis runs for every element", async () => {
    const axes = [{ name: "rows", size: 2 }];
    const vector = tensorType("float32", [3]);
    const psum = traceFlat(([v]) => [ops.psum(asTensor(v), axes)], [vector]).program;
    const identity = traceFlat(([ct]) => [asTensor(ct)], [vector]).program;
    const rule = { body: psum, forward: psum, backward: identity, numCaptures: 0, numResiduals: 0 };
    const options = { axisName: "rows", axisSize: 2, outAxes: null };
    const sum = (v: Tensor) => total(ops.mul(bind1("customVjp", [v], rule), w));
    const shared = grad((v: Tensor) => vmap(sum, { ...options, inAxes: null })(v))(w);
    expect(await shared.js()).toEqual([2, 4, 6]);
    const each = grad((v: Tensor) => vmap(sum, options)(v))(xs);
    expect(await each.js()).toEqual([
      [1, 2, 3],
      [1, 2, 3],
    ]);
  });

  test("per-element gradients equal gradients element by element", async () => {
    const actual = vmap(grad(loss), { inAxes: [0, null] })(xs, w);
    const expected = ops.concatenate([grad(loss)(row(0), w), grad(loss)(row(1), w)], 0);
    expect(close(await actual.data(), await expected.data())).toBe(true);
  });
});

function close(a: ArrayLike<number>, b: ArrayLike<number>): boolean {
  return a.length === b.length && range(a.length).every((i) => isNear(Number(a[i]), Number(b[i]), 1e-4));
}

describe("vmap refuses", () => {
  const x = numbers([2, 3], [1, 2, 3, 4, 5, 6]);
  const y = numbers([5], [1, 2, 3, 4, 5]);
  const first = (a: unknown, _b?: unknown) => a;

  test("sizes that disagree, with the path of every argument", () => {
    const call = () => vmap(first)({ p: x }, y);
    expect(call).toThrow(ShapeError);
    expect(call).toThrow(
      /argument 0\/p f32\[2,3\] has 2 along dim 0\n {2}argument 1 f32\[5\] has 5 along dim 0/,
    );
    expect(() => vmap(first, { axisSize: 4 })(x)).toThrow(/axisSize is 4/);
  });

  test("dims that an argument does not have", () => {
    expect(() => vmap(first, { inAxes: 2 })(x)).toThrow(DimError);
    expect(() => vmap(first, { inAxes: 2 })(x)).toThrow(
      "[vmap] inAxes 2 is out of range for argument 0 f32[2,3] (2 dims): use a number from -2 to 1, or null",
    );
    expect(() => vmap(first)(3)).toThrow(/argument 0 f32\[\] \(0 dims\): use null for it/);
    expect(() => vmap(total, { outAxes: 1 })(x)).toThrow(
      /outAxes 1 is out of range for the result \(1 dims\)/,
    );
    // @ts-expect-error a dim is a number
    expect(() => vmap(first, { inAxes: "rows" })(x)).toThrow(ValueError);
  });

  test("axes trees that do not fit", () => {
    expect(() => vmap(first, { inAxes: [0] })(x, x)).toThrow(TreeError);
    expect(() => vmap(first, { inAxes: [0] })(x, x)).toThrow(/inAxes has 1 entries for 2 arguments/);
    expect(() => vmap(first, { inAxes: [{ q: 0 }] })({ p: x })).toThrow(TreeError);
    expect(() => vmap(first, { outAxes: [0, 0] })(x)).toThrow(TreeError);
  });

  test("to map nothing", () => {
    expect(() => vmap(first, { inAxes: null })(x)).toThrow(/no argument is mapped/);
    expect(() => vmap(first, { axisSize: -1 })(x)).toThrow(
      /axisSize must be an integer of at least 0, got -1/,
    );
  });

  test("to drop the dim of a result that differs within the batch", () => {
    const call = () => vmap((a: Tensor) => ({ out: [a] }), { outAxes: null })(x);
    expect(call).toThrow(ValueError);
    expect(call).toThrow(/outAxes is null for result out\/0, but its value differs/);
  });
});
