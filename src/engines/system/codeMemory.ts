import { endianness } from "node:os";
import { getOrInsert } from "../../ir/collections.js";
import { InternalError } from "../../ir/errors.js";
import { type Koffi, loadKoffi } from "./koffi.js";

/** A function of machine code; arguments are addresses and other integers. */
export type NativeFunction = (...args: number[]) => void;

const PROTECTION = { readWrite: 3, readExecute: 5 };
const PRIVATE_ANONYMOUS = 0x22;
const ADVISE_HUGE_PAGES = 14;
const HUGE_PAGE = 2 ** 21;
/** Bytes to map at a time for data that machine code reads. */
const STORE_BYTES = 2 ** 18;

/** The C library functions that code memory needs; addresses are numbers. */
interface Libc {
  readonly mmap: NativeCall;
  readonly mprotect: NativeCall;
  readonly munmap: NativeCall;
  readonly madvise: NativeCall;
  /** Tells the processor that code was written; undefined where it notices automatically. */
  readonly clearCache: NativeCall | undefined;
}

type NativeCall = (...args: number[]) => number;

/**
 * Memory outside of JavaScript that one thread maps for machine code and its scratch, and releases when the thread
 * ends. Code is newly mapped, written once and then made executable: never writable and executable at the same time.
 */
export class CodeMemory {
  /** Where {@link store} continues. */
  private free = { at: 0, end: 0 };
  private readonly mapped: { readonly at: number; readonly bytes: number }[] = [];

  private constructor(
    private readonly koffi: Koffi,
    private readonly libc: Libc,
  ) {}

  /** Opens code memory, or says why there is none here. */
  static open(): CodeMemory | string {
    const { platform } = process;
    if (platform !== "linux") return `machine code is loaded on Linux only, not on ${platform}`;
    if (endianness() !== "LE") return "the machine is big-endian";
    const koffi = loadKoffi();
    if (koffi === undefined) return "the package koffi does not load";
    try {
      return new CodeMemory(koffi, bindLibc(koffi));
    } catch (error) {
      return `the C library lacks a function (${String(error)})`;
    }
  }

  /** Maps pieces of code, each at a multiple of 64 bytes, and returns their addresses. */
  load(pieces: readonly Uint8Array[]): readonly number[] {
    const offsets: number[] = [];
    let bytes = 0;
    for (const piece of pieces) {
      offsets.push(bytes);
      bytes += Math.ceil(piece.length / 64) * 64;
    }
    const code = new Uint8Array(bytes);
    for (const [i, piece] of pieces.entries()) code.set(piece, offsets[i]);
    const at = this.map(bytes);
    this.koffi.encode(BigInt(at), this.koffi.array("uint8_t", bytes), code);
    if (this.libc.mprotect(at, bytes, PROTECTION.readExecute) !== 0) {
      throw new InternalError(
        `[CodeMemory] the system refuses executable memory (error ${this.koffi.errno()})`,
      );
    }
    this.libc.clearCache?.(at, at + bytes);
    return offsets.map((offset) => at + offset);
  }

  /** Maps zeroed memory aligned to the size of huge pages, and on such pages if the system has them. */
  scratch(bytes: number): number {
    const size = Math.ceil(bytes / HUGE_PAGE) * HUGE_PAGE;
    const at = Math.ceil(this.map(size + HUGE_PAGE) / HUGE_PAGE) * HUGE_PAGE;
    this.libc.madvise(at, size, ADVISE_HUGE_PAGES);
    return at;
  }

  /** Maps a copy of bytes for machine code to read, at a multiple of 64 bytes, and returns its address. */
  store(bytes: Uint8Array): number {
    const at = this.free.at;
    if (at + bytes.length > this.free.end) {
      const size = Math.max(STORE_BYTES, bytes.length);
      const start = this.map(size);
      this.free = { at: start, end: start + size };
      return this.store(bytes);
    }
    this.koffi.encode(BigInt(at), this.koffi.array("uint8_t", bytes.length), bytes);
    this.free = { ...this.free, at: at + Math.ceil(bytes.length / 64) * 64 };
    return at;
  }

  /** A function that calls the code at an address. */
  bind(at: number, numArgs: number): NativeFunction {
    return bindCode(this.koffi, at, numArgs);
  }

  /** The address of memory that does not move; the caller must keep it alive. */
  addressOf(buffer: SharedArrayBuffer): number {
    return Number(this.koffi.address(new Uint8Array(buffer)));
  }

  /** Unmaps code that was loaded together, by the first of its addresses; none of it may be called afterwards. */
  unload(at: number): void {
    const index = this.mapped.findIndex((mapping) => mapping.at === at);
    const [mapping] = index < 0 ? [] : this.mapped.splice(index, 1);
    if (mapping === undefined) throw new InternalError(`[CodeMemory] no code was loaded at ${at}`);
    this.libc.munmap(mapping.at, mapping.bytes);
  }

  /** Releases everything; functions must not be called afterwards. */
  release(): void {
    for (const { at, bytes } of this.mapped.splice(0)) this.libc.munmap(at, bytes);
    this.free = { at: 0, end: 0 };
  }

  private map(bytes: number): number {
    const at = this.libc.mmap(0, bytes, PROTECTION.readWrite, PRIVATE_ANONYMOUS, -1, 0);
    // mmap reports failure as the address with all bits set, which is never a mapping's.
    if (at <= 0 || at >= 2 ** 53) {
      throw new InternalError(`[CodeMemory] the system refuses ${bytes} bytes (error ${this.koffi.errno()})`);
    }
    this.mapped.push({ at, bytes });
    return at;
  }
}

const types = new Map<number, ReturnType<Koffi["proto"]>>();

/** A function with which this thread calls code that any thread of the process loaded. */
export function bindCode(koffi: Koffi, at: number, numArgs: number): NativeFunction {
  // koffi makes the stack for the calls of a thread when it loads its first library.
  if (types.size === 0) koffi.load(null);
  const newType = () => koffi.proto("void", new Array<string>(numArgs).fill("uintptr_t"));
  return koffi.decode(BigInt(at), getOrInsert(types, numArgs, newType)) as NativeFunction;
}

function bindLibc(koffi: Koffi): Libc {
  const libc = koffi.load(null);
  const bind = (name: string, result: string, args: string[]): NativeCall => {
    const call = libc.func(name, result, args) as (...args: number[]) => number | bigint;
    return (...given) => Number(call(...given));
  };
  return {
    mmap: bind("mmap", "uintptr_t", ["uintptr_t", "size_t", "int", "int", "int", "int64_t"]),
    mprotect: bind("mprotect", "int", ["uintptr_t", "size_t", "int"]),
    munmap: bind("munmap", "int", ["uintptr_t", "size_t"]),
    madvise: bind("madvise", "int", ["uintptr_t", "size_t", "int"]),
    clearCache: process.arch === "arm64" ? bindClearCache(koffi) : undefined,
  };
}

function bindClearCache(koffi: Koffi): NativeCall {
  // Node either contains it or loads the library that does.
  for (const path of [null, "libgcc_s.so.1"]) {
    try {
      const call = koffi.load(path).func("__clear_cache", "void", ["uintptr_t", "uintptr_t"]);
      return (...given) => {
        call(...given);
        return 0;
      };
    } catch {}
  }
  throw new Error("__clear_cache");
}
