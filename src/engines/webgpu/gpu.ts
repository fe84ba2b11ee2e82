import { findGpu } from "#engines/webgpu/findGpu";
import { EngineLoadError } from "../errors.js";

/** Bits of buffers and shaders; WebGPU's own constants are globals that not every host has. */
export const USAGE = { mapRead: 1, copySource: 4, copyTarget: 8, uniform: 0x40, storage: 0x80 } as const;
export const COMPUTE_STAGE = 4;
export const MAP_READ = 1;

/** A GPU that is open. */
export interface Gpu {
  readonly device: GPUDevice;
  readonly facts: GpuFacts;
}

/** What a GPU says of itself. */
export interface GpuFacts {
  /** Its name, such as `NVIDIA H200`. */
  readonly name: string;
  /** Whether it is a program on the CPU. */
  readonly isSoftware: boolean;
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

/** Opens the GPU of this machine that WebGPU prefers. */
export async function openGpu(): Promise<Gpu> {
  const gpu = await findGpu();
  const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
  if (adapter === null) {
    throw new EngineLoadError(
      'the engine "webgpu" finds no adapter: WebGPU is here, but no GPU that it can use. On Linux install the ' +
        "Vulkan driver of the GPU and libvulkan1; without a GPU use --engine threads",
    );
  }
  const limits = limitsOf(adapter.limits);
  const features = wantedFeatures.filter((name) => adapter.features.has(name));
  // The least alignment is best as it is; a smaller one could be refused.
  const { minUniformBufferOffsetAlignment: _, ...requiredLimits } = limits;
  const device = await adapter.requestDevice({ requiredLimits, requiredFeatures: features });
  return { device, facts: { ...nameOf(adapter.info), limits, features } };
}

function limitsOf(limits: GPUSupportedLimits): Record<LimitName, number> {
  return Object.fromEntries(limitNames.map((name) => [name, limits[name]])) as Record<LimitName, number>;
}

function nameOf({ vendor, architecture, device, description }: GPUAdapterInfo) {
  const parts = [description || device, [vendor, architecture].filter(Boolean).join(" ")].filter(Boolean);
  const name = parts[0] ?? "unknown adapter";
  return { name, isSoftware: /swiftshader|llvmpipe|software|basic render/i.test(parts.join(" ")) };
}
