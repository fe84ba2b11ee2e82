import { existsSync, mkdirSync, readFileSync, writeFileSync } from "#platform/fs";
import { dirname, join } from "#platform/path";
import { environment, userCache } from "#platform/system";
import { gemmParams, gemmShader } from "../../compiler/wgsl/gemmShader.js";
import { fits, type GemmShape, LARGE_TILES, type ShaderTile } from "../../compiler/wgsl/gemmTile.js";
import { ShaderSlabs } from "../../compiler/wgsl/shaderSlabs.js";
import { at } from "../../ir/shape.js";
import { type Gpu, USAGE } from "./gpu.js";
import { PARAMS_BYTES, Shaders } from "./shaders.js";

/** What is measured: enough work for a large GPU, which a small one does in a second. */
const [SIDE, DEPTH] = [4096, 512];
const shape: GemmShape = {
  ...{ dtype: "float32", m: SIDE, n: SIDE, k: DEPTH, transposeA: false, transposeB: false },
  ...{ lda: DEPTH, ldb: SIDE, ldc: SIDE, alpha: 1, beta: 0, batch: [] },
};
const [RUNS, REPEATS] = [3, 4];

/**
 * The tile with which a GPU multiplies large matrices fastest, found out by a short measurement, whose result is kept in
 * the user's cache; undefined where there is nothing to choose from.
 */
export async function fastestTile(gpu: Gpu): Promise<ShaderTile | undefined> {
  const { facts } = gpu;
  const candidates = LARGE_TILES.filter((tile) => fits(tile, facts.limits.maxComputeWorkgroupStorageSize));
  const bytes = 4 * SIDE * (SIDE + 2 * DEPTH);
  if (facts.isSoftware || candidates.length < 2 || bytes > facts.limits.maxStorageBufferBindingSize)
    return undefined;
  const key = `${facts.name}; ${environment.SHARDWISE_DAWN ?? ""}`;
  const kept = readKept()[key];
  const known = candidates.find((tile) => nameOf(tile) === kept);
  if (known) return known;
  const times = await measure(gpu, candidates, bytes);
  const best = candidates[times.indexOf(Math.min(...times))];
  if (best) keep(key, nameOf(best));
  return best;
}

const nameOf = ({ m, n, k, strips = 1 }: ShaderTile): string =>
  `${m} x ${n} x ${k}${strips === 1 ? "" : ", two strips"}`;

/** The shortest time of each tile, in milliseconds. */
async function measure(
  { device, facts }: Gpu,
  tiles: readonly ShaderTile[],
  size: number,
): Promise<number[]> {
  const slab = device.createBuffer({ size, usage: USAGE.storage });
  const params = device.createBuffer({ size: PARAMS_BYTES, usage: USAGE.uniform | USAGE.copyTarget });
  const table = device.createBuffer({ size: 12, usage: USAGE.storage | USAGE.copyTarget });
  device.queue.writeBuffer(params, 0, Uint32Array.of(0, 0, 1, 0, 2, 0, ...gemmParams(shape)));
  device.queue.writeBuffer(table, 0, Uint32Array.of(0, 4 * SIDE * DEPTH, 8 * SIDE * DEPTH));
  const shaders = new Shaders({ device, facts }, () => {});
  const bindGroup = shaders.bindGroup({ params, table }, [slab], false);
  const products = tiles.map((tile) => gemmShader(shape, new ShaderSlabs([0, 0, 0]), tile, true));
  const what = "a product that is measured";
  const written = products.map(({ code }) => ({ code, numBuffers: 1, writesTable: false, what }));
  await Promise.all(written.map((shader) => shaders.compile(shader)));
  const times: number[] = [];
  for (const [i, { workgroups }] of products.entries()) {
    const pipeline = shaders.pipeline(at(written, i));
    const run = async (repeats: number): Promise<number> => {
      const encoder = device.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, bindGroup, [0]);
      for (let i = 0; i < repeats; i++) pass.dispatchWorkgroups(...workgroups);
      pass.end();
      const begin = performance.now();
      device.queue.submit([encoder.finish()]);
      await device.queue.onSubmittedWorkDone();
      return performance.now() - begin;
    };
    await run(1);
    let best = Number.POSITIVE_INFINITY;
    for (let turn = 0; turn < RUNS; turn++) best = Math.min(best, await run(REPEATS));
    times.push(best);
  }
  for (const buffer of [slab, params, table]) buffer.destroy();
  return times;
}

/** What was measured before, by GPU. */
function readKept(): Readonly<Record<string, unknown>> {
  try {
    const file = keptFile();
    const kept: unknown = file && existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : {};
    return typeof kept === "object" && kept !== null ? (kept as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** Keeps a result for the next process; without a cache each measures anew. */
function keep(key: string, tile: string): void {
  try {
    const file = keptFile();
    if (!file) return;
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, `${JSON.stringify({ ...readKept(), [key]: tile }, null, 2)}\n`);
  } catch {
    // A read-only home folder is no reason to fail, nor is one that may not be named.
  }
}

/** The file of results; an empty string where there is no cache. */
function keptFile(): string {
  const cache = userCache();
  return cache && join(cache, "webgpu.json");
}
