import { type DType, isInteger, isUnsigned, limits, sumType } from "../../../ir/dtype.js";
import { xlaProgram } from "../../../ir/expansions/xlaFunctions.js";
import type { ElementwiseOp } from "../../../ir/opFacts.js";
import type { OpName } from "../../../ir/ops.js";
import type { EqnParts } from "../../../ir/program.js";
import { at, range, type TensorType, tensorType } from "../../../ir/shape.js";
import { typeText } from "./text.js";
import { type HloValue, names, type Rule, type Writer } from "./writer.js";

const resultType = ({ outs }: EqnParts<OpName>) => at(outs, 0).type;

/** The operands in the shape of the result: literals are broadcast. */
function operands(eqn: EqnParts<OpName>, write: Writer): HloValue[] {
  return eqn.ins.map((atom) => write.spread(atom, resultType(eqn).shape));
}

function pair(eqn: EqnParts<OpName>, write: Writer): [HloValue, HloValue] {
  const both = operands(eqn, write);
  return [at(both, 0), at(both, 1)];
}

/** An op of StableHLO with the same meaning, on operands of one type. */
const plain =
  (op: string): Rule<OpName> =>
  (eqn, write) => [write.same(`stablehlo.${op}`, operands(eqn, write), resultType(eqn))];

/**
 * A function that is inexact on any machine: for 16-bit floats it is computed in float32 and rounded once. XLA keeps
 * the wider values in registers.
 */
const inWideType =
  (compute: (write: Writer, values: readonly HloValue[], type: TensorType) => HloValue): Rule<OpName> =>
  (eqn, write) => {
    const { dtype, shape } = resultType(eqn);
    const type = tensorType(sumType(dtype), shape);
    const values = operands(eqn, write).map((x) => write.convert(x, type.dtype));
    return [write.convert(compute(write, values, type), dtype)];
  };

const wide = (op: string) => inWideType((write, values, type) => write.same(`stablehlo.${op}`, values, type));

/** A function from the CHLO dialect, which has those missing from StableHLO. */
const special = (op: string) =>
  inWideType((write, values, type) =>
    write.define(`chlo.${op} ${names(values)} : ${typeText(type)} -> ${typeText(type)}`, type),
  );

/** One op for numbers and another for booleans. */
const plainOr =
  (op: string, onBool: string): Rule<OpName> =>
  (eqn, write) =>
    plain(resultType(eqn).dtype === "bool" ? onBool : op)(eqn, write);

const identity: Rule<OpName> = ({ ins }, write) => ins.map((atom) => write.read(atom));

/** Unsigned integers are never negative, and XLA has no sign or absolute value for them. */
const onSigned =
  (rule: Rule<OpName>, onUnsigned: Rule<OpName>): Rule<OpName> =>
  (eqn, write) =>
    (isUnsigned(resultType(eqn).dtype) ? onUnsigned : rule)(eqn, write);

/** A comparison has the shape of its operands, even if both are literals. */
const compare: Rule<"compare"> = (eqn, write) => {
  const [x, y] = eqn.ins.map((atom) => write.spread(atom, resultType(eqn).shape));
  return x && y ? [write.compare(eqn.params.direction.toUpperCase(), x, y)] : [];
};

const select: Rule<"select"> = (eqn, write) => {
  const [predicate, onTrue, onFalse] = operands(eqn, write);
  return predicate && onTrue && onFalse ? [write.select(predicate, onTrue, onFalse)] : [];
};

/** Rounding twice differs from rounding once: the reference rounds to 16-bit floats through float32. */
function convert(x: HloValue, dtype: DType, write: Writer): HloValue {
  const isNarrow = dtype === "bfloat16" || dtype === "float16";
  const isWide = x.type.dtype === "float64" || isInteger(x.type.dtype);
  return write.convert(isNarrow && isWide ? write.convert(x, "float32") : x, dtype);
}

/** XLA leaves out a 0 that is added, and a −0 that is subtracted, which is a 0 that is added. */
const withoutZero =
  (zero: 0 | -0, rule: Rule<OpName>, canBeFirst: boolean): Rule<OpName> =>
  (eqn, write) => {
    const [x, y] = eqn.ins;
    const isZero = (atom: typeof x) => atom?.kind === "literal" && Object.is(atom.value, zero);
    const other = isZero(y) ? x : canBeFirst && isZero(x) ? y : undefined;
    return other ? [write.sumOfOne(write.spread(other, resultType(eqn).shape))] : rule(eqn, write);
  };

