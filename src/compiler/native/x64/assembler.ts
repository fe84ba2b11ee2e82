import { InternalError } from "../../../ir/errors.js";
import { CodeWriter, defineInstructions, type Label, labelName, littleEndian32 } from "../code.js";
import {
  type Form,
  formsOf,
  type InstructionName,
  instructionNames,
  type OperandKinds,
  type OperandsOf,
  type Vex,
} from "./instructions.js";
import { CONDITIONS, gpr, type Masking, type Mem, maskText, memText, vectorText } from "./operands.js";

const { rsp } = gpr;

type Kind = keyof OperandKinds;
type Operand = OperandKinds[Kind] | Masking | undefined;

/** The fields of an instruction's bytes that its operands determine. */
interface Fields {
  /** Numbers of registers. */
  reg: number;
  second: number;
  rm: number | Mem;
  /** The lowest bits of the opcode. */
  low: number | undefined;
  condition: number;
  immediate: number[];
  label: Label | undefined;
  /** Whether general registers have 64 bits. */
  is64: boolean;
  /** The width of vectors. */
  bits: number;
}

/**
 * Writes the bytes of the instructions in the table. Vector instructions are encoded with VEX if possible, otherwise
 * with EVEX, as by GNU `as`.
 */
class X64Encoder extends CodeWriter {
  protected emit(forms: readonly Form[], operands: readonly Operand[]): this {
    const form = forms.find(({ kinds }) => kinds.every((kind, i) => accepts(kind, operands[i])));
    if (form === undefined)
      throw new InternalError(`[X64] ${forms[0]?.mnemonic} has no form for its operands`);
    const masking = operands[form.kinds.length] as Masking | undefined;
    const fields = fieldsOf(form, operands);
    const isEvex = needsEvex(fields, masking);
    this.list(() => textOf(form, isEvex ? form.evexMnemonic : form.mnemonic, operands, masking));
    const { vex } = form;
    if (vex === undefined) this.legacy(form, fields);
    else if (isEvex) this.evex(form, vex, fields, masking);
    else this.vex(form, vex, fields);
    for (const byte of fields.immediate) this.bytes.push(byte);
    return this;
  }

  /** Pads with instructions that do nothing until the offset is a multiple of `bytes`. */
  align(bytes: number): this {
    const missing = (bytes - (this.offset % bytes)) % bytes;
    const nops = Array.from({ length: Math.floor(missing / 4) }, () => [0x0f, 0x1f, 0x40, 0x00]).flat();
    return missing === 0 ? this : this.data([...nops, ...Array.from({ length: missing % 4 }, () => 0x90)]);
  }

  /** Instructions on general registers: a prefix, REX if needed, the opcode, and the operands. */
  private legacy({ kinds, opcode, isAlways64 }: Form, fields: Fields): void {
    if (kinds.length === 0) {
      this.bytes.push(...opcode);
      return;
    }
    const { reg, rm, low, condition, label, immediate } = fields;
    const [index, base] = highBits(low ?? rm);
    const w = fields.is64 && !isAlways64 ? 8 : 0;
    const rex = 0x40 | w | ((reg >> 3) << 2) | ((index >> 3) << 1) | (base >> 3);
    const prefix = opcode[0] === 0xf2 ? [0xf2] : [];
    const code = opcode.slice(prefix.length);
    const last = (code.pop() ?? 0) | condition | ((low ?? 0) & 7);
    this.bytes.push(...prefix, ...(rex === 0x40 ? [] : [rex]), ...code, last);
    if (label !== undefined) this.distance(label, 0);
    else if (kinds.some((kind) => RULES[kind].field === "rm")) this.modRm(reg, rm, 1, immediate.length);
  }

  private vex({ opcode }: Form, { map, pp, w }: Vex, { reg, second, rm, bits, immediate }: Fields): void {
    const [index, base] = highBits(rm);
    const r = (~(reg >> 3) & 1) << 7;
    const last = ((~second & 15) << 3) | ((bits === 256 ? 1 : 0) << 2) | pp;
    if (map === 1 && index < 8 && base < 8 && w === 0) this.bytes.push(0xc5, r | last);
    else {
      const xb = ((~(index >> 3) & 1) << 6) | ((~(base >> 3) & 1) << 5);
      this.bytes.push(0xc4, r | xb | map, (w << 7) | last);
    }
    this.bytes.push(...opcode);
    this.modRm(reg, rm, 1, immediate.length);
  }

