import { InternalError } from "../../../ir/errors.js";
import { at } from "../../../ir/shape.js";
import { lastUses, maxLive, outputSchedule } from "../../wasm/emitInterleaved.js";
import type { Ports } from "../../wasm/vectorProgram.js";
import { argsOf, type Vec, type VecInstruction, type VecProgram } from "../../wasm/vectorProgram.js";
import type { X64 } from "../x64/assembler.js";
import type { Mem, Vector, VectorBits } from "../x64/operands.js";
import { isLaneInstruction, laneInstructions, type Operands, shiftName } from "./x64Lanes.js";
import { type HeldVector, Registers } from "./x64Registers.js";

/** What straight-line code is written with. */
export interface LineTools {
  readonly x: X64;
  /** A place on the stack for one vector. */
  slot(): Mem;
  /** Where 32 bits stand in every lane. */
  constant(word: number): Mem;
  /** Where a constant or a uniform of a program stands. */
  invariant(program: VecProgram, vec: Vec): Mem;
}

/** A vector that enters or leaves a line; one that leaves must not be changed. */
export interface LineValue {
  readonly vector: Vector;
  /** A further register until the value is loaded or stored. */
  temporary(): Vector;
}

/** One program at one width, as often as it is repeated side by side. */
export interface Line {
  readonly program: VecProgram;
  readonly bits: VectorBits;
  readonly copies: number;
  /** The registers that the line may use. */
  readonly registers: readonly number[];
  /** Constants and uniforms that have registers of their own. */
  readonly pinned: ReadonlyMap<Vec, number>;
}

/** How many vector registers instructions of a width reach: those with EVEX prefixes twice as many. */
export function numRegisters(bits: VectorBits): number {
  return bits === 512 ? 32 : 16;
}

/** Whether there is machine code for all instructions of a program. */
export function hasCode({ instructions }: VecProgram): boolean {
  return instructions.every((instruction) => {
    switch (instruction.kind) {
      case "input":
      case "uniform":
      case "constant":
        return true;
      case "vector":
        return isLaneInstruction(instruction.op);
      case "shift":
        return shiftName(instruction.op) !== undefined;
      default:
        return false;
    }
  });
}

/** Registers that instructions need besides their operands. */
const SPARE = 3;

/**
 * A line of a program with as many copies as asked for, its most used constants in registers that are left over.
 *
 * @param reserved registers that others hold while the line runs, from the last on
 * @param isRepeated whether the line is in a loop, so that loading constants before it pays
 */
export function planLine(
  program: VecProgram,
  bits: VectorBits,
  copies: number,
  reserved: number,
  isRepeated: boolean,
): Line {
  const count = numRegisters(bits) - reserved;
  const uses = new Map<Vec, number>();
  program.instructions.forEach((instruction) => {
    for (const arg of argsOf(instruction)) {
      const { kind } = at(program.instructions, arg);
      if (kind === "constant" || kind === "uniform") uses.set(arg, (uses.get(arg) ?? 0) + 1);
    }
  });
  const room = isRepeated ? Math.max(0, count - copies * maxLive(program) - SPARE) : 0;
  const chosen = [...uses].sort(([, a], [, b]) => b - a).slice(0, room);
  const pinned = new Map(chosen.map(([vec], i) => [vec, count - 1 - i]));
  return {
    ...{ program, bits, copies, pinned },
    registers: Array.from({ length: count - pinned.size }, (_, id) => id),
  };
}

/** Loads the pinned constants and uniforms of a line; to be written before its loop. */
export function loadPinned(tools: LineTools, { program, bits, pinned }: Line): void {
  for (const [vec, id] of pinned) {
    tools.x.vmovups({ kind: "vector", bits, id }, tools.invariant(program, vec));
  }
}

/** Writes the copies of a program, interleaved instruction by instruction as in WebAssembly. */
export function writeLine(tools: LineTools, line: Line, ports: Ports<LineValue>): void {
  new LineWriter(tools, line, ports).write();
}

class LineWriter {
  private readonly registers: Registers;
  private readonly invariants = new Map<Vec, HeldVector>();
  private readonly copies: Map<Vec, HeldVector>[];
  private readonly uses: readonly number[][];

  constructor(
    private readonly tools: LineTools,
    private readonly line: Line,
    private readonly ports: Ports<LineValue>,
  ) {
    const { program, bits, registers } = line;
    this.registers = new Registers(tools.x, bits, registers, () => tools.slot());
    this.copies = Array.from({ length: line.copies }, () => new Map());
    this.uses = program.instructions.map(() => []);
    program.instructions.forEach((instruction, i) => {
      for (const arg of argsOf(instruction)) at(this.uses, arg).push(i);
    });
    for (const [i, leaving] of outputSchedule(program)) {
      for (const { value } of leaving) at(this.uses, value).push(i);
    }
    for (const list of this.uses) list.sort((a, b) => a - b);
  }

