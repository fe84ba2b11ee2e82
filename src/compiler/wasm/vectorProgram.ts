import { getOrInsert } from "../../ir/collections.js";
import type { ScalarFunction } from "../../ir/scalarFunctions.js";
import type { WasmFeatures } from "./features.js";
import type { ScalarOp, VectorOp, VectorShiftOp } from "./opcodes.js";

/** A virtual v128 register of one program: the index of the instruction that defines it. */
export type Vec = number & { readonly __vec: never };

/** Four 32-bit words, lane 0 first. */
export type Words = readonly [number, number, number, number];

/** How a vector's 16 bytes are split when an instruction works lane by lane. */
export type LaneType = "f32" | "i32" | "f64";

/** One straight-line vector instruction; every one defines the register of its own index. */
export type VecInstruction =
  /** The vector the kernel supplies for `slot`, a fresh one per unrolled copy. */
  | { readonly kind: "input"; readonly slot: number }
  /** A loop-invariant vector the kernel supplies for `slot`, shared by all copies. */
  | { readonly kind: "uniform"; readonly slot: number }
  | { readonly kind: "constant"; readonly words: Words }
  | { readonly kind: "vector"; readonly op: VectorOp; readonly args: readonly Vec[] }
  | {
      readonly kind: "shift";
      readonly op: VectorShiftOp;
      readonly args: readonly [Vec];
      readonly amount: number;
    }
  | { readonly kind: "shuffle"; readonly args: readonly [Vec, Vec]; readonly lanes: Words }
  /** A scalar WebAssembly instruction on every lane. */
  | { readonly kind: "scalar"; readonly op: ScalarOp; readonly lane: LaneType; readonly args: readonly Vec[] }
  /** A host function on both float64 lanes; on a GPU, a function of the target on every float32 lane. */
  | { readonly kind: "host"; readonly name: ScalarFunction; readonly args: readonly Vec[] }
  /** `args[0]`, with the float32 lanes where the mask `args[1]` is set replaced by a host function of the rest. */
  | { readonly kind: "patch"; readonly name: ScalarFunction; readonly args: readonly Vec[] };

/** A straight-line SSA list of vector instructions with its results. */
export interface VecProgram {
  readonly instructions: readonly VecInstruction[];
  readonly outputs: readonly Vec[];
}

/** Where a program takes vectors from and leaves them; each may be asked twice for the same copy. */
export interface Ports<Value> {
  /** Loads the vector of an input for one copy of the program. */
  input(slot: number, copy: number, to: Value): void;
  /** Receives the finished vector of an output for one copy. */
  output(index: number, copy: number, value: Value): void;
}

/** The registers an instruction reads. */
export function argsOf(instruction: VecInstruction): readonly Vec[] {
  return "args" in instruction ? instruction.args : [];
}

const scratch = new DataView(new ArrayBuffer(8));

/** The bit pattern of a number rounded to float32. */
export function float32Bits(value: number): number {
  scratch.setFloat32(0, value);
  return scratch.getUint32(0);
}

/**
 * Builds a `VecProgram`; equal instructions are shared and unused ones dropped.
 *
 * Float helpers have plain names, integer helpers start with `i`, float64 ones with `d`. Comparisons give masks (all
 * bits of a lane set or clear), which also represent booleans in registers.
 */
export class VecBuilder {
  private readonly instructions: VecInstruction[] = [];
  private readonly known = new Map<string, Vec>();

  constructor(readonly features: WasmFeatures) {}

  private unary(op: VectorOp) {
    return (x: Vec): Vec => this.op(op, x);
  }

  private binary(op: VectorOp) {
    return (a: Vec, b: Vec): Vec => this.op(op, a, b);
  }

  private shiftBy(op: VectorShiftOp) {
    return (x: Vec, amount: number): Vec => this.shift(op, x, amount);
  }

  private push(instruction: VecInstruction): Vec {
    const add = () => (this.instructions.push(instruction) - 1) as Vec;
    return getOrInsert(this.known, JSON.stringify(instruction), add);
  }

  /** The vector the kernel supplies for `slot` in every copy. */
  input(slot: number): Vec {
    return this.push({ kind: "input", slot });
  }

  /** The loop-invariant vector the kernel supplies for `slot`. */
  uniform(slot: number): Vec {
    return this.push({ kind: "uniform", slot });
  }

