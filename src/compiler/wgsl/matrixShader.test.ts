import { afterAll, beforeAll, expect, test } from "vitest";
import { emulated, withoutMatrices } from "../../../test/support/emulatedMatrices.js";
import { productInJs, productOnGpu } from "../../../test/support/gpuProduct.js";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { type Gpu, openGpu } from "../../engines/webgpu/gpu.js";
import { isInVectors } from "./gemmShader.js";
import type { GemmShape } from "./gemmTile.js";
import { matrixShader } from "./matrixShader.js";
import { chooseMatrixTile, MATRIX_TILES, type MatrixTile, matrixBytes } from "./matrixTile.js";
import { ShaderSlabs } from "./shaderSlabs.js";

const shape = (m: number, n: number, k: number, changes: Partial<GemmShape> = {}): GemmShape => ({
  ...{ dtype: "float16", m, n, k, transposeA: false, transposeB: false, lda: k, ldb: n, ldc: n },
  ...{ alpha: 1, beta: 0, batch: [] },
  ...changes,
});

const unit = { m: 16, n: 16, k: 16 };
const nvidia = { unit, subgroupSize: 32 };
const server = { sharedBytes: 49_152 };
const sides = ({ m, n }: MatrixTile) => [m, n];

test("the largest tile is chosen that keeps the GPU busy and fits into its workgroups", () => {
  const choose = (m: number, n: number, limits = server) =>
    sides(chooseMatrixTile(shape(m, n, 64), nvidia, limits));
  expect(choose(4096, 4096)).toEqual([128, 128]);
  expect(choose(2048, 1024)).toEqual([128, 128]);
  expect(choose(1024, 1024)).toEqual([64, 64]);
  expect(choose(8, 8)).toEqual([32, 32]);
  expect(choose(4096, 4096, { sharedBytes: 16_384 })).toEqual([32, 32]);
  expect(MATRIX_TILES.every((tile) => matrixBytes(tile, unit) <= server.sharedBytes)).toBe(true);
});

/** A small tile with all that the large ones have. */
const tile: MatrixTile = { m: 16, n: 32, k: 16, groupM: 16, groupN: 16, strips: 1 };

describeWith(webGpu, "products by matrices that are emulated", () => {
  let gpu: Gpu;
  beforeAll(async () => {
    gpu = await openGpu();
  });
  afterAll(() => gpu.device.destroy());

  for (const [transposeA, transposeB] of [
    [false, false],
    [true, false],
    [false, true],
    [true, true],
  ] as const) {
    for (const [name, strips, sizes] of [
      ["whole tiles", 2, [32, 32, 32]],
      ["edges in vectors", 1, [24, 40, 24]],
      ["edges", 2, [17, 37, 21]],
    ] as const) {
      test(`${name}, ${transposeA ? "Aᵀ" : "A"} · ${transposeB ? "Bᵀ" : "B"}`, async () => {
        const [m, n, k] = sizes;
        const product = shape(m, n, k, {
          ...{ transposeA, transposeB, lda: transposeA ? m : k, ldb: transposeB ? k : n },
          ...{ alpha: 2, beta: 1 },
          batch: [{ count: 2, strideA: 2 * m * k, strideB: 2 * k * n, strideC: 4 * m * n }],
        });
        const { code, workgroups } = matrixShader(
          ...([
            product,
            new ShaderSlabs([0, 0, 0]),
            { ...tile, strips },
            emulated,
            isInVectors(product),
          ] as const),
        );
        const plain = { code: withoutMatrices(code), workgroups };
        expect(await productOnGpu(gpu, product, plain)).toEqual(productInJs(product));
      });
    }
  }
});
