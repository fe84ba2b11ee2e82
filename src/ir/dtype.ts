import { type Kind, need } from "./arguments.js";
import { describe } from "./describe.js";
import { DTypeError, ValueError } from "./errors.js";

/** The element types that programs hold. */
export type RealDType =
  | "float32"
  | "bfloat16"
  | "float16"
  | "float64"
  | "int8"
  | "int16"
  | "int32"
  | "uint8"
  | "uint16"
  | "uint32"
  | "bool";

/** Complex numbers of two float32 or two float64: tensors can have them; programs hold only their parts. */
export type ComplexDType = "complex64" | "complex128";

/** The element types a tensor can have. */
export type DType = RealDType | ComplexDType;

/** The array that holds a tensor's elements on the host; bfloat16 and float16 are stored as their bits. */
export type HostData =
  | Float32Array
  | Float64Array
  | Int32Array
  | Int16Array
  | Int8Array
  | Uint32Array
  | Uint16Array
  | Uint8Array;

interface DTypeFacts {
  readonly short: string;
  readonly kind: "float" | "signed" | "unsigned" | "bool" | "complex";
  /** The array of elements on the host; of twice as many parts for complex numbers, which are adjacent. */
  readonly array: ArrayType;
  readonly bytes: number;
  /** The largest finite value, and the spacing at 1. */
  readonly max: number;
  readonly epsilon: number;
  /** The value nearest to a number; integers wrap around. */
  readonly round: (value: number) => number;
}

interface ArrayType {
  readonly BYTES_PER_ELEMENT: number;
  new (length: number): HostData;
  new (values: ArrayLike<number>): HostData;
  new (buffer: ArrayBufferLike, start?: number, length?: number): HostData;
}

type Rounding = DTypeFacts["round"];

function float(short: string, array: ArrayType, max: number, epsilon: number, round: Rounding): DTypeFacts {
  return { short, kind: "float", array, bytes: array.BYTES_PER_ELEMENT, max, epsilon, round };
}

function integer(kind: "signed" | "unsigned", short: string, array: ArrayType, round: Rounding): DTypeFacts {
  const bytes = array.BYTES_PER_ELEMENT;
  const max = 2 ** (8 * bytes - (kind === "signed" ? 1 : 0)) - 1;
  return { short, kind, array, bytes, max, epsilon: 1, round };
}

function complex(short: string, part: DTypeFacts): DTypeFacts {
  return { ...part, short, kind: "complex", bytes: 2 * part.bytes };
}

const float32 = float("f32", Float32Array, 3.4028234663852886e38, 2 ** -23, Math.fround);
const float64 = float("f64", Float64Array, Number.MAX_VALUE, Number.EPSILON, (x) => x);

const facts: { readonly [D in DType]: DTypeFacts } = {
  float32,
  bfloat16: float("bf16", Uint16Array, 3.3895313892515355e38, 2 ** -7, (x) =>
    fromBfloat16Bits(toBfloat16Bits(x)),
  ),
  float16: float("f16", Uint16Array, 65504, 2 ** -10, (x) => fromFloat16Bits(toFloat16Bits(x))),
  float64,
  int8: integer("signed", "i8", Int8Array, (x) => (x << 24) >> 24),
  int16: integer("signed", "i16", Int16Array, (x) => (x << 16) >> 16),
  int32: integer("signed", "i32", Int32Array, (x) => x | 0),
  uint8: integer("unsigned", "u8", Uint8Array, (x) => x & 0xff),
  uint16: integer("unsigned", "u16", Uint16Array, (x) => x & 0xffff),
  uint32: integer("unsigned", "u32", Uint32Array, (x) => x >>> 0),
  bool: {
    ...{ short: "bool", kind: "bool", array: Uint8Array, bytes: 1, max: 1, epsilon: 1 },
    round: (x) => (x === 0 ? 0 : 1),
  },
  complex64: complex("c64", float32),
  complex128: complex("c128", float64),
};

/** Every data type that programs hold, in the order of the catalogue. */
export const dtypes: readonly RealDType[] = (Object.keys(facts) as DType[]).filter(
  (name) => name !== "complex64" && name !== "complex128",
);

/** Whether `name` is the name of a data type. */
export function isDType(name: unknown): name is DType {
  return typeof name === "string" && Object.hasOwn(facts, name);
}

/** The facts of a type; checked, because names may come from users. */
function factsOf(dtype: DType): DTypeFacts {
  // This runs for every operand of every op, so the full check is left to the failing case.
  const found = typeof dtype === "string" ? facts[dtype] : undefined;
  if (found?.bytes === undefined) needDType(dtype, "dtype");
  return found ?? facts[dtype];
}

const quotedNames = Object.keys(facts)
  .map((name) => `"${name}"`)
  .join(", ");

