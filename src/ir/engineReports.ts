/** What an engine runs on; engines add what is particular to them. */
export interface EngineInfo {
  /** The engine's name. */
  readonly engine: string;
  readonly numDevices: number;
  /** The memory of each device in bytes. */
  readonly memoryBytes?: number;
  /** What the devices are, such as `NVIDIA H200`, where they are more than threads. */
  readonly deviceKind?: string;
  /** What multiplies matrices. */
  readonly gemm?: string;
  /** The share of a core's peak, as many multiply-adds as it can do, that its matrix products reach. */
  readonly gemmShareOfPeak?: number | undefined;
  /** How many cores the devices of this process share, where a device is computed by one. */
  readonly numCores?: number;
}

/** Who multiplies and how well, as a part of a sentence; nothing where the engine does not tell. */
export function describeProducts({ gemm, gemmShareOfPeak }: EngineInfo): string | undefined {
  if (gemm === undefined) return undefined;
  const share =
    gemmShareOfPeak === undefined ? "" : ` at ${Math.round(100 * gemmShareOfPeak)} % of a core's peak`;
  return `products by ${gemm}${share}`;
}

/** How many bytes of a device's memory are taken. */
export interface MemoryUsage {
  /** What buffers and programs take. */
  readonly used: number;
  /** The most that they took at any time so far, where the engine can tell. */
  readonly peak?: number;
  /** How much they could take. */
  readonly capacity: number;
  /** What is set aside for intermediate values of programs. */
  readonly arena: number;
  /** How much more all devices of the process can take together, where that is less than each for itself. */
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
  readonly source: string | undefined;
  readonly begin: number;
  readonly end: number;
  /** When, from `begin` to `end`, the device waited for others, as the end of a collective does. */
  readonly waits: readonly { readonly begin: number; readonly end: number }[];
}

/** Records what the devices of this process do. */
export interface Tracer {
  /** Records from now on, up to `capacity` steps, iterations and waits of each device. */
  start(capacity?: number): void;
  /** Ends the recording after what has been started so far, and gives what was recorded. */
  stop(): Promise<TraceEvent[]>;
}
