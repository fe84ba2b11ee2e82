/** Programs written op by op, for floors that cannot trace functions. */
import type { DType } from "../dtype.js";
import { inferTypes } from "../infer/infer.js";
import {
  joinAxes,
  missingAxes,
  needNoMarks,
  operandVarying,
  varyingAlong,
  varyingAxes,
} from "../infer/varying.js";
import type { MeshAxis } from "../mesh.js";
import type { OpName, OpParams } from "../ops.js";
import {
  type Atom,
  type Eqn,
  makeEqn,
  mapOperands,
  newLiteral,
  newVar,
  type Program,
  type Var,
} from "../program.js";
import { at, type Shape, type TensorType } from "../shape.js";

/** Collects the equations of a program. */
export class ProgramBuilder {
  readonly eqns: Eqn[] = [];

  /** @param axes those along which all floats of the program differ, if it runs inside a shard map */
  constructor(readonly axes: readonly MeshAxis[] = []) {}

  all<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]): Var[] {
    const atoms = this.agree(op, ins, params);
    const outs = inferTypes(op, atoms, params).map(newVar);
    this.eqns.push(makeEqn<OpName>(op, atoms, outs, params));
    return outs;
  }

  add<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]): Var {
    return at(this.all(op, ins, params), 0);
  }

  convert(x: Var, dtype: DType): Var {
    return x.type.dtype === dtype ? x : this.add("convert", [x], { dtype });
  }

  broadcast(x: Atom, shape: Shape, dims: readonly number[]): Var {
    return this.add("broadcastInDim", [x], { shape, dims });
  }

  /** A constant that counts as differing along the axes of the program. */
  full(value: number, dtype: DType, shape: Shape): Var {
    return this.marked(this.broadcast(newLiteral(value, dtype), shape, []), this.axes);
  }

  transpose(x: Var, permutation: readonly number[]): Var {
    return permutation.every((d, i) => d === i) ? x : this.add("transpose", [x], { permutation });
  }

  reshape(x: Var, shape: Shape): Var {
    return this.add("reshape", [x], { shape });
  }

  /** Positions `start` to `start + size` of a dim. */
  slice(x: Var, dim: number, start: number, size: number): Var {
    const { shape } = x.type;
    if (size === shape[dim]) return x;
    return this.add("slice", [x], {
      starts: shape.map(() => 0).with(dim, start),
      limits: shape.with(dim, start + size),
      strides: shape.map(() => 1),
    });
  }

  /**
   * A product of two tensors, such as `dot("bik,bkj->bij", x, y, "float32")`; the result has the dims of both first,
   * then the others of x, then those of y.
   */
  dot(dims: string, x: Var, y: Var, dtype: DType): Var {
    const [lhs = "", rhs = "", result = ""] = dims.split(/,|->/);
    const shared = [...lhs].filter((name) => rhs.includes(name));
    const [batch, contract] = [true, false].map((isKept) => {
      const names = shared.filter((name) => result.includes(name) === isKept);
      return [lhs, rhs].map((operand) => names.map((name) => operand.indexOf(name)));
    });
    const [lhsContract = [], rhsContract = []] = contract ?? [];
    const [lhsBatch = [], rhsBatch = []] = batch ?? [];
    return this.add("dotGeneral", [x, y], { lhsContract, rhsContract, lhsBatch, rhsBatch, dtype });
  }

  /** The equations of a program that is used only here, on other values; returns its results. */
  inline({ inputs, eqns, outputs }: Program, ins: readonly Var[]): Atom[] {
    const given = new Map(inputs.map(({ id }, i) => [id, at(ins, i)]));
    const replace = (atom: Atom): Atom => (atom.kind === "var" ? (given.get(atom.id) ?? atom) : atom);
    for (const eqn of eqns) this.eqns.push(mapOperands(eqn, replace));
    return outputs.map(replace);
  }

  /** The value marked as differing along some axes. */
  marked(x: Var, axes: readonly MeshAxis[]): Var {
    const over = missingAxes(varyingAxes(x.type), axes);
    if (over.length === 0) return x;
    const out = newVar(varyingAlong(x.type, axes));
    this.eqns.push(makeEqn<OpName>("pvary", [x], [out], { over }));
    return out;
  }

  private agree<K extends OpName>(op: K, ins: readonly Atom[], params: OpParams[K]): readonly Atom[] {
    if (needNoMarks(op, ins)) return ins;
    const wanted = operandVarying(op, ins, params);
    return ins.map((atom, i) => (atom.kind === "var" ? this.marked(atom, at(wanted, i)) : atom));
  }
}

