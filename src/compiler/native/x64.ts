import { InternalError } from "../../ir/errors.js";
import { CodeWriter, type Label, labelName, littleEndian32 } from "./code.js";

/** A general register, whole or its lower half. */
export interface Gpr {
  readonly kind: "gpr";
  readonly id: number;
  readonly bits: 32 | 64;
  readonly name: string;
}

/** A vector register. */
export interface Vector {
  readonly kind: "vector";
  readonly id: number;
  readonly bits: VectorBits;
}

/** The widths of vector registers. */
export type VectorBits = 128 | 256 | 512;

/** A place in memory: base + index · scale + displacement, or a label of the same code. */
export type Mem =
  | {
      readonly kind: "mem";
      readonly base: Gpr;
      readonly disp: number;
      readonly index: Gpr | undefined;
      readonly scale: 1 | 2 | 4 | 8;
    }
  | { readonly kind: "rip"; readonly label: Label };

const names64 = "rax rcx rdx rbx rsp rbp rsi rdi r8 r9 r10 r11 r12 r13 r14 r15".split(" ");
const names32 = "eax ecx edx ebx esp ebp esi edi r8d r9d r10d r11d r12d r13d r14d r15d".split(" ");
const gpr = (id: number): Gpr => ({ kind: "gpr", id, bits: 64, name: names64[id] ?? "" });

export const rax = gpr(0);
export const rcx = gpr(1);
export const rdx = gpr(2);
export const rbx = gpr(3);
export const rsp = gpr(4);
export const rbp = gpr(5);
export const rsi = gpr(6);
export const rdi = gpr(7);
export const r8 = gpr(8);
export const r9 = gpr(9);
export const r10 = gpr(10);
export const r11 = gpr(11);
export const r12 = gpr(12);
export const r13 = gpr(13);
export const r14 = gpr(14);
export const r15 = gpr(15);

/** The lower 32 bits of a general register. */
export function low32(register: Gpr): Gpr {
  return { ...register, bits: 32, name: names32[register.id] ?? "" };
}

/** A vector register by width and number. */
export function vec(bits: VectorBits, id: number): Vector {
  return { kind: "vector", id, bits };
}

/** The place `base + index · scale + disp`. */
export function mem(base: Gpr, disp = 0, index?: Gpr, scale: 1 | 2 | 4 | 8 = 1): Mem {
  return { kind: "mem", base, disp, index, scale };
}

/** The place of a label in the same code. */
export function ripTo(label: Label): Mem {
  return { kind: "rip", label };
}

/** Which lanes an AVX-512 instruction touches: mask register k1 to k7, the others kept or made zero. */
export interface Masking {
  readonly mask: number;
  readonly zero?: boolean;
}

/** Conditions of jumps after a comparison of signed numbers, and of unsigned ones: `ae`. */
const CONDITIONS = { ae: 3, e: 4, ne: 5, l: 12, ge: 13, le: 14, g: 15 } as const;

/** How an instruction on vectors is encoded, in the terms of the manual. */
export interface VectorEncoding {
  /** Opcode map: 1 = 0F, 2 = 0F38, 3 = 0F3A. */
  readonly map: 1 | 2 | 3;
  /** Implied prefix: 0 = none, 1 = 66, 2 = F3. */
  readonly pp: 0 | 1 | 2;
  readonly opcode: number;
  /** The W bit of the VEX and of the EVEX form. */
  readonly w: readonly [vex: 0 | 1, evex: 0 | 1];
  /** Bytes that a one-byte displacement of the EVEX form counts in, when not the vector's own. */
  readonly unit?: number;
  readonly immediate?: number;
}

const single = (opcode: number): VectorEncoding => ({ map: 1, pp: 0, opcode, w: [0, 0] });
const double = (opcode: number): VectorEncoding => ({ map: 1, pp: 1, opcode, w: [0, 1] });

/**
 * An assembler for the part of x86-64 that the kernels use. Methods are the manual's mnemonics with its order of
 * operands; AVX instructions are encoded with VEX where that reaches, else with EVEX, as GNU `as` does.
 */
