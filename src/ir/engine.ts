import type { Kind } from "./arguments.js";
import type { HostData } from "./dtype.js";
import type { EngineInfo, MemoryUsage, Tracer } from "./engineReports.js";
import type { FlightRecording } from "./flight.js";
import type { MeshShape } from "./mesh.js";
import type { Program } from "./program.js";
import type { TensorType } from "./shape.js";

/** A block of elements in one device's memory; only the engine that made it can read it. */
export interface DeviceBuffer {
  readonly type: TensorType;
  /** Whether it can be used: it was neither released nor donated. Without this method it is assumed to be usable. */
  readonly isLive?: boolean;
}

/** Where a device is. */
export interface DevicePlace {
  /** The process that holds it. */
  readonly process: number;
  /** The name of the machine. */
  readonly host: string;
}

/** What an executable is compiled for. */
export interface CompileOptions {
  /** The mesh whose axes the program's collectives name; its devices run the program together. */
  readonly mesh: MeshShape;
  /** The engine's device for every position of the mesh, row-major; other processes may hold some of them. */
  readonly devices: readonly number[];
  /**
   * Which inputs may be overwritten; the caller does not use them again. A run that is refused takes none of them; one
   * that was started takes all, even if it fails. A buffer that is another input as well cannot be donated.
   */
  readonly donated?: readonly boolean[];
  /** A name for messages and traces. */
  readonly name?: string;
  /** What another thread made of the program with {@link Engine.compileSettings}, so that only the rest is done here. */
  readonly prepared?: unknown;
}

/** A compiled per-device program. */
export interface Executable {
  /**
   * Starts one run and returns at once; the results become readable when it has finished. Where several processes
   * hold the devices, each of them starts the same runs in the same order.
   *
   * @param inputs for every input of the program one buffer per addressable mesh position, in their order
   * @returns for every output one buffer per addressable mesh position; each is owned by the caller
   */
  execute(inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][];
  /** Releases what the program holds once the runs already started have finished; later calls do nothing. */
  release(): void;
}

/** Something that runs programs: devices, their memory, and a compiler for them. */
export interface Engine {
  readonly name: string;
  /** How many devices all processes have together; `Infinity` when they are simulated. */
  readonly numDevices: number;
  /** The index of this process among those that share the devices, and their number: usually 0 of 1. */
  readonly process: { readonly index: number; readonly count: number };
  /** Whether this process holds a device: it can upload to, copy to and read from no others. */
  isAddressable(device: number): boolean;
  /** Compiles a per-device program; every device of the mesh runs the same one. */
  compile(program: Program, options: CompileOptions): Executable;
  /** Copies elements into an addressable device's memory. */
  upload(type: TensorType, data: HostData, device: number): DeviceBuffer;
  /**
   * Lets `fill` write elements into memory of an addressable device itself. Undefined without a call of `fill` if earlier
   * runs still use the free memory; omitted where only {@link Engine.upload} reaches it.
   */
  uploadBy?(
    type: TensorType,
    device: number,
    fill: (memory: Uint8Array) => Promise<void>,
  ): Promise<DeviceBuffer | undefined>;
  /** Copies elements out, after everything that writes them has finished. */
  download(buffer: DeviceBuffer): Promise<HostData>;
  /**
   * Copies bytes of the elements from `start` on into all of `target`, after everything that writes them has finished;
   * omitted where only whole buffers can be copied.
   */
  downloadInto?(buffer: DeviceBuffer, start: number, target: Uint8Array): Promise<void>;
  /** Waits until everything that writes the buffer has finished; throws if any of it failed. */
  ready(buffer: DeviceBuffer): Promise<void>;
  /** The elements if they can be read at once, without waiting; the caller does not change them. */
  peek(buffer: DeviceBuffer): HostData | undefined;
  /** Starts copying a buffer to another addressable device of this engine and returns the copy at once. */
  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer;
  /** Releases the buffer's memory; the buffer is not used again. */
  release(buffer: DeviceBuffer): void;
  /** Stops all devices and releases all resources. */
  close(): Promise<void>;
  /** Calls an action when the engine is closed; the function it returns takes that back. */
  onClose?(action: () => void): () => void;

  /**
   * The elements, after waiting for them on the calling thread; omitted where that thread must not block. The caller
   * does not change them.
   */
  readNow?(buffer: DeviceBuffer): HostData;
  /**
   * Whether it still runs programs: it was not closed and no device failed. Without this method an engine counts as
   * open.
   */
  readonly isOpen?: boolean;
  /** Whether the memory of unreachable buffers is collected automatically, as that of host arrays is. */
  readonly selfCollecting?: boolean;
  /** What it runs on. */
  info?(): EngineInfo;
  /** How much of an addressable device's memory is in use. */
  memoryUsage?(device: number): MemoryUsage;
  /** Where a device is, so that meshes can keep neighbours close; without this method all count as one process. */
  placeOf?(device: number): DevicePlace;
  /**
   * Gives every process the strings of all processes, in their order; a collective call: all processes make the same
   * calls in the same order.
   */
  share?(text: string): Promise<string[]>;
  /**
   * By how many milliseconds `performance.now()` of process 0 is ahead of this one's; all processes call it together.
   */
  clockAhead?(): number;
  /**
   * What another thread needs to compile for these devices; omitted, or undefined, where only this thread can.
   */
  compileSettings?(devices: readonly number[]): unknown;
  /** Records what its devices do. */
  readonly tracer?: Tracer;
  /** Sets where processes write the last events of their devices when one of them fails. */
  keepFlightsIn?(folder: string): void;
  /** The last events of its devices, also after one of them failed. @param reason why it is taken */
  flightRecording?(reason: string): FlightRecording;
}

/** The kind of options that are engines; one of another package is known by its methods. */
export const engineKind: Kind<Engine> = {
  says: "an engine",
  is: (value) =>
    typeof value === "object" && value !== null && "compile" in value && typeof value.compile === "function",
  advice: "open one with openEngine",
};
