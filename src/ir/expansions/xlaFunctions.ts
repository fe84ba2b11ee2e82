/**
 * Functions of float32 that give the bits of XLA's on CPUs with fused multiply-add, which JAX draws with there: the same
 * polynomials, with one rounding where LLVM fuses a product with a sum. They are written once, over an arithmetic:
 * the reference engine computes them on numbers, all other engines run the equations that they expand to. Narrower floats
 * are computed in float32, and float64 has the plain functions, as in JAX.
 */
import { getOrInsert } from "../collections.js";
import type { DType } from "../dtype.js";
import type { CompareDirection, OpName, OpParams, XlaFunction } from "../ops.js";
import { type Atom, newLiteral, type Program, type Var } from "../program.js";
import { unaryFunctions } from "../scalarFunctions.js";
import { at, type TensorType } from "../shape.js";
import { type ProgramBuilder, writeProgram } from "./programBuilder.js";

/** Arithmetic of float32: every result is rounded, and so is every constant. */
interface Arithmetic<T> {
  readonly add: (x: T, y: T | number) => T;
  readonly sub: (x: T, y: T | number) => T;
  readonly mul: (x: T, y: T | number) => T;
  readonly div: (x: T, y: T) => T;
  readonly max: (x: T, y: number) => T;
  readonly min: (x: T, y: number) => T;
  readonly neg: (x: T) => T;
  readonly abs: (x: T) => T;
  readonly sign: (x: T) => T;
  readonly sqrt: (x: T) => T;
  /** x · y + z, rounded once. */
  readonly fused: (x: T, y: T | number, z: T | number) => T;
  readonly compare: (direction: "lt" | "gt" | "ge" | "eq", x: T, y: number) => T;
  readonly select: (predicate: T, onTrue: T | number, onFalse: T | number) => T;
  /** The factors of a positive normal number: from ½ to 1, and the exponent of the power of two. */
  readonly parts: (x: T) => readonly [fraction: T, exponent: T];
}

/** A polynomial by Horner's scheme, from its highest coefficient down. */
function polynomial<T>(m: Arithmetic<T>, x: T, coefficients: readonly number[]): T {
  let sum = m.fused(x, coefficients[0] ?? 0, coefficients[1] ?? 0);
  for (let i = 2; i < coefficients.length; i++) sum = m.fused(sum, x, coefficients[i] ?? 0);
  return sum;
}

/** ln x for positive x: the power of two separately, the rest by three interleaved polynomials. */
function log<T>(m: Arithmetic<T>, x: T): T {
  const [fraction, exponent] = m.parts(m.max(x, 2 ** -126));
  const isSmall = m.compare("lt", fraction, Math.SQRT1_2);
  const y = m.add(m.sub(fraction, 1), m.select(isSmall, fraction, 0));
  const power = m.select(isSmall, m.sub(exponent, 1), exponent);
  const square = m.mul(y, y);
  const cube = m.mul(square, y);
  const high = polynomial(m, y, logCoefficients.high);
  const middle = m.fused(high, cube, polynomial(m, y, logCoefficients.middle));
  const low = m.fused(middle, cube, polynomial(m, y, logCoefficients.low));
  const rest = m.fused(low, cube, m.mul(power, -0.00021219444));
  return m.fused(power, 0.6933594, m.add(m.fused(square, -0.5, y), rest));
}

const logCoefficients = {
  high: [0.070376836, -0.1151461, 0.116769984],
  middle: [-0.12420141, 0.14249323, -0.16668057],
  low: [0.20000714, -0.24999994, 0.3333333],
};

const log1pCoefficients = {
  top: [4.527e-5, 0.49854103, 6.5787325, 29.911919, 60.94967, 57.112965, 20.039553],
  bottom: [1, 15.062909, 83.04757, 221.7624, 309.09872, 216.42789, 60.11866],
};

/**
 * ln(1 + x) for x above −1.
 *
 * @param fusesCube which of the two products of the last sum is fused: LLVM's choice differs between its uses
 */