  /** A float32 in every lane. */
  f32(value: number): Vec {
    return this.i32(float32Bits(value));
  }

  /** A 32-bit pattern in every lane. */
  i32(value: number): Vec {
    const word = value >>> 0;
    return this.push({ kind: "constant", words: [word, word, word, word] });
  }

  /** A float64 in both lanes. */
  f64(value: number): Vec {
    scratch.setFloat64(0, value);
    const high = scratch.getUint32(0);
    const low = scratch.getUint32(4);
    return this.push({ kind: "constant", words: [low, high, low, high] });
  }

  /** A 64-bit pattern in both lanes, given as its high and low words. */
  i64(high: number, low: number): Vec {
    return this.push({ kind: "constant", words: [low >>> 0, high >>> 0, low >>> 0, high >>> 0] });
  }

  /** Any SIMD instruction from vectors to a vector. */
  op(op: VectorOp, ...args: readonly Vec[]): Vec {
    return this.push({ kind: "vector", op, args });
  }

  /** A shift of all lanes by one constant amount. */
  shift(op: VectorShiftOp, x: Vec, amount: number): Vec {
    return amount === 0 ? x : this.push({ kind: "shift", op, args: [x], amount });
  }

  /** Four 32-bit lanes out of the eight of `a` (0 to 3) and `b` (4 to 7). */
  shuffle(a: Vec, b: Vec, lanes: Words): Vec {
    return this.push({ kind: "shuffle", args: [a, b], lanes });
  }

  /** A scalar instruction on every lane, for what SIMD lacks. */
  scalar(op: ScalarOp, lane: LaneType, ...args: readonly Vec[]): Vec {
    return this.push({ kind: "scalar", op, lane, args });
  }

  /** A host function on both float64 lanes; on a GPU, a function of the target on every float32 lane. */
  host(name: ScalarFunction, ...args: readonly Vec[]): Vec {
    return this.push({ kind: "host", name, args });
  }

  /** `value`, except where `mask` is set: there a host function of the float32 lanes of `args`. */
  patch(value: Vec, mask: Vec, name: ScalarFunction, ...args: readonly Vec[]): Vec {
    return this.push({ kind: "patch", name, args: [value, mask, ...args] });
  }

  /** a + b. */
  readonly add = this.binary("f32x4.add");
  /** a − b. */
  readonly sub = this.binary("f32x4.sub");
  /** a · b. */
  readonly mul = this.binary("f32x4.mul");

  /** a / b, correctly rounded; division by a power of two becomes a product, which has the same bits and is faster. */
  div(a: Vec, b: Vec): Vec {
    const divisor = this.at(b);
    const inverse = divisor.kind === "constant" ? inversePowersOfTwo(divisor.words) : undefined;
    return inverse
      ? this.mul(a, this.push({ kind: "constant", words: inverse }))
      : this.op("f32x4.div", a, b);
  }

  /** a · b + c, rounded once if the host can. */
  madd(a: Vec, b: Vec, c: Vec): Vec {
    return this.features.fma ? this.op("f32x4.relaxed_madd", a, b, c) : this.add(this.mul(a, b), c);
  }

  /** c − a · b, rounded once if the host can. */
  nmadd(a: Vec, b: Vec, c: Vec): Vec {
    return this.features.fma ? this.op("f32x4.relaxed_nmadd", a, b, c) : this.sub(c, this.mul(a, b));
  }

  /** A polynomial by Horner's rule, highest coefficient first. */
  poly(x: Vec, coefficients: readonly number[]): Vec {
    const [first, ...rest] = coefficients.map((c) => this.f32(c));
    if (first === undefined) throw new RangeError("[VecBuilder] a polynomial needs a coefficient");
    return rest.reduce((sum, c) => this.madd(sum, x, c), first);
  }

  /** A float64 polynomial by Horner's rule, highest coefficient first. */
  dpoly(x: Vec, coefficients: readonly number[]): Vec {
    const [first, ...rest] = coefficients.map((c) => this.f64(c));
    if (first === undefined) throw new RangeError("[VecBuilder] a polynomial needs a coefficient");
    return rest.reduce((sum, c) => this.op("f64x2.add", this.op("f64x2.mul", sum, x), c), first);
  }

  /** −x. */
  readonly neg = this.unary("f32x4.neg");
  /** |x|. */
  readonly abs = this.unary("f32x4.abs");
  /** The smaller, NaN when either is NaN. */
  readonly min = this.binary("f32x4.min");
  /** The larger, NaN when either is NaN. */
  readonly max = this.binary("f32x4.max");

