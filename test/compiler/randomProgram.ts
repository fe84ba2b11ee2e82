import type { HostFunction } from "../../src/ir/callbacks.js";
import {
  type DType,
  dtypes,
  isFloat,
  isInteger,
  isUnsigned,
  signedOf,
  unsignedOf,
} from "../../src/ir/dtype.js";
import { inferTypes } from "../../src/ir/infer/infer.js";
import { isInDomain } from "../../src/ir/infer/inferChecks.js";
import type { MeshAxis } from "../../src/ir/mesh.js";
import { opFacts, opsOf } from "../../src/ir/opFacts.js";
import type { CallbackKind, CompareDirection, OpName, OpParams } from "../../src/ir/ops.js";
import {
  type Atom,
  type Eqn,
  makeEqn,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "../../src/ir/program.js";
import { at, range, type Shape, sizeOf, type TensorType, tensorType } from "../../src/ir/shape.js";
import { type UnaryRecord, unaryOps } from "../support/unaryOps.js";

/** A stream of random numbers that a seed determines. */
export class Random {
  constructor(private state: number) {}

  /** A number in [0, 1). */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let t = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }

  /** An integer in [0, n). */
  below(n: number): number {
    return Math.floor(this.next() * n);
  }

  pick<T>(list: readonly T[]): T {
    return at(list, this.below(list.length));
  }

  chance(p: number): boolean {
    return this.next() < p;
  }
}

/** How a random program is made. */
export interface RandomProgramOptions {
  readonly seed: number;
  readonly numEqns: number;
  readonly axes?: readonly MeshAxis[];
  readonly types?: readonly DType[];
  /** Host callbacks from a tensor to one of its type, by their kind; none by default. */
  readonly callbacks?: { readonly [K in CallbackKind]?: readonly HostFunction[] };
}

/**
 * How far a value is from its inputs: values below the limit are exact in every type, so ops that jump (compare,
 * floor, sort, …) may read them; all others differ in their last bits between engines.
 */
const EXACT_LIMIT = 6;

class Maker {
  readonly eqns: Eqn[] = [];
  readonly pool: Var[] = [];
  readonly level = new Map<number, number>();

  constructor(
    readonly random: Random,
    readonly options: RandomProgramOptions,
    readonly depth: number,
  ) {}

  add(value: Var, level: number): Var {
    this.pool.push(value);
    this.level.set(value.id, level);
    return value;
  }

  levelOf(atom: Atom): number {
    return atom.kind === "literal" ? 0 : (this.level.get(atom.id) ?? 0);
  }

  emit<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K], level: number): Var[] {
    const types = inferTypes(op, ins, params);
    const outs = types.map((type) => newVar(type));
    this.eqns.push(makeEqn(op, ins, outs, params) as Eqn);
    for (const out of outs) this.add(out, level);
    return outs;
  }

  any(fits: (v: Var) => boolean = () => true): Var | undefined {
    const found = this.pool.filter(fits);
    // Recent values are likelier, so that chains grow.
    return found.length === 0
      ? undefined
      : at(found, Math.floor(Math.sqrt(this.random.next()) * found.length));
  }

  isExact(v: Var): boolean {
    return this.levelOf(v) <= EXACT_LIMIT;
  }

  literal(dtype: DType): Atom {
    const value = isFloat(dtype) ? this.random.below(17) / 4 - 2 : this.random.below(7) - 3;
    return newLiteral(isUnsigned(dtype) ? Math.abs(value) : dtype === "bool" ? value > 0 : value, dtype);
  }

  sameType(type: TensorType): Atom {
    const other = this.any((v) => v.type.dtype === type.dtype && v.type.shape.join() === type.shape.join());
    return other && this.random.chance(0.8) ? other : this.literal(type.dtype);
  }

  index(): Atom {
    const scalar = this.any((v) => v.type.dtype === "int32" && v.type.shape.length === 0 && this.isExact(v));
    return scalar && this.random.chance(0.5) ? scalar : newLiteral(this.random.below(5) - 1, "int32");
  }

  step(): void {
    const { random } = this;
    const x = this.any();
    if (!x) return;
    const all = this.options.callbacks ? makersWithCallbacks : makers;
    const maker = random.pick(this.depth > 0 ? simpleMakers : all);
    maker(this, x);
  }
}

