import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect } from "vitest";
import { a64Gemm } from "../../src/compiler/native/gemm/a64Gemm.js";
import { packingBytes, planProduct } from "../../src/compiler/native/gemm/gemmPlan.js";
import type { GemmTarget, GemmTask } from "../../src/compiler/native/gemm/target.js";
import { emulator, testWith } from "../support/optional.js";

const driver = fileURLToPath(new URL("driver.c", import.meta.url));

const SHAPES = [
  ...[
    [1, 1, 1],
    [8, 12, 4],
    [9, 13, 5],
    [3, 5, 7],
    [7, 11, 9],
    [64, 64, 64],
    [65, 63, 61],
  ],
  ...[
    [17, 31, 300],
    [20, 50, 513],
    [5, 500, 3],
    [8, 6, 2],
    [16, 35, 4],
    [130, 25, 26],
    [2, 3, 1030],
  ],
] as const;

/** Packed places are planned from these addresses on and moved to where the driver has them. */
const SPACE = { a: 2 ** 36, b: 2 ** 37 };

function relocate(value: number, isPlace: boolean): readonly [where: bigint, value: bigint] {
  if (!isPlace || value < SPACE.a) return [0n, BigInt(value)];
  return value < SPACE.b ? [1n, BigInt(value - SPACE.a)] : [2n, BigInt(value - SPACE.b)];
}

/** The file that the driver reads: all kernels, then products with their tasks. */
function productsFile(targets: readonly GemmTarget[]): Buffer {
  const words: bigint[] = [];
  const codes: Uint8Array[] = [];
  let codeBytes = 0;
  const append = (code: Uint8Array): number => {
    const at = codeBytes;
    const padded = new Uint8Array(Math.ceil(code.length / 64) * 64);
    padded.set(code);
    codes.push(padded);
    codeBytes += padded.length;
    return at;
  };
  const real = (value: number) => new BigInt64Array(Float64Array.of(value).buffer)[0] ?? 0n;
  const runnerAt = append((targets[0] ?? a64Gemm("float32")).runner());
  let numProducts = 0;
  for (const target of targets) {
    const known = new Map<string, number>();
    const place = ({ kernel }: GemmTask): number => {
      const key = JSON.stringify(kernel);
      const at = known.get(key) ?? append(target.kernel(kernel));
      known.set(key, at);
      return at;
    };
    SHAPES.forEach(([m = 1, n = 1, k = 1], shape) => {
      for (const transposes of [0, 1, 2, 3]) {
        const [transposeA, transposeB] = [transposes % 2 === 1, transposes > 1];
        const pad = (shape + transposes) % 2 === 0 ? 0 : 3;
        const [lda, ldb, ldc] = [(transposeA ? m : k) + pad, (transposeB ? k : n) + pad, n + pad];
        const [alpha, beta] = [shape % 3 === 0 ? 0.5 : 1, [0, 1, 2][(shape + transposes) % 3] ?? 0];
        const product = { transposeA, transposeB, m, n, k, lda, ldb, ldc, alpha, beta };
        const count = 1 + (shape % 2);
        const tasks = planProduct(target, product, SPACE);
        const room = packingBytes(target);
        words.push(
          ...[target.size, target.factorBytes, +transposeA, +transposeB, m, n, k, lda, ldb, ldc].map(BigInt),
        );
        words.push(
          real(alpha),
          real(beta),
          BigInt(room.a),
          BigInt(room.b),
          BigInt(count),
          BigInt(tasks.length),
        );
        for (const task of tasks) {
          words.push(BigInt(place(task)));
          for (let i = 0; i < 7; i++) words.push(...relocate(task.args[i] ?? 0, i < 3));
        }
        numProducts++;
      }
    });
  }
  const head = [codeBytes, runnerAt, numProducts].map(BigInt);
  const bytes = (list: readonly bigint[]) => Buffer.from(BigInt64Array.from(list).buffer);
  return Buffer.concat([bytes(head), ...codes, bytes(words)]);
}

testWith(emulator, "NEON products are right on an emulated processor", {}, (tools) => {
  const folder = mkdtempSync(join(tmpdir(), "emulated-"));
  try {
    const targets = (["float32", "float64", "bfloat16"] as const).map(a64Gemm);
    writeFileSync(join(folder, "products"), productsFile(targets));
    execFileSync(tools.compiler, ["-O2", "-static", "-o", join(folder, "driver"), driver, "-lm"]);
    const output = execFileSync(
      tools.emulator,
      ["-cpu", "max", join(folder, "driver"), join(folder, "products")],
      {
        encoding: "utf8",
      },
    );
    expect(output).toBe("168 products, 0 wrong elements\n");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
