import { InternalError } from "../../ir/errors.js";
import { at } from "../../ir/shape.js";
import type { ScalarOp, VectorOp, VectorShiftOp } from "../wasm/opcodes.js";
import {
  argsOf,
  float32Bits,
  type Vec,
  type VecInstruction,
  type VecProgram,
} from "../wasm/vectorProgram.js";
import type { WgslFunctionName } from "./wgslFunctions.js";

/**
 * A value of a shader in the forms it has been needed in so far: its bits, a float, whether a mask is set, or two floats
 * whose sum stands for a float64. Each is the name of a variable or a constant.
 */
export interface ShaderRegister {
  bits?: string | undefined;
  float?: string | undefined;
  flag?: string | undefined;
  pair?: string | undefined;
  /** Whether it is NaN, where that has been asked. */
  nan?: string | undefined;
  /** Whether it is the same for all elements that are computed together. */
  readonly isUniform?: boolean;
  /** The bits, where they are known, and those above them if it is a float64. */
  readonly constant?: number | undefined;
  readonly high?: number | undefined;
}

/** Collects the lines of a shader's function, and the functions of the library that they call. */
export class WgslWriter {
  readonly lines: string[] = [];
  readonly used = new Set<WgslFunctionName>();
  /** Whether equal expressions get one name; only for those of names that never change. */
  reuses = false;
  /** A variable to be set where a quotient by a value of the row needs more than its quick form, if that is wanted. */
  longQuotient: string | undefined;
  private depth = 1;
  private numNames = 0;
  /** The names of expressions, block by block. */
  private readonly known: Map<string, string>[] = [new Map()];

  /** Adds a line. */
  line(text: string): void {
    this.lines.push(`${"  ".repeat(this.depth)}${text}`);
  }

  /** Adds lines in braces after a head. */
  block(head: string, body: () => void): void {
    this.line(`${head} {`);
    this.depth++;
    this.known.push(new Map());
    body();
    this.known.pop();
    this.depth--;
    this.line("}");
  }

  /** A name that no other variable has. */
  name(): string {
    return `v${this.numNames++}`;
  }

  /** The name of a new variable with a value. */
  let(expression: string): string {
    if (!this.reuses) return this.fresh(expression);
    const known = this.known.find((names) => names.has(expression))?.get(expression);
    if (known !== undefined) return known;
    const name = this.fresh(expression);
    this.known.at(-1)?.set(expression, name);
    return name;
  }

  /** The name of a new variable with a value that is not the same everywhere. */
  fresh(expression: string): string {
    const name = this.name();
    this.line(`let ${name} = ${expression};`);
    return name;
  }

  /** Marks a function of the library as called. */
  call(name: WgslFunctionName, ...args: readonly string[]): string {
    this.used.add(name);
    return `${name}(${args.join(", ")})`;
  }

  /** The bits of a value. */
  bits(register: ShaderRegister): string {
    if (register.bits !== undefined) return register.bits;
    if (register.flag !== undefined) register.bits = this.let(`select(0u, 0xffffffffu, ${register.flag})`);
    else register.bits = this.let(`bitcast<u32>(${register.float})`);
    return register.bits;
  }

  /** A value as two floats. */
  pair(register: ShaderRegister): string {
    const { constant: low, high } = register;
    if (register.pair !== undefined || low === undefined || high === undefined) return register.pair ?? "";
    const [value = 0] = new Float64Array(Uint32Array.of(low, high).buffer);
    const [first, second] = [value, value - Math.fround(value)].map((part) =>
      this.float(constant(float32Bits(part))),
    );
    register.pair = `vec2<f32>(${first}, ${second})`;
    return register.pair;
  }

  /** The bits as a signed integer. */
  int(register: ShaderRegister): string {
    return `bitcast<i32>(${this.bits(register)})`;
  }

