import { describe, expect, it } from "vitest";
import type { GemmBatch } from "../../steps.js";
import type { Product } from "./gemmPlan.js";
import { divideGroups, divideProduct } from "./productParts.js";
import { x64AmxGemm } from "./x64AmxGemm.js";
import { x64Gemm } from "./x64Gemm.js";

const targets = [x64Gemm(512, "float32"), x64AmxGemm()];

function product(m: number, n: number, k: number, transposed = false): Product {
  const [lda, ldb] = transposed ? [m + 3, k + 1] : [k + 3, n + 1];
  const transposes = { transposeA: transposed, transposeB: transposed };
  return { ...transposes, m, n, k, lda, ldb, ldc: n + 5, alpha: 1, beta: 0 };
}

const single: GemmBatch = { count: 1, strideA: 0, strideB: 0, strideC: 0 };

describe.each(targets.map((target) => [target.name, target] as const))(
  "parts of a product with %s",
  (_, target) => {
    const bytes = target.factorBytes;

    it.each([
      ["large", product(150, 170, 200), single],
      ["transposed", product(65, 257, 300, true), single],
      ["one row", product(1, 4000, 900), single],
      ["one column", product(4000, 1, 900), single],
      ["batched", product(40, 40, 64), { count: 30, strideA: 60_000, strideB: 0, strideC: 40 * 45 * 4 }],
    ])("write every element once and begin where it is: %s", (_case, whole, batch) => {
      const parts = divideProduct(target, whole, batch, 7);
      expect(parts.length).toBeGreaterThan(3);
      expect(parts.length).toBeLessThanOrEqual(7);
      const written = new Map<number, string>();
      for (const part of parts) {
        for (let p = 0; p < part.batch.count; p++) {
          for (let i = 0; i < part.product.m; i++) {
            for (let j = 0; j < part.product.n; j++) {
              const c = part.c + p * batch.strideC + (i * whole.ldc + j) * 4;
              if (written.has(c)) expect.fail(`element ${i}, ${j} of product ${p} is written twice`);
              const a = part.a + p * batch.strideA + i * (whole.transposeA ? 1 : whole.lda) * bytes;
              const b = part.b + p * batch.strideB + j * (whole.transposeB ? whole.ldb : 1) * bytes;
              written.set(c, `${a} ${b}`);
            }
          }
        }
      }
      expect(written.size).toBe(batch.count * whole.m * whole.n);
      for (let p = 0; p < batch.count; p++) {
        for (const [i, j] of [
          [0, 0],
          [whole.m - 1, whole.n - 1],
          [Math.floor(whole.m / 2), Math.floor(whole.n / 3)],
        ] as const) {
          const a = p * batch.strideA + i * (whole.transposeA ? 1 : whole.lda) * bytes;
          const b = p * batch.strideB + j * (whole.transposeB ? whole.ldb : 1) * bytes;
          expect(written.get(p * batch.strideC + (i * whole.ldc + j) * 4)).toBe(`${a} ${b}`);
        }
      }
    });

    it("are as few as the work is worth, and of about the same size", () => {
      expect(divideProduct(target, product(32, 32, 32), single, 16)).toHaveLength(1);
      const parts = divideProduct(target, product(2048, 1024, 256), single, 16);
      expect(parts).toHaveLength(16);
      const sizes = parts.map((part) => part.product.m * part.product.n);
      expect(Math.max(...sizes)).toBeLessThan(1.1 * Math.min(...sizes));
    });
  },
);

describe("groups of rows", () => {
  const target = x64Gemm(512, "float32");
  const sizes = [1, 300, 13, 2, 900, 40, 40, 40];

  it.each([
    ["their own rows", undefined],
    ["those of a C each", 500],
  ])("are divided so that each of %s is written once, in order", (_case, height) => {
    for (const count of [1, 2, 5, 16]) {
      const parts = divideGroups(target, sizes, height, 1e9, count);
      expect(parts).toHaveLength(count);
      const ends = sizes.map(() => 0);
      for (const { group, from, rows } of parts.flat()) {
        expect([group, from]).toEqual([group, ends[group]]);
        ends[group] = from + rows;
      }
      expect(ends).toEqual(sizes.map((size) => height ?? size));
    }
  });

  it("are divided into equal work, up to a few rows", () => {
    const total = sizes.reduce((sum, size) => sum + size, 0);
    for (const height of [undefined, 500]) {
      const work = divideGroups(target, sizes, height, 1e9, 4).map((part) =>
        part.reduce(
          (sum, { group, rows }) => sum + (rows * (sizes[group] ?? 0)) / (height ?? sizes[group] ?? 1),
          0,
        ),
      );
      for (const own of work) expect(Math.abs(own - total / 4)).toBeLessThan(height === undefined ? 15 : 80);
    }
  });

  it("stay together if they are little work", () => {
    expect(divideGroups(target, [3, 4], undefined, 1e5, 8)).toEqual([
      [
        { group: 0, from: 0, rows: 3 },
        { group: 1, from: 0, rows: 4 },
      ],
    ]);
  });
});
