/** What is chosen for the devices that are worker threads of this process, and what is told of them. */
import type { WasmFeatures } from "../../compiler/wasm/features.js";
import { oneOf } from "../../ir/arguments.js";
import type { EngineInfo } from "../../ir/engineReports.js";
import { type OptionsOf, optional, schema } from "../../ir/schema.js";
import type { LayoutChoice, LayoutKind } from "../memory/memoryLayout.js";
import type { GemmKind } from "../products/gemmChoice.js";
import type { Fault } from "../protocol/faults.js";

/** The schema of {@link WorkersOptions}. */
export const workersOptions = schema({
  /**
   * Maximum memory of each device in bytes; it is address space, committed when it is used. By default devices grow on
   * demand, until together they have taken what was free when the engine was opened: of the machine, of its container,
   * and of the address space that `ulimit -v` leaves.
   */
  memoryBytes: optional("number"),
  /** How long a device may compute without beginning a new step before it counts as failed; 120 000 ms by default. */
  deadlineMs: optional("number"),
  /**
   * Which implementation multiplies matrices: our machine code, a BLAS library of the system, or WebAssembly. By
   * default `SHARDWISE_GEMM`, or else the first of them that is available.
   */
  gemm: optional(oneOf<GemmKind>("native", "blas", "wasm")),
  /**
   * How many threads compute for a device, its own included: they share its large matrix products and kernels, whose
   * results do not depend on their number. By default as many as there are cores for if products are our machine code,
   * else 1.
   */
  threadsPerDevice: optional("number"),
  /**
   * Whether each thread is pinned to its own processor, if there are enough and the system permits it (Linux). Useful
   * for programs that have the machine to themselves; two that pin to the same processors take turns. Off by default,
   * unless `SHARDWISE_PIN=1`.
   */
  pinned: optional("flag"),
});

/** What users choose for the devices of this process. */
export interface WorkersOptions extends OptionsOf<typeof workersOptions> {}

/** What worker threads run on. */
export interface WorkersInfo extends EngineInfo {
  readonly memoryBytes: number;
  /** Whether all devices share one address space (up to 4 GiB together) or have one each. */
  readonly memoryLayout: LayoutKind;
  /** The bits of an address: with 32 a device has up to 4 GiB, with 64 up to 16 GiB. */
  readonly addressBits: 32 | 64;
  /** Which implementation multiplies matrices, for example `native AVX-512`, or `native AVX-512 (bfloat16: AMX)`. */
  readonly gemm: string;
  /** Which implementation computes fused kernels, for example `native AVX-512`. */
  readonly kernels: string;
  /** What the runtime's WebAssembly supports. */
  readonly wasm: WasmFeatures;
  readonly numCores: number;
  /** How many threads share the large steps of a device, its own included. */
  readonly threadsPerDevice: number;
}

/**
 * Options for tests only.
 *
 * @internal
 */
export interface TestOptions {
  readonly faults?: readonly Fault[];
  readonly layout?: LayoutKind;
  /** What layouts devices can have. */
  readonly choices?: readonly LayoutChoice[];
}