export class X64 extends CodeWriter {
  mov(to: Gpr | Mem, from: Gpr | Mem | number): this {
    if (typeof from === "number") {
      if (to.kind !== "gpr" || to.bits !== 32) throw new InternalError("[X64] mov of a number needs 32 bits");
      return this.instruction(
        () => `mov ${to.name}, ${from >>> 0}`,
        () => {
          this.rex(0, 0, to);
          this.bytes.push(0xb8 | (to.id & 7), ...littleEndian32(from));
        },
      );
    }
    if (from.kind === "gpr") return this.general("mov", 0x89, from, to, true);
    if (to.kind !== "gpr") throw new InternalError("[X64] mov from memory to memory");
    return this.general("mov", 0x8b, to, from, false);
  }

  lea(to: Gpr, from: Mem): this {
    return this.general("lea", 0x8d, to, from, false);
  }

  add(to: Gpr, from: Gpr | Mem | number): this {
    if (typeof from === "number") return this.immediate("add", 0, to, from);
    return from.kind === "gpr"
      ? this.general("add", 0x01, from, to, true)
      : this.general("add", 0x03, to, from, false);
  }

  sub(to: Gpr, from: Gpr | number): this {
    return typeof from === "number"
      ? this.immediate("sub", 5, to, from)
      : this.general("sub", 0x29, from, to, true);
  }

  cmp(left: Gpr, right: Gpr | Mem | number): this {
    if (typeof right === "number") return this.immediate("cmp", 7, left, right);
    return right.kind === "gpr"
      ? this.general("cmp", 0x39, right, left, true)
      : this.general("cmp", 0x3b, left, right, false);
  }

  and(to: Gpr, value: number): this {
    return this.immediate("and", 4, to, value);
  }

  test(left: Gpr, right: Gpr): this {
    return this.general("test", 0x85, right, left, true);
  }

  xor(to: Gpr, from: Gpr): this {
    return this.general("xor", 0x31, from, to, true);
  }

  /** to = from · factor. */
  imul(to: Gpr, from: Gpr, factor: number): this {
    return this.instruction(
      () => `imul ${to.name}, ${from.name}, ${factor}`,
      () => {
        this.rex(1, to.id, from);
        const small = fitsByte(factor);
        this.bytes.push(small ? 0x6b : 0x69, 0xc0 | ((to.id & 7) << 3) | (from.id & 7));
        this.bytes.push(...(small ? [factor & 255] : littleEndian32(factor)));
      },
    );
  }

  dec(register: Gpr): this {
    return this.instruction(
      () => `dec ${register.name}`,
      () => {
        this.rex(1, 0, register);
        this.bytes.push(0xff, 0xc8 | (register.id & 7));
      },
    );
  }

  push(register: Gpr): this {
    return this.short("push", 0x50, register);
  }

  pop(register: Gpr): this {
    return this.short("pop", 0x58, register);
  }

  call(register: Gpr): this {
    return this.instruction(
      () => `call ${register.name}`,
      () => {
        this.rex(0, 0, register);
        this.bytes.push(0xff, 0xd0 | (register.id & 7));
      },
    );
  }

  ret(): this {
    return this.instruction(
      () => "ret",
      () => this.bytes.push(0xc3),
    );
  }

  jmp(label: Label): this {
    return this.instruction(
      () => `{disp32} jmp ${labelName(label)}`,
      () => {
        this.bytes.push(0xe9);
        this.distance(label);
      },
    );
  }

  /** Jumps when the condition holds. */
  j(condition: keyof typeof CONDITIONS, label: Label): this {
    return this.instruction(
      () => `{disp32} j${condition} ${labelName(label)}`,
      () => {
        this.bytes.push(0x0f, 0x80 | CONDITIONS[condition]);
        this.distance(label);
      },
    );
  }

  /** Moves when the condition holds. */
  cmov(condition: keyof typeof CONDITIONS, to: Gpr, from: Gpr): this {
    return this.extended(`cmov${condition}`, 0x40 | CONDITIONS[condition], to, from, "");
  }

  /** Loads a byte or a word of 16 bits and clears the bits above it. */
  movzx(to: Gpr, from: Mem, bits: 8 | 16): this {
    return this.extended("movzx", bits === 8 ? 0xb6 : 0xb7, to, from, bits === 8 ? "byte ptr " : "word ptr ");
  }