/** The kind of options that are data types. */
export const dtypeKind: Kind<DType> = {
  says: `one of the data types ${quotedNames}`,
  is: isDType,
  error: DTypeError,
};

/** Throws unless a value names a data type. */
export function needDType(dtype: unknown, caller: string): asserts dtype is DType {
  if (isDType(dtype)) return;
  throw new DTypeError(`[${caller}] ${describe(dtype)} is not a data type: use ${quotedNames}`);
}

/** The short name used in printed programs, such as `f32`. */
export function shortName(dtype: DType): string {
  return factsOf(dtype).short;
}

/**
 * The size of one element in bytes.
 *
 * @example
 * ```ts
 * engines.byteSize("bfloat16"); // 2
 * ```
 */
export function byteSize(dtype: DType): number {
  return factsOf(dtype).bytes;
}

/** What kind of numbers the type holds. */
export function kindOfNumbers(dtype: DType): DTypeFacts["kind"] {
  return factsOf(dtype).kind;
}

/** Whether the type is one of the floating-point types. */
export function isFloat(dtype: DType): boolean {
  return factsOf(dtype).kind === "float";
}

/** Whether the type is complex. */
export function isComplex(dtype: DType): dtype is ComplexDType {
  return factsOf(dtype).kind === "complex";
}

/** The type of the parts of a complex type; any other type is its own. */
export function partType(dtype: DType): RealDType {
  if (dtype === "complex64") return "float32";
  return dtype === "complex128" ? "float64" : dtype;
}

/** The complex type that holds every value of a type: complex128 for float64, otherwise complex64. */
export function complexType(dtype: DType): ComplexDType {
  return dtype === "float64" || dtype === "complex128" ? "complex128" : "complex64";
}

/** The type in which many values of a type are added: 16-bit floats accumulate in float32. */
export function sumType(dtype: DType): DType {
  return isFloat(dtype) && byteSize(dtype) < byteSize("float32") ? "float32" : dtype;
}

/** Whether the type is an integer type, signed or unsigned; bool is not. */
export function isInteger(dtype: DType): boolean {
  const { kind } = factsOf(dtype);
  return kind === "signed" || kind === "unsigned";
}

/** Whether the type is an unsigned integer type. */
export function isUnsigned(dtype: DType): boolean {
  return factsOf(dtype).kind === "unsigned";
}

/** Whether the type is an integer of fewer than 32 bits. */
export function isNarrowInteger(dtype: DType): boolean {
  return isInteger(dtype) && byteSize(dtype) < byteSize("int32");
}

/** The unsigned integer type of the same width; other types unchanged. */
export function unsignedOf(dtype: DType): DType {
  return dtype === "int8" ? "uint8" : dtype === "int16" ? "uint16" : dtype === "int32" ? "uint32" : dtype;
}

/** The signed integer type of the same width; other types unchanged. */
export function signedOf(dtype: DType): DType {
  return dtype === "uint8" ? "int8" : dtype === "uint16" ? "int16" : dtype === "uint32" ? "int32" : dtype;
}

/** The maximum size in bytes of a host array that every runtime supports. */
const maxHostBytes = 2 ** 33;

function checkedLength(dtype: DType, length: number): number {
  if (Number.isSafeInteger(length) && length >= 0 && length * byteSize(dtype) <= maxHostBytes) return length;
  throw new ValueError(
    `an array of ${dtype} in JavaScript's memory cannot have ${describe(length)} elements: use 0 to ${maxHostBytes / byteSize(dtype)}`,
  );
}

const numParts = (dtype: DType) => (isComplex(dtype) ? 2 : 1);

/**
 * A zeroed host array for `length` elements.
 *
 * @example
 * ```ts
 * engines.allocateHost("float32", 3).byteLength; // 12
 * ```
 */
export function allocateHost(dtype: DType, length: number): HostData {
  const { array } = factsOf(dtype);
  return new array(checkedLength(dtype, length) * numParts(dtype));
}

/**
 * A host view of the elements that lie in `buffer`: all of them, or `length` from the byte `start` on.
 *
 * @example
 * ```ts
 * engines.viewHost("float32", new ArrayBuffer(16), 4, 2).length; // 2
 * ```
 */
export function viewHost(dtype: DType, buffer: ArrayBufferLike, start?: number, length?: number): HostData {
  const bytes = byteSize(dtype);
  const size: unknown = buffer?.byteLength;
  const from = start ?? 0;
  const count = length ?? (typeof size === "number" ? Math.floor((size - from) / bytes) : 0);
  const fits = typeof size === "number" && from >= 0 && from % bytes === 0 && from + count * bytes <= size;
  if (!fits || ArrayBuffer.isView(buffer)) {
    throw new ValueError(
      `${describe(length)} elements of ${dtype} from byte ${describe(start)} are not within ${describe(buffer)} of ${describe(size)} bytes`,
    );
  }
  const { array } = factsOf(dtype);
  return new array(buffer, start, length === undefined ? undefined : length * numParts(dtype));
}