  private evex({ opcode }: Form, vex: Vex, fields: Fields, masking: Masking | undefined): void {
    const { reg, second, rm, bits, immediate } = fields;
    const [index, base] = highBits(rm);
    // The fifth bit of a register in ModRM.rm is in X.
    const x = typeof rm === "number" ? rm >> 4 : index >> 3;
    const length = bits === 512 ? 2 : bits === 256 ? 1 : 0;
    const lanes = typeof rm === "object" && rm.kind === "mem" ? rm.lanes : undefined;
    this.bytes.push(
      0x62,
      ((~(reg >> 3) & 1) << 7) |
        ((~x & 1) << 6) |
        ((~(base >> 3) & 1) << 5) |
        ((~(reg >> 4) & 1) << 4) |
        vex.map,
      (vex.evexW << 7) | ((~second & 15) << 3) | 4 | vex.pp,
      (masking?.zero ? 128 : 0) |
        (length << 5) |
        (lanes === undefined ? 0 : 16) |
        ((~(second >> 4) & 1) << 3) |
        (masking?.mask ?? 0),
      ...opcode,
    );
    const unit = lanes === undefined ? (vex.unit ?? bits / 8 / vex.share) : bits / 8 / lanes;
    this.modRm(reg, rm, unit, immediate.length);
  }

  /**
   * ModRM, SIB and displacement of a register or a place; one-byte displacements count in `unit` bytes.
   *
   * @param trailing how many bytes of the instruction come after
   */
  private modRm(reg: number, rm: number | Mem, unit: number, trailing: number): void {
    const field = (reg & 7) << 3;
    if (typeof rm === "number") {
      this.bytes.push(0xc0 | field | (rm & 7));
      return;
    }
    if (rm.kind === "rip") {
      this.bytes.push(field | 5);
      this.distance(rm.label, trailing);
      return;
    }
    const base = rm.base.id & 7;
    const { disp } = rm;
    const isByte = Number.isInteger(disp / unit) && fitsByte(disp / unit);
    const mode = disp === 0 && base !== 5 ? 0 : isByte ? 1 : 2;
    const needsSib = rm.index !== undefined || base === 4;
    this.bytes.push((mode << 6) | field | (needsSib ? 4 : base));
    if (needsSib) this.bytes.push((Math.log2(rm.scale) << 6) | (((rm.index ?? rsp).id & 7) << 3) | base);
    if (mode === 1) this.bytes.push((disp / unit) & 255);
    if (mode === 2) this.bytes.push(...littleEndian32(disp));
  }

  /** The distance to a label, relative to the end of the instruction. */
  private distance(label: Label, trailing: number): void {
    this.refer(label, (bytes, at, distance) => {
      bytes.splice(at, 4, ...littleEndian32(distance - 4 - trailing));
    });
    this.bytes.push(0, 0, 0, 0);
  }
}

type Instructions = { readonly [N in InstructionName]: (...operands: OperandsOf<N>) => X64 };

/**
 * An assembler for the part of x86-64 that generated code uses: every instruction of the table is a method, with the
 * manual's order of operands.
 */
export interface X64 extends X64Encoder, Instructions {}

defineInstructions(X64Encoder.prototype, instructionNames, formsOf);

/** Begins new code; a listing gets a line that GNU `as` reads for each instruction. */
export const X64 = X64Encoder as unknown as new (listing?: string[]) => X64;

/** The kinds of operands as bits, of which a rule may have several. */
const TAKES = { gpr: 1, mem: 2, rip: 2, vector: 4, number: 8, string: 16 } as const;

/** Which field of an instruction an operand goes to, what it is, and what else must hold for it. */
interface KindRule<O> {
  readonly field: "reg" | "rm" | "second" | "low" | "immediate" | "label" | "condition" | "none";
  readonly takes: number;
  readonly when?: (operand: O) => boolean;
}

const MEMORY = { field: "rm", takes: TAKES.mem } as const;
const BYTE = { field: "immediate", takes: TAKES.number } as const;

