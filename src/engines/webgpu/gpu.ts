import { findGpu } from "#engines/webgpu/findGpu";
import { environment } from "#platform/system";
import type { ShaderTile } from "../../compiler/wgsl/gemmTile.js";
import { type MatrixSetting, type MatrixUnit, suits } from "../../compiler/wgsl/matrixTile.js";
import { FUSES } from "../../compiler/wgsl/wgslFunctions.js";
import { reasonOf } from "../../ir/errors.js";
import { EngineLoadError } from "../errors.js";

/** Bits of buffers and shaders; WebGPU's own constants are globals that not every host has. */
export const USAGE = {
  mapRead: 1,
  copySource: 4,
  copyTarget: 8,
  uniform: 0x40,
  storage: 0x80,
  queryResolve: 0x200,
} as const;
export const COMPUTE_STAGE = 4;
export const MAP_READ = 1;

/** A GPU that is open. */
export interface Gpu {
  readonly device: GPUDevice;
  readonly facts: GpuFacts;
  /** The tile of large products, if it was measured. */
  readonly largeTile?: ShaderTile | undefined;
}

/** What a GPU reports about itself. */
export interface GpuFacts {
  /** Its name, such as `nvidia-h200`. */
  readonly name: string;
  /** Its driver, if that is known. */
  readonly driver?: string;
  /** Whether it is a program on the CPU. */
  readonly isSoftware: boolean;
  /** Whether its `fma` rounds once, which WGSL leaves open. */
  readonly fusesProducts: boolean;
  /** Neighbouring threads that can pass each other values, if there are always as many. */
  readonly subgroupSize?: number | undefined;
  /** The matrices of float16 that subgroups multiply as a whole, where these were asked for. */
  readonly matrices?: MatrixSetting | undefined;
  /** The limits that matter here. */
  readonly limits: Readonly<Record<LimitName, number>>;
  readonly features: readonly string[];
}

const limitNames = [
  "maxBufferSize",
  "maxStorageBufferBindingSize",
  "maxStorageBuffersPerShaderStage",
  "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup",
  "maxComputeWorkgroupSizeX",
  "maxComputeWorkgroupsPerDimension",
  "minUniformBufferOffsetAlignment",
] as const;

type LimitName = (typeof limitNames)[number];

/** Features that are used where there are. */
const wantedFeatures = ["subgroups", "timestamp-query", "shader-f16"] as const;

/** Dawn's name for matrices that the threads of a subgroup multiply together. */
const SUBGROUP_MATRIX = "chromium-experimental-subgroup-matrix";

/**
 * Opens the GPU of this machine that WebGPU prefers, or another one.
 *
 * @param matrices whether products of float16 use subgroup matrices; throws where there are none
 * @param wanted a preference of WebGPU, or a part of the name of an adapter
 */
export async function openGpu(matrices = false, wanted = "high-performance"): Promise<Gpu> {
  const adapter = await findAdapter(matrices, wanted);
  const limits = limitsOf(adapter.limits);
  const used: readonly string[] = matrices ? [...wantedFeatures, SUBGROUP_MATRIX] : wantedFeatures;
  const features = used.filter((name) => adapter.features.has(name));
  // The least alignment is best as it is; a smaller one could be refused.
  const { minUniformBufferOffsetAlignment: _, ...requiredLimits } = limits;
  const named = nameOf(adapter.info);
  const unit = matrices ? findMatrices(adapter, named.name) : undefined;
  // TypeScript knows the features of the standard only.
  const requiredFeatures = features as GPUFeatureName[];
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures });
  const fusesProducts = await hasExactFma(device);
  const subgroupSize = features.includes("subgroups") ? await findSubgroups(device, adapter.info) : undefined;
  const facts = { ...named, fusesProducts, subgroupSize, limits, features };
  if (unit === undefined) return { device, facts };
  if (subgroupSize === undefined) throw noMatrices(named.name, "its subgroups differ in size");
  return { device, facts: { ...facts, matrices: { unit, subgroupSize } } };
}

async function findAdapter(matrices: boolean, wanted: string): Promise<GPUAdapter> {
  const isPreference = wanted === "high-performance" || wanted === "low-power";
  const gpu = await findGpu(matrices, isPreference ? undefined : wanted);
  const powerPreference = isPreference ? wanted : "high-performance";
  // Dawn throws for a name that no adapter has, and lists those that there are.
  const adapter = await gpu.requestAdapter({ powerPreference }).catch((cause: unknown) => {
    throw new EngineLoadError(
      `the engine "webgpu" finds no adapter ${JSON.stringify(wanted)}: ${reasonOf(cause)}`,
      { cause },
    );
  });
  if (adapter) return adapter;
  throw new EngineLoadError(
    'the engine "webgpu" finds no adapter: WebGPU is here, but no GPU that it can use. On Linux install the ' +
      "Vulkan driver of the GPU and libvulkan1; without a GPU use --engine threads",
  );
}

/** The sizes of matrices of an adapter that products of float16 with sums in float32 use: the largest that suits. */
function findMatrices({ features, info }: GPUAdapter, name: string): MatrixUnit {
  const missing = [SUBGROUP_MATRIX, "subgroups", "shader-f16"].filter((feature) => !features.has(feature));
  if (missing.length > 0) throw noMatrices(name, `it lacks ${missing.join(", ")}`);
  const { subgroupMatrixConfigs = [] } = info as MatrixInfo;
  const units = [...subgroupMatrixConfigs]
    .filter((config) => config.componentType === "f16" && config.resultComponentType === "f32")
    .map(({ M: m, N: n, K: k }) => ({ m, n, k }))
    .filter(suits);
  const size = ({ m, n, k }: MatrixUnit) => m * n * k;
  const [unit] = units.sort((x, y) => size(y) - size(x));
  if (unit) return unit;
  const listed = [...subgroupMatrixConfigs].map(
    ({ componentType, resultComponentType, M, N, K }) =>
      `${componentType} to ${resultComponentType} ${M} x ${N} x ${K}`,
  );
  throw noMatrices(name, `it multiplies ${listed.join(", ") || "none"}, but not f16 to f32`);
}

