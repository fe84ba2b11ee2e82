import { InternalError } from "../../../ir/errors.js";
import { CodeWriter, type Label, labelName, littleEndian32 } from "../code.js";

/** A register: general (`x`, or the stack pointer), or 128 (`q`), 64 (`d`), 32 (`s`) or 16 bits (`h`) of a vector. */
export interface Register {
  readonly kind: "x" | "q" | "d" | "s" | "h";
  readonly id: number;
}

/** A general register. */
export const x = (id: number): Register => ({ kind: "x", id });
/** All 128 bits of a vector register. */
export const q = (id: number): Register => ({ kind: "q", id });
/** The lowest 64 bits of a vector register. */
export const d = (id: number): Register => ({ kind: "d", id });
/** The lowest 32 bits of a vector register. */
export const s = (id: number): Register => ({ kind: "s", id });
/** The lowest 16 bits of a vector register. */
export const h = (id: number): Register => ({ kind: "h", id });
/** The stack pointer, which shares its number with the register that is always zero. */
export const sp = x(31);

/** How 128 bits are cut into numbers: four of 32 bits or two of 64. */
export type Lanes = "4s" | "2d";

/** The opcodes that join the lower halves of two registers lane by lane, and the upper halves. */
const ZIP = {
  "8h": [0x4e403800, 0x4e407800],
  "4s": [0x4e803800, 0x4e807800],
  "2d": [0x4ec03800, 0x4ec07800],
} as const;

/** The opcodes of loads and stores for each kind of register, with the bytes that offsets count in. */
const TRANSFER: {
  readonly [K in Register["kind"]]: {
    readonly bytes: number;
    readonly ldr: number;
    readonly str: number;
    readonly ldrPost: number;
  };
} = {
  x: { bytes: 8, ldr: 0xf9400000, str: 0xf9000000, ldrPost: 0xf8400400 },
  q: { bytes: 16, ldr: 0x3dc00000, str: 0x3d800000, ldrPost: 0x3cc00400 },
  d: { bytes: 8, ldr: 0xfd400000, str: 0xfd000000, ldrPost: 0xfc400400 },
  s: { bytes: 4, ldr: 0xbd400000, str: 0xbd000000, ldrPost: 0xbc400400 },
  h: { bytes: 2, ldr: 0x7d400000, str: 0x7d000000, ldrPost: 0x7c400400 },
};

const CONDITIONS = { eq: 0, ne: 1, ge: 10, lt: 11 } as const;

/** An assembler for the part of AArch64 that the kernels use; methods are the manual's mnemonics. */
export class A64 extends CodeWriter {
  ldr(to: Register, base: Register, offset = 0): this {
    return this.transfer("ldr", to, base, offset);
  }

  str(from: Register, base: Register, offset = 0): this {
    return this.transfer("str", from, base, offset);
  }

  /** Loads, then moves the base on. */
  ldrPost(to: Register, base: Register, by: number): this {
    const word = TRANSFER[to.kind].ldrPost | (field(by, 256) << 12) | (base.id << 5) | to.id;
    return this.word(() => `ldr ${name(to)}, [${name(base)}], #${by}`, word);
  }

  /** Loads 128 bits from a label of the same code. */
  ldrLiteral(to: Register, from: Label): this {
    this.refer(from, patchField19);
    return this.word(() => `ldr ${name(to)}, ${labelName(from)}`, 0x9c000000 | to.id);
  }

  ldp(first: Register, second: Register, base: Register, offset: number): this {
    return this.pair("ldp", first.kind === "x" ? 0xa9400000 : 0x6d400000, first, second, base, offset);
  }

  stp(first: Register, second: Register, base: Register, offset: number): this {
    return this.pair("stp", first.kind === "x" ? 0xa9000000 : 0x6d000000, first, second, base, offset);
  }

  /** Loads the third lane of 32 or 16 bits. */
  ld1Lane2(to: Register, base: Register, lane: "s" | "h" = "s"): this {
    const opcode = lane === "s" ? 0x4d408000 : 0x0d405000;
    return this.word(() => `ld1 {v${to.id}.${lane}}[2], [${name(base)}]`, opcode | (base.id << 5) | to.id);
  }

