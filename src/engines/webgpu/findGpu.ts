import { importPackage } from "#platform/modules";
import { environment } from "#platform/system";
import { reasonOf } from "../../ir/errors.js";
import { lazily } from "../../ir/identity.js";
import { EngineLoadError } from "../errors.js";

const INSTALL = "npm install webgpu (Dawn, with binaries for Linux, macOS and Windows)";

/**
 * WebGPU of this process: that of the host if it has one, else of the package `webgpu`.
 *
 * @param matrices whether subgroup matrices are wanted, which Dawn counts as unsafe
 */
export async function findGpu(matrices: boolean): Promise<GPU> {
  return globalThis.navigator?.gpu ?? (matrices ? dawnWithMatrices() : dawn());
}

/** Made once: Dawn ends everything when this object is collected, although devices are still in use. */
const dawn = lazily(() => openDawn(flags()));
const dawnWithMatrices = lazily(() => openDawn(withMatrices(flags())));

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