  /** Loads 32 bits and copies their sign. */
  movsxd(to: Gpr, from: Mem): this {
    return this.instruction(
      () => `movsxd ${to.name}, dword ptr ${memText(from)}`,
      () => {
        this.rex(1, to.id, from);
        this.bytes.push(0x63);
        this.modRm(to.id, from, 1);
      },
    );
  }

  /** Loads a float64 as a whole number. */
  cvttsd2si(to: Gpr, from: Mem): this {
    this.list(() => `cvttsd2si ${to.name}, qword ptr ${memText(from)}`);
    this.bytes.push(0xf2);
    this.rex(1, to.id, from);
    this.bytes.push(0x0f, 0x2c);
    this.modRm(to.id, from, 1);
    return this;
  }

  /** Writes ecx times what eax holds, from where rdi points on. */
  repStos(bits: 8 | 16 | 32): this {
    const code = { 8: [0xf3, 0xaa], 16: [0x66, 0xf3, 0xab], 32: [0xf3, 0xab] }[bits];
    const suffix = { 8: "b", 16: "w", 32: "d" }[bits];
    return this.instruction(
      () => `rep stos${suffix}`,
      () => this.bytes.push(...code),
    );
  }

  cpuid(): this {
    return this.instruction(
      () => "cpuid",
      () => this.bytes.push(0x0f, 0xa2),
    );
  }

  xgetbv(): this {
    return this.instruction(
      () => "xgetbv",
      () => this.bytes.push(0x0f, 0x01, 0xd0),
    );
  }

  prefetcht0(at: Mem): this {
    return this.instruction(
      () => `prefetcht0 ${memText(at)}`,
      () => {
        this.rex(0, 0, at);
        this.bytes.push(0x0f, 0x18);
        this.modRm(1, at, 1);
      },
    );
  }

  /** Fills up with instructions that do nothing until the offset is a multiple of `bytes`. */
  align(bytes: number): this {
    const missing = (bytes - (this.offset % bytes)) % bytes;
    const nops = Array.from({ length: Math.floor(missing / 4) }, () => [0x0f, 0x1f, 0x40, 0x00]).flat();
    return missing === 0 ? this : this.data([...nops, ...Array.from({ length: missing % 4 }, () => 0x90)]);
  }

  vzeroupper(): this {
    return this.instruction(
      () => "vzeroupper",
      () => this.bytes.push(0xc5, 0xf8, 0x77),
    );
  }

  /** Sets mask register `k` to the lowest 16 bits. */
  kmovw(k: number, from: Gpr): this {
    if (from.id > 7) throw new InternalError("[X64] kmovw takes one of the first eight registers");
    return this.instruction(
      () => `kmovw k${k}, ${from.name}`,
      () => this.bytes.push(0xc5, 0xf8, 0x92, 0xc0 | (k << 3) | from.id),
    );
  }

  vmovups(to: Vector | Mem, from: Vector | Mem, masking?: Masking): this {
    return this.move("vmovups", single(0x10), single(0x11), to, from, masking);
  }

  vmovupd(to: Vector | Mem, from: Vector | Mem, masking?: Masking): this {
    return this.move("vmovupd", double(0x10), double(0x11), to, from, masking);
  }

  vaddps(to: Vector, a: Vector, b: Vector | Mem, masking?: Masking): this {
    return this.vector("vaddps", single(0x58), to, a, b, masking);
  }

  vaddpd(to: Vector, a: Vector, b: Vector | Mem, masking?: Masking): this {
    return this.vector("vaddpd", double(0x58), to, a, b, masking);
  }

  vmulps(to: Vector, a: Vector, b: Vector | Mem): this {
    return this.vector("vmulps", single(0x59), to, a, b);
  }

  vmulpd(to: Vector, a: Vector, b: Vector | Mem): this {
    return this.vector("vmulpd", double(0x59), to, a, b);
  }

  /** to += a · b. */
  vfmadd231ps(to: Vector, a: Vector, b: Vector | Mem, masking?: Masking): this {
    return this.vector("vfmadd231ps", { map: 2, pp: 1, opcode: 0xb8, w: [0, 0] }, to, a, b, masking);
  }

  /** to += a · b. */
  vfmadd231pd(to: Vector, a: Vector, b: Vector | Mem, masking?: Masking): this {
    return this.vector("vfmadd231pd", { map: 2, pp: 1, opcode: 0xb8, w: [1, 1] }, to, a, b, masking);
  }