function log1p<T>(m: Arithmetic<T>, x: T, fusesCube: boolean): T {
  const square = m.mul(x, x);
  const cube = m.mul(x, square);
  const { top, bottom } = log1pCoefficients;
  const ratio = m.div(polynomial(m, x, top), polynomial(m, x, bottom));
  const correction = fusesCube
    ? m.fused(cube, ratio, m.mul(square, -0.5))
    : m.fused(square, -0.5, m.mul(cube, ratio));
  const isNear = m.compare("lt", m.abs(x), Math.SQRT2 - 1);
  return m.select(isNear, m.add(x, correction), log(m, m.add(x, 1)));
}

/** The coefficients of Giles' polynomials for the inverse error function, in the centre and in the tails. */
const inverseCoefficients: readonly (readonly [centre: number, tails: number])[] = [
  [2.8102264e-8, -0.00020021426],
  [3.4327394e-7, 0.00010095056],
  [-3.5233877e-6, 0.0013493432],
  [-4.3915065e-6, -0.0036734284],
  [0.00021858087, 0.0057395077],
  [-0.001253725, -0.0076224613],
  [-0.0041776816, 0.0094388705],
  [0.24664073, 1.001674],
  [1.5014094, 2.8329768],
];

function erfInv<T>(m: Arithmetic<T>, x: T): T {
  const negative = log1p(m, m.mul(x, m.neg(x)), false);
  const isCentral = m.compare("gt", negative, -5);
  const size = m.neg(negative);
  const w = m.select(isCentral, m.sub(size, 2.5), m.sub(m.sqrt(size), 3));
  let p = m.select(isCentral, ...at(inverseCoefficients, 0));
  for (let i = 1; i < inverseCoefficients.length; i++) {
    p = m.fused(p, w, m.select(isCentral, ...at(inverseCoefficients, i)));
  }
  const isEnd = m.compare("eq", m.abs(x), 1);
  return m.select(isEnd, m.mul(x, Number.POSITIVE_INFINITY), m.mul(p, x));
}

const erfCoefficients = {
  top: [0.00022905065, 0.003408291, 0.050955694, 0.18520832, 1.1283791],
  bottom: [-1.1791603e-7, 2.3547966e-5, 0.0010179626, 0.01407047, 0.11098505, 0.49746925, 1],
};

/** From here on erf is ±1 in float32. */
const erfEnd = 3.7439213;

function erf<T>(m: Arithmetic<T>, x: T): T {
  const limited = m.min(m.max(x, -erfEnd), erfEnd);
  const square = m.mul(limited, limited);
  const top = m.mul(limited, polynomial(m, square, erfCoefficients.top));
  const ratio = m.div(top, polynomial(m, square, erfCoefficients.bottom));
  return m.select(m.compare("ge", m.abs(x), erfEnd), m.sign(x), ratio);
}

const functions: { readonly [F in XlaFunction]: <T>(m: Arithmetic<T>, x: T) => T } = {
  erf,
  erfInv,
  exponentialQuantile: (m, x) => m.neg(log1p(m, m.neg(x), true)),
};

/** Arithmetic on blocks of numbers: storing a result in a block rounds it. The loops are separate so that V8 compiles each to plain arithmetic. */
class Blocks implements Arithmetic<Float32Array> {
  private static readonly size = 512;
  private readonly pool: Float32Array[] = [];
  private readonly constants = new Map<number, Float32Array>();
  private numUsed = 0;
  private length = 0;

  /** The values of a function, block by block. */
  map(fn: XlaFunction, values: Float64Array): Float64Array {
    const results = new Float64Array(values.length);
    for (let start = 0; start < values.length; start += Blocks.size) {
      this.length = Math.min(Blocks.size, values.length - start);
      this.numUsed = 0;
      const x = this.next();
      x.set(values.subarray(start, start + this.length));
      results.set(functions[fn](this, x).subarray(0, this.length), start);
    }
    return results;
  }

  add(x: Float32Array, other: Float32Array | number): Float32Array {
    const { length } = this;
    const [y, out] = [this.block(other), this.next()];
    for (let i = 0; i < length; i++) out[i] = (x[i] as number) + (y[i] as number);
    return out;
  }

