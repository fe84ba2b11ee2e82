/**
 * Complex numbers while a function is traced: each op on them becomes ops on their parts, so that no program holds
 * complex numbers and later passes need not support them.
 */
import { complexType, isComplex, partType } from "../ir/dtype.js";
import { DTypeError } from "../ir/errors.js";
import { opFacts, rowsOf, type UniformOp, uniformFamilies } from "../ir/opFacts.js";
import type { OpName, OpParams } from "../ir/ops.js";
import { at, formatType, range } from "../ir/shape.js";
import { bind, bind1 } from "./builder.js";
import * as math from "./complexMath.js";
import type { ExecutionTarget } from "./executionTarget.js";
import { type Parts, Tensor } from "./tensor.js";

/** How an op works when some of its operands are complex. */
type ComplexRule<K extends OpName> = (
  ins: readonly Tensor[],
  params: OpParams[K],
  op: K,
  target: ExecutionTarget | undefined,
) => Tensor[];

const none = {};

/** Both parts of an operand, which must be complex. */
function partsOf(x: Tensor, op: OpName): Parts {
  if (x.parts) return x.parts;
  throw new DTypeError(
    `[${op}] needs all operands to be complex, but one is ${formatType(x.type)}: convert it with astype("complex64")`,
  );
}

const joined = ([real, imag]: Parts): Tensor => Tensor.complex(...aligned([real, imag] as const));

/** Tensors of one shape: scalar constants among them are repeated. */
function aligned<T extends readonly Tensor[]>(tensors: T): T {
  const shape = tensors.find((x) => x.ndim > 0)?.shape ?? [];
  const spread = tensors.map((x) =>
    shape.length > 0 && x.node.kind === "literal" ? bind1("broadcastInDim", [x], { shape, dims: [] }) : x,
  );
  return spread as readonly Tensor[] as T;
}

/** An op that does the same to both parts; operands that are not complex are given to both. */
const partwise: ComplexRule<OpName> = (ins, params, op, target) => {
  const dtypes = new Set(ins.flatMap((x) => (x.parts ? [x.dtype] : [])));
  if (dtypes.size > 1) {
    throw new DTypeError(`[${op}] operands must have the same data type, got ${[...dtypes].join(" and ")}`);
  }
  const [real, imag] = ([0, 1] as const).map((k) =>
    bind(
      op,
      ins.map((x) => x.parts?.[k] ?? x),
      params,
      target,
    ),
  );
  return (real ?? []).map((x, i) => Tensor.complex(x, at(imag ?? [], i)));
};

/** An op whose operands from `first` to `last` are numbers, which must all be complex. */
const together =
  (first: number, last: number): ComplexRule<OpName> =>
  (ins, params, op, target) => {
    for (const x of ins.slice(first, last + 1)) partsOf(x, op);
    return partwise(ins, params, op, target);
  };
const everywhere = together(0, Number.POSITIVE_INFINITY);

const unary =
  (fn: (z: Parts) => Parts): ComplexRule<OpName> =>
  (ins, _, op) => [joined(fn(partsOf(at(ins, 0), op)))];

/** Operands of one data type; a constant is repeated. */
function pairOf(ins: readonly Tensor[], op: OpName): readonly [Parts, Parts] {
  const [x, y] = [at(ins, 0), at(ins, 1)];
  const [z, w] = [partsOf(x, op), partsOf(y, op)];
  if (x.dtype === y.dtype) return [z, w];
  throw new DTypeError(`[${op}] operands must have the same data type, got ${x.dtype} and ${y.dtype}`);
}

const binary =
  (fn: (z: Parts, w: Parts) => Parts): ComplexRule<OpName> =>
  (ins, _, op) => [joined(fn(...pairOf(ins, op)))];

/** For functions that compute with each operand alone before they combine both. */
const spelled = (fn: (z: Parts, w: Parts) => Parts): ComplexRule<OpName> =>
  binary((z, w) => {
    const [a, b, c, d] = aligned([...z, ...w] as const);
    return fn([a, b], [c, d]);
  });

const unsupported =
  (why: string): ComplexRule<OpName> =>
  (ins, _, op) => {
    const given = ins.find((x) => x.parts) ?? ins[0];
    throw new DTypeError(
      `[${op}] ${why}${given ? `, got ${formatType(given.type)}` : ""}: use x.real, x.imag or np.abs(x)`,
    );
  };
const ofReals = unsupported("is not defined for complex numbers");
const ofBits = unsupported("works on bits, not on complex numbers");
const takenApart = unsupported("is given complex numbers as their parts");

