/**
 * Afterwards no large factor of a product lies in memory as floats that are computed from much fewer bytes, such as a
 * kernel in 4 bits or one in bfloat16 that is multiplied in float32: a loop computes one block of it after the other,
 * which stays in the cache of a core, and multiplies it. So the factor is read from memory once, in few bytes.
 *
 * Unchanged are the products: every element is the same sum.
 */

import { overBlocks, type ProgramBuilder, writeProgram } from "../../ir/expansions/programBuilder.js";
import { isElementwiseEqn } from "../../ir/opFacts.js";
import type { OpName, OpParams } from "../../ir/ops.js";
import type { Atom, Eqn, Program, Var } from "../../ir/program.js";
import { at, bytesOf, bytesOfAll, range, sizeOf, typesOf } from "../../ir/shape.js";
import { Rewriter } from "./rewriter.js";

/**
 * Sizes in bytes: factors below `least` are computed as a whole, others in blocks of at most `block`. Every product
 * arranges its other factor anew, so blocks have `wide` rows or columns at least where that one has more than `few`.
 */
const SIZES = { least: 2 ** 20, block: 2 ** 19, few: 64, wide: 1024 };

/** How many times fewer bytes a factor must be computed from. */
const LEAST_GAIN = 1.9;

/** A factor that is computed from fewer bytes. */
interface Narrow {
  /** The equations that compute it, in order. */
  readonly chain: readonly Eqn[];
  /** What they read. */
  readonly roots: readonly Var[];
}

/** How a factor is cut into equal blocks: the dim of every value that is cut, by id. */
interface Cut {
  readonly count: number;
  readonly dims: ReadonlyMap<number, number>;
}

type ProductEqn = Eqn<"dotGeneral" | "raggedDot">;

/** Whether an equation multiplies whole factors, or rows with the matrices of their groups. */
function isProduct(eqn: Eqn): eqn is ProductEqn {
  return eqn.op === "dotGeneral" || (eqn.op === "raggedDot" && eqn.params.ragged === "rows");
}

/** Computes narrow factors block by block. */
export function narrowProducts(program: Program, sizes: typeof SIZES = SIZES): Program {
  const definitions = new Map(program.eqns.flatMap((eqn) => eqn.outs.map((out) => [out.id, eqn] as const)));
  const isOfProducts = readByProductsOnly(program);
  const rewrite = (r: Rewriter, eqn: Eqn): void => {
    const tiled = isProduct(eqn) ? tiledProduct(eqn, definitions, isOfProducts, sizes) : undefined;
    if (tiled) r.inline(tiled.program, { ...eqn, ins: tiled.ins });
    else r.keep(eqn);
  };
  const isCandidate = (eqn: Eqn) =>
    isProduct(eqn) && eqn.ins.some(({ type }) => bytesOf(type) >= sizes.least);
  return program.eqns.some(isCandidate) ? new Rewriter(rewrite).program(program) : program;
}

/** Whether nothing but products reads a value: others would need it in memory anyway. */
function readByProductsOnly(program: Program): (value: Var) => boolean {
  const others = new Set<number>();
  const note = (atom: Atom) => atom.kind === "var" && others.add(atom.id);
  for (const eqn of program.eqns) if (!isProduct(eqn)) eqn.ins.forEach(note);
  program.outputs.forEach(note);
  return ({ id }) => !others.has(id);
}

function tiledProduct(
  eqn: ProductEqn,
  definitions: ReadonlyMap<number, Eqn>,
  isOfProducts: (value: Var) => boolean,
  sizes: typeof SIZES,
): { readonly program: Program; readonly ins: readonly Atom[] } | undefined {
  for (const side of eqn.op === "dotGeneral" ? ([1, 0] as const) : ([1] as const)) {
    const factor = at(eqn.ins, side);
    const others = eqn.ins.filter((atom, i): atom is Var => i !== side && atom.kind === "var");
    if (factor.kind !== "var" || others.length + 1 < eqn.ins.length || !isOfProducts(factor)) continue;
    if (bytesOf(factor.type) < sizes.least) continue;
    const narrow = narrowFactor(factor, definitions);
    const cut = narrow && cutFactor(eqn, side, narrow, definitions, sizes);
    if (!narrow || !cut) continue;
    return {
      ins: [...others, ...narrow.roots],
      program: loopOver(eqn, side, factor, narrow, cut, others),
    };
  }
  return undefined;
}

