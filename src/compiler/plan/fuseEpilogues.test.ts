import { expect, test } from "vitest";
import { np, type Tensor } from "../../index.js";
import { type Shape, tensorType } from "../../ir/shape.js";
import { traceFlat } from "../../trace/builder.js";
import { compileForGpu } from "../compileForGpu.js";

type Fn = (...xs: Tensor[]) => readonly Tensor[];

/** The steps of a program with the ops that they compute, and the bytes of its intermediate values. */
function compiled(fn: Fn, shapes: readonly Shape[], epilogues: boolean) {
  const types = shapes.map((shape) => tensorType("float32", shape));
  const { program } = traceFlat((xs) => fn(...xs), types);
  const { steps, infos, arenaBytes } = compileForGpu(program, { mesh: { axes: [] }, epilogues }).compiled;
  const names = steps.map(({ op, info }) => `${op}: ${infos[info]?.ops.join(" ")}`);
  return { steps: names, arenaBytes };
}

const shapes: readonly Shape[] = [[8, 16], [16, 4], [4]];
const perceptron: Fn = (x, w, b) => [np.tanh(np.matmul(x, w).add(b ?? 0))];

test("a product and the kernel behind it become one step", () => {
  expect(compiled(perceptron, shapes, false).steps).toEqual(["gemm: dotGeneral", "kernel: add tanh"]);
  expect(compiled(perceptron, shapes, true).steps).toEqual(["gemm: dotGeneral add tanh"]);
});

const kept: readonly [string, Fn, readonly Shape[]][] = [
  ["a kernel that adds up rows", (x, w) => [np.sum(np.matmul(x, w), -1)], shapes.slice(0, 2)],
  [
    "a kernel on more points than the product has",
    (x, w, b) => [np.matmul(x, w).add(b ?? 0)],
    [
      [8, 16],
      [16, 4],
      [3, 8, 4],
    ],
  ],
  [
    "a kernel that reads the product in another order",
    (x, w) => {
      const product = np.matmul(x, w);
      return [product.add(product.transpose())];
    },
    [
      [8, 16],
      [16, 8],
    ],
  ],
  ["a kernel that writes a narrow type", (x, w) => [np.matmul(x, w).astype("bfloat16")], shapes.slice(0, 2)],
];

for (const [name, fn, given] of kept) {
  test(`${name} stays a step of its own`, () => {
    const { steps } = compiled(fn, given, true);
    expect(steps).toEqual(compiled(fn, given, false).steps);
    expect(steps.length).toBeGreaterThan(1);
  });
}

test("products that other steps read keep their memory", () => {
  const fn: Fn = (x, w) => {
    const product = np.matmul(x, w);
    return [np.tanh(product), np.sum(product, 0)];
  };
  const [first, second] = [false, true].map((epilogues) => compiled(fn, shapes.slice(0, 2), epilogues));
  expect(second?.steps[0]).toBe("gemm: dotGeneral tanh");
  expect(second?.arenaBytes).toBe(first?.arenaBytes);
});