  write(): void {
    const { program } = this.line;
    const dying = lastUses(program);
    const leavingAt = outputSchedule(program);
    program.instructions.forEach((instruction, i) => {
      this.registers.now = i;
      const leaving = leavingAt.get(i) ?? [];
      if (instruction.kind !== "constant" && instruction.kind !== "uniform") {
        const read = (dying.get(i) ?? []).filter((dead) => !leaving.some(({ value }) => value === dead));
        this.copies.forEach((_, copy) => {
          this.instruction(instruction, i as Vec, copy, read);
        });
      }
      for (const { output, value } of leaving) {
        this.copies.forEach((_, copy) => {
          const taken: number[] = [];
          const vector = this.registers.load(this.held(value, copy));
          this.ports.output(output, copy, { vector, temporary: this.temporaries(taken) });
          this.end(taken);
        });
      }
      for (const dead of dying.get(i) ?? []) this.forget(dead);
    });
  }

  private temporaries(taken: number[]): () => Vector {
    return () => {
      const id = this.registers.take();
      taken.push(id);
      return this.registers.vec(id);
    };
  }

  private end(taken: readonly number[]): void {
    for (const id of taken) this.registers.give(id);
    this.registers.unlock();
  }

  private forget(vec: Vec): void {
    for (const values of this.copies) {
      const held = values.get(vec);
      if (held !== undefined) this.registers.drop(held);
      values.delete(vec);
    }
  }

  private held(vec: Vec, copy: number): HeldVector {
    const known = this.copies[copy]?.get(vec) ?? this.invariants.get(vec);
    if (known !== undefined) return known;
    const { program, pinned } = this.line;
    const { kind } = at(program.instructions, vec);
    if (kind !== "constant" && kind !== "uniform")
      throw new InternalError(`[writeLine] register ${vec} is used before its definition`);
    const held: HeldVector = {
      register: pinned.get(vec),
      home: this.tools.invariant(program, vec),
      uses: at(this.uses, vec),
    };
    this.invariants.set(vec, held);
    return held;
  }

  /** @param dying what this instruction is the last to read */
  private instruction(instruction: VecInstruction, vec: Vec, copy: number, dying: readonly Vec[]): void {
    const { registers, tools } = this;
    const taken: number[] = [];
    const target: HeldVector = { register: undefined, home: undefined, uses: at(this.uses, vec) };
    const values = argsOf(instruction).map((arg) => this.held(arg, copy));
    const lastReads = argsOf(instruction).map((arg) => dying.includes(arg) && this.copies[copy]?.has(arg));
    const result = (id: number): Vector => {
      registers.own(id, target);
      return registers.vec(id);
    };
    /** Reuses the register of an operand that is not read again for the result. */
    const inherit = (arg: number): Vector => {
      const from = at(values, arg);
      const id = from.register ?? registers.take();
      from.register = undefined;
      return result(id);
    };
    const operands: Operands = {
      x: tools.x,
      isWide: this.line.bits === 512,
      isInRegister: (arg) => at(values, arg).register !== undefined,
      dies: (arg) => lastReads[arg] === true && at(values, arg).register !== undefined,
      register: (arg) => registers.load(at(values, arg)),
      any: (arg) => {
        const value = at(values, arg);
        return value.register === undefined && value.home !== undefined ? value.home : registers.load(value);
      },
      result: () => {
        const arg = values.findIndex((_, i) => operands.dies(i));
        return arg < 0 ? result(registers.take()) : inherit(arg);
      },
      separateResult: () => result(registers.take()),
      resultIn: inherit,
      temporary: this.temporaries(taken),
      constant: (word) => tools.constant(word),
    };
    this.emit(instruction, operands, copy);
    this.copies[copy]?.set(vec, target);
    this.end(taken);
  }

  private emit(instruction: VecInstruction, operands: Operands, copy: number): void {
    switch (instruction.kind) {
      case "input": {
        const { temporary } = operands;
        this.ports.input(instruction.slot, copy, { vector: operands.separateResult(), temporary });
        return;
      }
      case "vector":
        if (!isLaneInstruction(instruction.op)) break;
        laneInstructions[instruction.op](operands);
        return;
      case "shift": {
        const name = shiftName(instruction.op);
        if (name === undefined) break;
        const from = operands.register(0);
        operands.x[name](operands.result(), from, instruction.amount & 31);
        return;
      }
    }
    throw new InternalError(`[writeLine] there is no machine code for ${JSON.stringify(instruction)}`);
  }
}
