import { getOrInsert } from "../../../ir/collections.js";
import { reasonOf } from "../../../ir/errors.js";
import type { Koffi } from "../../system/koffi.js";
import { errorOf, XlaPluginError } from "../errors.js";
import { type CalledFunction, FIRST_FUNCTION, functionNames, otherStructs, structs } from "./apiLayout.js";

/** The field names of a struct. */
type Field<L> = Exclude<keyof L & string, "bytes">;
type Layout = Readonly<Record<string, number>>;

/** A struct in memory that native code reads and writes; it never moves. */
export class Struct<L extends Layout> {
  readonly address: bigint;
  private readonly words: BigUint64Array;
  /** The memory that the struct points to, which must live as long as the struct does. */
  private readonly kept: unknown[] = [];

  constructor(
    koffi: Koffi,
    private readonly layout: L,
  ) {
    const bytes = layout.bytes ?? 0;
    this.words = new BigUint64Array(Math.ceil(bytes / 8));
    this.address = koffi.address(this.words.buffer);
    this.words[0] = BigInt(bytes);
  }

  get(field: Field<L>): bigint {
    return this.words[this.layout[field] ?? 0] ?? 0n;
  }

  set(field: Field<L>, value: bigint | number): this {
    this.words[this.layout[field] ?? 0] = typeof value === "bigint" ? value : BigInt(value);
    return this;
  }

  /** Points a field to memory and keeps that memory alive. */
  point(field: Field<L>, memory: { readonly address: bigint }): this {
    this.kept.push(memory);
    return this.set(field, memory.address);
  }
}

/** Memory that native code reads or writes; it never moves. */
export interface NativeMemory {
  readonly bytes: Uint8Array<ArrayBuffer>;
  readonly address: bigint;
}

/** Memory for native code, as words. */
export interface NativeWords extends NativeMemory {
  readonly words: BigUint64Array;
}

/** The arguments of a function. */
export type Arguments<F extends CalledFunction> = Struct<(typeof structs)[F]>;
/** A struct that arguments point to. */
export type Pointed<S extends keyof typeof otherStructs> = Struct<(typeof otherStructs)[S]>;
type NativeCall = ((args: bigint) => bigint | null) & {
  async(args: bigint, done: (error: unknown, result: bigint | null) => void): void;
};

/** The oldest minor version of the API that has all functions used here. */
const LEAST_MINOR = 54;

/**
 * A loaded PJRT plug-in: calls its functions and turns what they report into errors. A plug-in's native code runs on
 * stacks allocated by the FFI; XLA's compiler needs large ones.
 */
export class Plugin {
  /** The version of the API that the plug-in was built for. */
  readonly version: string;
  /** The type of functions that free memory of the plug-in. */
  readonly deleter: ReturnType<Koffi["proto"]>;
  private readonly functions = new Map<CalledFunction, NativeCall>();
  /** Argument structs of synchronous calls, by function: allocating memory costs more than such a call. */
  private readonly reused = new Map<
    CalledFunction,
    { readonly args: Struct<Layout>; readonly call: NativeCall }
  >();
  /** A library without references is unloaded, along with its functions. */
  private library: ReturnType<Koffi["load"]> | undefined;

  constructor(
    readonly koffi: Koffi,
    readonly path: string,
  ) {
    this.deleter = koffi.proto("void", ["void *"]);
    const api = this.open();
    const size = Number(this.wordsAt(api, 1)[0]);
    const table = this.wordsAt(api, Math.floor(size / 8));
    const version = new Int32Array(koffi.view(api, FIRST_FUNCTION * 8), 32, 2);
    this.version = `${version[0]}.${version[1]}`;
    if (version[0] !== 0 || (version[1] ?? 0) < LEAST_MINOR) {
      throw new XlaPluginError(
        `${path} has version ${this.version} of the PJRT API, but 0.${LEAST_MINOR} or newer of 0.x is needed: install the newest jax with its CUDA or TPU wheels`,
      );
    }
    this.readFunctions(table);
    this.call("Plugin_Initialize", this.args("Plugin_Initialize"));
  }

  /** Creates an argument struct for a function. */
  args<F extends CalledFunction>(name: F): Arguments<F> {
    return new Struct(this.koffi, structs[name]);
  }

  /** A struct that arguments point to. */
  struct<S extends keyof typeof otherStructs>(name: S): Pointed<S> {
    return new Struct(this.koffi, otherStructs[name]);
  }

  /**
   * Calls a function and waits for it.
   *
   * @param doing what failed if the call does, for messages
   */
  call<F extends CalledFunction>(name: F, args: Arguments<F>, doing: string = name): Arguments<F> {
    const error = this.native(name)(args.address);
    if (error !== null) throw this.takeError(doing, error);
    return args;
  }

