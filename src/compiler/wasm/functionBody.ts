import { ADDRESS_BYTES, type AddressType } from "./addresses.js";
import { ByteWriter } from "./byteWriter.js";
import {
  LANE_MEMORY_OPS,
  LANE_OPS,
  type LaneMemoryOp,
  type LaneOp,
  MEMORY_OPS,
  type MemoryOp,
  SATURATING_OPS,
  SCALAR_OPS,
  type ScalarOp,
  VECTOR_MEMORY_OPS,
  VECTOR_OPS,
  VECTOR_SCALAR_OPS,
  VECTOR_SHIFT_OPS,
  type VectorOp,
  type VectorScalarOp,
  type VectorShiftOp,
} from "./opcodes.js";

/** The value types of WebAssembly that kernels use. */
export type ValueType = "i32" | "i64" | "f32" | "f64" | "v128";

/** A value type, or that of the module's addresses. */
export type ParamType = ValueType | "address";

type IntegerOp<T extends string> = T extends `i32.${infer Name}`
  ? `i64.${Name}` extends ScalarOp
    ? Name
    : never
  : never;

/** An integer instruction on addresses, whichever type they have. */
export type AddressOp = `address.${IntegerOp<ScalarOp>}`;

/** The index of a parameter or local variable of one function. */
export type Local = number & { readonly __local: never };

/** The index of a function in its module, imported ones included. */
export type FunctionIndex = number & { readonly __function: never };

/** An enclosing block or loop that a branch can name. */
export interface WasmLabel {
  readonly depth: number;
}

/** The codes of value types in the binary format. */
export const VALUE_TYPE_CODES: { readonly [T in ValueType]: number } = {
  i32: 0x7f,
  i64: 0x7e,
  f32: 0x7d,
  f64: 0x7c,
  v128: 0x7b,
};
const EMPTY_BLOCK = 0x40;
const SIMD_PREFIX = 0xfd;
const NUMERIC_PREFIX = 0xfc;

/** Writes one function body; methods have the names of the text format. */
export class FunctionBody {
  private readonly writer = new ByteWriter();
  private readonly locals: ValueType[] = [];
  private depth = 0;
  private readonly converted = new Map<number, Local>();

  /** @param isExported whether JavaScript calls it, which gives addresses as numbers */
  constructor(
    private readonly params: readonly ParamType[],
    private readonly addressType: AddressType = "i32",
    isExported = false,
  ) {
    if (addressType === "i32" || !isExported) return;
    params.forEach((type, index) => {
      if (type !== "address") return;
      const address = this.local("address");
      this.get(index as Local)
        .op("i64.trunc_sat_f64_u")
        .set(address);
      this.converted.set(index, address);
    });
  }

  /** The local that holds the parameter at `index`. */
  param(index: number): Local {
    if (index >= this.params.length) {
      throw new RangeError(`[FunctionBody] parameter ${index} of a function with ${this.params.length}`);
    }
    return this.converted.get(index) ?? (index as Local);
  }

  /** Declares a fresh local variable, zero at first. */
  local(type: ParamType): Local {
    this.locals.push(type === "address" ? this.addressType : type);
    return (this.params.length + this.locals.length - 1) as Local;
  }

  /** Pushes a number of the type of addresses. */
  address(value: number): this {
    return this.addressType === "i32" ? this.i32(value) : this.i64(BigInt(value));
  }

  /** Converts the i32 on the stack, which is not negative, to the type of addresses. */
  toAddress(): this {
    return this.addressType === "i32" ? this : this.op("i64.extend_i32_u");
  }

  /** Converts the number on the stack, of the type of addresses, to i32. */
  fromAddress(): this {
    return this.addressType === "i32" ? this : this.op("i32.wrap_i64");
  }

  /** Loads the address that JavaScript has written at the address on the stack plus `offset` bytes. */
  loadAddress(offset = 0): this {
    if (this.addressType === "i32") return this.memory("i32.load", offset);
    return this.memory("f64.load", offset).op("i64.trunc_sat_f64_u");
  }

  /** The bytes of an address that JavaScript has written. */
  get addressBytes(): 4 | 8 {
    return ADDRESS_BYTES[this.addressType];
  }

  /** Pushes a local's value. */
  get(local: Local): this {
    return this.emit(0x20, local);
  }

  /** Pops into a local. */
  set(local: Local): this {
    return this.emit(0x21, local);
  }

  /** Stores the top of the stack in a local and leaves it there. */
  tee(local: Local): this {
    return this.emit(0x22, local);
  }

  /** Pushes a 32-bit integer; values above 2^31 are taken as unsigned bit patterns. */
  i32(value: number): this {
    this.writer.byte(0x41);
    this.writer.signed(BigInt(value | 0));
    return this;
  }

  /** Pushes a 64-bit integer. */
  i64(value: bigint): this {
    this.writer.byte(0x42);
    this.writer.signed(BigInt.asIntN(64, value));
    return this;
  }

  /** Pushes a float32. */
  f32(value: number): this {
    this.writer.byte(0x43);
    this.writer.f32(value);
    return this;
  }

  /** Pushes a float64. */
  f64(value: number): this {
    this.writer.byte(0x44);
    this.writer.f64(value);
    return this;
  }

