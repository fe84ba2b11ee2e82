import type { Label } from "../code.js";
import type { X64 } from "../x64/assembler.js";
import { type Mem, mem, ripTo, rsp } from "../x64/operands.js";

/** Bytes that a vector takes on the stack, whatever its width. */
export const SLOT_BYTES = 64;

/** What a function keeps on the stack, from where the stack pointer stays; `bytes` is known when all is written. */
export class Frame {
  private end = 0;

  /** The bytes given out, a multiple of those of a vector. */
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

/** The constants of a function, each as wide as its vectors, behind the code. */
export class ConstantPool {
  private readonly labels = new Map<string, { readonly label: Label; readonly bytes: Uint8Array }>();

  constructor(private readonly x: X64) {}

  /** Where some bytes stand. */
  place(bytes: Uint8Array): Mem {
    const key = bytes.join();
    const known = this.labels.get(key) ?? { label: this.x.label(), bytes };
    this.labels.set(key, known);
    return ripTo(known.label);
  }

  /** Writes all constants, from a multiple of 64 on. */
  write(): void {
    this.x.align(64);
    for (const { label, bytes } of this.labels.values()) this.x.place(label).data(bytes);
  }
}
