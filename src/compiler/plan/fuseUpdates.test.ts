import { describe, expect, test } from "vitest";
import { expectTreeClose } from "../../../test/support/goldens.js";
import { createThreadsEngine } from "../../engines/index.js";
import { jit, lax, Mesh, np, random, type Tensor } from "../../index.js";
import { tensorType } from "../../ir/shape.js";
import { inlineCalls } from "../../spmd/partition/passes/inlineCalls.js";
import { traceFlat } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import { compileProgram } from "../compile.js";

const [rows, inputs, outputs, groups] = [900, 48, 64, 3];
type Fn = (weights: Tensor, x: Tensor, y: Tensor, sizes: Tensor) => readonly Tensor[];

/** The gradients of matrices for groups of rows. */
const gradients = (x: Tensor, y: Tensor, sizes: Tensor) => ops.raggedDot(x, y, sizes, "sums");
const update: Fn = (weights, x, y, sizes) => [weights.sub(gradients(x, y, sizes).mul(0.01))];

const types = [
  tensorType("float32", [groups, inputs, outputs]),
  tensorType("float32", [rows, inputs]),
  tensorType("float32", [rows, outputs]),
  tensorType("int32", [groups]),
];

/** The steps of a program whose weights are donated, by their ops. */
function stepsOf(fn: Fn, donated = [true]): string[] {
  const { program } = traceFlat(
    ([weights, x, y, sizes]) => fn(weights as Tensor, x as Tensor, y as Tensor, sizes as Tensor),
    types,
  );
  const { steps, infos } = compileProgram(inlineCalls(program), {
    mesh: { axes: [] },
    donated,
    vectorBits: 512,
  });
  return steps.map((step) => `${step.op} ${infos[step.info]?.ops.join(" ")}`);
}

describe("products of groups and the updates that follow them", () => {
  test("are one step, without memory for the product", () => {
    expect(stepsOf(update)).toEqual(["gemm raggedDot mul sub"]);
    expect(stepsOf((w, x, y, s) => [gradients(x, y, s).mul(0.5).add(w)])).toEqual(["gemm raggedDot mul add"]);
    expect(stepsOf((w, x, y, s) => [w.sub(gradients(x, y, s))])).toEqual(["gemm raggedDot sub"]);
  });

  test("are one step in the place of the update if the weights are read before it", () => {
    const found = stepsOf((w, x, y, s) => {
      const product = gradients(x, y, s);
      const other = lax.raggedDot(x, w, s);
      return [w.sub(product.mul(0.01)), other];
    });
    expect(found.toSorted()).toEqual(["gemm raggedDot", "gemm raggedDot mul sub"]);
  });

  const others: readonly [string, Fn][] = [
    [
      "the gradients are a result",
      (w, x, y, s) => {
        const product = gradients(x, y, s);
        return [w.sub(product.mul(0.01)), product];
      },
    ],
    [
      "the weights are read afterwards",
      (w, x, y, s) => {
        const updated = w.sub(gradients(x, y, s).mul(0.01));
        return [updated, lax.raggedDot(x.add(np.sum(updated)), w, s)];
      },
    ],
    ["the weights are a result", (w, x, y, s) => [...update(w, x, y, s), w]],
    ["the product comes first", (w, x, y, s) => [gradients(x, y, s).sub(w)]],
    ["a step depends on the values", (w, x, y, s) => [w.sub(gradients(x, y, s).mul(np.sum(w)))]],
  ];

  test.each(others)("stay two steps if %s", (_, fn) => {
    expect(stepsOf(fn)).not.toContainEqual(expect.stringMatching(/gemm raggedDot (mul )?(sub|add)/));
  });

  test("stay two steps if the weights must not be overwritten", () => {
    expect(stepsOf(update, [false])).toHaveLength(2);
  });

  test.each([1, 2])("compute what two steps do on %i threads", async (threadsPerDevice) => {
    const engine = createThreadsEngine({ numDevices: 1, threadsPerDevice });
    const mesh = Mesh.create({ data: 1 }, { engine });
    const [w, x, y] = [0, 1, 2].map((i) => random.normal(random.key(i), types[i]?.shape ?? [])) as [
      Tensor,
      Tensor,
      Tensor,
    ];
    const two = jit(update, { mesh });
    const one = jit(update, { mesh, donate: 0 });
    const both = (list: readonly number[]) => {
      const sizes = np.array(list, "int32");
      return [one(w.add(0), x, y, sizes)[0] as Tensor, two(w, x, y, sizes)[0] as Tensor] as const;
    };
    // To the bit, unless two steps add up a sum in several blocks.
    for (const list of [
      [300, 300, 300],
      [0, 0, 0],
      [1, 0, 383],
      [0, 40, 50],
    ]) {
      const [found, wanted] = await Promise.all(both(list).map((tensor) => tensor.data()));
      expect(found).toEqual(wanted);
    }
    for (const list of [
      [900, 0, 0],
      [385, 500, 15],
    ]) {
      const [found, wanted] = both(list);
      await expectTreeClose(found, wanted, { rtol: 1e-5, atol: 1e-6 });
    }
    await engine.close();
  });
});
