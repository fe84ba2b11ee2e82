/** Runs the shader of a matrix product on a GPU, without an engine. */
import { type GemmShader, gemmParams } from "../../src/compiler/wgsl/gemmShader.js";
import type { GemmShape } from "../../src/compiler/wgsl/gemmTile.js";
import { type Gpu, MAP_READ, USAGE } from "../../src/engines/webgpu/gpu.js";
import { PARAMS_BYTES, Shaders } from "../../src/engines/webgpu/shaders.js";
import { toFloat16Bits } from "../../src/ir/dtype.js";
import { range } from "../../src/ir/shape.js";

/** A, B and C of a product of one batch dim of two: small integers, whose sums are exact in any order. */
export function operandsOf({ m, n, k }: GemmShape): [number[], number[], number[]] {
  const numbers = (count: number, seed: number) => range(count).map((i) => ((i * 7 + seed) % 11) - 5);
  return [numbers(2 * m * k, 1), numbers(2 * k * n, 3), numbers(2 * m * n, 5)];
}

/** The product of the operands, in doubles. */
export function productInJs(product: GemmShape): number[] {
  const { m, n, k, transposeA, transposeB, alpha, beta } = product;
  const [a, b, c] = operandsOf(product);
  return c.map((old, index) => {
    const [batch, i, j] = [Math.floor(index / (m * n)), Math.floor(index / n) % m, index % n];
    let sum = 0;
    for (const d of range(k)) {
      const left = a[batch * m * k + (transposeA ? d * m + i : i * k + d)] ?? Number.NaN;
      const right = b[batch * k * n + (transposeB ? j * k + d : d * n + j)] ?? Number.NaN;
      sum += left * right;
    }
    return alpha * sum + beta * old;
  });
}

/** The product of the operands, as a shader computes it; throws what WebGPU says about the shader. */
export async function productOnGpu(
  { device, facts }: Gpu,
  product: GemmShape,
  { code, workgroups }: GemmShader,
): Promise<number[]> {
  const parts = operandsOf(product).map((part, i) =>
    i < 2 && product.dtype === "float16" ? Uint16Array.from(part, toFloat16Bits) : Float32Array.from(part),
  );
  // Every matrix begins at a multiple of 16 bytes.
  const starts = parts.map((_, i) =>
    parts.slice(0, i).reduce((sum, { byteLength }) => sum + 16 * Math.ceil(byteLength / 16), 0),
  );
  const bytes = new Uint8Array(parts.reduce((sum, { byteLength }) => sum + byteLength + 32, 64) & ~15);
  parts.forEach(({ buffer }, i) => {
    bytes.set(new Uint8Array(buffer), starts[i]);
  });
  const upload = (data: Uint8Array<ArrayBuffer> | Uint32Array<ArrayBuffer>, usage: number) => {
    const made = device.createBuffer({ size: data.byteLength, usage: usage | USAGE.copyTarget });
    device.queue.writeBuffer(made, 0, data);
    return made;
  };
  const slab = upload(bytes, USAGE.storage | USAGE.copySource);
  const params = new Uint32Array(PARAMS_BYTES / 4);
  params.set([0, 0, 1, 0, 2, 0, ...gemmParams(product)]);
  const buffers = {
    params: upload(params, USAGE.uniform),
    table: upload(Uint32Array.from(starts), USAGE.storage),
  };
  const errors: Promise<GPUError | null>[] = [];
  const shaders = new Shaders({ device, facts }, (error) => errors.push(error));
  const pipeline = shaders.pipeline({ code, numBuffers: 1, writesTable: false, what: "product" });
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, shaders.bindGroup(buffers, [slab], false), [0]);
  pass.dispatchWorkgroups(...workgroups);
  pass.end();
  const size = parts[2]?.byteLength ?? 0;
  const result = device.createBuffer({ size, usage: USAGE.mapRead | USAGE.copyTarget });
  encoder.copyBufferToBuffer(slab, starts[2] ?? 0, result, 0, size);
  device.queue.submit([encoder.finish()]);
  for (const error of await Promise.all(errors)) if (error) throw new Error(error.message);
  await result.mapAsync(MAP_READ);
  return [...new Float32Array(result.getMappedRange().slice(0))];
}
