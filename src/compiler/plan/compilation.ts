import { getOrInsert } from "../../ir/collections.js";
import { byteSize, encode } from "../../ir/dtype.js";
import type { MeshShape } from "../../ir/mesh.js";
import type { ControlRole } from "../../ir/ops.js";
import type { Literal, SourceLocation } from "../../ir/program.js";
import { bytesOf, type TensorType } from "../../ir/shape.js";
import type { AttentionCode } from "../attention/attentionKernel.js";
import { KernelLibrary } from "../kernel/kernelLibrary.js";
import type { KernelTarget } from "../native/kernels/x64Kernel.js";
import { ALIGNMENT, type StepInfo } from "../steps.js";
import type { AddressType } from "../wasm/addresses.js";
import type { WasmFeatures } from "../wasm/features.js";
import { Buffer, type BufferKind, denseView, type View } from "./planBuffers.js";

/** What all parts of one compilation share: buffers, slots, constants, kernels and notes about steps. */
export class Compilation {
  readonly buffers: Buffer[] = [];
  readonly infos: StepInfo[] = [];
  readonly library: KernelLibrary;
  numSlots = FIRST_FREE_SLOT;
  private readonly constantBytes: number[] = [];
  private readonly literals = new Map<string, Buffer>();

  constructor(
    readonly mesh: MeshShape,
    readonly features: WasmFeatures,
    threads: number,
    /** The type of the addresses of the memory that the program runs in. */
    readonly addressType: AddressType = "i32",
    /** Vector width in bits of machine code for kernels; if undefined, all kernels are WebAssembly. */
    readonly vectorBits?: KernelTarget["bits"],
    attention?: AttentionCode,
  ) {
    this.library = new KernelLibrary(features, threads, attention);
  }

  /** A new buffer. */
  buffer(bytes: number, kind: BufferKind, depth: number): Buffer {
    const buffer = new Buffer(this.buffers.length, bytes, kind, depth);
    this.buffers.push(buffer);
    return buffer;
  }

  /** A new dense tensor in the arena. */
  temporary(type: TensorType, depth: number): View {
    return denseView(this.buffer(bytesOf(type), { kind: "temporary" }, depth), type);
  }

  /** A buffer behind a new dynamic slot, which points into the memory of `parents`. */
  dynamic(parents: readonly Buffer[], depth: number): Buffer {
    return this.buffer(0, { kind: "dynamic", slot: this.numSlots++, parents }, depth);
  }

  /** Appends read-only bytes; gives their offset. */
  constant(bytes: ArrayLike<number>, alignment = 4): number {
    while (this.constantBytes.length % alignment !== 0) this.constantBytes.push(0);
    const offset = this.constantBytes.length;
    for (let i = 0; i < bytes.length; i++) this.constantBytes.push(bytes[i] ?? 0);
    return offset;
  }

  /** A scalar constant in memory. */
  literal(literal: Literal): View {
    const { dtype } = literal.type;
    const key = `${dtype}:${Object.is(literal.value, -0) ? "-0" : literal.value}`;
    const buffer = getOrInsert(this.literals, key, () => {
      const offset = this.constant(new Uint8Array(encode(dtype, [literal.value]).buffer), ALIGNMENT);
      return this.buffer(byteSize(dtype), { kind: "constant", offset }, 0);
    });
    return denseView(buffer, literal.type);
  }

  /** All constants. */
  constants(): Uint8Array {
    while (this.constantBytes.length % ALIGNMENT !== 0) this.constantBytes.push(0);
    return Uint8Array.from(this.constantBytes);
  }

  /** Records what a step does; returns the index of the record. */
  info(
    ops: readonly string[],
    source: SourceLocation | undefined,
    flops: number,
    bytes: number,
    role?: ControlRole,
  ): number {
    this.infos.push({ ops, source, flops, bytes, ...(role !== undefined && { role }) });
    return this.infos.length - 1;
  }
}

/** The slot of the arena. */
export const ARENA_SLOT = 0;
/** The slot of the constants. */
export const CONSTANT_SLOT = 1;
const FIRST_FREE_SLOT = 2;
