import { getOrInsert } from "../../../ir/collections.js";
import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { gpr, type Mem, mem, ripTo } from "../x64/operands.js";

const { rsp } = gpr;

/** Bytes of a vector on the stack, whatever its width. */
export const SLOT_BYTES = 64;

/** The stack frame of a function, relative to the stack pointer; `bytes` is known once all code is written. */
export class StackFrame {
  private end = 0;

  /** The bytes allocated so far, a multiple of those of a vector. */
  get bytes(): number {
    return Math.ceil(this.end / SLOT_BYTES) * SLOT_BYTES;
  }

  /** A place for a number. */
  word(): Mem {
    this.end += 8;
    return mem(rsp, this.end - 8);
  }

  /** A place for some vectors, one after the other. */
  vectors(count: number): number {
    const from = this.bytes;
    this.end = from + count * SLOT_BYTES;
    return from;
  }

  /** A place for one vector. */
  vector(): Mem {
    return mem(rsp, this.vectors(1));
  }
}

/** The constants of a function, each as wide as its vectors, after the code. */
export class ConstantPool {
  private readonly labels = new Map<string, { readonly label: Label; readonly bytes: Uint8Array }>();

  constructor(private readonly x: X64) {}

  /** Where a constant of these bytes is. */
  place(bytes: Uint8Array): Mem {
    return ripTo(getOrInsert(this.labels, bytes.join(), () => ({ label: this.x.label(), bytes })).label);
  }

  /** Writes all constants, aligned to 64 bytes. */
  write(): void {
    this.x.align(64);
    for (const { label, bytes } of this.labels.values()) this.x.place(label).data(bytes);
  }
}