  /** A value as a float. */
  float(register: ShaderRegister): string {
    if (register.float !== undefined) return register.float;
    const { constant } = register;
    if (constant === undefined) register.float = this.let(`bitcast<f32>(${this.bits(register)})`);
    else if ((constant & 0x7f800000) !== 0x7f800000) register.float = `bitcast<f32>(${hex(constant)})`;
    else {
      // The compiler refuses constants that are no numbers.
      this.used.add("zero");
      register.float = `bitcast<f32>(${hex(constant)} | zero)`;
    }
    return register.float;
  }
}

/** A 32-bit pattern as WGSL writes it. */
export function hex(word: number): string {
  return `0x${(word >>> 0).toString(16)}u`;
}

/** A constant of these bits. @param high those above them if it is a float64 */
export function constant(word: number, high?: number): ShaderRegister {
  return { bits: hex(word), constant: word >>> 0, high };
}

type Rule = (w: WgslWriter, a: ShaderRegister, b: ShaderRegister, c: ShaderRegister) => ShaderRegister;

const float =
  (text: (a: string, b: string) => string, uses: readonly WgslFunctionName[] = []): Rule =>
  (w, a, b) => {
    for (const name of uses) w.used.add(name);
    return { float: w.let(text(w.float(a), w.float(b))) };
  };
const called =
  (name: WgslFunctionName): Rule =>
  (w, a, b) => ({ float: w.let(w.call(name, w.float(a), w.float(b))) });
const calledOfOne =
  (name: WgslFunctionName): Rule =>
  (w, a) => ({ float: w.let(w.call(name, w.float(a))) });
const compared =
  (text: (a: string, b: string) => string): Rule =>
  (w, a, b) => ({ flag: w.let(text(w.float(a), w.float(b))) });
const bits =
  (text: (a: string, b: string) => string): Rule =>
  (w, a, b) => ({ bits: w.let(text(w.bits(a), w.bits(b))) });
const ints =
  (text: (a: string, b: string) => string): Rule =>
  (w, a, b) => ({ bits: w.let(`bitcast<u32>(${text(w.int(a), w.int(b))})`) });
const bitsCompared =
  (sign: string): Rule =>
  (w, a, b) => ({ flag: w.let(`${w.bits(a)} ${sign} ${w.bits(b)}`) });
const intsCompared =
  (sign: string): Rule =>
  (w, a, b) => ({ flag: w.let(`${w.int(a)} ${sign} ${w.int(b)}`) });

/** `and`, `or` and `xor`: on masks they are choices, which compilers understand better than patterns of bits. */
const bitwise =
  (sign: "&" | "|" | "^"): Rule =>
  (w, a, b) => {
    if (a.flag !== undefined && b.flag !== undefined)
      return { flag: w.let(`${a.flag} ${{ "&": "&&", "|": "||", "^": "!=" }[sign]} ${b.flag}`) };
    const [mask, other] = a.flag === undefined ? [b, a] : [a, b];
    if (mask.flag !== undefined && sign === "&") {
      if (other.float !== undefined) return { float: w.let(`select(0.0, ${other.float}, ${mask.flag})`) };
      return { bits: w.let(`select(0u, ${w.bits(other)}, ${mask.flag})`) };
    }
    if (mask.flag !== undefined && sign === "|")
      return { bits: w.let(`select(${w.bits(other)}, 0xffffffffu, ${mask.flag})`) };
    return { bits: w.let(`${w.bits(a)} ${sign} ${w.bits(b)}`) };
  };

const paired =
  (name: "pair_sum" | "pair_product"): Rule =>
  (w, a, b) => {
    w.used.add("pair");
    return { pair: w.let(`${name}(${w.pair(a)}, ${w.pair(b)})`) };
  };

const select: Rule = (w, a, b, mask) => {
  if (mask.flag !== undefined && (a.pair !== undefined || b.pair !== undefined || isDouble(a)))
    return { pair: w.let(`select(${w.pair(b)}, ${w.pair(a)}, ${mask.flag})`) };
  if (mask.flag === undefined) {
    const m = w.bits(mask);
    return { bits: w.let(`(${w.bits(a)} & ${m}) | (${w.bits(b)} & ~${m})`) };
  }
  if (a.flag !== undefined && b.flag !== undefined)
    return { flag: w.let(`select(${b.flag}, ${a.flag}, ${mask.flag})`) };
  const isFloat = (x: ShaderRegister) => x.float !== undefined || x.constant !== undefined;
  if (isFloat(a) && isFloat(b)) return { float: w.let(`select(${w.float(b)}, ${w.float(a)}, ${mask.flag})`) };
  return { bits: w.let(`select(${w.bits(b)}, ${w.bits(a)}, ${mask.flag})`) };
};

