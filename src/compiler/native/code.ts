import { InternalError } from "../../ir/errors.js";

/** A place in code that jumps and loads can refer to before it is known. */
export type Label = number & { readonly __label: never };

/** Changes a written instruction once the distance from its field to the label is known. */
type Patch = (bytes: number[], at: number, distance: number) => void;

/**
 * Machine code as it is written: bytes, labels, and on request a listing that GNU `as` turns into the same
 * bytes, which is how the tests check every encoding.
 *
 * Memory order: all code that is written here makes plain accesses, without fences, acquire, release or non-temporal
 * stores. It never waits for another thread nor signals one; the JavaScript around its calls does, by `Atomics`, which
 * orders all accesses of a thread, whichever code makes them:
 *
 * - x86 makes the stores of a processor visible in their order and performs its loads in theirs. A load may overtake
 *   an earlier store to another word, but not `Atomics.store`, which V8 writes as `xchg`, a full fence.
 * - AArch64 orders plain accesses to different words in no way. V8 writes `Atomics.store` as `stlr`: what the thread
 *   has read and written before comes before it. It writes `Atomics.load` as `ldar`: what follows comes after it, and
 *   it does not overtake an earlier `stlr`. Other operations of `Atomics` are both.
 * - Both keep accesses to one word coherent: no thread sees it go back.
 * - The C library's `memcpy` makes plain accesses; where it uses non-temporal stores, for large copies on x86, it ends
 *   with the fence that they need.
 *
 * `test/litmus` tries this on threads.
 */
export class CodeWriter {
  protected readonly bytes: number[] = [];
  private readonly places: (number | undefined)[] = [];
  private readonly fixups: { readonly at: number; readonly label: Label; readonly patch: Patch }[] = [];

  /** @param listing gets one line for each instruction, label and piece of data */
  constructor(private readonly listing?: string[]) {}

  /** The number of bytes written so far. */
  get offset(): number {
    return this.bytes.length;
  }

  /** A label to be placed later. */
  label(): Label {
    this.places.push(undefined);
    return (this.places.length - 1) as Label;
  }

  /** Makes a label refer to the next instruction. */
  place(label: Label): this {
    this.places[label] = this.offset;
    this.list(() => `${labelName(label)}:`);
    return this;
  }

  /** A label for the next instruction. */
  here(): Label {
    const label = this.label();
    this.place(label);
    return label;
  }

  /** Writes data as it is. */
  data(values: Iterable<number>): this {
    const bytes = [...values];
    this.bytes.push(...bytes);
    this.list(() => `.byte ${bytes.join(", ")}`);
    return this;
  }

  /** The finished code; every label must be placed. */
  finish(): Uint8Array<ArrayBuffer> {
    for (const { at, label, patch } of this.fixups) {
      const place = this.places[label];
      if (place === undefined) throw new InternalError(`[CodeWriter] label ${label} is used but not placed`);
      patch(this.bytes, at, place - at);
    }
    return Uint8Array.from(this.bytes);
  }

  protected list(line: () => string): void {
    this.listing?.push(line());
  }

  protected refer(label: Label, patch: Patch): void {
    this.fixups.push({ at: this.offset, label, patch });
  }
}

/**
 * Defines a method for every instruction; it writes the form that accepts its operands. Forms are parsed when they are
 * first used, because most threads that load an assembler write no code.
 */
export function defineInstructions<Name extends string, Form>(
  prototype: CodeWriter,
  names: readonly Name[],
  formsOf: (name: Name) => readonly Form[],
): void {
  for (const name of names) {
    let forms: readonly Form[] | undefined;
    Object.defineProperty(prototype, name, {
      value(
        this: { emit(forms: readonly Form[], operands: readonly unknown[]): unknown },
        ...operands: unknown[]
      ) {
        forms ??= formsOf(name);
        return this.emit(forms, operands);
      },
    });
  }
}

/** The name of a label in listings. */
export function labelName(label: Label): string {
  return `L${label}`;
}

/** The bytes of a 32-bit number, lowest first. */
export function littleEndian32(value: number): number[] {
  return [value & 255, (value >> 8) & 255, (value >> 16) & 255, (value >> 24) & 255];
}