type StepMaker = (m: Maker, x: Var) => void;

const unaryWith = (course: UnaryRecord["course"]) =>
  opsOf("unary").filter((op) => unaryOps[op].course === course);
/** Ops with poles, ends, infinite slopes or jumps, where the last bits of an operand decide everything. */
const STEEP = new Set<OpName>([...unaryWith("jumps"), ...unaryWith("steep"), "rem", "div", "pow", "atan2"]);

const makers: StepMaker[] = [];
const simpleMakers: StepMaker[] = [];

function simple(weight: number, maker: StepMaker): void {
  for (let i = 0; i < weight; i++) {
    makers.push(maker);
    simpleMakers.push(maker);
  }
}

simple(6, (m, x) => {
  const { dtype } = x.type;
  const ops = opsOf("unary").filter(
    (op) => isInDomain(dtype, opFacts[op].on) && (!isFloat(dtype) || !STEEP.has(op) || m.isExact(x)),
  );
  const op = m.random.pick(ops);
  const keeps = opFacts[op].exact || !isFloat(dtype);
  m.emit(op, [x], {}, keeps ? m.levelOf(x) : 100);
});

simple(10, (m, x) => {
  const { dtype } = x.type;
  const ops = opsOf("binary").filter((op) => {
    const isBits = op === "and" || op === "or" || op === "xor";
    const isShift = op === "shl" || op === "shrLogical" || op === "shrArithmetic";
    if (dtype === "bool") return isBits || op === "max" || op === "min";
    if (isInteger(dtype)) return op !== "atan2";
    return !isBits && !isShift && (!STEEP.has(op) || m.isExact(x));
  });
  const op = m.random.pick(ops);
  const y = m.sameType(x.type);
  if (STEEP.has(op) && isFloat(dtype) && m.levelOf(y) > EXACT_LIMIT) return;
  const [a, b] = [m.levelOf(x), m.levelOf(y)];
  const isCheap = ["add", "sub", "max", "min"].includes(op) || !isFloat(dtype);
  const level = isFloat(dtype)
    ? isCheap
      ? Math.max(a, b) + 1
      : op === "mul"
        ? a + b + 1
        : 100
    : Math.max(a, b);
  m.emit(op, m.random.chance(0.5) || op === "pow" ? [x, y] : [y, x], {}, level);
});

simple(3, (m, x) => {
  const y = m.sameType(x.type);
  if (isFloat(x.type.dtype) && (!m.isExact(x) || m.levelOf(y) > EXACT_LIMIT)) return;
  const direction = m.random.pick(["eq", "ne", "lt", "le", "gt", "ge"] as const satisfies CompareDirection[]);
  m.emit("compare", [x, y], { direction }, 0);
});

simple(3, (m, x) => {
  const shape = x.type.shape.join();
  const mask = m.any((v) => v.type.dtype === "bool" && v.type.shape.join() === shape);
  if (!mask) return;
  const y = m.sameType(x.type);
  m.emit("select", [mask, x, y], {}, Math.max(m.levelOf(x), m.levelOf(y)));
});

simple(1, (m, x) => {
  if (x.type.dtype === "bool") return;
  const [low, high] = [m.literal(x.type.dtype), m.literal(x.type.dtype)];
  m.emit("clamp", [low, x, high], {}, m.levelOf(x));
});

simple(3, (m, x) => {
  const dtype = m.random.pick(m.options.types ?? dtypes);
  if (isFloat(x.type.dtype) && !isFloat(dtype) && !m.isExact(x)) return;
  m.emit("convert", [x], { dtype }, isFloat(x.type.dtype) && !m.isExact(x) ? 100 : m.levelOf(x) + 1);
});

simple(1, (m, x) => {
  if (!isFloat(x.type.dtype)) return;
  if (m.isExact(x)) m.emit("isFinite", [x], {}, 0);
});

