import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import type { XlaFlag } from "./pjrt/compileOptions.js";
import type { WriteOut } from "./stablehlo/writeOut.js";
import type { FusedKernel } from "./stablehlo/writer.js";

/** What a client runs on. */
export interface XlaPlatform {
  /** The name of the platform, such as `cuda`. */
  readonly name: string;
  /** Its version in words. */
  readonly version: string;
  /** What the devices are, such as `NVIDIA H200`. */
  readonly deviceKind: string;
  /** What the devices have kernels of their own for. */
  readonly kernels: readonly FusedKernel[];
  /** Which loops the devices run faster when they are written out; none where it says nothing. */
  readonly writeOut?: WriteOut;
}

/** One run of a program that was started. */
export interface XlaRun<A> {
  /** For every replica of this process its results. */
  readonly outputs: readonly (readonly A[])[];
  /** Settles some time after all replicas have finished; says what went wrong on the way. */
  readonly done: Promise<void>;
  /** Whether all replicas have finished, found out without waiting; only {@link done} tells where this cannot. */
  poll?(): boolean;
  /** Lets {@link done} settle as soon as the replicas have finished; it does by itself where this is not there. */
  hurry?(): void;
}

/** A program that XLA compiled. */
export interface XlaProgram<A> {
  /**
   * Starts one run, away from the calling thread; runs are in the order of the calls.
   *
   * @param inputs for every replica of this process its arguments
   */
  execute(inputs: readonly (readonly A[])[]): Promise<XlaRun<A>>;
  /** The same on the calling thread, for programs whose start takes no time; clients may have no such way. */
  executeNow?(inputs: readonly (readonly A[])[]): XlaRun<A>;
  /** Gives back what the program holds, after the runs that were started. */
  destroy(): void;
}

/** How many bytes of a device's memory are taken. */
export interface XlaMemory {
  readonly used: number;
  /** The most that was taken so far, if the client can tell. */
  readonly peak?: number;
  readonly capacity: number;
}

/**
 * A client of XLA: devices, arrays in their memory, and a compiler of StableHLO. `A` is what it calls an array.
 *
 * Arrays are there at once; what is written into them may come later. Errors are those of `errors.ts`.
 */
export interface XlaClient<A> {
  readonly platform: XlaPlatform;
  /** How many devices all processes have together. */
  readonly numDevices: number;
  /** Which of the processes that share the devices this one is, and how many there are. */
  readonly process: { readonly index: number; readonly count: number };
  /** For every device the process that holds it. */
  readonly processOfDevice?: readonly number[];
  /** Whether this process holds a device: only there it has arrays. */
  isAddressable(device: number): boolean;
  /** Copies elements into a device's memory; the elements may change as soon as the call is over. */
  upload(type: TensorType, data: HostData, device: number): A;
  /** Copies elements out when they are there. */
  download(array: A, type: TensorType): Promise<HostData>;
  /** Starts copying an array to another device. */
  copy(array: A, device: number): A;
  /** Gives an array's memory back when everything that was started has used it. */
  destroy(array: A): void;
  /**
   * Compiles a module of StableHLO.
   *
   * @param devices the device of every replica
   * @param flags settings of XLA for this module, beside those that hold for all
   */
  compile(
    text: string,
    devices: readonly number[],
    flags?: Readonly<Record<string, XlaFlag>>,
  ): Promise<XlaProgram<A>>;
  /** What is taken of a device's memory, if the client can tell. */
  memory?(device: number): XlaMemory;
  /** Gives everything back, after what was started. */
  close(): Promise<void>;
}
