import { InternalError } from "../../../ir/errors.js";
import { CodeWriter, type Label, littleEndian32 } from "../code.js";
import {
  type Gpr,
  type Masking,
  type Mem,
  maskText,
  memText,
  rsp,
  type Vector,
  vectorText,
} from "./operands.js";

/** How an instruction on vectors is encoded, in the terms of the manual. */
export interface VectorEncoding {
  /** Opcode map: 1 = 0F, 2 = 0F38, 3 = 0F3A. */
  readonly map: 1 | 2 | 3;
  /** Implied prefix: 0 = none, 1 = 66, 2 = F3, 3 = F2. */
  readonly pp: 0 | 1 | 2 | 3;
  readonly opcode: number;
  /** The W bit of the VEX and of the EVEX form. */
  readonly w: readonly [vex: 0 | 1, evex: 0 | 1];
  /** Bytes that a one-byte displacement of the EVEX form counts in, when not the vector's own. */
  readonly unit?: number;
  readonly immediate?: number;
}

/**
 * Writes the bytes of instructions from their names and operands. AVX instructions are encoded with VEX where that
 * reaches, else with EVEX, as GNU `as` does.
 */
export class X64Encoder extends CodeWriter {
  protected instruction(text: () => string, write: () => void): this {
    this.list(text);
    write();
    return this;
  }

  /** @param trailing how many bytes of the instruction come after the distance, which is counted from its end */
  protected distance(label: Label, trailing = 0): void {
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

  protected general(name: string, opcode: number, reg: Gpr, rm: Gpr | Mem, rmFirst: boolean): this {
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
  protected extended(name: string, opcode: number, to: Gpr, from: Gpr | Mem, size: string): this {
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

  protected immediate(name: string, extension: number, to: Gpr, value: number): this {
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

  protected short(name: string, opcode: number, register: Gpr): this {
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

  protected move(
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

  protected maskedMove(
    name: string,
    opcode: number,
    to: Vector | Mem,
    mask: Vector,
    from: Vector | Mem,
  ): this {
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

/** Whether a number fits a signed byte. */
export function fitsByte(value: number): boolean {
  return value >= -128 && value <= 127;
}