simple(1, (m, x) => {
  if (x.type.dtype === "float32" && m.isExact(x)) m.emit("bitcast", [x], { dtype: "int32" }, 0);
  if (isInteger(x.type.dtype)) {
    const { dtype } = x.type;
    m.emit("bitcast", [x], { dtype: isUnsigned(dtype) ? signedOf(dtype) : unsignedOf(dtype) }, m.levelOf(x));
  }
});

simple(5, (m, x) => {
  const { shape } = x.type;
  if (shape.length > 3) return;
  const target: number[] = [];
  const dims: number[] = [];
  shape.forEach((n) => {
    while (m.random.chance(0.4) && target.length + shape.length - dims.length < 4)
      target.push(1 + m.random.below(4));
    dims.push(target.length);
    target.push(n === 1 ? 1 + m.random.below(4) : n);
  });
  while (m.random.chance(0.4) && target.length < 4) target.push(1 + m.random.below(5));
  if (sizeOf(target) <= 400) m.emit("broadcastInDim", [x], { shape: target, dims }, m.levelOf(x));
});

simple(4, (m, x) => {
  const shape: number[] = [];
  let rest = sizeOf(x.type.shape);
  for (const n of [2, 3, 4, 5]) {
    if (rest % n === 0 && m.random.chance(0.5) && shape.length < 3) {
      shape.push(n);
      rest /= n;
    }
  }
  shape.splice(m.random.below(shape.length + 1), 0, rest);
  m.emit("reshape", [x], { shape }, m.levelOf(x));
});

simple(4, (m, x) => {
  const order = range(x.type.shape.length);
  for (let i = order.length - 1; i > 0; i--) {
    const j = m.random.below(i + 1);
    [order[i], order[j]] = [at(order, j), at(order, i)];
  }
  m.emit("transpose", [x], { permutation: order }, m.levelOf(x));
});

simple(1, (m, x) => {
  const dims = range(x.type.shape.length).filter(() => m.random.chance(0.5));
  m.emit("reverse", [x], { dims }, m.levelOf(x));
});

simple(2, (m, x) => {
  const starts = x.type.shape.map((n) => m.random.below(Math.max(1, n)));
  const limits = x.type.shape.map(
    (n, d) => at(starts, d) + (n === 0 ? 0 : 1 + m.random.below(n - at(starts, d))),
  );
  const strides = x.type.shape.map(() => 1 + m.random.below(2));
  m.emit("slice", [x], { starts, limits, strides }, m.levelOf(x));
});

simple(2, (m, x) => {
  const low = x.type.shape.map(() => m.random.below(4) - 1);
  const high = x.type.shape.map(() => m.random.below(4) - 1);
  const interior = x.type.shape.map(() => m.random.below(2));
  const sizes = x.type.shape.map(
    (n, d) => at(low, d) + n + Math.max(0, n - 1) * at(interior, d) + at(high, d),
  );
  if (sizes.some((n) => n < 1) || sizeOf(sizes) > 500) return;
  m.emit("pad", [x, m.literal(x.type.dtype)], { low, high, interior }, m.levelOf(x));
});

simple(2, (m, x) => {
  if (x.type.shape.length === 0) return;
  const dim = m.random.below(x.type.shape.length);
  const others = m.pool.filter(
    (v) =>
      v.type.dtype === x.type.dtype &&
      v.type.shape.length === x.type.shape.length &&
      v.type.shape.every((n, d) => d === dim || n === x.type.shape[d]),
  );
  const list = [x, ...range(m.random.below(3)).map(() => m.random.pick(others))];
  m.emit("concatenate", list, { dim }, Math.max(...list.map((v) => m.levelOf(v))));
});

simple(2, (m, x) => {
  const sizes = x.type.shape.map((n) => (n === 0 ? 0 : 1 + m.random.below(n)));
  m.emit("dynamicSlice", [x, ...sizes.map(() => m.index())], { sizes }, m.levelOf(x));
});

simple(2, (m, x) => {
  const update = m.any(
    (v) =>
      v.type.dtype === x.type.dtype &&
      v.type.shape.length === x.type.shape.length &&
      v.type.shape.every((n, d) => n <= at(x.type.shape, d)),
  );
  if (!update) return;
  const level = Math.max(m.levelOf(x), m.levelOf(update));
  m.emit("dynamicUpdateSlice", [x, update, ...x.type.shape.map(() => m.index())], {}, level);
});

