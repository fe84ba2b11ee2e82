import { getOrInsert } from "../../ir/collections.js";
import { type AddressType, MAX_PAGES } from "./addresses.js";
import { ByteWriter } from "./byteWriter.js";
import {
  FunctionBody,
  type FunctionIndex,
  type ParamType,
  VALUE_TYPE_CODES,
  type ValueType,
} from "./functionBody.js";

/** The signature of a function. */
export interface FuncType {
  readonly params: readonly ParamType[];
  readonly results: readonly ValueType[];
}

interface ResolvedSignature {
  readonly params: readonly ValueType[];
  readonly results: readonly ValueType[];
}

/** The limits of an imported memory, in pages of 64 KiB. */
export interface MemoryImport {
  readonly module: string;
  readonly name: string;
  readonly shared: boolean;
  /** The type of its addresses; i32 by default. */
  readonly addressType?: AddressType;
  readonly minimumPages: number;
  /** Required for shared memories: an imported memory's own maximum must not exceed it. */
  readonly maximumPages?: number;
}

/** The memory that kernels of all kinds import: shared, and of any size. */
export function sharedMemory(addressType: AddressType): MemoryImport {
  const maximumPages = MAX_PAGES[addressType];
  return { module: "env", name: "memory", shared: true, addressType, minimumPages: 0, maximumPages };
}

/** Collects types, imports and functions and writes the module's bytes. */
export class ModuleBuilder {
  private readonly types: ResolvedSignature[] = [];
  private readonly typeIndex = new Map<string, number>();
  private readonly functionImports: { module: string; name: string; type: number }[] = [];
  private readonly functions: { type: number; body: FunctionBody }[] = [];
  private readonly exports: { name: string; index: number }[] = [];
  private memory: MemoryImport | undefined;

  /** Imports the memory that all loads and stores use. */
  importMemory(memory: MemoryImport): void {
    if (memory.shared && memory.maximumPages === undefined) {
      throw new RangeError("[ModuleBuilder] a shared memory needs maximumPages");
    }
    this.memory = memory;
  }

  /** Imports a function; all imports must precede the module's own functions. */
  importFunction(module: string, name: string, signature: ResolvedSignature): FunctionIndex {
    if (this.functions.length > 0) {
      throw new Error(`[ModuleBuilder] import ${module}.${name} must precede the module's own functions`);
    }
    this.functionImports.push({ module, name, type: this.type(signature) });
    return (this.functionImports.length - 1) as FunctionIndex;
  }

  /** Adds a function and exports it when `exportName` is given. */
  function(signature: FuncType, write: (body: FunctionBody) => void, exportName?: string): FunctionIndex {
    const isExported = exportName !== undefined;
    const addressType = this.memory?.addressType ?? "i32";
    const body = new FunctionBody(signature.params, addressType, isExported);
    write(body);
    const given = isExported && addressType === "i64" ? "f64" : addressType;
    const resolve = (type: ParamType) => (type === "address" ? given : type);
    const params = signature.params.map(resolve);
    this.functions.push({ type: this.type({ params, results: signature.results }), body });
    const index = this.functionImports.length + this.functions.length - 1;
    if (exportName !== undefined) this.exports.push({ name: exportName, index });
    return index as FunctionIndex;
  }

  private type(signature: ResolvedSignature): number {
    const key = `${signature.params.join()}:${signature.results.join()}`;
    return getOrInsert(this.typeIndex, key, () => this.types.push(signature) - 1);
  }

  /** The module in the binary format. */
  toBytes(): Uint8Array<ArrayBuffer> {
    const out = new ByteWriter();
    out.raw([0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00]);
    const section = (id: number, write: (section: ByteWriter) => void): void => {
      const content = new ByteWriter();
      write(content);
      out.byte(id);
      out.u32(content.length);
      out.raw(content.toBytes());
    };
    section(1, (s) => {
      s.u32(this.types.length);
      for (const { params, results } of this.types) {
        s.byte(0x60);
        for (const list of [params, results]) {
          s.u32(list.length);
          for (const type of list) s.byte(VALUE_TYPE_CODES[type]);
        }
      }
    });
    section(2, (s) => {
      s.u32(this.functionImports.length + (this.memory ? 1 : 0));
      for (const { module, name, type } of this.functionImports) {
        s.name(module);
        s.name(name);
        s.byte(0x00);
        s.u32(type);
      }
      if (this.memory) writeMemoryImport(s, this.memory);
    });
    section(3, (s) => {
      s.u32(this.functions.length);
      for (const { type } of this.functions) s.u32(type);
    });
    section(7, (s) => {
      s.u32(this.exports.length);
      for (const { name, index } of this.exports) {
        s.name(name);
        s.byte(0x00);
        s.u32(index);
      }
    });
    section(10, (s) => {
      s.u32(this.functions.length);
      for (const { body } of this.functions) {
        const encoded = body.encode();
        s.u32(encoded.length);
        s.raw(encoded);
      }
    });
    return out.toBytes();
  }
}

function writeMemoryImport(out: ByteWriter, memory: MemoryImport): void {
  out.name(memory.module);
  out.name(memory.name);
  out.byte(0x02);
  const wide = memory.addressType === "i64" ? 4 : 0;
  out.byte(wide | (memory.shared ? 2 : 0) | (memory.maximumPages === undefined ? 0 : 1));
  out.u32(memory.minimumPages);
  if (memory.maximumPages !== undefined) out.u32(memory.maximumPages);
}
