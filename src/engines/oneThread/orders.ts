/** What the engine and its worker say to each other, in order: nothing is shared between them. */
import type { CompiledProgram } from "../../compiler/steps.js";
import type { HostData } from "../../ir/dtype.js";
import type { TensorType } from "../../ir/shape.js";
import type { Failure } from "../../platform/failures.js";
import type { DevicePosition } from "../errors.js";

/** What the worker is started with. */
export interface Setup {
  readonly deadlineMs: number | undefined;
}

/** What the worker is told; buffers and programs go by numbers that the engine gives them. */
export type Order =
  | {
      readonly kind: "load";
      readonly program: number;
      /** Without its callbacks, which stay on the thread that made them. */
      readonly compiled: CompiledProgram;
      readonly devices: readonly number[];
    }
  | { readonly kind: "unload"; readonly program: number }
  | {
      readonly kind: "upload";
      readonly buffer: number;
      readonly type: TensorType;
      readonly data: HostData;
    }
  | { readonly kind: "copy"; readonly from: number; readonly to: number }
  | { readonly kind: "release"; readonly buffers: readonly number[] }
  | {
      readonly kind: "run";
      readonly program: number;
      /** For every input one buffer per device, and the same for every output. */
      readonly inputs: readonly (readonly number[])[];
      readonly outputs: readonly (readonly number[])[];
    }
  /** Asks for the elements of a buffer, or only for an answer when everything before it is done. */
  | { readonly kind: "read"; readonly request: number; readonly buffer: number | undefined }
  /** The results of a host callback; none if it threw. */
  | { readonly kind: "answer"; readonly results: readonly Uint8Array[] | undefined };

/** What the worker tells. */
export type News =
  /** `data` is missing if the buffer was never computed. */
  | { readonly kind: "read"; readonly request: number; readonly data: HostData | undefined }
  | {
      readonly kind: "call";
      readonly program: number;
      /** Of the device that calls, on the mesh of the program. */
      readonly position: number;
      readonly callback: number;
      readonly operands: readonly Uint8Array<ArrayBuffer>[];
    }
  /** A run failed, and none after it is started. */
  | {
      readonly kind: "failed";
      readonly program: number;
      readonly device: number;
      readonly failure: Failure;
      /** Where the devices were, if they had come to different collectives. */
      readonly positions: readonly DevicePosition[] | undefined;
      readonly isOutOfMemory: boolean;
    };
