import { byteSize, isFloat } from "./dtype.js";
import type { OpName } from "./ops.js";
import type { Atom, Eqn } from "./program.js";
import { at, sizeOf } from "./shape.js";

/**
 * What an op does with the elements of its operands. `unary` and `binary` ops, and other `elementwise` ones, work on
 * each element separately; `movement` rearranges elements; `along` works along one dim; `control` and `call` run
 * programs; `collective` ops talk to other devices and `position` asks where this one is; `host` calls JavaScript.
 */
export type Family =
  | "unary"
  | "binary"
  | "elementwise"
  | "barrier"
  | "source"
  | "movement"
  | "indexing"
  | "reduction"
  | "along"
  | "contraction"
  | "control"
  | "call"
  | "collective"
  | "position"
  | "host"
  | "sharding";

/** The data types that an op is defined for: `bits` are integers and bool. */
export type Domain = "float" | "number" | "integer" | "bits" | "any";

/**
 * How long one element of an elementwise op takes: `trivial` less than reading it from memory, `short` a few
 * instructions, `long` a polynomial or a division, `heavy` a loop of them.
 */
export type Price = "trivial" | "short" | "long" | "heavy";

/**
 * The stages of a program:
 *
 * - `traced`: what tracing and transforms produce, over whole tensors; any op.
 * - `partitioned`: what every device runs and an engine compiles. Both views of a mesh have become collectives, and
 *   calls, which only transforms need, are inlined: no `shardMap`, `shardingConstraint`, `remat`, `customVjp`, `pvary`.
 * - `lowered`: the small language of the compiler's later passes. In addition, no identities (`name`, `stopGradient`,
 *   `optimizationBarrier`), no `clamp`, `xlaFunction` or `roundFloat8`, and `attention` only where one kernel computes it; 16-bit floats are summed and multiplied in a
 *   wider type, or give float32 as products of bfloat16, integers are not multiplied as matrices, and `allToAll` works
 *   along dim 0.
 */
export type Stage = "traced" | "partitioned" | "lowered";

/** The floating-point operations of an equation. */
type Flops<K extends OpName> = (eqn: Eqn<K>) => number;

/** The operand in which an equation is linear while the others are fixed, if there is one. */
type Linear<K extends OpName> = (eqn: Eqn<K>, isZero: (atom: Atom) => boolean) => number | undefined;

/** What every floor may know about an op without knowing what it computes. */
export interface OpFacts<K extends OpName> {
  readonly family: Family;
  readonly flops: Flops<K>;
  readonly linear: Linear<K>;
  /** Whether equal equations may be computed once. */
  readonly merges: boolean;
  /** Whether a result is cheap to recompute from something smaller, so that it is not worth keeping. */
  readonly remade: boolean;
  /** The last stage whose programs may hold it. */
  readonly until: Stage;
}

/** Further facts of an op that works on each element separately. */
interface ElementwiseFacts<K extends OpName> extends OpFacts<K> {
  readonly price: Price;
  /** Whether a result is exact in a narrow type whenever the operands are; such an op never turns numbers into NaN. */
  readonly exact: boolean;
}

/** Further facts of an op whose operands and result have one type. */
interface UniformFacts<K extends OpName> extends ElementwiseFacts<K> {
  readonly on: Domain;
}

/** Further facts of an op that communicates with other devices. */
interface CollectiveFacts<K extends OpName> extends OpFacts<K> {
  /** The bytes that each of n devices sends in the usual ring algorithm when each contributes `bytes` bytes. */
  readonly sends: (bytes: number, n: number) => number;
}

type AnyFacts<K extends OpName> =
  | (UniformFacts<K> & { readonly family: "unary" | "binary" })
  | (ElementwiseFacts<K> & { readonly family: "elementwise" })
  | (CollectiveFacts<K> & { readonly family: "collective" })
  | (OpFacts<K> & { readonly family: Exclude<Family, "unary" | "binary" | "elementwise" | "collective"> });

type Values = Pick<Eqn, "ins" | "outs">;

