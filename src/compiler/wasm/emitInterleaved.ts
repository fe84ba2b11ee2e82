import { getOrInsert } from "../../ir/collections.js";
import { type ScalarFunction, scalarFunctions } from "../../ir/scalarFunctions.js";
import { range } from "../../ir/shape.js";
import type { ModuleBuilder } from "./assembler.js";
import type { FunctionBody, FunctionIndex, Local, WasmLabel } from "./functionBody.js";
import {
  argsOf,
  type LaneType,
  type Ports,
  type Vec,
  type VecInstruction,
  type VecProgram,
} from "./vectorProgram.js";

/** Indices of the imported host functions in the module under construction. */
export type HostImports = { readonly [K in ScalarFunction]: FunctionIndex };

/** Imports all host functions of float64 numbers, under module name `math`. */
export function importHostFunctions(builder: ModuleBuilder): HostImports {
  const imports = Object.entries(scalarFunctions).map(([name, { length }]) => {
    const params = range(length).map(() => "f64" as const);
    return [name, builder.importFunction("math", name, { params, results: ["f64"] })];
  });
  return Object.fromEntries(imports) as HostImports;
}

/** The locals that hold a program's loop-invariant vectors. */
export interface PreparedVectors {
  readonly program: VecProgram;
  readonly invariants: ReadonlyMap<Vec, Local>;
  readonly pool: Local[];
  readonly host: HostImports | undefined;
}

/**
 * Loads a program's constants into locals; to be emitted before the loop.
 *
 * @param host the host functions that the module imports, if the program calls any
 * @param uniform the local that holds the vector of each uniform slot
 */
export function prepareProgram(
  code: FunctionBody,
  program: VecProgram,
  host?: HostImports,
  uniform?: (slot: number) => Local,
): PreparedVectors {
  const invariants = new Map<Vec, Local>();
  program.instructions.forEach((instruction, index) => {
    if (instruction.kind === "constant") {
      const local = code.local("v128");
      code.v128(instruction.words).set(local);
      invariants.set(index as Vec, local);
    } else if (instruction.kind === "uniform") {
      if (!uniform) throw new Error(`[prepareProgram] no local for uniform ${instruction.slot}`);
      invariants.set(index as Vec, uniform(instruction.slot));
    }
  });
  return { program, invariants, pool: [], host };
}

/**
 * Emits `unroll` independent copies of a program, interleaved instruction by instruction, so that the processor always
 * has independent work while a dependency chain of one copy waits.
 *
 * May be called several times after one `prepareProgram` (a main loop and its remainder). Programs with patches get a
 * second, slow version after the fast one: a call inside the fast code would cost it its registers, so a set mask
 * leaves the fast code and restarts the copies, before any output is stored.
 */
export function emitInterleaved(
  code: FunctionBody,
  prepared: PreparedVectors,
  unroll: number,
  ports: Ports<Local>,
): void {
  const copies = Array.from({ length: unroll }, (_, copy) => copy);
  if (!prepared.program.instructions.some((instruction) => instruction.kind === "patch")) {
    emitCopies(code, prepared, copies, ports, undefined);
    return;
  }
  code.block((done) => {
    code.block((slow) => {
      emitCopies(code, prepared, copies, ports, slow);
      code.br(done);
    });
    for (const copy of copies) emitCopies(code, prepared, [copy], ports, undefined);
  });
}

/** Emits some copies interleaved; patches branch to `slow` if it is given, otherwise they call. */
function emitCopies(
  code: FunctionBody,
  prepared: PreparedVectors,
  copies: readonly number[],
  ports: Ports<Local>,
  slow: WasmLabel | undefined,
): void {
  const { program, invariants } = prepared;
  const lastUse = lastUses(program);
  const outputsAt = outputSchedule(program);
  const registers = new CopyRegisters(code, prepared, copies);
  program.instructions.forEach((instruction, index) => {
    const vec = index as Vec;
    if (instruction.kind === "patch" && slow !== undefined) {
      copies.forEach((copy, position) => {
        code.get(registers.local(argAt(instruction.args, 1), copy));
        if (position > 0) code.vector("v128.or");
      });
      code.vector("v128.any_true").brIf(slow);
    }
    for (const copy of invariants.has(vec) ? [] : copies) {
      const args = argsOf(instruction).map((arg) => registers.local(arg, copy));
      const target = registers.define(vec, copy);
      if (instruction.kind === "input") {
        ports.input(instruction.slot, copy, target);
      } else if (instruction.kind === "patch") {
        code.get(argAt(args, 0)).set(target);
        if (slow === undefined) emitPatch(code, imported(prepared.host, instruction.name), args, target);
      } else {
        emitInstruction(code, instruction, args, target, prepared.host);
      }
    }
    for (const { output, value } of outputsAt.get(index) ?? []) {
      for (const copy of copies) ports.output(output, copy, registers.local(value, copy));
    }
    for (const dead of lastUse.get(index) ?? []) registers.release(dead);
  });
}

/** The locals that hold the vectors of each copy while they are alive. */
class CopyRegisters {
  private readonly free: Local[];
  private readonly copies: ReadonlyMap<number, Map<Vec, Local>>;

  constructor(
    private readonly code: FunctionBody,
    private readonly prepared: PreparedVectors,
    copies: readonly number[],
  ) {
    this.free = [...prepared.pool];
    this.copies = new Map(copies.map((copy) => [copy, new Map()]));
  }

  /** A local for a vector of a copy, reusing one whose vector is dead if possible. */
  define(vec: Vec, copy: number): Local {
    const local = this.free.pop() ?? this.added();
    this.copies.get(copy)?.set(vec, local);
    return local;
  }