  /**
   * Calls a function that takes one word, with an argument struct that is reused by the next call.
   *
   * @returns the word that it returns in `result`
   */
  callWith<F extends CalledFunction>(
    name: F,
    field: Field<(typeof structs)[F]>,
    word: bigint,
    result: Field<(typeof structs)[F]> = field,
    doing: string = name,
  ): bigint {
    const { args, call } = getOrInsert(this.reused, name, () => ({
      args: new Struct<Layout>(this.koffi, structs[name]),
      call: this.native(name),
    }));
    const error = call(args.set(field, word).address);
    if (error !== null) throw this.takeError(doing, error);
    return args.get(result);
  }

  /** Calls a function on another thread. */
  callAway<F extends CalledFunction>(name: F, args: Arguments<F>): Promise<Arguments<F>> {
    return new Promise((resolve, reject) => {
      this.native(name).async(args.address, (failure, error) => {
        if (failure) reject(failure);
        else if (error !== null) reject(this.takeError(name, error));
        else resolve(args);
      });
    });
  }

  /** The error that a plug-in's error pointer describes; frees the pointer. */
  takeError(doing: string, error: bigint): Error {
    const message = this.args("Error_Message").set("error", error);
    this.native("Error_Message")(message.address);
    const text = this.textAt(message.get("message"), message.get("size"));
    const code = this.args("Error_GetCode").set("error", error);
    this.native("Error_GetCode")(code.address);
    this.native("Error_Destroy")(this.args("Error_Destroy").set("error", error).address);
    return errorOf(doing, Number(code.get("code") & 0xffffffffn), text);
  }

  /** Copies words from native memory. */
  wordsAt(address: bigint, count: number): BigUint64Array {
    return count === 0
      ? new BigUint64Array()
      : new BigUint64Array(this.koffi.view(address, count * 8).slice(0));
  }

  /** Copies bytes from native memory. */
  bytesAt(address: bigint, count: bigint): Uint8Array<ArrayBuffer> {
    return count === 0n ? new Uint8Array() : new Uint8Array(this.koffi.view(address, Number(count)).slice(0));
  }

  /** Reads a string from native memory. */
  textAt(address: bigint, size: bigint): string {
    return Buffer.from(this.bytesAt(address, size)).toString("utf8");
  }

  /** Memory for native code that holds these bytes. */
  memory(content: Uint8Array | number): NativeMemory {
    const length = typeof content === "number" ? content : content.length;
    // An empty array has no address.
    const bytes = new Uint8Array(new ArrayBuffer(Math.max(8, length)), 0, length);
    if (typeof content !== "number") bytes.set(content);
    return { bytes, address: this.koffi.address(bytes.buffer) };
  }

  /** Memory for native code that holds a string. */
  text(content: string): NativeMemory {
    return this.memory(Buffer.from(content, "utf8"));
  }

  /** Memory for native code that holds words. */
  words(content: readonly (bigint | number)[] | number): NativeWords {
    const count = typeof content === "number" ? content : content.length;
    const { bytes, address } = this.memory(count * 8);
    const words = new BigUint64Array(bytes.buffer, 0, count);
    if (typeof content !== "number") words.set(content.map((word) => BigInt.asUintN(64, BigInt(word))));
    return { bytes, address, words };
  }

  private open(): bigint {
    const { koffi, path } = this;
    try {
      this.library = koffi.load(path, { lazy: true });
      const getApi: unknown = this.library.func("void *GetPjrtApi()")();
      if (typeof getApi === "bigint") return getApi;
    } catch (cause) {
      throw new XlaPluginError(`${path} cannot be loaded as a PJRT plug-in: ${reasonOf(cause)}`, { cause });
    }
    throw new XlaPluginError(`${path} is not a PJRT plug-in: its GetPjrtApi returns nothing`);
  }

  private readFunctions(table: BigUint64Array): void {
    const { koffi } = this;
    const result = koffi.proto("void *", ["void *"]);
    functionNames.forEach((name, i) => {
      const pointer = table[FIRST_FUNCTION + i] ?? 0n;
      if (!isCalled(name) || pointer === 0n) return;
      const tells = name === "Error_Destroy" || name === "Error_Message";
      const call: NativeCall = koffi.decode(pointer, tells ? this.deleter : result);
      this.functions.set(name, call);
    });
  }

  private native(name: CalledFunction): NativeCall {
    const call = this.functions.get(name);
    if (call) return call;
    throw new XlaPluginError(
      `the plug-in ${this.path} (PJRT API ${this.version}) has no ${name}: install a newer one`,
    );
  }
}

function isCalled(name: string): name is CalledFunction {
  return Object.hasOwn(structs, name);
}
