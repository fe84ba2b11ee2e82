import { InternalError } from "../../../ir/errors.js";
import { at, range } from "../../../ir/shape.js";
import { CodeWriter, defineInstructions, type Label, labelName, littleEndian32 } from "../code.js";
import {
  type BitField,
  type Form,
  formsOf,
  type InstructionName,
  instructionNames,
  type OperandKinds,
  type OperandsOf,
} from "./instructions.js";
import { CONDITIONS, FLOAT_LANES, INTEGER_LANES, type Register, sp } from "./operands.js";

type Kind = keyof OperandKinds;
type Operand = OperandKinds[Kind] | undefined;

/** Writes the words of the instructions in the table. */
class A64Encoder extends CodeWriter {
  protected emit(forms: readonly Form[], operands: readonly Operand[]): this {
    const form = forms.find(({ fields }) => fields.every(({ kind }, i) => accepts(kind, operands[i])));
    if (form === undefined)
      throw new InternalError(`[A64] ${forms[0]?.text.join("…")} has no form for its operands`);
    // The lanes of vectors, if the instruction has several.
    const lanes = typeof operands[0] === "string" && operands[0] in INTEGER_LANES ? operands[0] : "";
    this.list(() => textOf(form, operands, lanes));
    let { word } = form;
    form.fields.forEach((field, i) => {
      const operand = operands[i];
      if (field.kind === "j19" || field.kind === "j26") this.distance(field, operand as Label);
      else word |= bitsOf(field, operand, lanes) << field.bit;
    });
    this.bytes.push(...littleEndian32(word));
    return this;
  }

  /** The distance to a label, in words. */
  private distance({ kind, bit }: BitField, label: Label): void {
    this.refer(label, (bytes, at, distance) => {
      const bits = signed(distance / 4, Number(kind.slice(1))) << bit;
      littleEndian32(bits).forEach((byte, i) => {
        bytes[at + i] = (bytes[at + i] ?? 0) | byte;
      });
    });
  }
}

type Instructions = { readonly [N in InstructionName]: (...operands: OperandsOf<N>) => A64 };

/** An assembler for the part of AArch64 that generated code uses: every instruction of the table is a method. */
export interface A64 extends A64Encoder, Instructions {}

defineInstructions(A64Encoder.prototype, instructionNames, formsOf);

/** Begins new code; a listing gets a line that GNU `as` reads for each instruction. */
export const A64 = A64Encoder as unknown as new (listing?: string[]) => A64;

/** Saves an even number of registers on the stack; the returned function writes the code that restores them. */
export function saveRegisters(code: A64, registers: readonly Register[]): () => void {
  const bytes = 8 * registers.length;
  const each = (op: "stp" | "ldp") => {
    for (const i of range(registers.length / 2)) {
      code[op](at(registers, 2 * i), at(registers, 2 * i + 1), sp, 16 * i);
    }
  };
  code.sub(sp, sp, bytes);
  each("stp");
  return () => {
    each("ldp");
    code.add(sp, sp, bytes);
  };
}

function accepts(kind: Kind, operand: Operand): boolean {
  if (kind === "o12") return operand === undefined || typeof operand === "number";
  if (typeof operand !== "object") return !"xqdshve".includes(kind);
  return operand.kind === (kind === "v" || kind === "e" ? "q" : kind);
}

/** The bits of an operand in its field. */
function bitsOf({ kind, unit }: BitField, operand: Operand, lanes: string): number {
  switch (kind) {
    case "f":
      return FLOAT_LANES[operand as keyof typeof FLOAT_LANES];
    case "i":
      return INTEGER_LANES[operand as keyof typeof INTEGER_LANES];
    case "c":
      return CONDITIONS[operand as keyof typeof CONDITIONS];
    case "lane": {
      // The lower bit of one of four lanes is ten bits above the upper one.
      const lane = unsigned(Number(operand), lanes === "4s" ? 2 : 1);
      return lanes === "4s" ? (lane >> 1) | ((lane & 1) << 10) : lane;
    }
    default: {
      if (typeof operand === "object") return operand.id;
      const [value, bits] = [Number(operand ?? 0) / unit, Number(kind.slice(1))];
      return kind.startsWith("s") ? signed(value, bits) : unsigned(value, bits);
    }
  }
}

/** An instruction as GNU `as` reads it. */
function textOf({ fields, text }: Form, operands: readonly Operand[], lanes: string): string {
  const parts = fields.map(({ kind }, i) => `${operandText(kind, operands[i], lanes)}${text[i + 1]}`);
  return `${text[0]}${parts.join("")}`;
}

function operandText(kind: Kind, operand: Operand, lanes: string): string {
  if (kind === "f" || kind === "i") return "";
  if (kind === "j19" || kind === "j26") return labelName(operand as Label);
  if (typeof operand !== "object") return String(operand ?? 0);
  const { id } = operand;
  if (kind === "e") return `v${id}.${lanes.slice(1)}`;
  if (kind === "v") return lanes === "" ? `v${id}` : `v${id}.${lanes}`;
  return kind === "x" && id === 31 ? "sp" : `${kind}${id}`;
}

function unsigned(value: number, bits: number): number {
  if (!Number.isInteger(value) || value < 0 || value >= 2 ** bits)
    throw new InternalError(`[A64] ${value} does not fit an unsigned field of ${bits} bits`);
  return value;
}

/** A signed number in two's complement. */
function signed(value: number, bits: number): number {
  const half = 2 ** (bits - 1);
  if (!Number.isInteger(value) || value < -half || value >= half)
    throw new InternalError(`[A64] ${value} does not fit a signed field of ${bits} bits`);
  return value & (2 ** bits - 1);
}