const none = () => 0;
const perResult = ({ outs }: Values) => outs.reduce((n, { type }) => n + sizeOf(type.shape), 0);
const perOperand = ({ ins }: Values) => sizeOf(at(ins, 0).type.shape);
const perProduct = ({ ins, outs, params }: Eqn<"dotGeneral">) => {
  const { shape } = at(ins, 0).type;
  return 2 * perResult({ ins, outs }) * params.lhsContract.reduce((n, d) => n * at(shape, d), 1);
};
/** Every row is in one group at most. */
const perRow = ({ ins }: Values) => {
  const [, columns = 0] = at(ins, 1).type.shape.slice(-2);
  return 2 * sizeOf(at(ins, 0).type.shape) * columns;
};
/** The matrix products of attention: two in the forward pass, five in the backward pass, of the keys that are seen. */
const perScore =
  (products: number) =>
  ({ ins, params }: Pick<Eqn<"attention" | "attentionBackward">, "ins" | "params">) => {
    const { causal, window: [before, after] = [-1, -1], extras } = params;
    const [batch = 0, length = 0, heads = 0, headSize = 0] = at(ins, 0).type.shape;
    const [keyLength = 0] = at(ins, 1).type.shape.slice(1);
    const ahead = causal ? 0 : after;
    let pairs = 0;
    for (let t = 0; t < length; t++) {
      const end = ahead < 0 ? keyLength : Math.min(keyLength, t + ahead + 1);
      pairs += Math.max(0, end - (before < 0 ? 0 : Math.max(0, t - before)));
    }
    const seen = extras?.includes("queryPositions") ? length * keyLength : pairs;
    return 2 * products * batch * heads * headSize * seen;
  };
const perUpdate = ({ ins, params }: Eqn<"scatter">) =>
  params.combine === "add" ? sizeOf(at(ins, 2).type.shape) : 0;

type IsZero = (atom: Atom) => boolean;

const never = () => undefined;
const always = () => 0;
/** Linear in one operand where another is zero. */
const where = (zero: number, operand: number) => (eqn: Values, isZero: IsZero) =>
  isZero(at(eqn.ins, zero)) ? operand : undefined;
const whereEitherIsZero = ({ ins }: Values, isZero: IsZero) => {
  const zero = ins.findIndex(isZero);
  return zero < 0 ? undefined : 1 - zero;
};
/** In the wider type a sum is rounded less. */
const whereWider = ({ ins, params }: Eqn<"convert">) => {
  const [from, to] = [at(ins, 0).type.dtype, params.dtype];
  return isFloat(from) && isFloat(to) && byteSize(from) < byteSize(to) ? 0 : undefined;
};
const whereAdded = (eqn: Eqn<"scatter">, isZero: IsZero) =>
  eqn.params.combine === "add" ? where(0, 2)(eqn, isZero) : undefined;

const plain = { flops: none, linear: never, merges: true, remade: false, until: "lowered" } as const;
const unary = { ...plain, family: "unary", flops: perResult, exact: false } as const;
const binary = { ...plain, family: "binary", flops: perResult, exact: false } as const;
const elementwise = { ...plain, family: "elementwise", flops: perResult, exact: false } as const;
const movement = { ...plain, family: "movement" } as const;
const indexing = { ...plain, family: "indexing" } as const;
const reduction = { ...plain, family: "reduction", flops: perOperand } as const;
const along = { ...plain, family: "along", flops: perOperand } as const;
const control = { ...plain, family: "control", merges: false } as const;
const call = { ...plain, family: "call", merges: false, until: "traced" } as const;
const sharding = { ...plain, family: "sharding", until: "traced" } as const;
const collective = { ...plain, family: "collective", merges: false } as const;

const onceAround = (bytes: number, n: number) => (bytes * (n - 1)) / n;
const twiceAround = (bytes: number, n: number) => (2 * bytes * (n - 1)) / n;
const toAllOthers = (bytes: number, n: number) => bytes * (n - 1);
const toOne = (bytes: number) => bytes;