  sub(x: Float32Array, other: Float32Array | number): Float32Array {
    const { length } = this;
    const [y, out] = [this.block(other), this.next()];
    for (let i = 0; i < length; i++) out[i] = (x[i] as number) - (y[i] as number);
    return out;
  }

  mul(x: Float32Array, other: Float32Array | number): Float32Array {
    const { length } = this;
    const [y, out] = [this.block(other), this.next()];
    for (let i = 0; i < length; i++) out[i] = (x[i] as number) * (y[i] as number);
    return out;
  }

  div(x: Float32Array, y: Float32Array): Float32Array {
    const { length } = this;
    const out = this.next();
    for (let i = 0; i < length; i++) out[i] = (x[i] as number) / (y[i] as number);
    return out;
  }

  max(x: Float32Array, limit: number): Float32Array {
    const { length } = this;
    const [y, out] = [Math.fround(limit), this.next()];
    for (let i = 0; i < length; i++) out[i] = Math.max(x[i] as number, y);
    return out;
  }

  min(x: Float32Array, limit: number): Float32Array {
    const { length } = this;
    const [y, out] = [Math.fround(limit), this.next()];
    for (let i = 0; i < length; i++) out[i] = Math.min(x[i] as number, y);
    return out;
  }

  neg(x: Float32Array): Float32Array {
    const { length } = this;
    const out = this.next();
    for (let i = 0; i < length; i++) out[i] = -(x[i] as number);
    return out;
  }

  abs(x: Float32Array): Float32Array {
    const { length } = this;
    const out = this.next();
    for (let i = 0; i < length; i++) out[i] = Math.abs(x[i] as number);
    return out;
  }

  sign(x: Float32Array): Float32Array {
    const { length } = this;
    const out = this.next();
    for (let i = 0; i < length; i++) out[i] = Math.sign(x[i] as number);
    return out;
  }

  sqrt(x: Float32Array): Float32Array {
    const { length } = this;
    const out = this.next();
    for (let i = 0; i < length; i++) out[i] = Math.sqrt(x[i] as number);
    return out;
  }

  /** The product of two float32 numbers is exact in float64. */
  fused(x: Float32Array, factor: Float32Array | number, summand: Float32Array | number): Float32Array {
    const { length } = this;
    const [y, z, out] = [this.block(factor), this.block(summand), this.next()];
    for (let i = 0; i < length; i++) out[i] = (x[i] as number) * (y[i] as number) + (z[i] as number);
    return out;
  }

  compare(direction: "lt" | "gt" | "ge" | "eq", x: Float32Array, limit: number): Float32Array {
    const { length } = this;
    const [y, out] = [Math.fround(limit), this.next()];
    const [isLess, isMore, isEqual] = [
      direction === "lt",
      direction !== "lt" && direction !== "eq",
      direction.includes("e"),
    ];
    for (let i = 0; i < length; i++) {
      const value = x[i] as number;
      out[i] = (isLess && value < y) || (isMore && value > y) || (isEqual && value === y) ? 1 : 0;
    }
    return out;
  }

  select(
    predicate: Float32Array,
    onTrue: Float32Array | number,
    onFalse: Float32Array | number,
  ): Float32Array {
    const { length } = this;
    const [y, z, out] = [this.block(onTrue), this.block(onFalse), this.next()];
    for (let i = 0; i < length; i++) out[i] = (predicate[i] === 0 ? z[i] : y[i]) as number;
    return out;
  }

  parts(x: Float32Array): [Float32Array, Float32Array] {
    const { length } = this;
    const [fraction, exponent] = [this.next(), this.next()];
    const [from, to] = [new Int32Array(x.buffer), new Int32Array(fraction.buffer)];
    for (let i = 0; i < length; i++) {
      const bits = from[i] as number;
      to[i] = (bits & 0x7fffff) | 0x3f000000;
      exponent[i] = (bits >> 23) - 126;
    }
    return [fraction, exponent];
  }

  private next(): Float32Array {
    const block = this.pool[this.numUsed] ?? new Float32Array(Blocks.size);
    this.pool[this.numUsed++] = block;
    return block;
  }

