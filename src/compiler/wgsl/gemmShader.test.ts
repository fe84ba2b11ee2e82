import { afterAll, beforeAll, expect, test } from "vitest";
import { productInJs, productOnGpu } from "../../../test/support/gpuProduct.js";
import { describeWith, webGpu } from "../../../test/support/optional.js";
import { type Gpu, openGpu } from "../../engines/webgpu/gpu.js";
import { gemmShader, isInVectors } from "./gemmShader.js";
import { chooseTile, type GemmShape, LARGE_TILES, type ShaderTile } from "./gemmTile.js";
import { ShaderSlabs } from "./shaderSlabs.js";

const shape = (m: number, n: number, k: number, changes: Partial<GemmShape> = {}): GemmShape => ({
  ...{ dtype: "float32", m, n, k, transposeA: false, transposeB: false, lda: k, ldb: n, ldc: n },
  ...{ alpha: 1, beta: 0, batch: [] },
  ...changes,
});

const server = { isSoftware: false, sharedBytes: 49_152 };
const sides = (tile: ShaderTile | undefined) => tile && [tile.m, tile.n];

test("the tile is chosen that is largest, keeps the GPU busy and fits into its shared memory", () => {
  expect(sides(chooseTile(shape(4096, 4096, 64), server))).toEqual([128, 128]);
  // 192 large tiles would leave half of the GPU idle in the second turn.
  expect(sides(chooseTile(shape(2048, 1536, 64), server))).toEqual([128, 64]);
  expect(sides(chooseTile(shape(1024, 1024, 64), server))).toEqual([64, 64]);
  expect(sides(chooseTile(shape(512, 512, 64), server))).toEqual([64, 32]);
  const batch = [{ count: 64, strideA: 4096, strideB: 4096, strideC: 4096 }];
  expect(sides(chooseTile(shape(256, 256, 64, { batch }), server))).toEqual([128, 128]);
  expect(sides(chooseTile(shape(4096, 4096, 64), { ...server, sharedBytes: 16_384 }))).toEqual([128, 64]);
  expect(sides(chooseTile(shape(4096, 8, 64), server))).toEqual([16, 16]);
  expect(chooseTile(shape(4096, 4096, 64), { ...server, isSoftware: true })).toBeUndefined();
});

test("a large tile that was measured to be faster is chosen where it keeps the GPU busy", () => {
  const measured = { ...server, largeTile: LARGE_TILES[2] };
  expect(sides(chooseTile(shape(4096, 4096, 512), measured))).toEqual([128, 256]);
  expect(sides(chooseTile(shape(1920, 2048, 512), measured))).toEqual([128, 256]);
  expect(sides(chooseTile(shape(2048, 1536, 512), measured))).toEqual([128, 64]);
  expect(sides(chooseTile(shape(4096, 4096, 64), measured))).toEqual([128, 128]);
  expect(sides(chooseTile(shape(4096, 4096, 512), { ...measured, sharedBytes: 16_384 }))).toEqual([128, 64]);
});

test("vectors need every row of every matrix to begin at a multiple of four elements", () => {
  expect(isInVectors(shape(5, 8, 12))).toBe(true);
  expect(isInVectors(shape(5, 8, 12, { transposeA: true, lda: 5 }))).toBe(false);
  expect(isInVectors(shape(8, 6, 12))).toBe(false);
  expect(isInVectors(shape(8, 8, 12, { ldc: 10 }))).toBe(false);
  const batch = [{ count: 2, strideA: 16 * 5, strideB: 8, strideC: 16 }];
  expect(isInVectors(shape(8, 8, 12, { batch }))).toBe(false);
});

/** A small tile with all that the large ones have: a software adapter compiles those for many seconds. */
const vectorTile: ShaderTile = { m: 16, n: 16, k: 4, threadM: 4, threadN: 4 };
const slicedTile: ShaderTile = { ...vectorTile, slices: 4 };
const twoStrips: ShaderTile = { ...vectorTile, strips: 2 };
const scalarTile: ShaderTile = { m: 8, n: 8, k: 4, threadM: 1, threadN: 1 };

describeWith(webGpu, "tiled products on a GPU", () => {
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
    for (const [name, tile, sizes] of [
      ["whole tiles", vectorTile, [32, 32, 8]],
      ["edges in vectors", vectorTile, [20, 20, 12]],
      ["edges", vectorTile, [17, 19, 7]],
      ["two strips", twoStrips, [33, 19, 37]],
      ["slices", slicedTile, [32, 32, 64]],
      ["slices with edges in vectors", slicedTile, [20, 20, 12]],
      ["slices with edges", slicedTile, [17, 19, 27]],
      ["one element per thread", scalarTile, [9, 19, 7]],
    ] as const) {
      test(`${name}, ${transposeA ? "Aᵀ" : "A"} · ${transposeB ? "Bᵀ" : "B"}`, async () => {
        const [m, n, k] = sizes;
        const product = shape(m, n, k, {
          ...{ transposeA, transposeB, lda: transposeA ? m : k, ldb: transposeB ? k : n },
          ...{
            alpha: 2,
            beta: 1,
            batch: [{ count: 2, strideA: 4 * m * k, strideB: 4 * k * n, strideC: 4 * m * n }],
          },
        });
        const shader = gemmShader(product, new ShaderSlabs([0, 0, 0]), tile, isInVectors(product));
        expect(await productOnGpu(gpu, product, shader)).toEqual(productInJs(product));
      });
    }
  }
});