/** The program of a function of values of some types. */
export function writeProgram(
  types: readonly TensorType[],
  write: (b: ProgramBuilder, inputs: readonly Var[]) => readonly Atom[],
  axes: readonly MeshAxis[] = joinAxes(types.map(varyingAxes)),
): Program {
  const inputs = types.map(({ weak: _, ...type }) => newVar(type));
  const b = new ProgramBuilder(axes);
  const outputs = write(b, inputs);
  return { inputs, eqns: b.eqns, outputs };
}

/** What a loop over blocks of positions reads and gives. */
export interface BlockLoop {
  /** The number of positions, and of those in a block. */
  readonly length: number;
  readonly block: number;
  readonly inputs: readonly Var[];
  /** For every input the dim that is cut into equal blocks; the others are the same for all. */
  readonly cuts: readonly (number | undefined)[];
  readonly carry: readonly Var[];
  /** The dims along which the pieces that each block makes are put together. */
  readonly joins: readonly number[];
}

/** What one block gives: the next carry, and pieces of results. */
export interface BlockResults {
  readonly carry: readonly Var[];
  readonly made: readonly Var[];
}

/** Computes one block, which begins at position `start`. */
export type BlockStep = (
  b: ProgramBuilder,
  start: Atom,
  inputs: readonly Var[],
  carry: readonly Var[],
) => BlockResults;

const movedTo = (rank: number, from: number, to: number): number[] => {
  const rest = [...Array(rank).keys()].filter((d) => d !== from);
  return [...rest.slice(0, to), from, ...rest.slice(to)];
};

/** Runs a step on one block after another: a scan over whole blocks, and the rest by itself. */
export function overBlocks(b: ProgramBuilder, loop: BlockLoop, step: BlockStep): BlockResults {
  const { length, block, joins } = loop;
  const whole = Math.floor(length / block);
  const rest = length - whole * block;
  const slices = (start: number, size: number) =>
    loop.inputs.map((x, i) => {
      const dim = loop.cuts[i];
      if (dim === undefined || size === length) return x;
      const each = at(x.type.shape, dim) / length;
      return b.slice(x, dim, start * each, size * each);
    });
  const single = (start: number, size: number, carry: readonly Var[]) =>
    step(b, newLiteral(start, "int32"), slices(start, size), carry);
  if (whole === 0) return single(0, length, loop.carry);
  const first = whole > 1 ? scanBlocks(b, loop, whole, step) : single(0, block, loop.carry);
  if (rest === 0) return first;
  const last = single(whole * block, rest, first.carry);
  const made = first.made.map((piece, i) =>
    b.add("concatenate", [piece, at(last.made, i)], { dim: at(joins, i) }),
  );
  return { carry: last.carry, made };
}

function scanBlocks(b: ProgramBuilder, loop: BlockLoop, count: number, step: BlockStep): BlockResults {
  const { block, inputs, cuts, carry, joins } = loop;
  const isCut = cuts.map((dim) => dim !== undefined);
  const shared = inputs.filter((_, i) => !isCut[i]);
  const stacks = inputs.flatMap((x, i) => {
    const dim = cuts[i];
    if (dim === undefined) return [];
    const { shape } = x.type;
    // A position may be several elements, such as the query heads of a key head.
    const own = (block * at(shape, dim)) / loop.length;
    const used = b.slice(x, dim, 0, count * own);
    const split = b.reshape(used, [...shape.slice(0, dim), count, own, ...shape.slice(dim + 1)]);
    return [b.transpose(split, movedTo(shape.length + 1, dim, 0))];
  });
  const indices = b.add("iota", [], { dtype: "int32", shape: [count], dim: 0 });
  const scanned = [indices, ...stacks];
  const slice = ({ type }: Var): TensorType => ({ ...type, shape: type.shape.slice(1) });
  const types = [...[...shared, ...carry].map(({ type }) => type), ...scanned.map(slice)];
  const body = writeProgram(
    types,
    (inner, values) => {
      const own = values.slice(0, shared.length).values();
      const [index, ...blocks] = values.slice(shared.length + carry.length);
      const pieces = blocks.values();
      const given = isCut.map((cut, i) => (cut ? pieces : own).next().value ?? at(inputs, i));
      const start = inner.add("mul", [index ?? at(values, 0), newLiteral(block, "int32")], {});
      const results = step(inner, start, given, values.slice(shared.length, shared.length + carry.length));
      return [...results.carry, ...results.made];
    },
    b.axes,
  );
  const outs = b.all("scan", [...shared, ...carry, ...scanned], {
    body,
    length: count,
    reverse: false,
    numConsts: shared.length,
    numCarry: carry.length,
  });
  const made = outs.slice(carry.length).map((stack, i) => {
    const dim = at(joins, i);
    const { shape } = stack.type;
    const moved = b.transpose(stack, movedTo(shape.length, 0, dim));
    const [n = 0, ...piece] = shape;
    return b.reshape(moved, piece.with(dim, n * at(piece, dim)));
  });
  return { carry: outs.slice(0, carry.length), made };
}
