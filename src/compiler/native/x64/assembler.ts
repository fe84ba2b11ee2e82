import { InternalError } from "../../../ir/errors.js";
import { type Label, labelName, littleEndian32 } from "../code.js";
import { fitsByte, type VectorEncoding, X64Encoder } from "./encoder.js";
import { type Gpr, type Masking, type Mem, memText, type Vector } from "./operands.js";

/** Conditions of jumps after a comparison of signed numbers, and of unsigned ones: `ae`. */
const CONDITIONS = { ae: 3, e: 4, ne: 5, l: 12, ge: 13, le: 14, g: 15 } as const;

const single = (opcode: number): VectorEncoding => ({ map: 1, pp: 0, opcode, w: [0, 0] });
const double = (opcode: number): VectorEncoding => ({ map: 1, pp: 1, opcode, w: [0, 1] });

/**
 * An assembler for the part of x86-64 that the kernels use. Methods are the manual's mnemonics with its order of
 * operands.
 */
export class X64 extends X64Encoder {
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

  /** Loads a float64 as an integer. */
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

  /** Asks for a line of memory to come into the L1 cache. */
  prefetcht0(at: Mem): this {
    return this.prefetch("prefetcht0", 1, at);
  }

  /** Asks for a line of memory to come into the L2 cache. */
  prefetcht1(at: Mem): this {
    return this.prefetch("prefetcht1", 2, at);
  }

  private prefetch(name: string, digit: number, at: Mem): this {
    return this.instruction(
      () => `${name} ${memText(at)}`,
      () => {
        this.rex(0, 0, at);
        this.bytes.push(0x0f, 0x18);
        this.modRm(digit, at, 1);
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
}