const RULES: { readonly [K in Kind]: KindRule<OperandKinds[K]> } = {
  G: { field: "reg", takes: TAKES.gpr },
  R: { field: "rm", takes: TAKES.gpr },
  Z: { field: "low", takes: TAKES.gpr },
  Zd: { field: "low", takes: TAKES.gpr, when: ({ bits }) => bits === 32 },
  A: { field: "none", takes: TAKES.gpr, when: ({ id }) => id === 0 },
  ...{ M: MEMORY, Mb: MEMORY, Mw: MEMORY, Md: MEMORY, Mq: MEMORY },
  E: { field: "rm", takes: TAKES.gpr | TAKES.mem },
  V: { field: "reg", takes: TAKES.vector },
  H: { field: "second", takes: TAKES.vector },
  U: { field: "rm", takes: TAKES.vector },
  W: { field: "rm", takes: TAKES.vector | TAKES.mem },
  Vhigh: { field: "reg", takes: TAKES.vector, when: ({ id, bits }) => id > 7 && id < 16 && bits < 512 },
  Ulow: { field: "rm", takes: TAKES.vector, when: ({ id }) => id < 8 },
  K: { field: "reg", takes: TAKES.number },
  T: { field: "reg", takes: TAKES.number },
  TW: { field: "rm", takes: TAKES.number },
  TH: { field: "second", takes: TAKES.number },
  ...{ Ib: BYTE, Is: { ...BYTE, when: fitsByte }, Iz: BYTE, Id: BYTE },
  J: { field: "label", takes: TAKES.number },
  cc: { field: "condition", takes: TAKES.string },
};

function accepts(kind: Kind, operand: Operand): boolean {
  const { takes, when }: KindRule<never> = RULES[kind];
  const given =
    typeof operand === "object" && "kind" in operand
      ? TAKES[operand.kind]
      : TAKES[typeof operand as "number"];
  return (takes & given) !== 0 && (when === undefined || when(operand as never));
}

function fieldsOf({ kinds, digit }: Form, operands: readonly Operand[]): Fields {
  const fields: Fields = {
    reg: digit,
    second: 0,
    rm: 0,
    low: undefined,
    condition: 0,
    immediate: [],
    label: undefined,
    is64: false,
    bits: 128,
  };
  kinds.forEach((kind, i) => {
    const operand = operands[i];
    const { field } = RULES[kind];
    const isRegister = field === "reg" || field === "second" || field === "rm";
    if (typeof operand === "string") fields.condition = CONDITIONS[operand];
    else if (typeof operand === "number") {
      if (isRegister) fields[field] = operand;
      else if (field === "label") fields.label = operand as Label;
      else fields.immediate = kind === "Ib" || kind === "Is" ? [operand & 255] : littleEndian32(operand);
    } else if (operand === undefined || !("kind" in operand)) return;
    else if (operand.kind === "mem" || operand.kind === "rip") fields.rm = operand;
    else {
      if (operand.kind === "gpr") fields.is64 ||= operand.bits === 64;
      else if (field !== "rm") fields.bits = operand.bits;
      if (isRegister) fields[field] = operand.id;
      else if (field === "low") fields.low = operand.id;
    }
  });
  return fields;
}

function needsEvex({ bits, reg, second, rm }: Fields, masking: Masking | undefined): boolean {
  return bits === 512 || masking !== undefined || Math.max(reg, second, typeof rm === "number" ? rm : 0) > 15;
}

/** The registers of index and base, or the one in their place, whose high bits are in prefixes. */
function highBits(rm: number | Mem): readonly [index: number, base: number] {
  if (typeof rm === "number") return [0, rm];
  return rm.kind === "rip" ? [0, 0] : [rm.index?.id ?? 0, rm.base.id];
}

/** Whether a number fits a signed byte. */
function fitsByte(value: number): boolean {
  return value >= -128 && value <= 127;
}

/** Prefixes of operands for GNU `as`: the size of memory, and the names of register files. */
const BEFORE: { readonly [K in Kind]?: string } = {
  ...{ Mb: "byte ptr ", Mw: "word ptr ", Md: "dword ptr ", Mq: "qword ptr " },
  ...{ K: "k", T: "tmm", TW: "tmm", TH: "tmm" },
};

/** An instruction as GNU `as` reads it. */
function textOf(
  form: Form,
  name: string,
  operands: readonly Operand[],
  masking: Masking | undefined,
): string {
  let mnemonic = name;
  const texts: string[] = [];
  form.kinds.forEach((kind, i) => {
    const operand = operands[i];
    if (typeof operand === "string") mnemonic += operand;
    else texts.push(`${BEFORE[kind] ?? ""}${operandText(kind, operand)}`);
  });
  if (texts.length > 0) texts[0] += maskText(masking);
  return texts.length === 0 ? mnemonic : `${mnemonic} ${texts.join(", ")}`;
}

function operandText(kind: Kind, operand: Operand): string {
  if (typeof operand === "object" && "kind" in operand) {
    if (operand.kind === "gpr") return operand.name;
    return operand.kind === "vector" ? vectorText(operand) : memText(operand);
  }
  if (kind === "J") return labelName(operand as Label);
  return String(kind === "Id" ? Number(operand) >>> 0 : operand);
}
