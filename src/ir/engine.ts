import type { HostData } from "./dtype.js";
import type { EngineInfo, MemoryUsage, Tracer } from "./engineReports.js";
import type { FlightRecording } from "./flight.js";
import type { MeshShape } from "./mesh.js";
import type { Program } from "./program.js";
import type { TensorType } from "./shape.js";

/** A block of elements in one device's memory; only the engine that made it can read it. */
export interface DeviceBuffer {
  readonly type: TensorType;
  /** Whether it can be used: it was neither released nor donated. One that cannot tell may be. */
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
   * Which inputs may be overwritten; the caller does not use them again. A run that is refused takes none of them, one
   * that was started takes all, whatever becomes of it. A buffer that is another input as well cannot be donated.
   */
  readonly donated?: readonly boolean[];
  /** A name for messages and traces. */
  readonly name?: string;
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
  /** Gives back what the program holds, after the runs that were started; later calls do nothing. */
  release(): void;
}

/** Something that runs programs: devices, their memory, and a compiler for them. */
export interface Engine {
  readonly name: string;
  /** How many devices all processes have together; `Infinity` when they are simulated. */
  readonly numDevices: number;
  /** Which of the processes that share the devices this one is, and how many there are: mostly 0 of 1. */
  readonly process: { readonly index: number; readonly count: number };
  /** Whether this process holds a device: only there it uploads to, copies to and reads from. */
  isAddressable(device: number): boolean;
  /** Compiles a per-device program; every device of the mesh runs the same one. */
  compile(program: Program, options: CompileOptions): Executable;
  /** Copies elements into an addressable device's memory. */
  upload(type: TensorType, data: HostData, device: number): DeviceBuffer;
  /** Copies elements out, after everything that writes them has finished. */
  download(buffer: DeviceBuffer): Promise<HostData>;
  /** Waits until everything that writes the buffer has finished; throws what went wrong on the way. */
  ready(buffer: DeviceBuffer): Promise<void>;
  /** The elements if they can be read at once, without waiting; the caller does not change them. */
  peek(buffer: DeviceBuffer): HostData | undefined;
  /** Starts copying a buffer to another addressable device of this engine and returns the copy at once. */
  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer;
  /** Gives the buffer's memory back; the buffer is not used again. */
  release(buffer: DeviceBuffer): void;
  /** Stops all devices and gives everything back. */
  close(): Promise<void>;

  /**
   * The elements, after waiting for them on the calling thread; left out where that thread has to go on meanwhile. The
   * caller does not change them.
   */
  readNow?(buffer: DeviceBuffer): HostData;
  /** Whether it still runs programs: it was not closed and no device failed. An engine that cannot tell is open. */
  readonly isOpen?: boolean;
  /** Whether the memory of buffers that nothing refers to is collected by itself, as arrays of the host are. */
  readonly selfCollecting?: boolean;
  /** What it runs on. */
  info?(): EngineInfo;
  /** How many bytes of an addressable device's memory are taken. */
  memoryUsage?(device: number): MemoryUsage;
  /** Where a device is, so that meshes can keep neighbours near each other; all are together where nobody says. */
  placeOf?(device: number): DevicePlace;
  /** Gives every process the texts of all, in their order; they all call it together, as often and in one order. */
  share?(text: string): Promise<string[]>;
  /**
   * By how many milliseconds `performance.now()` of process 0 is ahead of this one's; all processes call it together.
   */
  clockAhead?(): number;
  /** Records what its devices do. */
  readonly tracer?: Tracer;
  /** Says where processes write down what their devices did last when one of them fails. */
  keepFlightsIn?(folder: string): void;
  /** What its devices did last, also after one of them failed. @param reason why it is wanted */
  flightRecording?(reason: string): FlightRecording;
}