function noMatrices(name: string, why: string): EngineLoadError {
  return new EngineLoadError(
    `the engine "webgpu" was asked for subgroup matrices, but ${name} has none that it can use: ${why}. Unset SHARDWISE_WEBGPU_MATRICES, or leave out the option matrices`,
  );
}

/** What Dawn tells about matrices. */
interface MatrixInfo {
  readonly subgroupMatrixConfigs?: Iterable<{
    readonly componentType: string;
    readonly resultComponentType: string;
    readonly M: number;
    readonly N: number;
    readonly K: number;
  }>;
}

/** The size of subgroups, where all have the same and consist of neighbours, which WGSL leaves open. */
async function findSubgroups(
  device: GPUDevice,
  { subgroupMinSize, subgroupMaxSize }: GPUAdapterInfo,
): Promise<number | undefined> {
  if (subgroupMinSize !== subgroupMaxSize) return undefined;
  const threads = 256;
  const code = `enable subgroups;
@group(0) @binding(0) var<storage, read_write> values: array<u32, ${threads}>;
@compute @workgroup_size(${threads}) fn main(@builtin(local_invocation_index) i: u32, @builtin(subgroup_invocation_id) id: u32) {
  values[i] = id + ${threads}u * subgroupShuffleXor(i, 1u);
}`;
  const values = new Uint32Array(await runShader(device, { code, groups: 1 }, new Uint32Array(threads)));
  const isInOrder = values.every((word, i) => word === (i % subgroupMinSize) + threads * (i ^ 1));
  return isInOrder ? subgroupMinSize : undefined;
}

/** Whether `fma` gives what a product loses when it is rounded, found out by trying. */
async function hasExactFma(device: GPUDevice): Promise<boolean> {
  const code = `@group(0) @binding(0) var<storage, read_write> values: array<f32, 4>;
@compute @workgroup_size(1) fn main() { values[3] = fma(values[0], values[1], values[2]); }`;
  const third = Math.fround(1 / 3);
  const values = Float32Array.of(third, third, -Math.fround(third * third), 0);
  const [, , , lost] = new Float32Array(await runShader(device, { code, groups: 1 }, values));
  return lost === third * third - Math.fround(third * third);
}

/** What a shader turns the values of its only buffer into. */
export async function runShader(
  device: GPUDevice,
  { code, groups, constants = {} }: { code: string; groups: number; constants?: Record<string, number> },
  values: Float32Array<ArrayBuffer> | Uint32Array<ArrayBuffer>,
): Promise<ArrayBuffer> {
  const compute = { module: device.createShaderModule({ code }), entryPoint: "main", constants };
  const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute });
  const size = values.byteLength;
  const buffer = device.createBuffer({ size, usage: USAGE.storage | USAGE.copySource | USAGE.copyTarget });
  const result = device.createBuffer({ size, usage: USAGE.mapRead | USAGE.copyTarget });
  device.queue.writeBuffer(buffer, 0, values);
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  const entries = [{ binding: 0, resource: { buffer } }];
  pass.setBindGroup(0, device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(groups);
  pass.end();
  encoder.copyBufferToBuffer(buffer, 0, result, 0, size);
  device.queue.submit([encoder.finish()]);
  await result.mapAsync(MAP_READ);
  const bytes = result.getMappedRange().slice(0);
  buffer.destroy();
  result.destroy();
  return bytes;
}

/** The constants of a shader that depend on the GPU. */
export function constantsOf(code: string, { fusesProducts }: GpuFacts): Record<string, number> {
  return code.includes(FUSES) ? { [FUSES]: Number(fusesProducts) } : {};
}

function limitsOf(limits: GPUSupportedLimits): Record<LimitName, number> {
  const all = Object.fromEntries(limitNames.map((name) => [name, limits[name]])) as Record<LimitName, number>;
  const bytes = environment.SHARDWISE_WEBGPU_BUFFER_BYTES;
  if (bytes === undefined) return all;
  if (!/^\d+$/.test(bytes) || Number(bytes) % 256 !== 0 || Number(bytes) === 0) {
    throw new EngineLoadError(
      `SHARDWISE_WEBGPU_BUFFER_BYTES=${JSON.stringify(bytes)} must be a positive multiple of 256, such as 1048576`,
    );
  }
  return {
    ...all,
    maxStorageBufferBindingSize: Math.min(all.maxStorageBufferBindingSize, Number(bytes)),
  };
}

function nameOf({ vendor, architecture, device, description }: GPUAdapterInfo) {
  const family = [vendor, architecture].filter(Boolean).join(" ");
  // Dawn describes the driver; pages may be told neither that nor the device.
  const parts = [device.replace(/-+$/, ""), description, family].filter((part) => part !== "");
  const [name = "unknown adapter", driver] = parts;
  const isSoftware = /swiftshader|llvmpipe|software|basic render/i.test(parts.join(" "));
  return { name, ...(driver === undefined || driver === family ? {} : { driver }), isSoftware };
}