/** How a factor is computed, if from far fewer bytes than it has. */
function narrowFactor(factor: Var, definitions: ReadonlyMap<number, Eqn>): Narrow | undefined {
  const chain = new Map<number, Eqn>();
  const roots = new Map<number, Var>();
  const visit = (atom: Atom): void => {
    if (atom.kind !== "var" || chain.has(atom.id)) return;
    const eqn = definitions.get(atom.id);
    if (!eqn || !isLinked(eqn)) roots.set(atom.id, atom);
    else {
      eqn.ins.forEach(visit);
      chain.set(atom.id, eqn);
    }
  };
  visit(factor);
  const bytes = bytesOfAll([...roots.values()]);
  if (chain.size === 0 || LEAST_GAIN * bytes > bytesOf(factor.type)) return undefined;
  return { chain: [...chain.values()], roots: [...roots.values()] };
}

/** Whether an equation can be computed block by block. */
function isLinked(eqn: Eqn): boolean {
  const isMove = (["broadcastInDim", "reshape", "transpose", "iota"] as readonly OpName[]).includes(eqn.op);
  return (isMove || isElementwiseEqn(eqn)) && eqn.outs.length === 1;
}

/** The dims of a factor that the product keeps. */
function freeDims(eqn: ProductEqn, side: 0 | 1): number[] {
  if (eqn.op === "raggedDot") return [at(eqn.ins, side).type.shape.length - (side === 1 ? 1 : 2)];
  const { ins, params } = eqn;
  const used =
    side === 1 ? [...params.rhsContract, ...params.rhsBatch] : [...params.lhsContract, ...params.lhsBatch];
  return range(at(ins, side).type.shape.length).filter((d) => !used.includes(d));
}

/** A cut along a dim that the product keeps, into the fewest blocks that are small enough. */
function cutFactor(
  eqn: ProductEqn,
  side: 0 | 1,
  { roots }: Narrow,
  definitions: ReadonlyMap<number, Eqn>,
  { block, few, wide }: typeof SIZES,
): Cut | undefined {
  const factor = at(eqn.ins, side);
  const { shape } = factor.type;
  const { shape: other } = at(eqn.ins, 1 - side).type;
  const numOther = sizeOf(freeDims(eqn, side === 1 ? 0 : 1).map((d) => at(other, d)));
  const least = bytesOf(factor.type) / block;
  for (const dim of freeDims(eqn, side).sort((a, b) => at(shape, b) - at(shape, a))) {
    const size = at(shape, dim);
    const most = Math.floor(numOther > few ? size / wide : Math.min(size, 16 * least));
    for (let count = Math.max(2, Math.min(Math.ceil(least), most)); count <= most; count++) {
      const dims = size % count === 0 ? cutDims(factor, dim, count, definitions) : undefined;
      if (dims && roots.some(({ id }) => dims.has(id))) return { count, dims };
    }
  }
  return undefined;
}

/** The dim along which every value that a factor is computed from is cut, if the factor is cut along `dim`. */
function cutDims(
  factor: Atom,
  dim: number,
  count: number,
  definitions: ReadonlyMap<number, Eqn>,
): Map<number, number> | undefined {
  const dims = new Map<number, number>();
  const whole = new Set<number>();
  const visit = (atom: Atom, d: number | undefined): boolean => {
    if (atom.kind !== "var") return true;
    if (dims.has(atom.id) || whole.has(atom.id)) return dims.get(atom.id) === d;
    if (d === undefined) whole.add(atom.id);
    else dims.set(atom.id, d);
    const eqn = definitions.get(atom.id);
    if (!eqn || !isLinked(eqn)) return true;
    if (d === undefined) return eqn.ins.every((x) => visit(x, undefined));
    return eqn.ins.every((x) => {
      const own = dimOfOperand(eqn, x, d, count);
      return own !== "none" && visit(x, own);
    });
  };
  const isIota = (id: number) => {
    const eqn = definitions.get(id);
    return eqn?.op === "iota" && eqn.params.dim === dims.get(id);
  };
  return visit(factor, dim) && ![...dims.keys()].some(isIota) ? dims : undefined;
}