  /** Stores the third of four lanes. */
  st1Lane2(from: Register, base: Register): this {
    return this.word(() => `st1 {v${from.id}.s}[2], [${name(base)}]`, 0x4d008000 | (base.id << 5) | from.id);
  }

  /** Asks for the memory at an address, to be written soon. */
  prfmStore(base: Register): this {
    return this.word(() => `prfm pstl1keep, [${name(base)}]`, 0xf9800010 | (base.id << 5));
  }

  /** to += a · lane of b. */
  fmlaLane(lanes: Lanes, to: Register, a: Register, b: Register, lane: number): this {
    const [base, element] =
      lanes === "4s"
        ? [0x4f801000 | ((lane & 1) << 21) | ((lane >> 1) << 11), "s"]
        : [0x4fc01000 | (lane << 11), "d"];
    const text = () => `fmla v${to.id}.${lanes}, v${a.id}.${lanes}, v${b.id}.${element}[${lane}]`;
    return this.word(text, base | (b.id << 16) | (a.id << 5) | to.id);
  }

  /** to += a · bᵀ: 2 × 2 sums of float32, row by row, of factors with two rows of four bfloat16 each. */
  bfmmla(to: Register, a: Register, b: Register): this {
    const text = () => `bfmmla v${to.id}.4s, v${a.id}.8h, v${b.id}.8h`;
    return this.word(text, 0x6e40ec00 | (b.id << 16) | (a.id << 5) | to.id);
  }

  /** to += a · b. */
  fmla(lanes: Lanes, to: Register, a: Register, b: Register): this {
    return this.vector("fmla", lanes, lanes === "4s" ? 0x4e20cc00 : 0x4e60cc00, to, a, b);
  }

  fadd(lanes: Lanes, to: Register, a: Register, b: Register): this {
    return this.vector("fadd", lanes, lanes === "4s" ? 0x4e20d400 : 0x4e60d400, to, a, b);
  }

  fmul(lanes: Lanes, to: Register, a: Register, b: Register): this {
    return this.vector("fmul", lanes, lanes === "4s" ? 0x6e20dc00 : 0x6e60dc00, to, a, b);
  }

  zip1(lanes: keyof typeof ZIP, to: Register, a: Register, b: Register): this {
    return this.vector("zip1", lanes, ZIP[lanes][0], to, a, b);
  }

  zip2(lanes: keyof typeof ZIP, to: Register, a: Register, b: Register): this {
    return this.vector("zip2", lanes, ZIP[lanes][1], to, a, b);
  }

  /** Makes a vector register zero. */
  movi0(to: Register): this {
    return this.word(() => `movi v${to.id}.2d, #0`, 0x6f00e400 | to.id);
  }

  mov(to: Register, from: Register): this {
    return this.word(() => `mov ${name(to)}, ${name(from)}`, 0xaa0003e0 | (from.id << 16) | to.id);
  }

  /** to = a number below 65536. */
  movz(to: Register, value: number): this {
    return this.word(() => `mov ${name(to)}, #${value}`, 0xd2800000 | (unsigned(value, 65536) << 5) | to.id);
  }

  add(to: Register, a: Register, b: Register | number): this {
    if (typeof b !== "number") {
      const text = () => `add ${name(to)}, ${name(a)}, ${name(b)}`;
      return this.word(text, 0x8b000000 | (b.id << 16) | (a.id << 5) | to.id);
    }
    return this.immediate("add", 0x91000000, to, a, b);
  }

  sub(to: Register, a: Register, b: number): this {
    return this.immediate("sub", 0xd1000000, to, a, b);
  }

  /** Subtracts and sets the flags. */
  subs(to: Register, a: Register, b: number): this {
    return this.immediate("subs", 0xf1000000, to, a, b);
  }

  /** Adds and sets the flags. */
  adds(to: Register, a: Register, b: number): this {
    return this.immediate("adds", 0xb1000000, to, a, b);
  }