function gatherArgs(m: Maker, x: Var): { indices: Var; dim: number; batchDims: number } | undefined {
  if (x.type.shape.length === 0) return undefined;
  const dim = m.random.below(x.type.shape.length);
  if (x.type.shape[dim] === 0) return undefined;
  const indices = m.any((v) => v.type.dtype === "int32" && m.isExact(v) && sizeOf(v.type.shape) <= 40);
  if (!indices) return undefined;
  let batchDims = 0;
  while (
    batchDims < dim &&
    batchDims < indices.type.shape.length &&
    indices.type.shape[batchDims] === x.type.shape[batchDims] &&
    m.random.chance(0.7)
  ) {
    batchDims++;
  }
  return { indices, dim, batchDims };
}

simple(3, (m, x) => {
  const args = gatherArgs(m, x);
  if (!args) return;
  const { indices, dim, batchDims } = args;
  if ((sizeOf(x.type.shape) / at(x.type.shape, dim)) * sizeOf(indices.type.shape) > 600) return;
  m.emit("gather", [x, indices], { dim, batchDims }, m.levelOf(x));
});

simple(3, (m, x) => {
  const args = gatherArgs(m, x);
  if (!args) return;
  const { indices, dim, batchDims } = args;
  const rest = indices.type.shape.slice(batchDims);
  const shape = [...x.type.shape.slice(0, dim), ...rest, ...x.type.shape.slice(dim + 1)];
  if (sizeOf(shape) > 600 || shape.length > 6) return;
  const combine = x.type.dtype === "bool" || m.random.chance(0.4) ? "set" : "add";
  let updates = m.any((v) => v.type.dtype === x.type.dtype && v.type.shape.join() === shape.join());
  updates ??= m.emit("broadcastInDim", [m.literal(x.type.dtype)], { shape, dims: [] }, 0)[0];
  if (!updates) return;
  m.emit(
    "scatter",
    [x, indices, updates],
    { dim, batchDims, combine },
    Math.max(m.levelOf(x), m.levelOf(updates)) + 2,
  );
});

simple(7, (m, x) => {
  const dims = range(x.type.shape.length).filter(() => m.random.chance(0.5));
  const op = m.random.pick(
    x.type.dtype === "bool"
      ? (["reduceMax", "reduceMin"] as const)
      : (["reduceSum", "reduceMax", "reduceMin"] as const),
  );
  m.emit(op, [x], { dims }, op === "reduceSum" && isFloat(x.type.dtype) ? m.levelOf(x) + 2 : m.levelOf(x));
});

simple(1, (m, x) => {
  const { shape, dtype } = x.type;
  if (shape.length === 0 || (isFloat(dtype) && !m.isExact(x))) return;
  const dim = m.random.below(shape.length);
  if (shape[dim] === 0) return;
  m.emit(m.random.pick(["argmax", "argmin"] as const), [x], { dim }, 0);
});

simple(1, (m, x) => {
  if (x.type.shape.length === 0 || x.type.dtype === "bool") return;
  const dim = m.random.below(x.type.shape.length);
  m.emit("cumsum", [x], { dim, reverse: m.random.chance(0.5) }, m.levelOf(x) + 2);
});

simple(1, (m, x) => {
  const { shape, dtype } = x.type;
  if (shape.length === 0 || (isFloat(dtype) && !m.isExact(x))) return;
  const other = m.any((v) => v.type.shape.join() === shape.join() && m.isExact(v));
  const ins = other && m.random.chance(0.5) ? [x, other] : [x];
  m.emit(
    "sort",
    ins,
    { dim: m.random.below(shape.length), numKeys: 1 + m.random.below(ins.length) },
    Math.max(...ins.map((v) => m.levelOf(v))),
  );
});

