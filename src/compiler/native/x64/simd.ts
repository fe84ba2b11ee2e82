import { X64 } from "./assembler.js";
import type { VectorEncoding } from "./encoder.js";
import { type Gpr, type Masking, type Mem, memText, type Vector, vec, vectorText } from "./operands.js";

/** An encoding, and the name that the EVEX form has when it is another one. */
interface Simd extends VectorEncoding {
  readonly wide?: string;
}

const float = (opcode: number): Simd => ({ map: 1, pp: 0, opcode, w: [0, 0] });
const integer = (map: 1 | 2, opcode: number, wide?: string): Simd => ({
  ...{ map, pp: 1, opcode, w: [0, 0] },
  ...(wide === undefined ? {} : { wide }),
});

/** Instructions from two vectors to one; the second may be in memory. */
const BINARY = {
  vaddps: float(0x58),
  vmulps: float(0x59),
  vsubps: float(0x5c),
  vminps: float(0x5d),
  vdivps: float(0x5e),
  vmaxps: float(0x5f),
  vpackuswb: integer(1, 0x67),
  vpcmpgtd: integer(1, 0x66),
  vpcmpeqd: integer(1, 0x76),
  vpand: integer(1, 0xdb, "vpandd"),
  vpandn: integer(1, 0xdf, "vpandnd"),
  vpor: integer(1, 0xeb, "vpord"),
  vpxor: integer(1, 0xef, "vpxord"),
  vpsubd: integer(1, 0xfa),
  vpaddd: integer(1, 0xfe),
  vpackusdw: integer(2, 0x2b),
  vpminsd: integer(2, 0x39),
  vpminud: integer(2, 0x3b),
  vpmaxsd: integer(2, 0x3d),
  vpmaxud: integer(2, 0x3f),
  vpmulld: integer(2, 0x40),
  // These read what they write too.
  vfmadd213ps: integer(2, 0xa8),
  vfmadd231ps: integer(2, 0xb8),
  vfnmadd213ps: integer(2, 0xac),
  vfnmadd231ps: integer(2, 0xbc),
} as const satisfies Readonly<Record<string, Simd>>;

/** Instructions from one vector to another, either of which may be in memory as each says. */
const UNARY = {
  vsqrtps: float(0x51),
  vcvtdq2ps: float(0x5b),
  vcvttps2dq: { ...float(0x5b), pp: 2 },
  vpabsd: integer(2, 0x1e),
  vpbroadcastd: { ...integer(2, 0x58), unit: 4 },
  vpmovzxbd: integer(2, 0x31),
  vpmovzxwd: integer(2, 0x33),
} as const satisfies Readonly<Record<string, Simd>>;

/** Shifts by a constant: the digit in the place of a register. */
const SHIFTS = { vpsrld: 2, vpsrad: 4, vpslld: 6 } as const;

/** Comparisons of 512 bits, whose results are mask registers. */
const COMPARISONS = {
  vcmpps: { map: 1, pp: 0, opcode: 0xc2, w: [0, 0] },
  vpcmpud: { map: 3, pp: 1, opcode: 0x1e, w: [0, 0] },
  vpcmpd: { map: 3, pp: 1, opcode: 0x1f, w: [0, 0] },
} as const satisfies Readonly<Record<string, VectorEncoding>>;

/** The name of an instruction from two vectors to one. */
export type BinaryName = keyof typeof BINARY;
/** The name of an instruction from one vector to another. */
export type UnaryName = keyof typeof UNARY;
/** The name of a shift by a constant. */
export type ShiftName = keyof typeof SHIFTS;
/** The name of a comparison whose result is a mask register. */
export type ComparisonName = keyof typeof COMPARISONS;

/** The instructions on vectors that fused kernels are made of, beside those of products. */
export class X64Simd extends X64 {
  binary(name: BinaryName, to: Vector, a: Vector, b: Vector | Mem): this {
    const encoding: Simd = BINARY[name];
    return this.vector(nameFor(name, encoding, to), encoding, to, a, b);
  }

  unary(name: UnaryName, to: Vector, from: Vector | Mem, masking?: Masking): this {
    const encoding: Simd = UNARY[name];
    // What is widened takes less memory than the result.
    const part = name === "vpmovzxbd" ? 4 : name === "vpmovzxwd" ? 2 : undefined;
    const unit = part === undefined ? encoding.unit : to.bits / 8 / part;
    const whole = unit === undefined ? encoding : { ...encoding, unit };
    return this.vector(name, whole, to, undefined, from, masking);
  }

  /** to += the products of both pairs of bfloat16 in each lane, which count as zero where they are denormal. */
  vdpbf16ps(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vdpbf16ps", { map: 2, pp: 2, opcode: 0x52, w: [0, 0] }, to, a, b);
  }

  shift(name: ShiftName, to: Vector, from: Vector, amount: number): this {
    const digit = vec(to.bits, SHIFTS[name]);
    return this.instruction(
      () => `${name} ${vectorText(to)}, ${vectorText(from)}, ${amount}`,
      () => this.encode({ ...integer(1, 0x72), immediate: amount }, digit, to, from),
    );
  }