  private block(x: Float32Array | number): Float32Array {
    if (typeof x !== "number") return x;
    return getOrInsert(this.constants, x, () => new Float32Array(Blocks.size).fill(x));
  }
}

const blocks = new Blocks();

const { erf: erf64, erfInv: erfInv64, log1p: log1p64 } = unaryFunctions;
const onFloat64: { readonly [F in XlaFunction]: (x: number) => number } = {
  erf: erf64,
  erfInv: erfInv64,
  exponentialQuantile: (x) => -log1p64(-x),
};

/** A function applied to many numbers of a type. */
export function xlaValues(fn: XlaFunction, dtype: DType, values: Float64Array): Float64Array {
  return dtype === "float64" ? values.map((x) => onFloat64[fn](x)) : blocks.map(fn, values);
}

/** Arithmetic that collects the equations of a program. */
class Equations implements Arithmetic<Var> {
  /** The values that float64 is needed of, by the number of the float32 value. */
  private readonly widened = new Map<number, Var>();

  constructor(private readonly b: ProgramBuilder) {}

  readonly add = (x: Var, y: Var | number) => this.op("add", [x, single(y)], {});
  readonly sub = (x: Var, y: Var | number) => this.op("sub", [x, single(y)], {});
  readonly mul = (x: Var, y: Var | number) => this.op("mul", [x, single(y)], {});
  readonly div = (x: Var, y: Var) => this.op("div", [x, y], {});
  readonly max = (x: Var, y: number) => this.op("max", [x, single(y)], {});
  readonly min = (x: Var, y: number) => this.op("min", [x, single(y)], {});
  readonly neg = (x: Var) => this.op("neg", [x], {});
  readonly abs = (x: Var) => this.op("abs", [x], {});
  readonly sign = (x: Var) => this.op("sign", [x], {});
  readonly sqrt = (x: Var) => this.op("sqrt", [x], {});
  readonly compare = (direction: CompareDirection, x: Var, y: number) =>
    this.op("compare", [x, single(y)], { direction });
  readonly select = (predicate: Var, onTrue: Var | number, onFalse: Var | number) =>
    this.op("select", [predicate, single(onTrue), single(onFalse)], {});

  /** Engines round every op separately, so that a fused step is computed in float64, where the product is exact. */
  readonly fused = (x: Var, y: Var | number, z: Var | number) => {
    const product = this.op("mul", [this.wide(x), this.wide(y)], {});
    return this.op("convert", [this.op("add", [product, this.wide(z)], {})], { dtype: "float32" });
  };

  readonly parts = (x: Var): [Var, Var] => {
    const int = (value: number) => newLiteral(value, "int32");
    const bits = this.op("bitcast", [x], { dtype: "int32" });
    const digits = this.op("or", [this.op("and", [bits, int(0x7fffff)], {}), int(0x3f000000)], {});
    const power = this.op("sub", [this.op("shrArithmetic", [bits, int(23)], {}), int(126)], {});
    const to = { dtype: "float32" } as const;
    return [this.op("bitcast", [digits], to), this.op("convert", [power], to)];
  };

  private op<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]): Var {
    return this.b.add(op, ins, params);
  }

  private wide(x: Var | number): Atom {
    const atom = single(x);
    if (atom.kind === "literal") return newLiteral(atom.value, "float64");
    return getOrInsert(this.widened, atom.id, () => this.op("convert", [atom], { dtype: "float64" }));
  }
}

const single = (x: Var | number): Atom => (typeof x === "number" ? newLiteral(x, "float32") : x);

/** The program of smaller ops with the same bits. */
export function xlaProgram({ fn }: OpParams["xlaFunction"], types: readonly TensorType[]): Program {
  return writeProgram(types, (b, inputs) => {
    const x = at(inputs, 0);
    const { dtype } = x.type;
    if (dtype !== "float64") {
      return [b.convert(functions[fn](new Equations(b), b.convert(x, "float32")), dtype)];
    }
    const neg = (value: Var) => b.add("neg", [value], {});
    return [fn === "exponentialQuantile" ? neg(b.add("log1p", [neg(x)], {})) : b.add(fn, [x], {})];
  });
}
