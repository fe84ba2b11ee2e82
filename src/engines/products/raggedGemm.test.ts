import { afterAll, expect, test } from "vitest";
import { jit, Mesh, np, type Tensor } from "../../index.js";
import * as ops from "../../trace/ops.js";
import { createThreadsEngine } from "../threads/engine.js";

const [batch, rows, inputs, outputs] = [2, 400, 48, 64];
const engines = [1, 3].map((threadsPerDevice) => createThreadsEngine({ numDevices: 1, threadsPerDevice }));
afterAll(() => Promise.all(engines.map((engine) => engine.close())));

/** Integers, which are exact, so that the order of sums does not matter. */
const integers = (seed: number, ...shape: number[]) =>
  np
    .array(Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => ((i * seed) % 19) - 9))
    .reshape(shape);

/** Rows with a matrix for each group, and sums over the rows of each group. */
const both = (x: Tensor, y: Tensor, matrices: Tensor, sizes: Tensor) =>
  [ops.raggedDot(x, matrices, sizes, "rows"), ops.raggedDot(x, y, sizes, "sums")] as const;

/** The same as loops over numbers. */
function expected(
  [x, y, matrices]: readonly Numbers[],
  sizes: readonly (readonly number[])[],
): readonly [Float32Array, Float32Array] {
  const groups = sizes[0]?.length ?? 0;
  const products = new Float32Array(batch * rows * outputs);
  const sums = new Float32Array(batch * groups * inputs * outputs);
  const add = (to: Float32Array, at: number, value: number) => to.fill((to[at] ?? 0) + value, at, at + 1);
  sizes.forEach((counts, b) => {
    const groupOf = counts.flatMap((count, group) => Array<number>(count).fill(group)).slice(0, rows);
    groupOf.forEach((group, r) => {
      for (let k = 0; k < inputs; k++) {
        const value = x?.[(b * rows + r) * inputs + k] ?? 0;
        for (let j = 0; j < outputs; j++) {
          const place = ((b * groups + group) * inputs + k) * outputs + j;
          const out = (b * rows + r) * outputs + j;
          add(products, out, value * (matrices?.[place] ?? 0));
          add(sums, place, value * (y?.[out] ?? 0));
        }
      }
    });
  });
  return [products, sums];
}

type Numbers = ArrayLike<number>;

const many = (odd: number) => Array.from({ length: 600 }, (_, i) => (i % odd === 1 ? 2 : i % 2));

test.each([
  ["few large groups", [150, 0, 250], [1, 398, 0]],
  ["groups and rows behind them", [10, 20, 30, 40], [400, 9, 9, 9]],
  ["more groups than a job has calls", many(500), many(3)],
])("threads that share %s compute what one of them does", async (_, ...sizes) => {
  const operands = [
    integers(7, batch, rows, inputs),
    integers(11, batch, rows, outputs),
    integers(13, batch, sizes[0].length, inputs, outputs),
  ] as const;
  const wanted = expected(await Promise.all(operands.map((x) => x.data() as Promise<Numbers>)), sizes);
  for (const engine of engines) {
    const mesh = Mesh.create({ data: 1 }, { engine });
    const found = jit(both, { mesh })(...operands, np.array(sizes, "int32"));
    for (const [i, tensor] of found.entries()) {
      const [values, own] = [await tensor.data(), wanted[i]];
      expect(values.length).toBe(own?.length);
      expect(own?.findIndex((value, place) => value !== values[place])).toBe(-1);
    }
  }
});
