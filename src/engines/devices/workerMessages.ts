import type { CollectiveSpec, CompiledProgram, SlotBase, Step } from "../../compiler/steps.js";
import type { LoadedModule } from "../kernels/loadKernels.js";
import type { MemoryLayout } from "../memory/memoryLayout.js";
import type { GemmChoice } from "../products/gemmChoice.js";
import type { CrewMemory } from "../protocol/crew.js";
import type { Fault } from "../protocol/faults.js";
import type { DeviceLocations } from "../protocol/locations.js";

/** What a worker is started with. */
export interface WorkerSetup {
  readonly device: number;
  readonly control: Int32Array;
  readonly commands: Int32Array;
  /** The ring of the device's flight recorder. */
  readonly flight: Float64Array;
  readonly layout: MemoryLayout;
  readonly moveModule: WebAssembly.Module;
  /** Where the device has its scratch memory; see `scratch.ts`. */
  readonly scratch: number;
  /** Whether there are more workers than cores. */
  readonly crowded: boolean;
  /** Which implementation multiplies matrices. */
  readonly gemm: GemmChoice;
  /** What the device shares with the threads that help it; undefined when it computes alone. */
  readonly crew: CrewMemory | undefined;
  /** How many threads compute for the device, its own included. */
  readonly threads: number;
  /** The processors to which threads are pinned, device by device; empty if they are not pinned. */
  readonly cores: readonly number[];
  /** The main thread's `performance.timeOrigin`, to which trace times refer. */
  readonly timeOrigin: number;
  readonly faults: readonly Fault[];
}

/** A program as a worker needs it: without what only error messages need. */
export interface LoadMessage {
  readonly kind: "load";
  readonly id: number;
  /** The number by which the device's helpers know the program in the device's current memory. */
  readonly sending: number;
  readonly name: string;
  readonly modules: readonly LoadedModule[];
  /** The WebAssembly kernel for matrix products that no other implementation computes, if the program has any. */
  readonly gemmModule: WebAssembly.Module | undefined;
  readonly steps: readonly Step[];
  readonly slots: readonly SlotBase[];
  readonly numInputs: number;
  readonly numOutputs: number;
  readonly constants: CompiledProgram["constants"];
  readonly collectives: readonly CollectiveSpec[];
  readonly addresses: ProgramAddresses;
  /** For every collective that has staging memory where it begins, as an offset into the program's. */
  readonly staging: readonly (number | undefined)[];
  /** The device's position in the program's mesh. */
  readonly position: number;
  readonly locations: DeviceLocations;
  /** The words the program's collectives share. */
  readonly words: Int32Array;
  /** Where the device hands values to host callbacks, when the program calls any. */
  readonly calls: Uint8Array | undefined;
}

/** Where the parts of a loaded program lie in a device's memory. */
export interface ProgramAddresses {
  readonly constants: number;
  readonly table: number;
  readonly staging: number;
  readonly arena: number;
  readonly arenaBytes: number;
}

/** Elements for a buffer whose memory earlier runs may still use. */
export interface UploadMessage {
  readonly kind: "upload";
  readonly address: number;
  readonly bytes: Uint8Array;
}

/** The device's memory is another one from now on; programs are loaded again after it. */
export interface MoveMessage {
  readonly kind: "move";
  readonly layout: MemoryLayout;
  /** The kernels for copies and collectives there. */
  readonly moveModule: WebAssembly.Module;
  /** Where the device has its scratch memory there. */
  readonly scratch: number;
  /** How many bytes from the start of the old memory are in use and are copied. */
  readonly bytes: number;
}

/** Where to record steps from now on; `undefined` ends the recording. */
export interface TraceMessage {
  readonly kind: "trace";
  readonly buffer: Float64Array | undefined;
}

/** What the main thread leaves in a worker's port for a `message` command. */
export type WorkerMessage = LoadMessage | UploadMessage | MoveMessage | TraceMessage;
