import { importPackage } from "#platform/modules";
import { environment } from "#platform/system";
import { getOrInsert } from "../../ir/collections.js";
import { reasonOf } from "../../ir/errors.js";
import { EngineLoadError } from "../errors.js";

const INSTALL = "npm install webgpu (Dawn, with binaries for Linux, macOS and Windows)";

/**
 * WebGPU of this process: that of the host if it has one, else of the package `webgpu`.
 *
 * @param matrices whether subgroup matrices are wanted, which Dawn counts as unsafe
 * @param adapter a part of the name of the adapter that is wanted, which only Dawn can be asked for
 */
export async function findGpu(matrices: boolean, adapter?: string): Promise<GPU> {
  const found = globalThis.navigator?.gpu;
  if (found === undefined) return dawn(matrices, adapter);
  if (adapter === undefined) return found;
  throw new EngineLoadError(
    `the adapter ${JSON.stringify(adapter)} cannot be asked for by its name, as this host has WebGPU itself: use "high-performance" or "low-power"`,
  );
}

/** Kept: Dawn ends everything when such an object is collected, although devices are still in use. */
const opened = new Map<string, Promise<GPU>>();

function dawn(matrices: boolean, adapter: string | undefined): Promise<GPU> {
  const given = matrices ? withMatrices(flags()) : flags();
  const named = adapter === undefined ? given : [...given, `adapter=${adapter}`];
  return getOrInsert(opened, JSON.stringify(named), () => openDawn(named));
}

async function openDawn(settings: readonly string[]): Promise<GPU> {
  const found = await load();
  if (isWebGpu(found)) return found.create(settings);
  throw new EngineLoadError(`the package "webgpu" exports no function create: ${INSTALL}`);
}

async function load(): Promise<unknown> {
  const found = await importPackage("webgpu").catch((cause) => {
    throw new EngineLoadError(`the package "webgpu" cannot be loaded: ${reasonOf(cause)}`, { cause });
  });
  if (found !== undefined) return found;
  throw new EngineLoadError(
    `the engine "webgpu" needs WebGPU, which Node does not have itself: ${INSTALL}, in the folder of the program`,
  );
}

const DEFAULT_FLAGS = "enable-dawn-features=disable_robustness disable-dawn-features=timestamp_quantization";

/**
 * Settings of Dawn, one after the other with spaces. By default it does not check indices: pages must not trust shaders,
 * but these are written here, and clamp or drop indices that a program computes themselves. Nor does it round times.
 */
function flags(): string[] {
  const named = environment.SHARDWISE_DAWN ?? DEFAULT_FLAGS;
  return named.split(/\s+/).filter((flag) => flag !== "");
}

const ENABLE = "enable-dawn-features=";
const MATRIX_FEATURES = "allow_unsafe_apis,vulkan_enable_f16_on_nvidia";

/** Settings with those that subgroup matrices of float16 need; Dawn reads one list of features. */
function withMatrices(settings: readonly string[]): string[] {
  const [enabled = ENABLE] = settings.filter((flag) => flag.startsWith(ENABLE));
  const others = settings.filter((flag) => flag !== enabled);
  return [...others, `${enabled}${enabled === ENABLE ? "" : ","}${MATRIX_FEATURES}`];
}

interface WebGpuPackage {
  create(flags: readonly string[]): GPU;
}

function isWebGpu(found: unknown): found is WebGpuPackage {
  return (
    typeof found === "object" && found !== null && "create" in found && typeof found.create === "function"
  );
}