  private added(): Local {
    const local = this.code.local("v128");
    this.prepared.pool.push(local);
    return local;
  }

  local(vec: Vec, copy: number): Local {
    const local = this.prepared.invariants.get(vec) ?? this.copies.get(copy)?.get(vec);
    if (local === undefined)
      throw new Error(`[emitInterleaved] register ${vec} is used before its definition`);
    return local;
  }

  /** Releases the locals of a vector, in all copies. */
  release(vec: Vec): void {
    for (const locals of this.copies.values()) {
      const local = locals.get(vec);
      if (local !== undefined) this.free.push(local);
      locals.delete(vec);
    }
  }
}

/**
 * The largest number of vectors of one copy that are alive together, constants not counted.
 *
 * Divides the register file (32 on ARM, 16 on x86) into a sensible unroll factor.
 */
export function maxLive(program: VecProgram): number {
  const lastUse = lastUses(program);
  const live = new Set<Vec>();
  let most = 0;
  program.instructions.forEach((instruction, index) => {
    if (instruction.kind !== "constant" && instruction.kind !== "uniform") live.add(index as Vec);
    most = Math.max(most, live.size);
    for (const dead of lastUse.get(index) ?? []) live.delete(dead);
  });
  return most;
}

/**
 * The unroll factor that measured best: 8, less if so many values are alive that registers run out, or if so many
 * arrays are streamed that memory is the bottleneck.
 *
 * With 16 registers nearly any program spills with 8 copies. Reductions do not take that into account: they have the
 * same number of partial sums everywhere, so that results do not depend on the processor.
 */
export function chooseUnroll(program: VecProgram, fewRegisters = false): 2 | 4 | 8 {
  const live = maxLive(program);
  const inputs = program.instructions.filter((instruction) => instruction.kind === "input").length;
  if (live > 20) return 2;
  if (fewRegisters) return 4;
  return live <= 9 && inputs + program.outputs.length <= 4 ? 8 : 4;
}

/**
 * The instruction after which each output is stored: when it is defined, but not before the last input is read, so that
 * a kernel may overwrite its own inputs, and not before the last patch, which may restart the copies.
 */
export function outputSchedule(program: VecProgram): Map<number, { output: number; value: Vec }[]> {
  const earliest = program.instructions.findLastIndex(({ kind }) => kind === "input" || kind === "patch");
  const schedule = new Map<number, { output: number; value: Vec }[]>();
  program.outputs.forEach((value, output) => {
    getOrInsert(schedule, Math.max(value, earliest), () => []).push({ output, value });
  });
  return schedule;
}

/** For each instruction, the registers that no later one reads. */
export function lastUses(program: VecProgram): Map<number, Vec[]> {
  const last = new Map<Vec, number>();
  program.instructions.forEach((instruction, index) => {
    last.set(index as Vec, index);
    for (const arg of argsOf(instruction)) last.set(arg, index);
  });
  for (const [at, leaving] of outputSchedule(program)) {
    for (const { value } of leaving) last.set(value, Math.max(at, last.get(value) ?? 0));
  }
  const dead = new Map<number, Vec[]>();
  for (const [vec, at] of last) getOrInsert(dead, at, () => []).push(vec);
  return dead;
}

function imported(host: HostImports | undefined, name: ScalarFunction): FunctionIndex {
  if (host === undefined) throw new Error(`[emitInterleaved] the module does not import ${name}`);
  return host[name];
}

const SHAPES = { f32: "f32x4", i32: "i32x4", f64: "f64x2" } as const satisfies Record<LaneType, string>;

function emitInstruction(
  code: FunctionBody,
  instruction: VecInstruction,
  args: readonly Local[],
  target: Local,
  host: HostImports | undefined,
): void {
  switch (instruction.kind) {
    case "vector":
      for (const arg of args) code.get(arg);
      code.vector(instruction.op).set(target);
      return;
    case "shift":
      for (const arg of args) code.get(arg);
      code.i32(instruction.amount).vector(instruction.op).set(target);
      return;
    case "shuffle":
      for (const arg of args) code.get(arg);
      code.shuffle(instruction.lanes).set(target);
      return;
    case "scalar":
      emitLanes(code, instruction.lane, args, target, () => code.op(instruction.op));
      return;
    case "host":
      emitLanes(code, "f64", args, target, () => code.call(imported(host, instruction.name)));
      return;
    case "patch":
    case "input":
    case "uniform":
    case "constant":
      throw new Error(`[emitInterleaved] ${instruction.kind} is not computed`);
  }
}

function emitLanes(
  code: FunctionBody,
  lane: LaneType,
  args: readonly Local[],
  target: Local,
  apply: () => void,
): void {
  const shape = SHAPES[lane];
  for (const index of range(lane === "f64" ? 2 : 4)) {
    if (index === 0) code.v128([0, 0, 0, 0]);
    else code.get(target);
    for (const arg of args) code.get(arg).lane(`${shape}.extract_lane`, index);
    apply();
    code.lane(`${shape}.replace_lane`, index).set(target);
  }
}

function emitPatch(code: FunctionBody, callee: FunctionIndex, args: readonly Local[], target: Local): void {
  for (let index = 0; index < 4; index++) {
    code
      .get(argAt(args, 1))
      .lane("i32x4.extract_lane", index)
      .if(() => {
        code.get(target);
        for (const arg of args.slice(2))
          code.get(arg).lane("f32x4.extract_lane", index).op("f64.promote_f32");
        code.call(callee).op("f32.demote_f64").lane("f32x4.replace_lane", index).set(target);
      });
  }
}

function argAt<T>(args: readonly T[], index: number): T {
  const arg = args[index];
  if (arg === undefined) throw new Error(`[emitInterleaved] argument ${index} is missing`);
  return arg;
}