/** Whether a constant can only be a float64. */
const isDouble = ({ constant: low, high }: ShaderRegister): boolean => low !== undefined && high !== low;

/** Whether a value is NaN; compilers may take a float to be equal to itself. */
const isNan = (w: WgslWriter, a: ShaderRegister): string => w.call("is_nan", w.float(a));

/** The smaller or larger of a value and a bound; NaN where the value is. */
const bounded =
  (name: "min" | "max", isBeyond: (a: string, b: string) => string): Rule =>
  (w, a, b) => {
    const [x, bound] = [w.float(a), w.float(b)];
    a.nan ??= w.let(isNan(w, a));
    // Between zeros the choice matters, and there is none where the bound is another constant.
    const isPlain = ((b.constant ?? 0) & 0x7fffffff) !== 0;
    const value = isPlain ? `${name}(${x}, ${bound})` : `select(${x}, ${bound}, ${isBeyond(x, bound)})`;
    return { float: w.let(`select(${value}, ${x}, ${a.nan})`), nan: a.nan };
  };

/** Whether a value is the constant 0, of either sign. */
const isZero = ({ constant: known = 1 }: ShaderRegister): boolean => (known & 0x7fffffff) === 0;

/** A sum of which drivers would leave out a constant 0, although −0 + 0 is 0. */
const added: Rule = (w, a, b) => {
  const [x, zero] = isZero(a) ? [b, a] : [a, b];
  if (!isZero(zero)) return { float: w.let(`${w.float(a)} + ${w.float(b)}`) };
  if (zero.constant !== 0) return x;
  return { float: w.let(`select(${w.float(x)}, 0.0, ${w.float(x)} == 0.0)`) };
};

/** A difference, likewise: −0 − −0 is 0, and so is 0 − 0. */
const subtracted: Rule = (w, a, b) => {
  if (isZero(b)) return added(w, a, constant((b.constant ?? 0) ^ 0x80000000), b);
  if (isZero(a)) return added(w, { float: w.let(`-${w.float(b)}`) }, a, a);
  return { float: w.let(`${w.float(a)} - ${w.float(b)}`) };
};