  /** to = a · b + c. */
  madd(to: Register, a: Register, b: Register, c: Register): this {
    const text = () => `madd ${[to, a, b, c].map(name).join(", ")}`;
    return this.word(text, 0x9b000000 | (b.id << 16) | (c.id << 10) | (a.id << 5) | to.id);
  }

  /** to = a · b. */
  mul(to: Register, a: Register, b: Register): this {
    return this.word(
      () => `mul ${[to, a, b].map(name).join(", ")}`,
      0x9b007c00 | (b.id << 16) | (a.id << 5) | to.id,
    );
  }

  b(label: Label): this {
    this.refer(label, (bytes, at, distance) => patchWord(bytes, at, (distance / 4) & 0x3ffffff));
    return this.word(() => `b ${labelName(label)}`, 0x14000000);
  }

  /** Branches when the condition holds. */
  bCond(condition: keyof typeof CONDITIONS, label: Label): this {
    this.refer(label, patchField19);
    return this.word(() => `b.${condition} ${labelName(label)}`, 0x54000000 | CONDITIONS[condition]);
  }

  cbz(register: Register, label: Label): this {
    this.refer(label, patchField19);
    return this.word(() => `cbz ${name(register)}, ${labelName(label)}`, 0xb4000000 | register.id);
  }

  blr(register: Register): this {
    return this.word(() => `blr ${name(register)}`, 0xd63f0000 | (register.id << 5));
  }

  ret(): this {
    return this.word(() => "ret", 0xd65f03c0);
  }

  private word(text: () => string, word: number): this {
    this.list(text);
    this.bytes.push(...littleEndian32(word));
    return this;
  }

  private transfer(op: "ldr" | "str", register: Register, base: Register, offset: number): this {
    const { bytes, [op]: opcode } = TRANSFER[register.kind];
    const word = opcode | (unsigned(offset / bytes, 4096) << 10) | (base.id << 5) | register.id;
    return this.word(() => `${op} ${name(register)}, [${name(base)}, #${offset}]`, word);
  }

  private pair(
    op: string,
    opcode: number,
    first: Register,
    second: Register,
    base: Register,
    offset: number,
  ): this {
    const word = opcode | (unsigned(offset / 8, 64) << 15) | (second.id << 10) | (base.id << 5) | first.id;
    return this.word(() => `${op} ${name(first)}, ${name(second)}, [${name(base)}, #${offset}]`, word);
  }

  private vector(op: string, lanes: string, opcode: number, to: Register, a: Register, b: Register): this {
    const operands = () => [to, a, b].map(({ id }) => `v${id}.${lanes}`).join(", ");
    return this.word(() => `${op} ${operands()}`, opcode | (b.id << 16) | (a.id << 5) | to.id);
  }

  private immediate(op: string, opcode: number, to: Register, a: Register, value: number): this {
    const word = opcode | (unsigned(value, 4096) << 10) | (a.id << 5) | to.id;
    return this.word(() => `${op} ${name(to)}, ${name(a)}, #${value}`, word);
  }
}

function name({ kind, id }: Register): string {
  return kind === "x" && id === 31 ? "sp" : `${kind}${id}`;
}

/** Distances of 19 bits in words, from bit 5 on. */
function patchField19(bytes: number[], at: number, distance: number): void {
  patchWord(bytes, at, (field(distance / 4, 2 ** 18) & 0x7ffff) << 5);
}

function patchWord(bytes: number[], at: number, bits: number): void {
  littleEndian32(bits).forEach((byte, i) => {
    bytes[at + i] = (bytes[at + i] ?? 0) | byte;
  });
}

function unsigned(value: number, limit: number): number {
  if (!Number.isInteger(value) || value < 0 || value >= limit) {
    throw new InternalError(`[A64] ${value} is not a field of an integer from 0 to ${limit - 1}`);
  }
  return value;
}

/** A signed field in two's complement, as many bits as `limit` needs and one for the sign. */
function field(value: number, limit: number): number {
  return (unsigned(value + limit, 2 * limit) - limit) & (2 * limit - 1);
}