  vbroadcastss(to: Vector, from: Mem): this {
    return this.vector(
      "vbroadcastss",
      { map: 2, pp: 1, opcode: 0x18, w: [0, 0], unit: 4 },
      to,
      undefined,
      from,
    );
  }

  vbroadcastsd(to: Vector, from: Mem): this {
    return this.vector(
      "vbroadcastsd",
      { map: 2, pp: 1, opcode: 0x19, w: [0, 1], unit: 8 },
      to,
      undefined,
      from,
    );
  }

  /** Four floats to every quarter of 512 bits. */
  vbroadcastf32x4(to: Vector, from: Mem, masking?: Masking): this {
    const encoding: VectorEncoding = { map: 2, pp: 1, opcode: 0x1a, w: [0, 0], unit: 16 };
    return this.vector("vbroadcastf32x4", encoding, to, undefined, from, masking);
  }

  /** to = a with its upper half replaced by 128 bits. */
  vinsertf128(to: Vector, a: Vector, b: Mem): this {
    return this.vector("vinsertf128", { map: 3, pp: 1, opcode: 0x18, w: [0, 0], immediate: 1 }, to, a, b);
  }

  /** Two quarters of a, then two of b, each chosen by two bits of `choice`. */
  vshuff32x4(to: Vector, a: Vector, b: Vector, choice: number): this {
    return this.vector("vshuff32x4", { map: 3, pp: 1, opcode: 0x23, w: [0, 0], immediate: choice }, to, a, b);
  }

  vxorps(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vxorps", single(0x57), to, a, b);
  }

  vpxord(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vpxord", { map: 1, pp: 1, opcode: 0xef, w: [0, 0] }, to, a, b);
  }

  vunpcklps(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vunpcklps", single(0x14), to, a, b);
  }

  vunpckhps(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vunpckhps", single(0x15), to, a, b);
  }

  vunpcklpd(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vunpcklpd", double(0x14), to, a, b);
  }

  vunpckhpd(to: Vector, a: Vector, b: Vector): this {
    return this.vector("vunpckhpd", double(0x15), to, a, b);
  }

  vmaskmovps(to: Vector | Mem, mask: Vector, from: Vector | Mem): this {
    return this.maskedMove("vmaskmovps", 0x2c, to, mask, from);
  }

  vmaskmovpd(to: Vector | Mem, mask: Vector, from: Vector | Mem): this {
    return this.maskedMove("vmaskmovpd", 0x2d, to, mask, from);
  }

  protected instruction(text: () => string, write: () => void): this {
    this.list(text);
    write();
    return this;
  }

  /** @param trailing how many bytes of the instruction come after the distance, which is counted from its end */
  private distance(label: Label, trailing = 0): void {
    this.refer(label, (bytes, at, distance) => {
      bytes.splice(at, 4, ...littleEndian32(distance - 4 - trailing));
    });
    this.bytes.push(0, 0, 0, 0);
  }

  /** The REX prefix, where one is needed. */
  protected rex(w: 0 | 1, reg: number, rm: Gpr | Mem): void {
    const [index, base] = rm.kind === "gpr" ? [0, rm.id] : highBits(rm);
    const prefix = 0x40 | (w << 3) | ((reg >> 3) << 2) | ((index >> 3) << 1) | (base >> 3);
    if (prefix !== 0x40) this.bytes.push(prefix);
  }

  private general(name: string, opcode: number, reg: Gpr, rm: Gpr | Mem, rmFirst: boolean): this {
    const text = () => {
      const other = rm.kind === "gpr" ? rm.name : memText(rm);
      return rmFirst ? `${name} ${other}, ${reg.name}` : `${name} ${reg.name}, ${other}`;
    };
    return this.instruction(text, () => {
      this.rex(reg.bits === 64 ? 1 : 0, reg.id, rm);
      this.bytes.push(opcode);
      if (rm.kind === "gpr") this.bytes.push(0xc0 | ((reg.id & 7) << 3) | (rm.id & 7));
      else this.modRm(reg.id, rm, 1);
    });
  }