/** The facts of every op, independent of any engine. */
export const opFacts = {
  neg: { ...unary, on: "number", price: "trivial", exact: true, linear: always },
  exp: { ...unary, on: "float", price: "long" },
  expm1: { ...unary, on: "float", price: "long" },
  log: { ...unary, on: "float", price: "long" },
  log1p: { ...unary, on: "float", price: "long" },
  tanh: { ...unary, on: "float", price: "long" },
  sin: { ...unary, on: "float", price: "heavy" },
  cos: { ...unary, on: "float", price: "heavy" },
  sqrt: { ...unary, on: "float", price: "short" },
  rsqrt: { ...unary, on: "float", price: "short" },
  cbrt: { ...unary, on: "float", price: "long" },
  abs: { ...unary, on: "number", price: "trivial", exact: true },
  sign: { ...unary, on: "number", price: "short", exact: true },
  floor: { ...unary, on: "float", price: "short", exact: true },
  ceil: { ...unary, on: "float", price: "short", exact: true },
  round: { ...unary, on: "float", price: "short", exact: true },
  erf: { ...unary, on: "float", price: "long" },
  erfInv: { ...unary, on: "float", price: "heavy" },
  logistic: { ...unary, on: "float", price: "long" },
  not: { ...unary, on: "bits", price: "trivial" },

  add: { ...binary, on: "number", price: "trivial", linear: whereEitherIsZero },
  sub: { ...binary, on: "number", price: "trivial" },
  mul: { ...binary, on: "number", price: "trivial" },
  div: { ...binary, on: "number", price: "long" },
  rem: { ...binary, on: "number", price: "heavy" },
  pow: { ...binary, on: "number", price: "heavy" },
  max: { ...binary, on: "any", price: "trivial", exact: true },
  min: { ...binary, on: "any", price: "trivial", exact: true },
  and: { ...binary, on: "bits", price: "trivial" },
  or: { ...binary, on: "bits", price: "trivial" },
  xor: { ...binary, on: "bits", price: "trivial" },
  shl: { ...binary, on: "integer", price: "short" },
  shrLogical: { ...binary, on: "integer", price: "short" },
  shrArithmetic: { ...binary, on: "integer", price: "short" },
  atan2: { ...binary, on: "float", price: "heavy" },

  isFinite: { ...elementwise, price: "short" },
  convert: { ...elementwise, price: "trivial", linear: whereWider },
  bitcast: { ...elementwise, price: "short", exact: true, flops: none },
  xlaFunction: { ...elementwise, price: "heavy", until: "partitioned" },
  roundFloat8: { ...elementwise, price: "long", until: "partitioned" },
  compare: { ...elementwise, price: "trivial" },
  select: { ...elementwise, price: "trivial", exact: true },
  clamp: { ...elementwise, price: "short", until: "partitioned" },
  threefry2x32: { ...elementwise, price: "heavy" },
  name: { ...elementwise, price: "short", flops: none, merges: false, until: "partitioned" },
  stopGradient: { ...elementwise, price: "short", flops: none, until: "partitioned" },
  pvary: { ...elementwise, price: "short", flops: none, remade: true, until: "traced" },
  optimizationBarrier: { ...plain, family: "barrier", merges: false, until: "partitioned" },

  iota: { ...plain, family: "source", remade: true },
  broadcastInDim: { ...movement, linear: always, remade: true },
  reshape: { ...movement, linear: always },
  transpose: { ...movement, linear: always },
  reverse: { ...movement, linear: always },
  slice: { ...movement, linear: always },
  pad: { ...movement, linear: where(1, 0) },
  concatenate: movement,
  dynamicSlice: movement,
  dynamicUpdateSlice: { ...movement, linear: where(0, 1) },
  gather: indexing,
  scatter: { ...indexing, flops: perUpdate, linear: whereAdded },

  reduceSum: { ...reduction, linear: always },
  reduceMax: reduction,
  reduceMin: reduction,
  argmax: along,
  argmin: along,
  cumsum: along,
  sort: { ...along, flops: none },
  dotGeneral: { ...plain, family: "contraction", flops: perProduct },
  raggedDot: { ...plain, family: "contraction", flops: perRow },
  attention: { ...plain, family: "contraction", flops: perScore(2) },
  attentionBackward: { ...plain, family: "contraction", flops: perScore(5) },

  callback: { ...plain, family: "host", merges: false },

  scan: control,
  while: control,
  cond: control,
  remat: call,
  customVjp: call,

  psum: { ...collective, sends: twiceAround },
  pmax: { ...collective, sends: twiceAround },
  pmin: { ...collective, sends: twiceAround },
  allGather: { ...collective, sends: toAllOthers },
  psumScatter: { ...collective, sends: onceAround },
  ppermute: { ...collective, sends: toOne },
  allToAll: { ...collective, sends: onceAround },
  raggedAllToAll: { ...collective, sends: onceAround },
  axisIndex: { ...plain, family: "position" },

  shardMap: { ...sharding, merges: false },
  shardingConstraint: sharding,
} as const satisfies { readonly [K in OpName]: AnyFacts<K> };

type Facts = typeof opFacts;

/** The ops that programs of the last stage may hold. */
export type LoweredOp = { [K in keyof Facts]: Facts[K]["until"] extends "lowered" ? K : never }[keyof Facts];

/** The ops of some families. */
export type OpsOf<F extends Family> = {
  [K in keyof Facts]: Facts[K]["family"] extends F ? K : never;
}[keyof Facts];