  /** Rounds to integers: 0 to the nearest, 1 down, 2 up, 3 towards zero; quietly. */
  round(to: Vector, from: Vector | Mem, mode: 0 | 1 | 2 | 3): this {
    const encoding: VectorEncoding = { map: 3, pp: 1, opcode: 0x08, w: [0, 0], immediate: mode | 8 };
    return this.vector(to.bits === 512 ? "vrndscaleps" : "vroundps", encoding, to, undefined, from);
  }

  /** A mask of all bits of the lanes where the predicate holds, in 128 or 256 bits. */
  vcmpps(to: Vector, a: Vector, b: Vector | Mem, predicate: number): this {
    return this.vector("vcmpps", { ...COMPARISONS.vcmpps, immediate: predicate }, to, a, b);
  }

  /** Sets a mask register where the predicate holds in 512 bits. */
  compare(name: ComparisonName, mask: number, a: Vector, b: Vector | Mem, predicate: number): this {
    return this.instruction(
      () => `${name} k${mask}, ${vectorText(a)}, ${operandText(b)}, ${predicate}`,
      () => this.encode({ ...COMPARISONS[name], immediate: predicate }, vec(512, mask), a, b),
    );
  }

  /** Sets all bits of the lanes in a mask register, and clears the others. */
  fill(to: Vector, mask: number): this {
    const encoding: VectorEncoding = { map: 3, pp: 1, opcode: 0x25, w: [0, 0], immediate: 255 };
    return this.vector("vpternlogd", encoding, to, to, to, { mask, zero: true });
  }

  /** Where bits of `to` are set, those of a, else those of b, in 512 bits. */
  choose(to: Vector, a: Vector, b: Vector | Mem): this {
    return this.vector("vpternlogd", { map: 3, pp: 1, opcode: 0x25, w: [0, 0], immediate: 0xca }, to, a, b);
  }

  /** Lanes of 128 bits in another order. */
  vpshufd(to: Vector, from: Vector, order: number): this {
    return this.vector(
      "vpshufd",
      { map: 1, pp: 1, opcode: 0x70, w: [0, 0], immediate: order },
      to,
      undefined,
      from,
    );
  }

  /** Quarters of 256 bits in another order. */
  vpermq(to: Vector, from: Vector, order: number): this {
    return this.vector(
      "vpermq",
      { map: 3, pp: 1, opcode: 0x00, w: [1, 1], immediate: order },
      to,
      undefined,
      from,
    );
  }

  /** The lower lane of a register in all lanes. */
  vbroadcastLane(to: Vector, from: Vector): this {
    return this.vector(
      "vbroadcastss",
      { map: 2, pp: 1, opcode: 0x18, w: [0, 0] },
      to,
      undefined,
      vec(128, from.id),
    );
  }

  /** A general register in the lowest lane, the others zero. */
  vmovd(to: Vector, from: Gpr): this {
    return this.instruction(
      () => `vmovd ${vectorText(to)}, ${from.name}`,
      () => this.encode({ map: 1, pp: 1, opcode: 0x6e, w: [0, 0] }, to, undefined, vec(128, from.id)),
    );
  }

  /** A general register in all lanes of 512 bits. */
  vpbroadcastGpr(to: Vector, from: Gpr): this {
    return this.instruction(
      () => `vpbroadcastd ${vectorText(to)}, ${from.name}`,
      () => this.encode({ map: 2, pp: 1, opcode: 0x7c, w: [0, 0] }, to, undefined, vec(128, from.id)),
    );
  }

  /** Stores the lowest bits of a register of 128 bits. */
  storeLow(to: Mem, from: Vector, bits: 8 | 16 | 32 | 64): this {
    const [name, encoding] = LOW_STORES[bits];
    return this.instruction(
      () => `${name} ${memText(to)}, ${vectorText(from)}${encoding.immediate === undefined ? "" : ", 0"}`,
      () => this.encode(encoding, from, undefined, to),
    );
  }

  /** Stores the lower bytes or halves of the lanes of 512 bits side by side. */
  storeNarrow(to: Mem, from: Vector, bits: 8 | 16): this {
    const opcode = bits === 8 ? 0x31 : 0x33;
    return this.instruction(
      () => `${bits === 8 ? "vpmovdb" : "vpmovdw"} ${memText(to)}, ${vectorText(from)}`,
      () =>
        this.encode(
          { map: 2, pp: 2, opcode, w: [0, 0], unit: (from.bits * bits) / 256 },
          from,
          undefined,
          to,
        ),
    );
  }
}

const LOW_STORES: { readonly [B in 8 | 16 | 32 | 64]: readonly [string, VectorEncoding] } = {
  8: ["vpextrb", { map: 3, pp: 1, opcode: 0x14, w: [0, 0], immediate: 0 }],
  16: ["vpextrw", { map: 3, pp: 1, opcode: 0x15, w: [0, 0], immediate: 0 }],
  32: ["vmovd", { map: 1, pp: 1, opcode: 0x7e, w: [0, 0] }],
  64: ["vmovq", { map: 1, pp: 1, opcode: 0xd6, w: [0, 0] }],
};

function nameFor(name: string, { wide }: Simd, { bits }: Vector): string {
  return bits === 512 && wide !== undefined ? wide : name;
}

function operandText(operand: Vector | Mem): string {
  return operand.kind === "vector" ? vectorText(operand) : memText(operand);
}
