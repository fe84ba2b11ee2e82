import { importPackage } from "#platform/modules";
import { environment } from "#platform/system";
import { reasonOf } from "../../ir/errors.js";
import { lazily } from "../../ir/identity.js";
import { EngineLoadError } from "../errors.js";

const INSTALL = "npm install webgpu (Dawn, with binaries for Linux, macOS and Windows)";

/** WebGPU of this process: that of the host if it has one, else of the package `webgpu`. */
export async function findGpu(): Promise<GPU> {
  return globalThis.navigator?.gpu ?? dawn();
}

/** Made once: Dawn ends everything when this object is collected, although devices are still in use. */
const dawn = lazily(async (): Promise<GPU> => {
  const found = await load();
  if (isWebGpu(found)) return found.create(flags());
  throw new EngineLoadError(`the package "webgpu" exports no function create: ${INSTALL}`);
});

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

interface WebGpuPackage {
  create(flags: readonly string[]): GPU;
}

function isWebGpu(found: unknown): found is WebGpuPackage {
  return (
    typeof found === "object" && found !== null && "create" in found && typeof found.create === "function"
  );
}
