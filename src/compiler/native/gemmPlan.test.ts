import { describe, expect, it } from "vitest";
import { a64Gemm } from "./a64Gemm.js";
import { assertInBounds, planProduct } from "./gemmPlan.js";
import type { GemmTask } from "./gemmTarget.js";
import { x64Gemm } from "./x64Gemm.js";

const SPACE = { a: 2 ** 36, b: 2 ** 37 };
const TARGETS = [x64Gemm(512, 4), x64Gemm(512, 8), x64Gemm(256, 4), x64Gemm(256, 8), a64Gemm(4), a64Gemm(8)];

function product(m: number, n: number, k: number, transposeA = false, transposeB = false) {
  const shape = { m, n, k, lda: transposeA ? m : k, ldb: transposeB ? k : n, ldc: n };
  return { ...shape, transposeA, transposeB, alpha: 1, beta: 0 };
}

const kinds = (tasks: readonly GemmTask[]) => tasks.map(({ kernel }) => kernel.kind);

describe("the plan of a product", () => {
  it("stays inside its matrices and the packing space", () => {
    for (const target of TARGETS) {
      for (const [m, n, k] of [
        [1, 1, 1],
        [15, 33, 7],
        [300, 301, 299],
        [2100, 500, 400],
        [5, 2000, 3],
      ] as const) {
        for (const transposes of [0, 1, 2, 3]) {
          const one = product(m, n, k, transposes % 2 === 1, transposes > 1);
          const tasks = planProduct(target, one, SPACE);
          expect(() => assertInBounds(target, one, SPACE, tasks)).not.toThrow();
        }
      }
    }
  });

  it("writes every element of C once for each block of steps", () => {
    for (const target of TARGETS) {
      const [m, n, k] = [2100, 500, 1000];
      const written = new Map<number, number>();
      for (const task of planProduct(target, product(m, n, k), SPACE)) {
        if (task.kind !== "multiply") continue;
        const [, , , , depth, strips, panels] = task.args;
        const area = strips * task.kernel.height * panels * task.kernel.width;
        written.set(task.kernel.beta, (written.get(task.kernel.beta) ?? 0) + area * depth);
      }
      // The first block overwrites, the others add.
      const total = [...written.values()].reduce((sum, area) => sum + area, 0);
      expect(total).toBe(m * n * k);
      expect([...written.keys()].sort()).toEqual([0, 1]);
    }
  });

  it("multiplies small factors where they lie, and packs what it must", () => {
    const target = x64Gemm(512, 4);
    expect(kinds(planProduct(target, product(28, 64, 64), SPACE))).toEqual(["multiply"]);
    expect(kinds(planProduct(target, product(28, 64, 64, false, true), SPACE))).toEqual([
      "packColumns",
      "multiply",
    ]);
    expect(kinds(planProduct(target, product(28, 64, 300), SPACE))).toEqual([
      "packColumns",
      "packRows",
      "multiply",
    ]);
  });

  it("has strips of nearly equal height", () => {
    const heights = planProduct(x64Gemm(512, 4), product(128, 32, 64), SPACE).map(({ kernel, args }) =>
      kernel.kind === "multiply" ? [kernel.height, args[5]] : [],
    );
    expect(heights).toEqual([
      [13, 8],
      [12, 2],
    ]);
  });
});

describe("the check of bounds", () => {
  it("names the task and the bytes that it would touch", () => {
    const target = x64Gemm(512, 4);
    const [tasks, smaller] = [planProduct(target, product(28, 64, 64), SPACE), product(27, 64, 64)];
    expect(() => assertInBounds(target, smaller, SPACE, tasks)).toThrow(
      /multiply of 27×64×64 touches bytes 0 to 7168 of a, which has 0 to 6912/,
    );
  });
});