simple(6, (m, x) => {
  if (x.type.dtype === "bool") return;
  const y = m.any((v) => v.type.dtype === x.type.dtype && v.type.shape.some((n) => x.type.shape.includes(n)));
  if (!y) return;
  const lhs: number[] = [];
  const rhs: number[] = [];
  x.type.shape.forEach((n, d) => {
    const e = y.type.shape.findIndex((k, i) => k === n && !rhs.includes(i));
    if (e >= 0 && m.random.chance(0.7)) {
      lhs.push(d);
      rhs.push(e);
    }
  });
  const numBatch = m.random.below(lhs.length + 1);
  const params = {
    lhsBatch: lhs.slice(0, numBatch),
    rhsBatch: rhs.slice(0, numBatch),
    lhsContract: lhs.slice(numBatch),
    rhsContract: rhs.slice(numBatch),
    dtype: x.type.dtype === "bfloat16" && m.random.chance(0.5) ? ("float32" as const) : x.type.dtype,
  };
  const size = sizeOf(inferTypes("dotGeneral", [x, y], params)[0]?.shape ?? []);
  const rank = inferTypes("dotGeneral", [x, y], params)[0]?.shape.length ?? 9;
  if (size > 800 || rank > 5) return;
  m.emit("dotGeneral", [x, y], params, m.levelOf(x) + m.levelOf(y) + 3);
});

simple(2, (m, x) => {
  const dtype = m.random.pick(["float32", "int32", "uint32", "bfloat16", "int8", "uint16"] as const);
  if (x.type.shape.length === 0) return;
  m.emit("iota", [], { dtype, shape: x.type.shape, dim: m.random.below(x.type.shape.length) }, 0);
});

simple(1, (m, x) => {
  if (x.type.dtype !== "uint32") return;
  m.emit("threefry2x32", [newLiteral(17, "uint32"), m.sameType(x.type), x, m.sameType(x.type)], {}, 0);
});

simple(1, (m, x) => {
  m.emit("optimizationBarrier", [x], {}, m.levelOf(x));
});

const collective: StepMaker = (m, x) => {
  const axes = (m.options.axes ?? []).filter(() => m.random.chance(0.7));
  if (axes.length === 0) return;
  const size = axes.reduce((n, axis) => n * axis.size, 1);
  const level = m.levelOf(x) + 2;
  const { shape, dtype } = x.type;
  const splits = range(shape.length).filter((d) => at(shape, d) % size === 0);
  switch (m.random.below(6)) {
    case 0:
      if (dtype !== "bool") m.emit("psum", [x], { axes }, level);
      return;
    case 1:
      m.emit(m.random.pick(["pmax", "pmin"] as const), [x], { axes }, level);
      return;
    case 2:
      if (shape.length > 0 && sizeOf(shape) < 200)
        m.emit("allGather", [x], { axes, dim: m.random.below(shape.length) }, level);
      return;
    case 3:
      if (splits.length > 0 && dtype !== "bool")
        m.emit("psumScatter", [x], { axes, dim: m.random.pick(splits) }, level);
      return;
    case 4: {
      const permutation = range(size)
        .filter(() => m.random.chance(0.8))
        .map((s) => [s, (s + 1) % size] as const);
      m.emit("ppermute", [x], { axes, permutation }, level);
      return;
    }
    default:
      if (splits.length > 0) {
        m.emit(
          "allToAll",
          [x],
          { axes, splitDim: m.random.pick(splits), concatDim: m.random.below(shape.length) },
          level,
        );
      }
      m.emit("axisIndex", [], { axes }, 0);
  }
};

function makeBody(
  m: Maker,
  inputs: readonly TensorType[],
  results: readonly TensorType[] | undefined,
): Program {
  const inner = new Maker(m.random, m.options, m.depth + 1);
  const vars = inputs.map((type) => inner.add(newVar(type), 100));
  for (let i = 0; i < 2 + m.random.below(5); i++) inner.step();
  const outputs = (results ?? []).map((type): Atom => {
    const found = inner.any((v) => v.type.dtype === type.dtype && v.type.shape.join() === type.shape.join());
    if (found) return found;
    return inner.emit(
      "broadcastInDim",
      [inner.literal(type.dtype)],
      { shape: type.shape, dims: [] },
      0,
    )[0] as Var;
  });
  const extra = results ? [] : range(1 + m.random.below(2)).map(() => m.random.pick(inner.pool));
  return { inputs: vars, eqns: inner.eqns, outputs: [...outputs, ...extra] };
}