  /** An instruction of two bytes of opcode that writes a general register. */
  private extended(name: string, opcode: number, to: Gpr, from: Gpr | Mem, size: string): this {
    return this.instruction(
      () => `${name} ${to.name}, ${from.kind === "gpr" ? from.name : `${size}${memText(from)}`}`,
      () => {
        this.rex(to.bits === 64 ? 1 : 0, to.id, from);
        this.bytes.push(0x0f, opcode);
        if (from.kind === "gpr") this.bytes.push(0xc0 | ((to.id & 7) << 3) | (from.id & 7));
        else this.modRm(to.id, from, 1);
      },
    );
  }

  private immediate(name: string, extension: number, to: Gpr, value: number): this {
    return this.instruction(
      () => `${name} ${to.name}, ${value}`,
      () => {
        this.rex(to.bits === 64 ? 1 : 0, 0, to);
        if (fitsByte(value)) this.bytes.push(0x83, 0xc0 | (extension << 3) | (to.id & 7), value & 255);
        else if (to.id === 0) this.bytes.push(extension * 8 + 5, ...littleEndian32(value));
        else this.bytes.push(0x81, 0xc0 | (extension << 3) | (to.id & 7), ...littleEndian32(value));
      },
    );
  }

  private short(name: string, opcode: number, register: Gpr): this {
    return this.instruction(
      () => `${name} ${register.name}`,
      () => {
        this.rex(0, 0, register);
        this.bytes.push(opcode | (register.id & 7));
      },
    );
  }

  /** ModRM, SIB and displacement of a place; one-byte displacements count in `unit` bytes. */
  protected modRm(reg: number, at: Mem, unit: number, trailing = 0): void {
    const field = (reg & 7) << 3;
    if (at.kind === "rip") {
      this.bytes.push(field | 5);
      this.distance(at.label, trailing);
      return;
    }
    const base = at.base.id & 7;
    const { disp } = at;
    const isByte = Number.isInteger(disp / unit) && fitsByte(disp / unit);
    const mode = disp === 0 && base !== 5 ? 0 : isByte ? 1 : 2;
    const needsSib = at.index !== undefined || base === 4;
    this.bytes.push((mode << 6) | field | (needsSib ? 4 : base));
    if (needsSib) this.bytes.push((Math.log2(at.scale) << 6) | (((at.index ?? rsp).id & 7) << 3) | base);
    if (mode === 1) this.bytes.push((disp / unit) & 255);
    if (mode === 2) this.bytes.push(...littleEndian32(disp));
  }

  private move(
    name: string,
    load: VectorEncoding,
    store: VectorEncoding,
    to: Vector | Mem,
    from: Vector | Mem,
    masking?: Masking,
  ): this {
    // Between registers both opcodes do; the other one is shorter where only the source is a high register.
    const isShorter =
      to.kind === "vector" && from.kind === "vector" && to.id < 8 && from.id > 7 && from.id < 16;
    if (isShorter && to.bits < 512) {
      return this.instruction(
        () => `${name} ${vectorText(to)}, ${vectorText(from)}`,
        () => this.encode(store, from, undefined, to),
      );
    }
    if (to.kind === "vector") return this.vector(name, load, to, undefined, from, masking);
    if (from.kind !== "vector") throw new InternalError(`[X64] ${name} from memory to memory`);
    return this.instruction(
      () => `${name} ${memText(to)}${maskText(masking)}, ${vectorText(from)}`,
      () => this.encode(store, from, undefined, to, masking),
    );
  }

  private maskedMove(name: string, opcode: number, to: Vector | Mem, mask: Vector, from: Vector | Mem): this {
    if (to.kind === "vector") return this.vector(name, { map: 2, pp: 1, opcode, w: [0, 0] }, to, mask, from);
    if (from.kind !== "vector") throw new InternalError(`[X64] ${name} from memory to memory`);
    return this.instruction(
      () => `${name} ${memText(to)}, ${vectorText(mask)}, ${vectorText(from)}`,
      () => this.encode({ map: 2, pp: 1, opcode: opcode + 2, w: [0, 0] }, from, mask, to),
    );
  }

  protected vector(
    name: string,
    encoding: VectorEncoding,
    to: Vector,
    a: Vector | undefined,
    b: Vector | Mem,
    masking?: Masking,
  ): this {
    const text = () => {
      const operands = [`${vectorText(to)}${maskText(masking)}`];
      if (a !== undefined) operands.push(vectorText(a));
      operands.push(b.kind === "vector" ? vectorText(b) : memText(b));
      if (encoding.immediate !== undefined) operands.push(String(encoding.immediate));
      return `${name} ${operands.join(", ")}`;
    };
    return this.instruction(text, () => this.encode(encoding, to, a, b, masking));
  }

