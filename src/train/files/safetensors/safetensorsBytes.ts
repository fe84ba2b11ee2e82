/**
 * The safetensors file format: 8 bytes with the length of a JSON header, the header, and the elements of the tensors in
 * little-endian order. Files are untrusted input: everything in the header is checked against the size of the file
 * before memory is allocated for it.
 */

import { need, needIfGiven } from "../../../ir/arguments.js";
import { describe } from "../../../ir/describe.js";
import { byteSize, type HostData, partType, type RealDType, viewHost } from "../../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../../ir/errors.js";
import { type Shape, sizeOf } from "../../../ir/shape.js";
import {
  isStoredType,
  lengthBytes,
  maxHeaderBytes,
  parseHeader,
  parseHeaderLength,
  SafetensorsError,
  type SafetensorsHeader,
  type StoredTensor,
  type StoredType,
  storedSizes,
} from "./safetensorsHeader.js";

export { SafetensorsError, type SafetensorsHeader, type StoredTensor, type StoredType };

/** The element types of stored arrays: those of programs, and the complex numbers that the format has. */
export type StoredDType = RealDType | "complex64";

/** An array as stored in a file: bfloat16 and float16 as their bits, complex numbers with interleaved parts. */
export interface StoredArray {
  readonly dtype: StoredDType;
  readonly shape: Shape;
  readonly data: HostData;
}

/** The contents of a file. */
export interface SafetensorsContents {
  readonly tensors: ReadonlyMap<string, StoredArray>;
  readonly metadata: ReadonlyMap<string, string>;
}

/** The format's name of each element type. */
export const storedTypes: { readonly [D in StoredDType]: StoredType } = {
  complex64: "C64",
  float64: "F64",
  float32: "F32",
  int32: "I32",
  int16: "I16",
  int8: "I8",
  uint32: "U32",
  uint16: "U16",
  uint8: "U8",
  float16: "F16",
  bfloat16: "BF16",
  bool: "BOOL",
};

/** Whether files hold elements of a type. */
export function isStoredDType(dtype: string): dtype is StoredDType {
  return Object.hasOwn(storedTypes, dtype);
}

/** The element type of each of the format's names. */
const dtypeOf = Object.fromEntries(Object.entries(storedTypes).map(([dtype, stored]) => [stored, dtype])) as {
  readonly [S in StoredType]: StoredDType;
};

/**
 * Parses a file that is in memory. @param file the name used in error messages
 *
 * @example
 * ```ts
 * const w = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) };
 * [...train.parseSafetensors(train.encodeSafetensors([["w", w]])).tensors.keys()]; // ["w"]
 * ```
 */
export function parseSafetensors(bytes: Uint8Array, file = "(memory)"): SafetensorsContents {
  needIfGiven("string", file, "file", "parseSafetensors");
  if (!(bytes instanceof Uint8Array)) {
    throw new ValueError(`[parseSafetensors] the bytes must be a Uint8Array, got ${describe(bytes)}`);
  }
  const length = parseHeaderLength(bytes, bytes.length, file);
  const header = parseHeader(bytes.subarray(lengthBytes, lengthBytes + length), bytes.length, file);
  const tensors = new Map<string, StoredArray>();
  for (const tensor of header.tensors.values()) {
    // Copying aligns the elements for any length of the header.
    const own = new Uint8Array(bytes.subarray(tensor.start, tensor.end));
    tensors.set(tensor.name, arrayOf(tensor, own, file));
  }
  return { tensors, metadata: header.metadata };
}

/**
 * The bytes of a safetensors file with the given tensors, such as a page lets its user save.
 *
 * @example
 * ```ts
 * const w = { dtype: "float32", shape: [2], data: Float32Array.of(1, 2) };
 * train.parseSafetensors(train.encodeSafetensors([["w", w]])).tensors.get("w")?.shape; // [2]
 * ```
 */
export function encodeSafetensors(
  tensors: Iterable<readonly [name: string, array: StoredArray]>,
  metadata: Iterable<readonly [string, string]> = [],
): Uint8Array {
  const { header, arrays } = layOutSafetensors(tensors, metadata);
  const total = arrays.reduce((bytes, { data }) => bytes + data.byteLength, header.length);
  const file = new Uint8Array(total);
  file.set(header);
  let position = header.length;
  for (const { data } of arrays) {
    file.set(bytesOf(data), position);
    position += data.byteLength;
  }
  return file;
}

/** The name-value pairs of any iterable; throws if an entry is not such a pair. */
function entriesOf<T>(pairs: Iterable<readonly [string, T]>, what: string): (readonly [string, T])[] {
  const isIterable = typeof pairs === "object" && pairs !== null && Symbol.iterator in pairs;
  const list = isIterable ? [...pairs] : [];
  if (isIterable && list.every((pair) => Array.isArray(pair) && typeof pair[0] === "string")) return list;
  throw new ValueError(`[safetensors] ${what} must be pairs of a name and a value, got ${describe(pairs)}`);
}