makers.push((m, x) => {
  const carry = m.any((v) => sizeOf(v.type.shape) < 100);
  const xs = m.any((v) => v.type.shape.length > 0);
  if (!carry || !xs) return;
  const length = at(xs.type.shape, 0);
  const slice = tensorType(xs.type.dtype, xs.type.shape.slice(1));
  const withYs = m.random.chance(0.7);
  const body = makeBody(m, [x.type, carry.type, slice], [carry.type]);
  const y = m.random.pick(body.eqns.flatMap((eqn) => eqn.outs).concat(body.inputs));
  const full = withYs ? { ...body, outputs: [...body.outputs, y] } : body;
  m.emit(
    "scan",
    [x, carry, xs],
    { body: full, length, reverse: m.random.chance(0.5), numConsts: 1, numCarry: 1 },
    100,
  );
});

makers.push((m, x) => {
  const y = m.any();
  if (!y) return;
  const results = [x.type];
  const branches = range(1 + m.random.below(3)).map(() => makeBody(m, [x.type, y.type], results));
  m.emit("cond", [m.index(), x, y], { branches }, 100);
});

makers.push((m, x) => {
  const counter = tensorType("int32", []);
  const limit = newLiteral(m.random.below(4), "int32");
  const [i, v] = [newVar(counter), newVar(x.type)];
  const flag = newVar(tensorType("bool", []));
  const condition: Program = {
    inputs: [i, v],
    eqns: [makeEqn("compare", [i, limit], [flag], { direction: "lt" }) as Eqn],
    outputs: [flag],
  };
  const inner = makeBody(m, [counter, x.type], [x.type]);
  const next = newVar(counter);
  const body: Program = {
    ...inner,
    eqns: [...inner.eqns, makeEqn("add", [at(inner.inputs, 0), newLiteral(1, "int32")], [next], {}) as Eqn],
    outputs: [next, ...inner.outputs],
  };
  m.emit(
    "while",
    [newLiteral(0, "int32"), x],
    { condition, body, numConditionConsts: 0, numBodyConsts: 0 },
    100,
  );
});

const callback: StepMaker = (m, x) => {
  const { callbacks = {} } = m.options;
  const kinds = Object.keys(callbacks) as CallbackKind[];
  const all = kinds.flatMap((kind) => (callbacks[kind] ?? []).map((fn) => ({ kind, fn })));
  // What a callback decides must not depend on roundings.
  if (all.length === 0 || x.type.dtype === "bool" || !m.isExact(x)) return;
  const chosen = m.random.pick(all);
  m.emit(
    "callback",
    [x],
    { ...chosen, batching: "sequential", results: [x.type], once: [] },
    m.levelOf(x) + 1,
  );
};

for (let i = 0; i < 4; i++) makers.push(collective);
const makersWithCallbacks: readonly StepMaker[] = [...makers, ...range(4).map(() => callback)];

/** A random well-formed program. */
export function randomProgram(options: RandomProgramOptions): Program {
  const random = new Random(options.seed);
  const maker = new Maker(random, options, 0);
  const types = options.types ?? dtypes;
  const sizes = [1, 2, 3, 4, 5, 6, 8, 12];
  const inputs = range(2 + random.below(4)).map((i) => {
    const shape: Shape = range(random.below(4)).map(() => random.pick(sizes));
    const dtype = i === 0 ? "float32" : i === 1 ? "int32" : random.pick(types);
    return maker.add(newVar(tensorType(dtype, shape)), 1);
  });
  for (let i = 0; i < options.numEqns; i++) maker.step();
  const outputs = maker.pool.filter(
    (v, i) =>
      i === maker.pool.length - 1 || random.chance(0.25) || (!inputs.includes(v) && random.chance(0.1)),
  );
  return { inputs, eqns: maker.eqns, outputs };
}

/** Random elements for an input: floats that are exact in every type, small integers. */
export function randomData(random: Random, type: TensorType): number[] {
  return range(sizeOf(type.shape)).map(() => {
    if (isFloat(type.dtype)) return random.below(25) / 4 - 3;
    if (type.dtype === "bool") return random.below(2);
    return isUnsigned(type.dtype) ? random.below(9) : random.below(9) - 3;
  });
}