  /** Pushes a vector given as four 32-bit words, lane 0 first. */
  v128(words: readonly [number, number, number, number]): this {
    this.emit(SIMD_PREFIX, 0x0c);
    for (const word of words) this.writer.word(word);
    return this;
  }

  /** A scalar instruction without immediates. */
  op(instruction: ScalarOp | AddressOp): this {
    const name = this.resolve(instruction);
    if (!(name in SATURATING_OPS)) return this.emit(SCALAR_OPS[name as keyof typeof SCALAR_OPS]);
    return this.emit(NUMERIC_PREFIX, SATURATING_OPS[name as keyof typeof SATURATING_OPS]);
  }

  private resolve(name: ScalarOp | AddressOp): ScalarOp {
    return name.replace("address.", `${this.addressType}.`) as ScalarOp;
  }

  /** A SIMD instruction without immediates. */
  vector(name: VectorOp | VectorShiftOp | VectorScalarOp): this {
    return this.emit(SIMD_PREFIX, VECTOR_CODES[name]);
  }

  /** A SIMD instruction with a lane index. */
  lane(name: LaneOp, lane: number): this {
    return this.emit(SIMD_PREFIX, LANE_OPS[name], lane);
  }

  /** Picks four 32-bit lanes out of the eight of two vectors (0 to 3 the first, 4 to 7 the second). */
  shuffle(lanes: readonly [number, number, number, number]): this {
    this.emit(SIMD_PREFIX, 0x0d);
    for (const lane of lanes) this.writer.raw([lane * 4, lane * 4 + 1, lane * 4 + 2, lane * 4 + 3]);
    return this;
  }

  /** A load or a store at the address on the stack plus `offset` bytes. */
  memory(name: MemoryOp, offset = 0, align?: number): this {
    if (name in VECTOR_MEMORY_OPS) {
      const [code, natural] = VECTOR_MEMORY_OPS[name as keyof typeof VECTOR_MEMORY_OPS];
      return this.emit(SIMD_PREFIX, code, Math.min(align ?? 2, natural), offset);
    }
    const [code, natural] = MEMORY_OPS[name as keyof typeof MEMORY_OPS];
    return this.emit(code, Math.min(align ?? 2, natural), offset);
  }

  /** A load into or a store from one lane of the vector on the stack. */
  laneMemory(name: LaneMemoryOp, lane: number, offset = 0): this {
    const [code, natural] = LANE_MEMORY_OPS[name];
    return this.emit(SIMD_PREFIX, code, Math.min(2, natural), offset, lane);
  }

  /** Copies bytes: pops destination, source and length. */
  memoryCopy(): this {
    return this.emit(NUMERIC_PREFIX, 10, 0, 0);
  }

  /** Fills bytes: pops destination, byte value and length. */
  memoryFill(): this {
    return this.emit(NUMERIC_PREFIX, 11, 0);
  }

  /** Calls a function of the module. */
  call(target: FunctionIndex): this {
    return this.emit(0x10, target);
  }

  /** A block; a branch to its label leaves it. */
  block(body: (label: WasmLabel) => void): this {
    return this.nested(0x02, body);
  }

  /** A loop; a branch to its label starts the next round. */
  loop(body: (label: WasmLabel) => void): this {
    return this.nested(0x03, body);
  }

  /** Pops a condition and runs one of the two branches, which leave nothing on the stack. */
  if(whenTrue: () => void, whenFalse?: () => void): this {
    return this.nested(0x04, () => {
      whenTrue();
      if (!whenFalse) return;
      this.emit(0x05);
      whenFalse();
    });
  }

  /** Branches to an enclosing block or loop. */
  br(label: WasmLabel): this {
    return this.emit(0x0c, this.depth - label.depth);
  }

  /** Pops a condition and branches when it is not zero. */
  brIf(label: WasmLabel): this {
    return this.emit(0x0d, this.depth - label.depth);
  }

  /** Adds a constant to an i32 local. */
  increment(local: Local, by: number): this {
    return this.get(local).i32(by).op("i32.add").set(local);
  }

  /** Adds a constant to a local of the type of addresses. */
  advance(local: Local, by: number): this {
    return this.get(local).address(by).op("address.add").set(local);
  }

  private emit(code: number, ...operands: readonly number[]): this {
    this.writer.byte(code);
    for (const operand of operands) this.writer.u32(operand);
    return this;
  }

  private nested(code: number, body: (label: WasmLabel) => void): this {
    this.emit(code, EMPTY_BLOCK);
    this.depth++;
    body({ depth: this.depth });
    this.depth--;
    return this.emit(0x0b);
  }

  /** The encoded body with its local declarations and final `end`. */
  encode(): Uint8Array {
    const out = new ByteWriter();
    const runs: { type: ValueType; count: number }[] = [];
    for (const type of this.locals) {
      const last = runs.at(-1);
      if (last?.type === type) last.count++;
      else runs.push({ type, count: 1 });
    }
    out.u32(runs.length);
    for (const run of runs) {
      out.u32(run.count);
      out.byte(VALUE_TYPE_CODES[run.type]);
    }
    out.raw(this.writer.toBytes());
    out.byte(0x0b);
    return out.toBytes();
  }
}

const VECTOR_CODES = { ...VECTOR_OPS, ...VECTOR_SHIFT_OPS, ...VECTOR_SCALAR_OPS };