/**
 * A sum with a product is a sum of matrices, which is how XLA computes the product. XLA lets the product add the other
 * term, and write over it if nothing else reads it in the shape in which it is added: a term of another shape, which has
 * other readers all the same, would be copied first.
 */
const sum: Rule<OpName> = (eqn, write) => {
  const type = resultType(eqn);
  const both = pair(eqn, write);
  const shape = both.map((x) => write.matrixShape(x)).find((found) => found !== undefined);
  if (shape === undefined) return [write.same("stablehlo.add", both, type)];
  const matrices = both.map((x) => write.reshape(x, shape));
  return [write.reshape(write.same("stablehlo.add", matrices, tensorType(type.dtype, shape)), type.shape)];
};

/** By 0 all bits are set; XLA takes x / x of integers for 1, also there. */
const divide: Rule<"div"> = (eqn, write) => {
  const type = resultType(eqn);
  const { dtype, shape } = type;
  const divisor = at(eqn.ins, 1);
  const mayBeZero = divisor.kind !== "literal" || divisor.value === 0;
  if (!isInteger(dtype) || !mayBeZero) return wide("divide")(eqn, write);
  const [x, y] = pair(eqn, write);
  const isZero = write.compare("EQ", y, write.splat(0, dtype, shape));
  const allBits = write.splat(isUnsigned(dtype) ? limits(dtype).max : -1, dtype, shape);
  return [write.select(isZero, allBits, write.same("stablehlo.divide", [x, y], type))];
};

const digitBits = 5;

/**
 * XLA's powers of integers look at six bits of the exponent, so it is taken apart:
 * x^(a + 32b + …) is x^a · (x^32)^b · …
 */
const power: Rule<"pow"> = (eqn, write) => {
  const type = resultType(eqn);
  const { dtype, shape } = type;
  const exponent = at(eqn.ins, 1);
  const isSmall = exponent.kind === "literal" && exponent.value < 2 ** digitBits;
  if (!isInteger(dtype) || isSmall) return wide("power")(eqn, write);
  const [x, y] = pair(eqn, write);
  const op = (name: string, ...values: HloValue[]) => write.same(`stablehlo.${name}`, values, type);
  const constant = (value: number) => write.splat(value, dtype, shape);
  const mask = constant(2 ** digitBits - 1);
  const ofDigit = (base: HloValue, digits: HloValue) => op("power", base, op("and", digits, mask));
  let [base, digits] = [x, y];
  let product = ofDigit(base, digits);
  for (let rest = limits(dtype).max >>> digitBits; rest > 0; rest >>>= digitBits) {
    base = op("power", base, constant(2 ** digitBits));
    digits = op("shift_right_logical", digits, constant(digitBits));
    product = op("multiply", product, ofDigit(base, digits));
  }
  if (isUnsigned(dtype)) return [product];
  return [write.select(write.compare("LT", y, constant(0)), op("power", x, y), product)];
};

/** XLA may divide the operands, which is NaN where both are 0: there x is ±1, which gives the same. */
const arctangent = inWideType((write, values, type) => {
  const { dtype, shape } = type;
  const [y, x] = [at(values, 0), at(values, 1)];
  const [zero, one] = [write.splat(0, dtype, shape), write.splat(1, dtype, shape)];
  const isZero = [y, x].map((value) => write.compare("EQ", value, zero));
  const both = write.same("stablehlo.and", isZero, tensorType("bool", shape));
  const isNegative = write.compare("LT", write.same("stablehlo.divide", [one, x], type), zero);
  const unit = write.select(isNegative, write.splat(-1, dtype, shape), one);
  return write.same("stablehlo.atan2", [y, write.select(both, unit, x)], type);
});

const rotations = [13, 15, 26, 6, 17, 29, 16, 24];

