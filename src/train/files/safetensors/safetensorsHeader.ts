import { attempt } from "../../../ir/errors.js";
import type { Shape } from "../../../ir/shape.js";
import { FileError } from "../disk/fileError.js";

/** A safetensors file that breaks a rule of the format, or holds what this library cannot represent. */
export class SafetensorsError extends FileError {
  static override readonly name: string = "SafetensorsError";
  constructor(file: string, offset: number, rule: string, options?: ErrorOptions) {
    super("safetensors", file, offset, rule, options);
  }
}

/** The element types that can be read and written, as the format names them, with their size in bytes. */
export const storedSizes = {
  C64: 8,
  F64: 8,
  F32: 4,
  I32: 4,
  U32: 4,
  F16: 2,
  BF16: 2,
  I16: 2,
  U16: 2,
  I8: 1,
  U8: 1,
  BOOL: 1,
} as const;

/** Other types of the format with whole bytes per element: a file may hold such tensors besides those that are read. */
const foreignSizes = {
  I64: 8,
  U64: 8,
  F8_E4M3: 1,
  F8_E4M3FNUZ: 1,
  F8_E5M2: 1,
  F8_E5M2FNUZ: 1,
  F8_E8M0: 1,
} as const;

const sizes: { readonly [S in StoredType | ForeignType]: number } = { ...storedSizes, ...foreignSizes };

/** An element type that can be read and written, as the format names it. */
export type StoredType = keyof typeof storedSizes;

/** An element type that tensors do not support. */
export type ForeignType = keyof typeof foreignSizes;

/** Whether arrays of a type can be read and written. */
export function isStoredType(type: string): type is StoredType {
  return Object.hasOwn(storedSizes, type);
}

/** The entry of a tensor in the header. */
export interface StoredTensor {
  readonly name: string;
  readonly type: StoredType | ForeignType;
  readonly shape: Shape;
  /** The first byte of the elements, counted from the start of the file. */
  readonly start: number;
  /** The byte after the last one. */
  readonly end: number;
}

/** The header of a safetensors file. */
export interface SafetensorsHeader {
  /** The tensors in the order of their data. */
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  readonly metadata: ReadonlyMap<string, string>;
}

/** The longest header that is read, as in the reference implementation. */
export const maxHeaderBytes = 100_000_000;

/** Maximum number of dims of a tensor. */
const maxDims = 64;

/** Number of bytes before the header, which hold its length. */
export const lengthBytes = 8;

/** Reads the length of the header from the first bytes of a file and checks it against the size of the file. */
export function parseHeaderLength(bytes: Uint8Array, fileSize: number, file: string): number {
  if (fileSize < lengthBytes || bytes.length < lengthBytes) {
    throw new SafetensorsError(
      file,
      0,
      `the file has ${fileSize} bytes, too few for the header's length (8)`,
    );
  }
  const length = new DataView(bytes.buffer, bytes.byteOffset, lengthBytes).getBigUint64(0, true);
  if (length > maxHeaderBytes) {
    throw new SafetensorsError(file, 0, `the header's length ${length} is over the limit ${maxHeaderBytes}`);
  }
  if (Number(length) > fileSize - lengthBytes) {
    const room = fileSize - lengthBytes;
    throw new SafetensorsError(
      file,
      0,
      `the header's length ${length} is over the ${room} bytes that follow`,
    );
  }
  return Number(length);
}

/**
 * Reads and checks a header: its JSON, and that the tensors fill the rest of the file without gaps or overlaps, each
 * with as many bytes as its shape and type need.
 *
 * @param bytes the header alone, without its length
 */
export function parseHeader(bytes: Uint8Array, fileSize: number, file: string): SafetensorsHeader {
  const dataStart = lengthBytes + bytes.length;
  const { tensors, metadata } = new HeaderParser(decodeText(bytes, file), file, dataStart).parse();
  const sorted = [...tensors].sort((a, b) => a.start - b.start || a.end - b.end);
  let expected = dataStart;
  for (const tensor of sorted) {
    checkExtent(tensor, expected, fileSize, file);
    expected = tensor.end;
  }
  if (expected !== fileSize) {
    const rest = fileSize - expected;
    throw new SafetensorsError(file, expected, `${rest} bytes follow the last tensor and belong to none`);
  }
  return { tensors: new Map(sorted.map((tensor) => [tensor.name, tensor])), metadata };
}

function decodeText(bytes: Uint8Array, file: string): string {
  return attempt(
    () => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes),
    (_, cause) => new SafetensorsError(file, lengthBytes, "the header is not valid UTF-8", { cause }),
  );
}

function checkExtent(tensor: StoredTensor, expected: number, fileSize: number, file: string): void {
  const { start, end, name, type, shape } = tensor;
  const label = quote(name);
  const fail = (rule: string) => new SafetensorsError(file, start, rule);
  if (end < start) throw fail(`tensor ${label} ends at byte ${end}, before its start`);
  if (start < expected) throw fail(`tensor ${label} overlaps the one before it, which ends at ${expected}`);
  if (start > expected) throw fail(`${start - expected} bytes before tensor ${label} belong to no tensor`);
  if (end > fileSize) throw fail(`tensor ${label} ends at byte ${end}, but the file has ${fileSize} bytes`);
  let needed = sizes[type];
  for (const n of shape) {
    needed *= n;
    if (!Number.isSafeInteger(needed)) throw fail(`the size of tensor ${label}, [${shape}], overflows`);
  }
  if (needed !== end - start) {
    throw fail(`tensor ${label}, ${type}[${shape}], needs ${needed} bytes but is given ${end - start}`);
  }
}

