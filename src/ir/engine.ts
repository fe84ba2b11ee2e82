import type { HostData } from "./dtype.js";
import type { MeshShape } from "./mesh.js";
import type { Program } from "./program.js";
import type { TensorType } from "./shape.js";

/** A block of elements in one device's memory; only the engine that made it can read it. */
export interface DeviceBuffer {
  readonly type: TensorType;
}

/** What an executable is compiled for. */
export interface CompileOptions {
  /** The mesh whose axes the program's collectives name; its devices run the program together. */
  readonly mesh: MeshShape;
  /** The engine's device for every position of the mesh, row-major. */
  readonly devices: readonly number[];
  /** Which inputs may be overwritten; the caller does not use them again. */
  readonly donated?: readonly boolean[];
  /** A name for messages and traces. */
  readonly name?: string;
}

/** A compiled per-device program. */
export interface Executable {
  /**
   * Starts one run and returns at once; the results become readable when it has finished.
   *
   * @param inputs for every input of the program one buffer per mesh position
   * @returns for every output one buffer per mesh position; each is owned by the caller
   */
  execute(inputs: readonly (readonly DeviceBuffer[])[]): DeviceBuffer[][];
}

/** Something that runs programs: devices, their memory, and a compiler for them. */
export interface Engine {
  readonly name: string;
  /** How many devices there are; `Infinity` when they are simulated. */
  readonly numDevices: number;
  /** Compiles a per-device program; every device of the mesh runs the same one. */
  compile(program: Program, options: CompileOptions): Executable;
  /** Copies elements into a device's memory. */
  upload(type: TensorType, data: HostData, device: number): DeviceBuffer;
  /** Copies elements out, after everything that writes them has finished. */
  download(buffer: DeviceBuffer): Promise<HostData>;
  /** Waits until everything that writes the buffer has finished; throws what went wrong on the way. */
  ready(buffer: DeviceBuffer): Promise<void>;
  /** The elements if they can be read at once, without waiting; the caller does not change them. */
  peek(buffer: DeviceBuffer): HostData | undefined;
  /** Starts copying a buffer to another device of this engine and returns the copy at once. */
  transfer(buffer: DeviceBuffer, device: number): DeviceBuffer;
  /** Gives the buffer's memory back; the buffer is not used again. */
  release(buffer: DeviceBuffer): void;
  /** Stops all devices and gives everything back. */
  close(): Promise<void>;
}