/** The rule of ops without one for complex numbers. */
const refused: ComplexRule<UniformOp> = (ins, params, op, target) => {
  const { on } = opFacts[op];
  return (on === "bits" || on === "integer" ? ofBits : ofReals)(ins, params, op, target);
};

/** The larger or the smaller of both; NaN wins. */
const extreme = (direction: "gt" | "lt") =>
  spelled((z, w) => {
    const isNan = (x: Parts) => math.compared("ne", x, x);
    const wins = bind1("or", [math.compared(direction, z, w), isNan(z)], none);
    return [bind1("select", [wins, z[0], w[0]], none), bind1("select", [wins, z[1], w[1]], none)];
  });

/** The extreme real part, and among the elements that have it the extreme imaginary part. */
const reduceExtreme: ComplexRule<"reduceMax" | "reduceMin"> = (ins, { dims }, op) => {
  const [a, b] = partsOf(at(ins, 0), op);
  const real = bind1(op, [a], { dims });
  const kept = range(a.ndim).filter((d) => !dims.includes(d));
  const spread = bind1("broadcastInDim", [real], { shape: a.shape, dims: kept });
  const never = op === "reduceMax" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const among = bind1("compare", [a, spread], { direction: "eq" });
  const rest = bind1("select", [among, b, Tensor.scalar(never, b.dtype)], none);
  const imag = bind1(op, [rest], { dims });
  const isNan = bind1("compare", [real, real], { direction: "ne" });
  return [Tensor.complex(real, bind1("select", [isNan, real, imag], none))];
};

const convert: ComplexRule<"convert"> = (ins, { dtype }) => {
  const x = at(ins, 0);
  const to = (part: Tensor) =>
    part.dtype === partType(dtype) ? part : bind1("convert", [part], { dtype: partType(dtype) });
  if (isComplex(dtype)) {
    if (x.parts) return [Tensor.complex(to(x.parts[0]), to(x.parts[1]))];
    const real = to(x);
    const zero = Tensor.scalar(0, real.dtype);
    const imag = x.ndim === 0 ? zero : bind1("broadcastInDim", [zero], { shape: x.shape, dims: [] });
    return [Tensor.complex(real, imag)];
  }
  const [a, b] = partsOf(x, "convert");
  return [dtype === "bool" ? bind1("or", [to(a), to(b)], none) : to(a)];
};

/** Four products of parts. */
function products(
  [[a, b], [c, d]]: ReturnType<typeof pairOf>,
  product: (x: Tensor, y: Tensor) => Tensor,
): Tensor[] {
  const real = bind1("sub", [product(a, c), product(b, d)], none);
  return [Tensor.complex(real, bind1("add", [product(a, d), product(b, c)], none))];
}

const dotGeneral: ComplexRule<"dotGeneral"> = (ins, params, op) =>
  products(pairOf(ins, op), (x, y) => bind1(op, [x, y], { ...params, dtype: partType(params.dtype) }));

const raggedDot: ComplexRule<"raggedDot"> = (ins, params, op) =>
  products(pairOf(ins.slice(0, 2), op), (x, y) =>
    bind1(op, [x, y, ...ins.slice(2)], { ...params, dtype: partType(params.dtype) }),
  );

/** Keys are compared by real parts first, then by imaginary parts. */
const sort: ComplexRule<"sort"> = (ins, { dim, numKeys }, op) => {
  const keys = ins.slice(0, numKeys).flatMap((x) => x.parts ?? [x]);
  const carried = ins.slice(numKeys).flatMap((x) => x.parts ?? [x]);
  return regrouped(ins, bind(op, [...keys, ...carried], { dim, numKeys: keys.length }));
};

/** Results with the types of the operands, whose complex ones were passed as their parts. */
function regrouped(ins: readonly Tensor[], outs: readonly Tensor[]): Tensor[] {
  let next = 0;
  return ins.map((x) => {
    const first = at(outs, next++);
    return x.parts ? Tensor.complex(first, at(outs, next++)) : first;
  });
}

