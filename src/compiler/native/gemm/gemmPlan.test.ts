import { describe, expect, it } from "vitest";
import { a64Gemm } from "./a64Gemm.js";
import { assertInBounds, planProduct } from "./gemmPlan.js";
import { type GemmTarget, type GemmTask, numStrips } from "./target.js";
import { x64AmxGemm } from "./x64AmxGemm.js";
import { x64Gemm } from "./x64Gemm.js";

const SPACE = { a: 2 ** 36, b: 2 ** 37 };
const TARGETS = (["float32", "float64", "bfloat16"] as const)
  .flatMap((type) => [
    x64Gemm(512, type),
    ...(type === "bfloat16" ? [] : [x64Gemm(256, type)]),
    a64Gemm(type),
  ])
  .concat(x64AmxGemm());

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
      const [m, n, k] = [2100, 500, 2048];
      const written = new Map<number, number>();
      for (const task of planProduct(target, product(m, n, k), SPACE)) {
        if (task.kind !== "multiply") continue;
        const [, , , , depth, , panels] = task.args;
        const area = numStrips(task) * task.kernel.height * panels * task.kernel.width;
        written.set(task.kernel.beta, (written.get(task.kernel.beta) ?? 0) + area * depth);
      }
      const { perLane } = target;
      // The first block overwrites, the others add.
      const total = [...written.values()].reduce((sum, area) => sum + area, 0);
      expect(total * perLane).toBe(m * n * k);
      expect([...written.keys()].sort()).toEqual([0, 1]);
    }
  });

  it("multiplies small factors where they lie, and packs what it must", () => {
    const target = x64Gemm(512, "float32");
    expect(kinds(planProduct(target, product(28, 32, 64), SPACE))).toEqual(["multiply"]);
    expect(kinds(planProduct(target, product(28, 252, 64), SPACE))).toEqual([
      "packRows",
      "multiply",
      "multiply",
    ]);
    expect(kinds(planProduct(target, product(28, 32, 64, false, true), SPACE))).toEqual([
      "packColumns",
      "multiply",
    ]);
    expect(kinds(planProduct(target, product(28, 480, 300), SPACE))).toEqual(["packColumns", "multiply"]);
    expect(kinds(planProduct(target, product(28, 480, 64, true), SPACE))).toEqual(["multiply"]);
    expect(kinds(planProduct(target, product(140, 480, 64, true), SPACE))).toEqual([
      "packRows",
      "packRows",
      "multiply",
    ]);
  });

  it.each([
    [512, 28],
    [256, 12],
  ] as const)("packs B with vectors of %i bits if more than %i rows are multiplied with it", (bits, rows) => {
    const packs = (m: number, n: number, k: number) =>
      kinds(planProduct(x64Gemm(bits, "float32"), product(m, n, k), SPACE)).includes("packRows");
    expect([rows, rows + 1].map((m) => packs(m, 480, 256))).toEqual([false, true]);
    // A B of 16 KiB stays in the L1 cache.
    expect([64, 65].map((k) => packs(480, 64, k))).toEqual([false, true]);
  });

  it("has flat tiles where C is narrow or low, so that no A is packed whose rows are far apart", () => {
    const shapesOf = (one: ReturnType<typeof product>) =>
      planProduct(x64Gemm(512, "float32"), one, SPACE).map(({ kernel }) =>
        kernel.kind === "multiply" ? `${kernel.height} × ${kernel.width}` : kernel.kind,
      );
    const shapes = (...of: Parameters<typeof product>) => shapesOf(product(...of));
    expect(shapes(30, 64, 64)).toEqual(["6 × 64"]);
    expect(shapes(24, 256, 300)).toEqual(["6 × 64"]);
    expect(shapes(30, 256, 300)).toEqual(["packRows", "6 × 64"]);
    expect(shapes(5, 448, 300)).toEqual(["5 × 64"]);
    expect(shapes(28, 128, 64)).toEqual(["14 × 32"]);
    expect(shapes(28, 288, 300)).toEqual(["packColumns", "14 × 32"]);
    expect(shapes(140, 64, 64, true)).toEqual(["packRows", "14 × 32"]);
    // So far apart that not all rows of a tile can be named from the first on.
    expect(shapesOf({ ...product(5, 64, 64), lda: 2 ** 27 })).toEqual(["packColumns", "5 × 32"]);
  });

  it("takes pairs of bfloat16 where they lie only along rows of even length", () => {
    const target = x64Gemm(512, "bfloat16");
    const packed = (one: ReturnType<typeof product>) =>
      planProduct(target, one, SPACE).flatMap(({ kernel, args }) =>
        kernel.kind === "multiply"
          ? [`${kernel.kind} ${args[4]}`]
          : [
              `${kernel.kind} ${kernel.from} ${args[3]}${kernel.leftOver > 0 ? ` and ${kernel.leftOver}` : ""}`,
            ],
      );
    expect(packed(product(28, 64, 64))).toEqual(["packRows b 32", "multiply 32"]);
    expect(packed(product(14, 64, 63))).toEqual([
      "packRows b 31 and 1",
      "packColumns a 31 and 1",
      "multiply 32",
    ]);
    expect(packed(product(28, 64, 64, true, true))).toEqual([
      "packRows a 32",
      "packColumns b 32",
      "multiply 32",
    ]);
  });

  it("packs rows of A strip by strip, and has the kernel prefetch the next one, for the first columns only", () => {
    const plan = (target: GemmTarget) =>
      planProduct(target, product(29, 540, 300), SPACE).flatMap(
        ({ kernel, args: [source, , , , , next] }, i) => {
          if (kernel.kind !== "multiply")
            return kernel.from === "a" ? [`pack from row ${source / 1200}`] : [];
          const { height, width, ahead } = kernel;
          return [`${height} × ${width}${ahead === undefined ? "" : `, row ${(next ?? i) / 1200} ahead`}`];
        },
      );
    expect(plan(x64Gemm(512, "float32"))).toEqual([
      ...["pack from row 0", "10 × 32, row 10 ahead"],
      ...["pack from row 10", "10 × 32, row 20 ahead"],
      ...["pack from row 20", "9 × 32"],
      // The second block of columns.
      ...["10 × 32", "9 × 32", "10 × 28", "9 × 28"],
    ]);
    expect(plan(a64Gemm("float32")).filter((line) => /ahead/.test(line))).toEqual([]);
  });

  it("has strips of nearly equal height", () => {
    const heights = planProduct(x64Gemm(512, "float32"), product(128, 32, 64), SPACE).map(
      ({ kernel, args }) => (kernel.kind === "multiply" ? [kernel.height, args[5]] : []),
    );
    expect(heights).toEqual([
      [13, 8],
      [12, 2],
    ]);
  });
});

describe("the check of bounds", () => {
  it("names the task and the bytes that it would touch", () => {
    const target = x64Gemm(512, "float32");
    const [tasks, smaller] = [planProduct(target, product(28, 32, 64), SPACE), product(27, 32, 64)];
    expect(() => assertInBounds(target, smaller, SPACE, tasks)).toThrow(
      /multiply of 27×32×64 touches bytes 0 to 7168 of a, which has 0 to 6912/,
    );
  });
});
