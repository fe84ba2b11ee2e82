import type { ControlRole } from "./ops.js";

/** What an engine runs on; engines add what is particular to them. */
export interface EngineInfo {
  /** The engine's name. */
  readonly engine: string;
  readonly numDevices: number;
  /** The memory of each device in bytes. */
  readonly memoryBytes?: number;
  /** What the devices are, such as `NVIDIA H200`, unless they are threads. */
  readonly deviceKind?: string;
  /** Which implementation multiplies matrices. */
  readonly gemm?: string;
  /** The fraction of a core's peak multiply-add rate that its matrix products reach. */
  readonly gemmShareOfPeak?: number | undefined;
  /** How many cores the devices of this process share, where a core runs a device. */
  readonly numCores?: number;
}

/** Which implementation multiplies matrices and how well, as part of a sentence; empty if the engine does not say. */
export function describeProducts({ gemm, gemmShareOfPeak }: EngineInfo): string | undefined {
  if (gemm === undefined) return undefined;
  const share =
    gemmShareOfPeak === undefined ? "" : ` at ${Math.round(100 * gemmShareOfPeak)} % of a core's peak`;
  return `products by ${gemm}${share}`;
}

/** How many bytes of a device's memory are in use. */
export interface MemoryUsage {
  /** Bytes that buffers and programs use. */
  readonly used: number;
  /** Their peak so far, where the engine knows it. */
  readonly peak?: number;
  /** How many bytes they could use. */
  readonly capacity: number;
  /** Bytes reserved for intermediate values of programs. */
  readonly arena: number;
  /**
   * How many more bytes all devices of the process can use together, where that is less than the sum of their limits.
   */
  readonly together?: number;
}

/**
 * One step of one device, or one iteration of a loop, while a trace was recorded; times are milliseconds on the
 * main thread's clock.
 */
export interface TraceEvent {
  readonly device: number;
  readonly program: string;
  /** The number of the step; an iteration has that of its loop. */
  readonly step: number;
  /** The kind of the step: `kernel`, `gemm`, `start`, `done`, …, or `iteration`. */
  readonly kind: string;
  /** For an iteration: which one, counted from 0 in the order in which they ran. */
  readonly iteration: number | undefined;
  /** The ops it computes. */
  readonly ops: readonly string[];
  /** What a loop or a choice stands for, such as the slots of a pipeline schedule, if the program says so. */
  readonly role?: ControlRole | undefined;
  readonly source: string | undefined;
  readonly begin: number;
  readonly end: number;
  /** When, from `begin` to `end`, the device waited for others, as the end of a collective does. */
  readonly waits: readonly { readonly begin: number; readonly end: number }[];
}

/** Records what the devices of this process do. */
export interface Tracer {
  /** Whether a run of a program is one event, since the engine does not see its steps. */
  readonly wholeRuns?: true;
  /** Records from now on, up to `capacity` steps, iterations and waits of each device. */
  start(capacity?: number): void;
  /** Ends the recording once everything started so far has finished, and returns it. */
  stop(): Promise<TraceEvent[]>;
}