/** The smallest and the largest finite value of a numeric type, and the spacing at 1 for floats. */
export function limits(dtype: DType): {
  readonly min: number;
  readonly max: number;
  readonly epsilon: number;
} {
  const { kind, max, epsilon } = factsOf(dtype);
  const min = kind === "signed" ? -max - 1 : kind === "unsigned" || kind === "bool" ? 0 : -max;
  return { min, max, epsilon };
}

const scratchFloat = new Float32Array(1);
const scratchBits = new Uint32Array(scratchFloat.buffer);

/** The bits of the bfloat16 nearest to `value`, ties to even; NaN stays NaN. */
export function toBfloat16Bits(value: number): number {
  scratchFloat[0] = value;
  const bits = scratchBits[0] ?? 0;
  if ((bits & 0x7fffffff) > 0x7f800000) return ((bits >>> 16) | 0x40) & 0xffff;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** The value of a bfloat16 given by its bits. */
export function fromBfloat16Bits(bits: number): number {
  scratchBits[0] = bits << 16;
  return scratchFloat[0] ?? 0;
}

/** The bits of the float16 nearest to `value`, ties to even; NaN stays NaN and overflow becomes infinity. */
export function toFloat16Bits(value: number): number {
  scratchFloat[0] = value;
  const bits = scratchBits[0] ?? 0;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = Math.abs(scratchFloat[0] ?? 0);
  if (Number.isNaN(magnitude)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 2 ** -14) return sign | roundHalfEven(magnitude * 2 ** 24);
  // The exponent bias is 15 instead of 127; a carry out of the mantissa when rounding increments it.
  const rebased = (bits & 0x7fffffff) - (112 << 23);
  return sign | ((rebased + 0xfff + ((bits >>> 13) & 1)) >>> 13);
}

/** The value of a float16 given by its bits. */
export function fromFloat16Bits(bits: number): number {
  if ((bits & 0x7fff) > 0x7c00) return Number.NaN;
  if ((bits & 0x7fff) === 0x7c00) return bits & 0x8000 ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  // Read as a float32 with the same fields it is too small by the difference of the exponent biases, 15 and 127.
  scratchBits[0] = ((bits & 0x8000) << 16) | ((bits & 0x7fff) << 13);
  return (scratchFloat[0] ?? 0) * 2 ** 112;
}

/** Rounds to the nearest integer, ties to even, as IEEE 754 does. */
export function roundHalfEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  const isUp = rest > 0.5 || (rest === 0.5 && floor % 2 !== 0);
  const rounded = isUp ? floor + 1 : floor;
  return rounded === 0 && value < 0 ? -0 : rounded;
}

/** Rounds a JavaScript number to the nearest value of `dtype`; integers wrap around as in two's complement. */
export function roundTo(dtype: DType, value: number): number {
  return factsOf(dtype).round(value);
}

/** For the types whose arrays store numbers otherwise than {@link encode} should. */
const conversions: { readonly [D in DType]?: Rounding } = {
  bfloat16: toBfloat16Bits,
  float16: toFloat16Bits,
  bool: facts.bool.round,
};

/**
 * Numbers as a host array of the type, each rounded to it; complex numbers are given as alternating parts.
 *
 * @example
 * ```ts
 * Array.from(engines.encode("bfloat16", [1])); // [16256]
 * ```
 */
export function encode(dtype: DType, values: ArrayLike<number>): HostData {
  need("numbers", values, "the values", "encode");
  checkedLength(partType(dtype), values.length);
  const { array } = factsOf(dtype);
  const toStored = conversions[dtype];
  if (!toStored) return new array(values);
  const data = new array(values.length);
  for (let i = 0; i < data.length; i++) data[i] = toStored(values[i] ?? 0);
  return data;
}

/**
 * The elements of a host array as numbers, complex ones as alternating parts; bfloat16 and float16 are widened to
 * float32.
 *
 * @example
 * ```ts
 * Array.from(engines.decode("bfloat16", engines.encode("bfloat16", [1.5]))); // [1.5]
 * ```
 */
export function decode(dtype: DType, data: HostData): HostData {
  need("bytes", data, "the elements", "decode");
  if (dtype !== "bfloat16" && dtype !== "float16") return data;
  const fromBits = dtype === "bfloat16" ? fromBfloat16Bits : fromFloat16Bits;
  const numbers = new Float32Array(data.length);
  for (let i = 0; i < numbers.length; i++) numbers[i] = fromBits(data[i] ?? 0);
  return numbers;
}