/** What an instruction is in WGSL, for those that work on 32-bit lanes, and the few on float64. */
const vectorRules: { readonly [K in VectorOp]?: Rule } = {
  "f32x4.add": added,
  "f32x4.sub": subtracted,
  "f32x4.mul": float((a, b) => `${a} * ${b}`),
  "f32x4.div": (w, a, b) => {
    if (w.longQuotient === undefined || !b.isUniform) return called("f_div")(w, a, b, b);
    const [x, divisor] = [w.float(a), w.float(b)];
    const inverse = w.let(`quick_div_inverse(${divisor})`);
    const isLong = w.let(`quick_div_is_long(${divisor})`);
    // Not `||`, which branches.
    w.line(`${w.longQuotient} = ${w.longQuotient} | ${isLong} | (quick_div_is_long(${x}) & (${x} != 0.0));`);
    return { float: w.let(w.call("quick_div", x, divisor, inverse)) };
  },
  "f32x4.relaxed_madd": (w, a, b, c) => ({
    float: w.let(`fma(${w.float(a)}, ${w.float(b)}, ${w.float(c)})`),
  }),
  "f32x4.relaxed_nmadd": (w, a, b, c) => ({
    float: w.let(`fma(-${w.float(a)}, ${w.float(b)}, ${w.float(c)})`),
  }),
  "f32x4.neg": (w, a) => ({ bits: w.let(`${w.bits(a)} ^ 0x80000000u`) }),
  "f32x4.abs": (w, a) => ({ bits: w.let(`${w.bits(a)} & 0x7fffffffu`) }),
  "f32x4.min": called("f_min"),
  "f32x4.max": called("f_max"),
  // Compilers take a choice by a comparison for a minimum, which loses NaN.
  "f32x4.pmin": bounded("min", (a, b) => `${b} < ${a}`),
  "f32x4.pmax": bounded("max", (a, b) => `${a} < ${b}`),
  "f32x4.sqrt": calledOfOne("f_sqrt"),
  "f32x4.floor": float((a) => `floor(${a})`),
  "f32x4.ceil": float((a) => `ceil(${a})`),
  "f32x4.trunc": float((a) => `trunc(${a})`),
  "f32x4.nearest": float((a) => `round(${a})`),
  "f32x4.eq": (w, a, b) => ({ flag: w.let(a === b ? `!${isNan(w, a)}` : `${w.float(a)} == ${w.float(b)}`) }),
  "f32x4.ne": (w, a, b) => ({ flag: w.let(a === b ? isNan(w, a) : `!(${w.float(a)} == ${w.float(b)})`) }),
  "f32x4.lt": compared((a, b) => `${a} < ${b}`),
  "f32x4.le": compared((a, b) => `${a} <= ${b}`),
  "f32x4.gt": compared((a, b) => `${a} > ${b}`),
  "f32x4.ge": compared((a, b) => `${a} >= ${b}`),
  "f32x4.convert_i32x4_s": (w, a) => ({ float: w.let(`f32(${w.int(a)})`) }),
  "f32x4.convert_i32x4_u": (w, a) => ({ float: w.let(`f32(${w.bits(a)})`) }),
  "i32x4.trunc_sat_f32x4_s": (w, a) => ({ bits: w.let(w.call("to_i32", w.float(a))) }),
  "i32x4.trunc_sat_f32x4_u": (w, a) => ({ bits: w.let(w.call("to_u32", w.float(a))) }),
  "i32x4.add": bits((a, b) => `${a} + ${b}`),
  "i32x4.sub": bits((a, b) => `${a} - ${b}`),
  "i32x4.mul": bits((a, b) => `${a} * ${b}`),
  "i32x4.neg": bits((a) => `0u - ${a}`),
  "i32x4.abs": ints((a) => `abs(${a})`),
  "i32x4.min_s": ints((a, b) => `min(${a}, ${b})`),
  "i32x4.max_s": ints((a, b) => `max(${a}, ${b})`),
  "i32x4.min_u": bits((a, b) => `min(${a}, ${b})`),
  "i32x4.max_u": bits((a, b) => `max(${a}, ${b})`),
  "i32x4.eq": bitsCompared("=="),
  "i32x4.ne": bitsCompared("!="),
  "i32x4.lt_s": intsCompared("<"),
  "i32x4.le_s": intsCompared("<="),
  "i32x4.gt_s": intsCompared(">"),
  "i32x4.ge_s": intsCompared(">="),
  "i32x4.lt_u": bitsCompared("<"),
  "i32x4.le_u": bitsCompared("<="),
  "i32x4.gt_u": bitsCompared(">"),
  "i32x4.ge_u": bitsCompared(">="),
  "f64x2.promote_low_f32x4": (w, a) => ({ pair: w.let(`vec2<f32>(${w.float(a)}, 0.0)`) }),
  "f32x4.demote_f64x2_zero": (w, a) => {
    const pair = w.let(w.pair(a));
    // Adding 0 would turn −0 into 0.
    return { float: w.let(`select(${pair}.x + ${pair}.y, ${pair}.x, ${pair}.y == 0.0)`) };
  },
  "f64x2.add": paired("pair_sum"),
  "f64x2.mul": paired("pair_product"),
  "v128.and": bitwise("&"),
  "v128.or": bitwise("|"),
  "v128.xor": bitwise("^"),
  "v128.not": (w, a) =>
    a.flag === undefined ? { bits: w.let(`~${w.bits(a)}`) } : { flag: w.let(`!${a.flag}`) },
  "v128.andnot": (w, a, b) =>
    b.flag === undefined
      ? { bits: w.let(`${w.bits(a)} & ~${w.bits(b)}`) }
      : { bits: w.let(`select(${w.bits(a)}, 0u, ${b.flag})`) },
  "v128.bitselect": select,
};

