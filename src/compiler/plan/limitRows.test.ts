import { describe, expect, test } from "vitest";
import { expectTreeClose } from "../../../test/support/goldens.js";
import { createThreadsEngine, simulateDevices } from "../../engines/index.js";
import { grad, jit, lax, Mesh, np, random, type Tensor } from "../../index.js";
import { tensorType } from "../../ir/shape.js";
import * as nn from "../../nn/index.js";
import { inlineCalls } from "../../spmd/partition/passes/inlineCalls.js";
import { traceFlat } from "../../trace/builder.js";
import { compileProgram } from "../compile.js";
import type { Step } from "../steps.js";

const [rows, width, inner, groups] = [64, 48, 64, 3];
type Fn = (x: Tensor, up: Tensor, down: Tensor, sizes: Tensor) => readonly Tensor[];

/** An MLP for each group of rows. */
const hidden = (x: Tensor, up: Tensor, sizes: Tensor) => nn.silu(lax.raggedDot(x, up, sizes));
const experts: Fn = (x, up, down, sizes) => [lax.raggedDot(hidden(x, up, sizes), down, sizes)];
const gradients: Fn = (x, up, down, sizes) => {
  const loss = (a: readonly Tensor[]) =>
    np.sum(np.square(experts(a[0] as Tensor, a[1] as Tensor, a[2] as Tensor, sizes)[0] as Tensor));
  return grad(loss)([x, up, down]);
};

const types = [
  tensorType("float32", [rows, width]),
  tensorType("float32", [groups, width, inner]),
  tensorType("float32", [groups, inner, width]),
  tensorType("int32", [groups]),
];

/** What each kernel and product of a program does with the rows after the last group. */
function limitsOf(fn: Fn): string[] {
  const { program } = traceFlat(
    ([x, up, down, sizes]) => fn(x as Tensor, up as Tensor, down as Tensor, sizes as Tensor),
    types,
  );
  const { steps, infos } = compileProgram(inlineCalls(program), { mesh: { axes: [] } });
  const isLimited = (step: Step) =>
    (step.op === "kernel" && step.filled !== undefined) ||
    (step.op === "gemm" && step.ragged?.keepsRest === true);
  return steps.map((step) => `${infos[step.info]?.ops.join(" ")}${isLimited(step) ? ": groups only" : ""}`);
}

describe("kernels between products of groups of rows", () => {
  test("compute the rows of the groups only, and the products leave the others alone", () => {
    expect(limitsOf(experts)).toEqual(["raggedDot: groups only", "logistic mul: groups only", "raggedDot"]);
  });

  type Reader = (h: Tensor, down: Tensor, sizes: Tensor) => Tensor;
  const others: readonly [string, Reader][] = [
    ["a result is them", (h) => h],
    ["a sum reads them", (h) => np.sum(h.mul(2), 0)],
    ["a product of other groups reads them", (h, down, sizes) => lax.raggedDot(h, down, np.flip(sizes))],
    ["a product of all rows reads them", (h, down) => np.matmul(h, np.take(down, 0, 0))],
    ["a kernel reads them in another order", (h, down, sizes) => lax.raggedDot(np.flip(h, 0), down, sizes)],
  ];

  test.each(others)("compute all rows if %s, too", (_, reader) => {
    const found = limitsOf((x, up, down, sizes) => {
      const h = hidden(x, up, sizes);
      return [lax.raggedDot(h, down, sizes), reader(h, down, sizes)];
    });
    expect(found.find((line) => line.startsWith("logistic"))).not.toMatch(/groups/);
  });

  test.each([1, 2])(
    "give what all rows give on %i threads, whatever the others hold",
    async (threadsPerDevice) => {
      const engine = createThreadsEngine({ numDevices: 1, threadsPerDevice });
      const on = Mesh.create({ data: 1 }, { engine });
      const plain = Mesh.create({ data: 1 }, { engine: simulateDevices(1) });
      const [a, b, c] = [0, 1, 2].map((i) =>
        random.normal(random.key(i), types[i]?.shape ?? []).mul(0.1),
      ) as [Tensor, Tensor, Tensor];
      const fn = (x: Tensor, up: Tensor, down: Tensor, sizes: Tensor) => [
        ...experts(x, up, down, sizes),
        ...gradients(x, up, down, sizes),
      ];
      const [fast, slow] = [jit(fn, { mesh: on }), jit(fn, { mesh: plain })];
      const lists = [
        [20, 20, 24],
        [5, 0, 7],
        [0, 0, 0],
        [0, 1, 0],
        [-3, 9, 2],
        [60, 60, 60],
      ];
      for (const list of lists) {
        // What a run leaves in memory is not a number anywhere.
        await fast(np.fullLike(a, Number.NaN), b, c, np.array([64, 0, 0], "int32"))[0]?.data();
        const sizes = np.array(list, "int32");
        await expectTreeClose(fast(a, b, c, sizes), slow(a, b, c, sizes), { rtol: 1e-5, atol: 1e-5 });
      }
      await engine.close();
    },
  );
});