  /** The smaller of `x` and a bound that is not NaN; NaN where `x` is. One instruction on x86, where {@link min} takes eight. */
  atMost(x: Vec, bound: number): Vec {
    return this.op("f32x4.pmin", x, this.f32(bound));
  }

  /** The larger of `x` and a bound that is not NaN; NaN where `x` is. */
  atLeast(x: Vec, bound: number): Vec {
    return this.op("f32x4.pmax", x, this.f32(bound));
  }

  /** `a` where the mask is set, else `b`. */
  select(mask: Vec, a: Vec, b: Vec): Vec {
    return this.op("v128.bitselect", a, b, mask);
  }

  /** Bitwise and. */
  readonly and = this.binary("v128.and");
  /** Bitwise or. */
  readonly or = this.binary("v128.or");
  /** Bitwise exclusive or. */
  readonly xor = this.binary("v128.xor");
  /** Integer a + b, wrapping. */
  readonly iadd = this.binary("i32x4.add");
  /** Integer a − b, wrapping. */
  readonly isub = this.binary("i32x4.sub");
  /** Shifts every lane left by a constant. */
  readonly ishl = this.shiftBy("i32x4.shl");
  /** Shifts every lane right by a constant, copying the sign. */
  readonly isar = this.shiftBy("i32x4.shr_s");
  /** Shifts every lane right by a constant, filling with zeros. */
  readonly ishr = this.shiftBy("i32x4.shr_u");

  /** Widens four float32 (or runs any function of lanes 0 and 1) to two float64 vectors: lanes 0, 1 and 2, 3. */
  halves(op: VectorOp, x: Vec): readonly [Vec, Vec] {
    return [this.op(op, x), this.op(op, this.shuffle(x, x, [2, 3, 2, 3]))];
  }

  /** Joins two vectors whose results lie in lanes 0 and 1. */
  join(low: Vec, high: Vec): Vec {
    return this.shuffle(low, high, [0, 1, 4, 5]);
  }

  /** Ends the program: keeps what the outputs need, with inputs moved down to their first use. */
  finish(outputs: readonly Vec[]): VecProgram {
    const needed = new Set<Vec>();
    const visit = [...outputs];
    for (let vec = visit.pop(); vec !== undefined; vec = visit.pop()) {
      if (needed.has(vec)) continue;
      needed.add(vec);
      visit.push(...argsOf(this.at(vec)));
    }
    const placed = new Map<Vec, Vec>();
    const instructions: VecInstruction[] = [];
    const place = (vec: Vec): Vec =>
      getOrInsert(placed, vec, () => {
        const instruction = this.at(vec);
        const isLeaf = !("args" in instruction);
        const moved = isLeaf ? instruction : withArgs(instruction, instruction.args.map(place));
        return (instructions.push(moved) - 1) as Vec;
      });
    this.instructions.forEach((instruction, index) => {
      const vec = index as Vec;
      if (needed.has(vec) && "args" in instruction) place(vec);
    });
    return { instructions, outputs: outputs.map(place) };
  }

  private at(vec: Vec): VecInstruction {
    const instruction = this.instructions[vec];
    if (instruction === undefined)
      throw new RangeError(`[VecBuilder] register ${vec} is not of this program`);
    return instruction;
  }
}

/**
 * The reciprocals of float32 that are powers of two, of either sign, and whose reciprocals are normal; otherwise
 * undefined.
 */
function inversePowersOfTwo(words: Words): Words | undefined {
  const isInvertible = (word: number) => {
    const exponent = (word >>> 23) & 0xff;
    return (word & 0x7fffff) === 0 && exponent >= 1 && exponent <= 253;
  };
  // The biased exponents of a power of two and of its reciprocal add up to 254; the sign stays.
  const inverse = (word: number) => ((word & 0x80000000) | (0x7f000000 - (word & 0x7f800000))) >>> 0;
  const [a, b, c, d] = words;
  return words.every(isInvertible) ? [inverse(a), inverse(b), inverse(c), inverse(d)] : undefined;
}

function withArgs(
  instruction: VecInstruction & { args: readonly Vec[] },
  args: readonly Vec[],
): VecInstruction {
  return { ...instruction, args } as VecInstruction;
}
