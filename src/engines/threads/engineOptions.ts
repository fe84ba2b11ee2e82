import type { WasmFeatures } from "../../compiler/wasm/features.js";
import type { EngineInfo } from "../../ir/engineReports.js";
import type { LayoutChoice, LayoutKind } from "../memory/memoryLayout.js";
import type { GemmKind } from "../products/gemmChoice.js";
import type { Fault } from "../protocol/faults.js";
import type { StagingPlanner } from "../workers/programs.js";

/** How a threads engine is made. */
export interface ThreadsEngineOptions {
  /** How many devices, each a worker thread. */
  readonly numDevices: number;
  /**
   * The most memory of each device in bytes; address space, which becomes real memory when it is used. By default
   * devices grow as they need, until they have taken together what was free when the engine was opened: of the
   * machine, of its container, and of the address space that `ulimit -v` leaves.
   */
  readonly memoryBytes?: number;
  /** For how long a device may compute without beginning a new step before it counts as failed; 120 000 ms. */
  readonly deadlineMs?: number;
  /**
   * Who multiplies matrices: machine code of our own, a BLAS library of the system, or WebAssembly. By default what
   * the environment variable `SHARDWISE_GEMM` says, else the first of them that there is.
   */
  readonly gemm?: GemmKind;
  /**
   * How many threads compute for a device, its own included: they share its large matrix products and kernels,
   * whose results do not depend on their number. By default those for which there are cores, where products are
   * machine code of our own; else 1.
   */
  readonly threadsPerDevice?: number;
  /**
   * Whether each thread stays on a processor of its own, where there are enough of them and the system lets it (Linux).
   * Good for programs that have the machine to themselves; two that pin to the same processors take turns. By default
   * what `SHARDWISE_PIN=1` says.
   */
  readonly pinned?: boolean;
}

/** What a threads engine runs on. */
export interface ThreadsEngineInfo extends EngineInfo {
  readonly engine: "threads";
  readonly memoryBytes: number;
  /** Whether all devices share one address space (up to 4 GiB together) or have one each. */
  readonly memoryLayout: LayoutKind;
  /** The bits of an address: with 32 a device has up to 4 GiB, with 64 up to 16. */
  readonly addressBits: 32 | 64;
  /** Who multiplies matrices, for example `native AVX-512`, or `native AVX-512 (bfloat16: AMX)`. */
  readonly gemm: string;
  /** Who computes fused kernels, for example `native AVX-512`. */
  readonly kernels: string;
  /** What the host's WebAssembly can do. */
  readonly wasm: WasmFeatures;
  readonly numCores: number;
  /** How many threads share the large steps of a device, its own included. */
  readonly threadsPerDevice: number;
}

/** Things only tests may ask for. */
export interface TestOptions {
  readonly faults?: readonly Fault[];
  readonly layout?: LayoutKind;
  /** What layouts devices can have. */
  readonly choices?: readonly LayoutChoice[];
}

/**
 * What makes a threads engine the part of a larger one that this process holds.
 *
 * @internal
 */
export interface PartOptions {
  /** The module that workers start from, and what it needs besides. */
  readonly entry: URL;
  readonly extra: unknown;
  /** The number that messages give this process's first device. */
  readonly firstDevice: number;
  /** How many cores this process has. */
  readonly numCores: number;
  /** The share of the machine's memory that this process may have. */
  readonly memoryShare: number;
  readonly planStaging: StagingPlanner;
}
