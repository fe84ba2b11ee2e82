import type { GemmKind } from "../products/gemmChoice.js";
import type { WorkersInfo } from "../workers/workersEngine.js";

/** Options of a threads engine. */
export interface ThreadsEngineOptions {
  /** The number of devices, each a worker thread. */
  readonly numDevices: number;
  /**
   * Maximum memory of each device in bytes; it is address space, committed when it is used. By default devices grow on
   * demand, until together they have taken what was free when the engine was opened: of the machine, of its container,
   * and of the address space that `ulimit -v` leaves.
   */
  readonly memoryBytes?: number;
  /** How long a device may compute without beginning a new step before it counts as failed; 120 000 ms by default. */
  readonly deadlineMs?: number;
  /**
   * Which implementation multiplies matrices: our machine code, a BLAS library of the system, or WebAssembly. By
   * default `SHARDWISE_GEMM`, or else the first of them that is available.
   */
  readonly gemm?: GemmKind;
  /**
   * How many threads compute for a device, its own included: they share its large matrix products and kernels, whose
   * results do not depend on their number. By default as many as there are cores for if products are our machine code,
   * else 1.
   */
  readonly threadsPerDevice?: number;
  /**
   * Whether each thread is pinned to its own processor, if there are enough and the system permits it (Linux). Useful
   * for programs that have the machine to themselves; two that pin to the same processors take turns. Off by default,
   * unless `SHARDWISE_PIN=1`.
   */
  readonly pinned?: boolean;
}

/** What a threads engine runs on. */
export interface ThreadsEngineInfo extends WorkersInfo {
  readonly engine: "threads";
}