/** Elementwise ops of one operand whose result has the operand's type. */
export type UnaryOp = OpsOf<"unary">;
/** Elementwise ops of two operands of one type whose result has that type. */
export type BinaryOp = OpsOf<"binary">;
/** Elementwise ops of one type, without parameters. */
export type UniformOp = UnaryOp | BinaryOp;
/** Every op that works on each element separately. */
export type ElementwiseOp = OpsOf<"unary" | "binary" | "elementwise">;
/** Ops that only rearrange elements. */
export type MovementOp = OpsOf<"movement">;
/** Ops that reduce whole dimensions. */
export type ReduceOp = OpsOf<"reduction">;
/** Ops that decide when and how often the programs inside them run. */
export type ControlOp = OpsOf<"control">;
/** Ops that communicate with other devices. */
export type CollectiveOp = OpsOf<"collective">;

/** The facts of an op whose name is known only at run time. */
export function factsOf<K extends OpName>(op: K): OpFacts<K> {
  const facts: { readonly [P in OpName]: OpFacts<P> } = opFacts;
  return facts[op];
}

/** The floating-point operations of an equation, without those of programs inside it. */
export function flopsOf<K extends OpName>(eqn: Eqn<K>): number {
  const { op }: { readonly op: K } = eqn;
  return factsOf(op).flops(eqn);
}

/** The operand in which an equation is linear while the others are fixed, if there is one. */
export function linearOperand<K extends OpName>(
  eqn: Eqn<K>,
  isZero: (atom: Atom) => boolean,
): number | undefined {
  const { op }: { readonly op: K } = eqn;
  return factsOf(op).linear(eqn, isZero);
}

/** The ops of some families in the order of the table. */
export function opsOf<F extends Family>(...families: readonly F[]): readonly OpsOf<F>[] {
  const isOne = (op: OpName): op is OpsOf<F> => families.some((family) => family === opFacts[op].family);
  return Object.keys(opFacts).filter(isOpName).filter(isOne);
}

/**
 * One row for every op of some families, to be spread at the beginning of a table: rows that differ follow it, and the
 * type checker still demands those of ops in no such family.
 */
export function rowsOf<F extends Family, const Row>(families: readonly F[], row: Row): OpRows<F, Row> {
  return rowsBy(families, () => row);
}

/** {@link rowsOf} where rows are computed from the ops' names. */
export function rowsBy<F extends Family, Row>(
  families: readonly F[],
  row: (op: OpsOf<F>) => Row,
): OpRows<F, Row> {
  // Object.fromEntries loses the types of the keys.
  return Object.fromEntries(opsOf(...families).map((op) => [op, row(op)])) as OpRows<F, Row>;
}

/** A table with a row for every op of some families. */
export type OpRows<F extends Family, Row> = { readonly [K in OpsOf<F>]: Row };

/** The families of ops that work on each element separately. */
export const elementwiseFamilies = ["unary", "binary", "elementwise"] as const satisfies readonly Family[];
/** Those of them whose operands and result have one type, and that have no parameters. */
export const uniformFamilies = ["unary", "binary"] as const satisfies readonly Family[];

/** Whether there is an op of this name. */
export function isOpName(name: string): name is OpName {
  return Object.hasOwn(opFacts, name);
}

/** Whether the op works on each element separately. */
export function isElementwise(op: OpName): op is ElementwiseOp {
  const { family } = opFacts[op];
  return family === "unary" || family === "binary" || family === "elementwise";
}

/** Whether the op communicates with other devices. */
export function isCollective(op: OpName): op is CollectiveOp {
  return opFacts[op].family === "collective";
}

/** Whether the equation works on each element separately. */
export function isElementwiseEqn(eqn: Eqn): eqn is Eqn<ElementwiseOp> {
  return isElementwise(eqn.op);
}

/** Whether the equation reduces whole dimensions. */
export function isReduction(eqn: Eqn): eqn is Eqn<ReduceOp> {
  return opFacts[eqn.op].family === "reduction";
}

/** Whether the equation is a host callback. */
export function isHostEqn(eqn: Eqn): eqn is Eqn<OpsOf<"host">> {
  return opFacts[eqn.op].family === "host";
}

/** Whether the equation decides when and how often the programs inside it run. */
export function isControlEqn(eqn: Eqn): eqn is Eqn<ControlOp> {
  return opFacts[eqn.op].family === "control";
}

/** Whether the equation itself communicates with other devices. */
export function isCollectiveEqn(eqn: Eqn): eqn is Eqn<CollectiveOp> {
  return isCollective(eqn.op);
}
