import { integerFrom, oneOf } from "../../ir/arguments.js";
import { getOrInsert } from "../../ir/collections.js";
import type { Engine } from "../../ir/engine.js";
import { ValueError } from "../../ir/errors.js";
import { lazily } from "../../ir/identity.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import { type Koffi, loadKoffi } from "../system/koffi.js";
import { XlaEngine } from "./engine.js";
import { XlaPluginError } from "./errors.js";
import { cacheFolder, ExecutableCache } from "./pjrt/cache.js";
import { type ClientOptions, PjrtClient, type PjrtCompileSettings } from "./pjrt/client.js";
import type { XlaFlag } from "./pjrt/compileOptions.js";
import { locatePlugin } from "./pjrt/locate.js";
import { Plugin } from "./pjrt/plugin.js";
import { findProcesses, type XlaProcesses } from "./processes.js";
import { ProcessStore } from "./store/openStore.js";
import type { XlaLowering } from "./xlaLowering.js";

const xlaEngineOptions = schema({
  /** The path of a PJRT plug-in; by default that of `SHARDWISE_PJRT_PLUGIN`, or the one installed for Python. */
  plugin: optional("path"),
  /**
   * The fraction of a GPU's memory to allocate up front, from 0 to 1. By default memory is allocated on demand, so that
   * other processes can use the device too.
   */
  memoryFraction: optional("number"),
  /**
   * XLA settings for every compilation, such as `xla_gpu_autotune_level`, in addition to those of
   * `SHARDWISE_XLA_FLAGS`.
   */
  flags: optional<Readonly<Record<string, XlaFlag>>>("object"),
  /** `plain` computes attention by products and a softmax even if the devices have a kernel for it. */
  attention: optional(oneOf("fused", "plain")),
  /** Precision of float32 products that do not specify one; float32 by default. */
  products: optional(oneOf("float32", "tf32"), "float32"),
  /**
   * Pretends that this many processes with one device each exist, to check on one GPU whether programs for them
   * compile; the results of collectives are meaningless then.
   */
  pretendDevices: optional(integerFrom(1)),
  /**
   * The other processes that run programs together with this one. By default they come from `SHARDWISE_COORDINATOR`,
   * `SHARDWISE_PROCESS_INDEX` and `SHARDWISE_PROCESS_COUNT`, or from a launcher (`srun`, `mpirun`); `false` for none.
   */
  processes: optional<Partial<XlaProcesses> | false>("any"),
  /** The cache folder for compiled programs; by default `SHARDWISE_XLA_CACHE`, or a folder in the user's cache. */
  cache: optional<string | false>("any"),
});

/** Options of an XLA engine. */
export interface XlaEngineOptions extends OptionsOf<typeof xlaEngineOptions> {}

/** A plug-in keeps its devices until the process ends, so each plug-in is opened once. */
const clients = new Map<string, PjrtClient>();

/** By the address of process 0. */
const stores = new Map<string, ProcessStore>();

/**
 * Opens an engine whose devices are the GPUs or TPUs of this machine, through a PJRT plug-in of XLA.
 *
 * ```ts
 * const engine = createXlaEngine();
 * const mesh = Mesh.create({ data: 1 }, { engine });
 * ```
 */
export function createXlaEngine(given?: XlaEngineOptions): Engine {
  const options = xlaEngineOptions.read(given, "createXlaEngine");
  const { memoryFraction } = options;
  if (memoryFraction !== undefined && !(memoryFraction > 0 && memoryFraction <= 1)) {
    throw new ValueError(
      `[createXlaEngine] memoryFraction ${memoryFraction} is not a fraction of a device's memory: use a number above 0 and up to 1`,
    );
  }
  const opening = openingOf(options.plugin ?? locatePlugin(), options);
  const { key, path, settings, compiling, processes } = opening;
  const store = processes && storeOf(processes);
  const client = getOrInsert(clients, key, () =>
    PjrtClient.open(new Plugin(koffi(), path), settings, compiling, store?.callbacks()),
  );
  const attention = options.attention ?? process.env.SHARDWISE_XLA_ATTENTION ?? "fused";
  if (attention !== "fused" && attention !== "plain") {
    throw new ValueError(`SHARDWISE_XLA_ATTENTION is "${attention}": use fused or plain`);
  }
  const lowering: XlaLowering = {
    kernels: client.platform.kernels.filter((kernel) => attention !== "plain" || kernel !== "attention"),
    precision: options.products === "tf32" ? "high" : "highest",
    // XLA aborts if autotuning of products is disabled, as for deterministic ops, because the settings for unrolled
    // loops leave it no other way to choose an algorithm. So loops are not unrolled if the user has set flags.
    unrolling: Object.keys(compiling.flags).length === 0 ? client.platform.unrolling : undefined,
  };
  return new XlaEngine(client, lowering, store);
}