  protected encode(
    encoding: VectorEncoding,
    reg: Vector,
    second: Vector | undefined,
    rm: Vector | Mem,
    masking?: Masking,
  ): void {
    const isHigh = reg.id > 15 || (second?.id ?? 0) > 15 || (rm.kind === "vector" && rm.id > 15);
    if (reg.bits === 512 || isHigh || masking !== undefined) this.evex(encoding, reg, second, rm, masking);
    else this.vex(encoding, reg, second, rm);
    if (encoding.immediate !== undefined) this.bytes.push(encoding.immediate);
  }

  private vex(encoding: VectorEncoding, reg: Vector, second: Vector | undefined, rm: Vector | Mem): void {
    const { map, pp, w } = encoding;
    const [index, base] = rm.kind === "vector" ? [0, rm.id] : highBits(rm);
    const r = (~(reg.id >> 3) & 1) << 7;
    const last = ((~(second?.id ?? 0) & 15) << 3) | ((reg.bits === 256 ? 1 : 0) << 2) | pp;
    if (map === 1 && index < 8 && base < 8 && w[0] === 0) this.bytes.push(0xc5, r | last);
    else {
      const xb = ((~(index >> 3) & 1) << 6) | ((~(base >> 3) & 1) << 5);
      this.bytes.push(0xc4, r | xb | map, (w[0] << 7) | last);
    }
    this.operands(encoding, reg, rm, 1);
  }

  private evex(
    encoding: VectorEncoding,
    reg: Vector,
    second: Vector | undefined,
    rm: Vector | Mem,
    masking: Masking | undefined,
  ): void {
    const { map, pp, w, unit } = encoding;
    // The fifth bit of a register in the place of memory travels in X.
    const [x, base] = rm.kind === "vector" ? [rm.id >> 4, rm.id] : [highBits(rm)[0] >> 3, highBits(rm)[1]];
    const vvvv = second?.id ?? 0;
    const length = reg.bits === 512 ? 2 : reg.bits === 256 ? 1 : 0;
    this.bytes.push(
      0x62,
      ((~(reg.id >> 3) & 1) << 7) |
        ((~x & 1) << 6) |
        ((~(base >> 3) & 1) << 5) |
        ((~(reg.id >> 4) & 1) << 4) |
        map,
      (w[1] << 7) | ((~vvvv & 15) << 3) | 4 | pp,
      (masking?.zero ? 128 : 0) | (length << 5) | ((~(vvvv >> 4) & 1) << 3) | (masking?.mask ?? 0),
    );
    this.operands(encoding, reg, rm, unit ?? reg.bits / 8);
  }

  private operands(encoding: VectorEncoding, reg: Vector, rm: Vector | Mem, unit: number): void {
    this.bytes.push(encoding.opcode);
    if (rm.kind === "vector") this.bytes.push(0xc0 | ((reg.id & 7) << 3) | (rm.id & 7));
    else this.modRm(reg.id, rm, unit, encoding.immediate === undefined ? 0 : 1);
  }
}

function highBits(at: Mem): readonly [index: number, base: number] {
  return at.kind === "rip" ? [0, 0] : [at.index?.id ?? 0, at.base.id];
}

function fitsByte(value: number): boolean {
  return value >= -128 && value <= 127;
}

/** A place as GNU `as` reads it. */
export function memText(at: Mem): string {
  if (at.kind === "rip") return `[rip + ${labelName(at.label)}]`;
  const index = at.index === undefined ? "" : ` + ${at.index.name} * ${at.scale}`;
  const disp = at.disp === 0 ? "" : at.disp < 0 ? ` - ${-at.disp}` : ` + ${at.disp}`;
  return `[${at.base.name}${index}${disp}]`;
}

/** A vector register as GNU `as` reads it. */
export function vectorText({ bits, id }: Vector): string {
  return `${bits === 512 ? "zmm" : bits === 256 ? "ymm" : "xmm"}${id}`;
}

function maskText(masking: Masking | undefined): string {
  return masking === undefined ? "" : `{k${masking.mask}}${masking.zero ? "{z}" : ""}`;
}