/** The dim of an operand that is cut if the result is cut along `dim`; undefined if it is the same for all blocks. */
function dimOfOperand(eqn: Eqn, x: Atom, dim: number, count: number): number | undefined | "none" {
  if (eqn.op === "broadcastInDim") {
    const own = eqn.params.dims.indexOf(dim);
    return own < 0 || x.type.shape[own] === 1 ? undefined : own;
  }
  if (eqn.op === "transpose") return eqn.params.permutation[dim] ?? "none";
  if (eqn.op !== "reshape") return x.type.shape.length === 0 ? undefined : dim;
  // Blocks stay adjacent elements if as many elements lie before the dim, and the outermost part divides.
  const before = sizeOf(eqn.params.shape.slice(0, dim));
  const { shape } = x.type;
  const own = range(shape.length).find((d) => sizeOf(shape.slice(0, d)) === before && shape[d] !== 1);
  return own !== undefined && at(shape, own) % count === 0 ? own : "none";
}

/** The product as a loop over the blocks of a factor, of the other operands and what this one is computed from. */
function loopOver(
  eqn: ProductEqn,
  side: 0 | 1,
  factor: Var,
  { chain, roots }: Narrow,
  { count, dims }: Cut,
  others: readonly Var[],
): Program {
  const block = (b: ProgramBuilder, rest: readonly Var[], own: readonly Var[]): Var => {
    const values = new Map(roots.map(({ id }, i) => [id, at(own, i)]));
    const given = (atom: Atom): Atom => (atom.kind === "var" ? (values.get(atom.id) ?? atom) : atom);
    for (const one of chain) {
      const out = at(one.outs, 0);
      values.set(out.id, again(b, one, one.ins.map(given), dims.get(out.id), count));
    }
    const made = values.get(factor.id) ?? factor;
    return again(b, eqn, rest.toSpliced(side, 0, made as Var), undefined, 1);
  };
  return writeProgram(typesOf([...others, ...roots]), (b, inputs) => {
    const loop = {
      ...{ length: count, block: 1, inputs, carry: [] },
      cuts: [...others.map(() => undefined), ...roots.map(({ id }) => dims.get(id))],
      joins: [joinedDim(eqn, side, dims.get(factor.id) ?? 0)],
    };
    return overBlocks(b, loop, (inner, _start, values) => ({
      carry: [],
      made: [block(inner, values.slice(0, others.length), values.slice(others.length))],
    })).made;
  });
}

/** An equation on a block, which is `count` times shorter along `dim`. */
function again<K extends OpName>(
  b: ProgramBuilder,
  eqn: Eqn<K>,
  ins: readonly Atom[],
  dim: number | undefined,
  count: number,
): Var {
  const { op, params }: { readonly op: K; readonly params: OpParams[K] } = eqn;
  if (dim === undefined || !("shape" in params)) return b.add(op, ins, params);
  const { shape } = params as { readonly shape: readonly number[] };
  return b.add(op, ins, { ...params, shape: shape.with(dim, at(shape, dim) / count) });
}

/** The dim of the result along which blocks are put together. */
function joinedDim(eqn: ProductEqn, side: 0 | 1, dim: number): number {
  if (eqn.op === "raggedDot") return at(eqn.outs, 0).type.shape.length - 1;
  const first = eqn.params.lhsBatch.length + (side === 1 ? freeDims(eqn, 0).length : 0);
  return first + freeDims(eqn, side).indexOf(dim);
}
