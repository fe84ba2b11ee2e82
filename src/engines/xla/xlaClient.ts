import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import type { XlaFlag } from "./pjrt/compileOptions.js";
import type { Unrolling } from "./stablehlo/unroll.js";
import type { FusedKernel } from "./stablehlo/writer.js";

/** What a client runs on. */
export interface XlaPlatform {
  /** The name of the platform, such as `cuda`. */
  readonly name: string;
  /** Its version, in words. */
  readonly version: string;
  /** What the devices are, such as `NVIDIA H200`. */
  readonly deviceKind: string;
  /** Operations for which the devices have dedicated kernels. */
  readonly kernels: readonly FusedKernel[];
  /** Which loops run faster on these devices when unrolled; none if undefined. */
  readonly unrolling?: Unrolling;
}

/** A run of a program that has been started. */
export interface XlaRun<A> {
  /** The results of every replica in this process. */
  readonly outputs: readonly (readonly A[])[];
  /** The number of executions that it consists of; 1 if undefined. */
  readonly numExecutions?: number;
  /** Settles some time after all replicas have finished; rejects if one of them failed. */
  readonly done: Promise<void>;
  /** Whether all replicas have finished, without waiting; where a client lacks it, only {@link done} tells. */
  poll?(): boolean;
  /** Makes {@link done} settle as soon as the replicas have finished; clients without it do so anyway. */
  hurry?(): void;
}

/** A program compiled by XLA. */
export interface XlaProgram<A> {
  /**
   * Starts one run off the calling thread. Runs are ordered by their calls, each of which follows the end of the start
   * before it.
   *
   * @param inputs the arguments of every replica in this process
   */
  execute(inputs: readonly (readonly A[])[]): Promise<XlaRun<A>>;
  /** The same on the calling thread, for programs that start quickly; not every client supports it. */
  executeNow?(inputs: readonly (readonly A[])[]): XlaRun<A>;
  /** Releases the program's resources after the runs that have been started. */
  destroy(): void;
}

/** How many bytes of a device's memory are in use. */
export interface XlaMemory {
  readonly used: number;
  /** The peak so far, if the client reports it. */
  readonly peak?: number;
  readonly capacity: number;
}

/**
 * A client of XLA: devices, arrays in their memory, and a compiler of StableHLO. `A` is the client's type of arrays.
 *
 * Arrays exist immediately; their elements may be written later. Errors are those of `errors.ts`.
 */
export interface XlaClient<A> {
  readonly platform: XlaPlatform;
  /** The number of devices of all processes. */
  readonly numDevices: number;
  /** The index of this process among those that share the devices, and their number. */
  readonly process: { readonly index: number; readonly count: number };
  /** The process that holds each device. */
  readonly processOfDevice?: readonly number[];
  /** Whether this process holds a device; arrays exist only on such devices. */
  isAddressable(device: number): boolean;
  /** Copies elements into a device's memory; the elements may change once the call has returned. */
  upload(type: TensorType, data: HostData, device: number): A;
  /** Copies elements to the host once they have been computed. */
  download(array: A, type: TensorType): Promise<HostData>;
  /** Starts copying an array to another device. */
  copy(array: A, device: number): A;
  /** Releases an array's memory once everything that was started has used it. */
  destroy(array: A): void;
  /**
   * Compiles a module of StableHLO.
   *
   * @param devices the device of every replica
   * @param flags XLA settings for this module, in addition to those of the client
   */
  compile(
    text: string,
    devices: readonly number[],
    flags?: Readonly<Record<string, XlaFlag>>,
  ): Promise<XlaProgram<A>>;
  /** The memory in use on a device, if the client reports it. */
  memory?(device: number): XlaMemory;
  /** Releases everything, after all work that has been started. */
  close(): Promise<void>;
}