/** Encrypts counters with Threefry 2x32 in 20 rounds. */
function encrypted(
  [k0, k1, c0, c1]: readonly [HloValue, HloValue, HloValue, HloValue],
  write: Writer,
): HloValue[] {
  const { type } = k0;
  const op = (name: string, x: HloValue, y: HloValue) => write.same(`stablehlo.${name}`, [x, y], type);
  const add = (x: HloValue, y: HloValue) => op("add", x, y);
  const constant = (value: number) => write.splat(value >>> 0, "uint32", type.shape);
  let keys = [k0, k1, op("xor", op("xor", k0, k1), constant(0x1bd11bda))];
  let [a, b] = [add(c0, k0), add(c1, k1)];
  for (const round of range(20)) {
    const left = at(rotations, round % 8);
    a = add(a, b);
    const high = op("shift_left", b, constant(left));
    const low = op("shift_right_logical", b, constant(32 - left));
    b = op("xor", op("or", high, low), a);
    if (round % 4 !== 3) continue;
    keys = [...keys.slice(1), at(keys, 0)];
    a = add(a, at(keys, 0));
    b = add(add(b, at(keys, 1)), constant((round + 1) / 4));
  }
  return [a, b];
}

const threefry: Rule<"threefry2x32"> = (eqn, write) => {
  const name = ["threefry2x32", ...resultType(eqn).shape].join("_");
  return write.called(name, operands(eqn, write), ([k0, k1, c0, c1]) =>
    k0 && k1 && c0 && c1 ? encrypted([k0, k1, c0, c1], write) : [],
  );
};

/** The lowering rules of elementwise ops. */
export const elementwiseRules: { readonly [K in ElementwiseOp | "optimizationBarrier"]: Rule<K> } = {
  neg: plain("negate"),
  exp: wide("exponential"),
  expm1: wide("exponential_minus_one"),
  log: wide("log"),
  log1p: wide("log_plus_one"),
  tanh: wide("tanh"),
  sin: wide("sine"),
  cos: wide("cosine"),
  sqrt: wide("sqrt"),
  rsqrt: wide("rsqrt"),
  cbrt: wide("cbrt"),
  abs: onSigned(plain("abs"), identity),
  sign: onSigned(plain("sign"), (eqn, write) => {
    const { shape, dtype } = resultType(eqn);
    const [x] = operands(eqn, write);
    return x ? [write.convert(write.compare("NE", x, write.splat(0, dtype, shape)), dtype)] : [];
  }),
  floor: plain("floor"),
  ceil: plain("ceil"),
  round: plain("round_nearest_even"),
  erf: special("erf"),
  erfInv: special("erf_inv"),
  logistic: wide("logistic"),
  not: plain("not"),
  xlaFunction: ({ ins, params }, write) => {
    const operands = ins.map((atom) => write.read(atom));
    return write.inline(xlaProgram(params, [at(operands, 0).type]), operands, write.equation);
  },
  // XLA multiplies float8 matrices where both factors of a product are such conversions back, scaled or not.
  roundFloat8: (eqn, write) => {
    const { dtype } = resultType(eqn);
    const x = write.convert(write.read(at(eqn.ins, 0)), dtype === "float64" ? "float32" : dtype);
    return [write.convert(write.roundFloat8(x, eqn.params.format), dtype)];
  },
  isFinite: (eqn, write) => {
    const x = write.read(at(eqn.ins, 0));
    return [write.mapped("stablehlo.is_finite", [x], "", resultType(eqn))];
  },
  convert: (eqn, write) => [convert(write.read(at(eqn.ins, 0)), eqn.params.dtype, write)],
  bitcast: (eqn, write) => {
    const x = write.read(at(eqn.ins, 0));
    return [write.mapped("stablehlo.bitcast_convert", [x], "", resultType(eqn))];
  },

  add: withoutZero(0, sum, true),
  sub: withoutZero(-0, plain("subtract"), false),
  mul: plain("multiply"),
  div: divide,
  rem: wide("remainder"),
  pow: power,
  max: plainOr("maximum", "or"),
  min: plainOr("minimum", "and"),
  and: plain("and"),
  or: plain("or"),
  xor: plain("xor"),
  shl: plain("shift_left"),
  shrLogical: plain("shift_right_logical"),
  shrArithmetic: plain("shift_right_arithmetic"),
  atan2: arctangent,
  compare,

  select,
  clamp: plain("clamp"),
  threefry2x32: threefry,

  name: identity,
  stopGradient: identity,
  pvary: identity,
  optimizationBarrier: ({ ins }, write) => write.barrier(ins.map((atom) => write.read(atom))),
};