const scalarRules: { readonly [K in ScalarOp]?: Rule } = {
  // WGSL takes shifts modulo 32, as WebAssembly does, but refuses constants that are larger.
  "i32.shl": bits((a, b) => `${a} << (${b} & 31u)`),
  "i32.shr_u": bits((a, b) => `${a} >> (${b} & 31u)`),
  "i32.shr_s": (w, a, b) => ({ bits: w.let(`bitcast<u32>(${w.int(a)} >> (${w.bits(b)} & 31u))`) }),
  "i32.div_s": (w, a, b) => ({ bits: w.let(`bitcast<u32>(${w.int(a)} / ${w.let(w.int(b))})`) }),
  "i32.div_u": (w, a, b) => ({ bits: w.let(`${w.bits(a)} / ${w.let(w.bits(b))}`) }),
};

const shiftRules: {
  readonly [K in VectorShiftOp]?: (w: WgslWriter, a: ShaderRegister, amount: number) => ShaderRegister;
} = {
  "i32x4.shl": (w, a, amount) => ({ bits: w.let(`${w.bits(a)} << ${amount & 31}u`) }),
  "i32x4.shr_u": (w, a, amount) => ({ bits: w.let(`${w.bits(a)} >> ${amount & 31}u`) }),
  "i32x4.shr_s": (w, a, amount) => ({ bits: w.let(`bitcast<u32>(${w.int(a)} >> ${amount & 31}u)`) }),
};

/** Functions that only a GPU computes on 32-bit lanes. */
const hostRules: Readonly<Record<string, Rule>> = {
  sin: calledOfOne("f_sin"),
  cos: calledOfOne("f_cos"),
  pow: called("f_pow"),
  rem: called("f_rem"),
};

/** Combines two values by an instruction. */
export function combine(w: WgslWriter, op: VectorOp, a: ShaderRegister, b: ShaderRegister): ShaderRegister {
  return need(vectorRules[op], op)(w, a, b, b);
}

function need<T>(rule: T | undefined, what: string): T {
  if (rule === undefined) throw new InternalError(`[wgsl] ${what} has no form in WGSL`);
  return rule;
}

/** Where a program takes values from. */
export interface Sources {
  input(slot: number): ShaderRegister;
  uniform(slot: number): ShaderRegister;
}

/** Writes a straight-line program; gives its results. */
export function writeProgram(w: WgslWriter, program: VecProgram, sources: Sources): ShaderRegister[] {
  const values: ShaderRegister[] = [];
  const value = (vec: Vec): ShaderRegister => at(values, vec);
  for (const instruction of program.instructions) values.push(write(w, instruction, value, sources));
  return program.outputs.map(value);
}

function write(
  w: WgslWriter,
  instruction: VecInstruction,
  value: (vec: Vec) => ShaderRegister,
  sources: Sources,
): ShaderRegister {
  const [a = {}, b = a, c = a] = argsOf(instruction).map(value);
  switch (instruction.kind) {
    case "input":
      return sources.input(instruction.slot);
    case "uniform":
      return sources.uniform(instruction.slot);
    case "constant":
      return constant(instruction.words[0], instruction.words[1]);
    case "vector":
      return need(vectorRules[instruction.op], instruction.op)(w, a, b, c);
    case "shift":
      return need(shiftRules[instruction.op], instruction.op)(w, a, instruction.amount);
    case "scalar":
      return need(scalarRules[instruction.op], instruction.op)(w, a, b, c);
    case "host":
      return need(hostRules[instruction.name], instruction.name)(w, a, b, c);
    case "shuffle":
      // Between masks of 32-bit and 64-bit lanes; here a mask is one value.
      return a;
    case "patch":
      throw new InternalError(`[wgsl] ${instruction.kind} has no form in WGSL`);
  }
}