/** The header with its length, and the arrays in the order in which they follow it. */
export function layOutSafetensors(
  tensors: Iterable<readonly [string, StoredArray]>,
  metadata: Iterable<readonly [string, string]> = [],
): { header: Uint8Array; arrays: readonly StoredArray[] } {
  const named = entriesOf<StoredArray>(tensors, "the tensors");
  for (const [name, array] of named) checkArray(name, array);
  return layOutTypes(named, metadata);
}

/** The same for arrays of which only the types are known. */
export function layOutTypes<A extends Pick<StoredArray, "dtype" | "shape">>(
  tensors: readonly (readonly [string, A])[],
  metadata: Iterable<readonly [string, string]> = [],
): { header: Uint8Array; arrays: readonly A[] } {
  requireLittleEndian();
  const seen = new Set(tensors.map(([name]) => name));
  if (seen.size !== tensors.length || seen.has("__metadata__")) {
    throw new ValueError('[safetensors] names of tensors must be different, and none may be "__metadata__"');
  }
  // The widest elements come first, so that every array is aligned to its elements.
  const size = ({ dtype }: A) => storedSizes[storedTypes[dtype]];
  const named = [...tensors].sort(([a, x], [b, y]) => size(y) - size(x) || (a < b ? -1 : 1));
  const fields: string[] = [];
  const labels = Object.fromEntries(entriesOf<string>(metadata, "the metadata"));
  if (Object.keys(labels).length > 0) fields.push(`"__metadata__":${JSON.stringify(labels)}`);
  let offset = 0;
  for (const [name, { dtype, shape }] of named) {
    const end = offset + sizeOf(shape) * byteSize(dtype);
    const entry = { dtype: storedTypes[dtype], shape, data_offsets: [offset, end] };
    fields.push(`${JSON.stringify(name)}:${JSON.stringify(entry)}`);
    offset = end;
  }
  const json = new TextEncoder().encode(`{${fields.join(",")}}`);
  const length = Math.ceil(json.length / 8) * 8;
  if (length > maxHeaderBytes) {
    throw new ValueError(`[safetensors] the header of ${length} bytes is over the limit ${maxHeaderBytes}`);
  }
  const header = new Uint8Array(lengthBytes + length).fill(0x20);
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true);
  header.set(json, lengthBytes);
  return { header, arrays: named.map(([, array]) => array) };
}

function checkArray(name: string, array: StoredArray): void {
  need("object", array, `the tensor ${name}`, "safetensors");
  const { dtype, shape, data } = array;
  need("bytes", data, `the data of ${name}`, "safetensors");
  const label = JSON.stringify(name);
  if (/\p{Surrogate}/u.test(name)) throw new ValueError(`[safetensors] the name ${label} is not valid text`);
  const numParts = byteSize(dtype) / byteSize(partType(dtype));
  if (!isStoredDType(dtype)) {
    throw new DTypeError(`[safetensors] ${label} is ${dtype}, which the format does not have`);
  }
  if (data.BYTES_PER_ELEMENT !== byteSize(partType(dtype))) {
    throw new DTypeError(
      `[safetensors] ${label} is ${dtype} but its elements have ${data.BYTES_PER_ELEMENT} bytes`,
    );
  }
  if (data.length !== numParts * sizeOf(shape)) {
    throw new ShapeError(
      `[safetensors] ${label} has ${data.length / numParts} elements for the shape [${shape}] (${sizeOf(shape)})`,
    );
  }
}

/** The bytes of an array, without a copy. */
export function bytesOf(data: HostData): Uint8Array {
  return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
}

/** The array of a tensor. @param bytes the elements, in a buffer of their own */
export function arrayOf(
  { name, type, shape, start }: StoredTensor,
  bytes: Uint8Array,
  file: string,
): StoredArray {
  requireLittleEndian();
  if (!isStoredType(type)) {
    const known = Object.keys(storedSizes).join(", ");
    throw new SafetensorsError(
      file,
      start,
      `tensor ${JSON.stringify(name)} is ${type}, which tensors do not support; those of ${known} can be read by name`,
    );
  }
  const dtype = dtypeOf[type];
  const wrong = dtype === "bool" ? bytes.findIndex((byte) => byte > 1) : -1;
  if (wrong >= 0) {
    throw new SafetensorsError(
      file,
      start + wrong,
      `an element of the BOOL tensor ${JSON.stringify(name)} is ${bytes[wrong]}, neither 0 nor 1`,
    );
  }
  return {
    dtype,
    shape,
    data: viewHost(dtype, bytes.buffer, bytes.byteOffset, bytes.length / byteSize(dtype)),
  };
}

function requireLittleEndian(): void {
  if (new Uint8Array(new Uint16Array([1]).buffer)[0] !== 1)
    throw new ValueError("[safetensors] needs a little-endian machine");
}