/** A string of the file, shortened for a message. */
function quote(text: string): string {
  return JSON.stringify(text.length > 60 ? `${text.slice(0, 60)}…` : text);
}

/** The value of a JSON string, or undefined if it is not one or holds a lone surrogate. */
function parseString(token: string): string | undefined {
  try {
    const value: unknown = JSON.parse(token);
    return typeof value === "string" && !/\p{Surrogate}/u.test(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isKnownType(name: string): name is StoredType | ForeignType {
  return Object.hasOwn(sizes, name);
}

/**
 * A parser for exactly the JSON a header may hold. `JSON.parse` would accept duplicate keys and fractions and
 * could not say where something is wrong.
 */
class HeaderParser {
  private position = 0;

  constructor(
    private readonly text: string,
    private readonly file: string,
    private readonly dataStart: number,
  ) {}

  parse(): { tensors: StoredTensor[]; metadata: ReadonlyMap<string, string> } {
    if (!this.text.startsWith("{")) throw this.error("the header does not start with {");
    const tensors: StoredTensor[] = [];
    let metadata: ReadonlyMap<string, string> = new Map();
    this.object((key) => {
      if (key === "__metadata__") metadata = this.metadata();
      else tensors.push(this.tensor(key));
    });
    this.skipSpace();
    if (this.position < this.text.length) throw this.error("text follows the header's closing }");
    return { tensors, metadata };
  }

  private metadata(): Map<string, string> {
    const entries = new Map<string, string>();
    this.object((key) => entries.set(key, this.string()));
    return entries;
  }

  private tensor(name: string): StoredTensor {
    const begin = this.position;
    let type: StoredTensor["type"] | undefined;
    let shape: number[] | undefined;
    let offsets: number[] | undefined;
    this.object((key) => {
      if (key === "dtype") type = this.type(name);
      else if (key === "shape") shape = this.integers();
      else if (key === "data_offsets") offsets = this.integers();
      else throw this.error(`tensor ${quote(name)} has an unknown field ${quote(key)}`);
    });
    const [start, end, ...more] = offsets ?? [];
    if (!type || !shape || start === undefined || end === undefined || more.length > 0) {
      this.position = begin;
      throw this.error(`tensor ${quote(name)} needs a dtype, a shape and two data_offsets`);
    }
    if (shape.length > maxDims) {
      this.position = begin;
      throw this.error(`tensor ${quote(name)} has ${shape.length} dims, more than ${maxDims}`);
    }
    return { name, type, shape, start: start + this.dataStart, end: end + this.dataStart };
  }

  private type(name: string): StoredTensor["type"] {
    const begin = this.position;
    const type = this.string();
    if (isKnownType(type)) return type;
    this.position = begin;
    const known = Object.keys(sizes).join(", ");
    throw this.error(`tensor ${quote(name)} has the dtype ${quote(type)}; known are ${known}`);
  }

  /** Reads an object; `entry` reads the value of each key, and keys must be unique. */
  private object(entry: (key: string) => void): void {
    const seen = new Set<string>();
    this.list("{", "}", () => {
      const begin = this.position;
      const key = this.string();
      if (seen.has(key)) {
        this.position = begin;
        throw this.error(`the key ${quote(key)} comes twice`);
      }
      seen.add(key);
      this.expect(":");
      entry(key);
    });
  }

  private integers(): number[] {
    const values: number[] = [];
    this.list("[", "]", () => values.push(this.integer()));
    return values;
  }

  private list(open: string, close: string, item: () => void): void {
    this.expect(open);
    if (this.accept(close)) return;
    do {
      this.skipSpace();
      item();
    } while (this.accept(","));
    this.expect(close);
  }

  private integer(): number {
    this.skipSpace();
    const begin = this.position;
    while (/[0-9]/.test(this.text[this.position] ?? "")) this.position++;
    const digits = this.text.slice(begin, this.position);
    const value = Number(digits);
    if (/^(0|[1-9][0-9]{0,15})$/.test(digits) && Number.isSafeInteger(value)) return value;
    this.position = begin;
    throw this.error(`expected an integer from 0 to 2^53 - 1, found ${this.next()}`);
  }

  private string(): string {
    this.skipSpace();
    if (this.text[this.position] !== '"') throw this.error(`expected a string, found ${this.next()}`);
    let end = this.position + 1;
    while (end < this.text.length && this.text[end] !== '"') end += this.text[end] === "\\" ? 2 : 1;
    const value = parseString(this.text.slice(this.position, end + 1));
    if (value === undefined) throw this.error(`${this.next()} does not start a valid string`);
    this.position = end + 1;
    return value;
  }

  private expect(character: string): void {
    if (!this.accept(character)) throw this.error(`expected ${character}, found ${this.next()}`);
  }

  private accept(character: string): boolean {
    this.skipSpace();
    if (this.text[this.position] !== character) return false;
    this.position++;
    return true;
  }

  private skipSpace(): void {
    while (" \t\n\r".includes(this.text[this.position] ?? "x")) this.position++;
  }

  private next(): string {
    const rest = this.text.slice(this.position, this.position + 12);
    return rest === "" ? "the end of the header" : JSON.stringify(rest);
  }

  private error(rule: string): SafetensorsError {
    const offset = lengthBytes + new TextEncoder().encode(this.text.slice(0, this.position)).length;
    return new SafetensorsError(this.file, offset, rule);
  }
}