const complexRules: { readonly [K in OpName]: ComplexRule<K> } = {
  ...rowsOf(uniformFamilies, refused),
  neg: everywhere,
  exp: unary(math.exponential),
  expm1: unary(math.exponentialLess1),
  log: unary(math.log),
  log1p: unary(math.logOf1More),
  tanh: unary(math.tanh),
  sin: unary(math.sin),
  cos: unary(math.cos),
  sqrt: unary(math.sqrt),
  rsqrt: unary((z) => math.div([like(z[0], 1), like(z[0], 0)], math.sqrt(z))),
  abs: (ins, _, op) => [math.abs(partsOf(at(ins, 0), op))],
  sign: unary(math.sign),
  // (1 + tanh(z / 2)) / 2 does not overflow.
  logistic: unary(([a, b]) => {
    const half = (x: Tensor) => bind1("mul", [x, like(x, 0.5)], none);
    const [real, imag] = math.tanh([half(a), half(b)]);
    return [half(bind1("add", [real, like(real, 1)], none)), half(imag)];
  }),
  isFinite: (ins, _, op) => {
    const [a, b] = partsOf(at(ins, 0), op);
    return [bind1("and", [bind1(op, [a], none), bind1(op, [b], none)], none)];
  },
  convert,
  bitcast: ofBits,
  xlaFunction: ofReals,
  roundFloat8: ofReals,

  add: binary(math.add),
  sub: binary(math.sub),
  mul: binary(math.mul),
  div: (ins, params, op, target) => {
    const isByReal = math.isLiteralZero(pairOf(ins, op)[1][1]);
    return (isByReal ? binary : spelled)(math.div)(ins, params, op, target);
  },
  pow: spelled(math.pow),
  atan2: spelled(math.atan2),
  max: extreme("gt"),
  min: extreme("lt"),
  compare: (ins, { direction }, op) => [math.compared(direction, ...pairOf(ins, op))],
  select: together(1, 2),
  clamp: ofReals,
  threefry2x32: ofBits,
  name: partwise,
  stopGradient: partwise,
  pvary: partwise,
  optimizationBarrier: (ins, params, op) =>
    regrouped(
      ins,
      bind(
        op,
        ins.flatMap((x) => x.parts ?? [x]),
        params,
      ),
    ),

  iota: (_, params, op) => {
    const count = bind1(op, [], { ...params, dtype: partType(params.dtype) });
    return convert([count], { dtype: complexType(params.dtype) }, "convert", undefined);
  },
  broadcastInDim: partwise,
  reshape: partwise,
  transpose: partwise,
  reverse: partwise,
  slice: partwise,
  pad: everywhere,
  concatenate: everywhere,
  dynamicSlice: partwise,
  dynamicUpdateSlice: together(0, 1),
  gather: partwise,
  scatter: (ins, params, op, target) => {
    partsOf(at(ins, 2), op);
    return together(0, 0)(ins, params, op, target);
  },

  reduceSum: partwise,
  reduceMax: reduceExtreme,
  reduceMin: reduceExtreme,
  argmax: ofReals,
  argmin: ofReals,
  cumsum: partwise,
  sort,
  dotGeneral,
  raggedDot,
  attention: ofReals,
  attentionBackward: ofReals,

  callback: takenApart,
  ...rowsOf(["control", "call"], takenApart),

  psum: partwise,
  pmax: ofReals,
  pmin: ofReals,
  allGather: partwise,
  psumScatter: partwise,
  ppermute: partwise,
  allToAll: partwise,
  raggedAllToAll: ([x, into, ...tables], params, op) => {
    const [[a, b], [c, d]] = pairOf(
      [x, into].filter((one) => one !== undefined),
      op,
    );
    const move = (from: Tensor, to: Tensor) => bind1(op, [from, to, ...tables], params);
    return [Tensor.complex(move(a, c), move(b, d))];
  },
  axisIndex: takenApart,

  shardMap: takenApart,
  shardingConstraint: partwise,
};

const like = (x: Tensor, value: number) => Tensor.scalar(value, x.dtype);

/** {@link bind} for operands and results that may be complex. */
export function bindParts<K extends OpName>(
  op: K,
  ins: readonly Tensor[],
  params: OpParams[K],
  target?: ExecutionTarget,
): Tensor[] {
  if (!asksForParts(params) && !(Array.isArray(ins) && ins.some(hasParts)))
    return bind(op, ins, params, target);
  const rules: { readonly [P in OpName]: ComplexRule<P> } = complexRules;
  return rules[op](ins, params, op, target);
}

/** Whether an op should produce complex numbers. Parameters may come from users, unchecked. */
function asksForParts(params: unknown): boolean {
  if (typeof params !== "object" || params === null || !("dtype" in params)) return false;
  return params.dtype === "complex64" || params.dtype === "complex128";
}

/** Operands may come from users, unchecked, and need not be tensors. */
function hasParts(x: unknown): boolean {
  return x instanceof Tensor && x.parts !== undefined;
}