/**
 * Opens the devices of {@link createXlaEngine} without options on another thread, which it has begun when it returns.
 * Devices of several processes are left to createXlaEngine, as are failures, which it reports.
 */
export const openXlaAhead = lazily(async (): Promise<void> => {
  try {
    const { key, path, settings, compiling, processes } = openingOf(locatePlugin(), {});
    if (processes || clients.has(key)) return;
    const client = await PjrtClient.openAway(new Plugin(koffi(), path), settings, compiling);
    getOrInsert(clients, key, () => client);
  } catch {
    // createXlaEngine will fail in the same way.
  }
});

/** The store shared with these processes; one for each group of processes. */
function storeOf(processes: XlaProcesses): ProcessStore {
  return getOrInsert(stores, processes.coordinator, () => ProcessStore.open(processes));
}

/** How a client is opened. */
interface Opening {
  /** The same for the same client. */
  readonly key: string;
  /** The path of the plug-in. */
  readonly path: string;
  readonly settings: ClientOptions;
  readonly compiling: PjrtCompileSettings;
  readonly processes: XlaProcesses | undefined;
}

function openingOf(path: string, options: XlaEngineOptions): Opening {
  const { cache, pretendDevices } = options;
  const flags = {
    // Processes that do not exist cannot take part in autotuning, and XLA would wait for them.
    ...(pretendDevices === undefined ? {} : { xla_gpu_shard_autotuning: false }),
    ...flagsOf(process.env.SHARDWISE_XLA_FLAGS ?? ""),
    ...options.flags,
  };
  const folder = cache === false ? undefined : (cache ?? cacheFolder());
  const processes = pretendDevices === undefined ? findProcesses(options.processes) : undefined;
  const settings = clientOptions(path, options, processes);
  const key = JSON.stringify([path, Object.entries(settings).map(String), flags, folder, processes]);
  const compiling = { flags, cache: folder === undefined ? undefined : new ExecutableCache(folder) };
  return { key, path, settings, compiling, processes };
}

function koffi(): Koffi {
  const found = loadKoffi();
  if (found === undefined) {
    throw new XlaPluginError(
      "the package koffi, which calls native libraries, is not installed here: `npm install koffi`",
    );
  }
  // Otherwise XLA logs some thirty lines at startup.
  process.env.TF_CPP_MIN_LOG_LEVEL ??= "2";
  return found;
}

/** Only CUDA plug-ins know these names. */
function clientOptions(
  path: string,
  { memoryFraction, pretendDevices }: XlaEngineOptions,
  processes: XlaProcesses | undefined,
): ClientOptions {
  const others =
    pretendDevices === undefined ? {} : { enable_mock_nccl: true, num_nodes: BigInt(pretendDevices) };
  const own = processes && {
    node_id: BigInt(processes.index),
    num_nodes: BigInt(processes.count),
    ...(processes.localDevices ? { visible_devices: processes.localDevices.map(BigInt) } : {}),
  };
  const together = { ...others, ...own };
  if (!path.includes("cuda")) return together;
  return memoryFraction === undefined
    ? { preallocate: false, ...together }
    : { preallocate: true, memory_fraction: memoryFraction, ...together };
}

/** Parses settings in the form of the environment variable: `name=value,name=value`. */
export function flagsOf(text: string): Record<string, XlaFlag> {
  const flags: Record<string, XlaFlag> = {};
  for (const part of text.split(",").filter((one) => one.trim() !== "")) {
    const [name = "", value] = part.trim().split("=");
    if (value === undefined) {
      throw new ValueError(
        `SHARDWISE_XLA_FLAGS: "${part}" is not a setting: write name=value, with commas between`,
      );
    }
    const number = Number(value);
    flags[name] =
      value === "true" || value === "false" ? value === "true" : Number.isNaN(number) ? value : number;
  }
  return flags;
}
