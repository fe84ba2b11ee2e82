/**
 * Attention in terms of smaller ops: its definition, and what runs where no fused kernel exists.
 *
 * Scores are `[batch, K, T, G, S]`: for each of the K heads of key and value, the T positions of its G query heads are
 * the rows of one matrix. No more than a block of them exists at a time: longer sequences are loops over blocks of
 * queries, and in them over blocks of keys, whose sums are rescaled whenever a larger score appears.
 */

import { type DType, sumType } from "../dtype.js";
import type { Attention, AttentionExtra, AttentionWant, OpParams } from "../ops.js";
import { type Atom, newLiteral, type Program, type Var } from "../program.js";
import { at, range, type TensorType, tensorType } from "../shape.js";
import {
  type AttentionBlocks,
  attentionBlocks,
  type BlockDims,
  type BlockValue,
  byName,
  cutBlock,
  cutOf,
  keysSeen,
  type Named,
  overKeys,
} from "./attentionLoops.js";
import {
  type AttentionBlock,
  blockScores,
  dropSome,
  headsInGroups,
  inGroups,
  type Starts,
  sumLike,
  times,
} from "./attentionScores.js";
import { overBlocks, type ProgramBuilder, writeProgram } from "./programBuilder.js";

/** The sizes of an attention, from the types of query and key. */
function sizesOf(query: TensorType, key: TensorType) {
  const [batch = 0, length = 0, heads = 0, headSize = 0] = query.shape;
  const [, keyLength = 0, keyHeads = 0] = key.shape;
  const groups = heads / keyHeads;
  return { batch, length, headSize, keyLength, keyHeads, groups, wide: sumType(query.dtype) };
}

type Sizes = ReturnType<typeof sizesOf>;

/** `[batch, K, T, G, H]` as query heads: `[batch, T, N, H]`. */
function asHeads(b: ProgramBuilder, x: Var): Var {
  const [batch = 0, keyHeads = 0, length = 0, groups = 0, headSize = 0] = x.type.shape;
  return b.reshape(b.transpose(x, [0, 2, 1, 3, 4]), [batch, length, keyHeads * groups, headSize]);
}

/** A value for every row of scores, `[batch, K, T, G]`, as `[batch, N, T]`. */
function asSums(b: ProgramBuilder, x: Var): Var {
  const [batch = 0, keyHeads = 0, length = 0, groups = 0] = x.type.shape;
  return b.reshape(b.transpose(x, [0, 1, 3, 2]), [batch, keyHeads * groups, length]);
}

/** `[batch, N, T]` as a value for every row of scores. */
function perRow(b: ProgramBuilder, x: Var, { keyHeads, groups }: Sizes): Var {
  const [batch = 0, , length = 0] = x.type.shape;
  return b.transpose(b.reshape(x, [batch, keyHeads, groups, length]), [0, 1, 3, 2]);
}

/** An elementwise op of a value and one for each of its rows. */
function withRow(b: ProgramBuilder, op: "mul" | "sub" | "div", x: Var, row: Var): Var {
  return b.add(op, [x, b.broadcast(row, x.type.shape, [0, 1, 2, 3])], {});
}

/** The value with another one in place of one that cannot be computed with. */
function without(b: ProgramBuilder, x: Var, value: number, instead: number): Var {
  const { dtype, shape } = x.type;
  const is = b.add("compare", [x, newLiteral(value, dtype)], { direction: "eq" });
  return b.add("select", [is, b.broadcast(newLiteral(instead, dtype), shape, []), x], {});
}

const finite = (b: ProgramBuilder, x: Var) => without(b, x, Number.NEGATIVE_INFINITY, 0);

/** Whether a query may see no key at all. */
function mayHideAll({ window, extras = [] }: Attention): boolean {
  const harmless: readonly AttentionExtra[] = ["dropoutKeys", "logSumsCotangent"];
  return window !== undefined || extras.some((name) => !harmless.includes(name));
}

/** A softmax so far: the largest score of each row, the sum of exponentials relative to it, and the mixed values. */
type Softmax = readonly [peak: Var, sum: Var, mixed: Var];

/** Exponentials of a block of scores, relative to the largest score so far. */
function weigh(b: ProgramBuilder, block: AttentionBlock, starts: Starts, params: Attention, oldPeak?: Var) {
  const { scores } = blockScores(b, block, starts, params);
  const own = b.add("stopGradient", [b.add("reduceMax", [scores], { dims: [4] })], {});
  const peak = oldPeak ? b.add("max", [oldPeak, own], {}) : own;
  const reference = mayHideAll(params) ? finite(b, peak) : peak;
  const exps = b.add("exp", [withRow(b, "sub", scores, reference)], {});
  return { peak, reference, exps, sum: b.add("reduceSum", [exps], { dims: [4] }) };
}

/** The values of a block, mixed by weights, some of which are dropped. */
function mix(b: ProgramBuilder, weights: Var, block: AttentionBlock, starts: Starts, params: Attention): Var {
  const { value } = block;
  const kept = b.convert(dropSome(b, weights, block, starts, params), value.type.dtype);
  return b.dot("bhrgs,bshd->bhrgd", kept, value, weights.type.dtype);
}

/** The softmax over a block of keys, added to that over earlier ones. */
function addBlock(
  b: ProgramBuilder,
  block: AttentionBlock,
  starts: Starts,
  params: Attention,
  before: readonly Var[],
): Softmax {
  const [oldPeak, oldSum, oldMixed] = [at(before, 0), at(before, 1), at(before, 2)];
  const { peak, reference, exps, sum } = weigh(b, block, starts, params, oldPeak);
  const mixed = mix(b, exps, block, starts, params);
  const factor = b.add("exp", [b.add("sub", [oldPeak, reference], {})], {});
  return [
    peak,
    b.add("add", [b.add("mul", [oldSum, factor], {}), sum], {}),
    b.add("add", [withRow(b, "mul", oldMixed, factor), mixed], {}),
  ];
}

/** A softmax before the first key: only the sinks, which have no value. */
function emptySoftmax(b: ProgramBuilder, block: AttentionBlock, sizes: Sizes): Softmax {
  const { keyHeads, groups, headSize, wide } = sizes;
  const [batch = 0, length = 0] = block.query.type.shape;
  const rows = [batch, keyHeads, length, groups];
  const mixed = b.full(0, wide, [...rows, headSize]);
  if (!block.sinks) return [b.full(Number.NEGATIVE_INFINITY, wide, rows), b.full(0, wide, rows), mixed];
  const sinks = b.broadcast(headsInGroups(b, b.convert(block.sinks, wide), block), rows, [0, 1, 2, 3]);
  const peak = b.add("stopGradient", [sinks], {});
  const sum = b.add("exp", [b.add("sub", [sinks, finite(b, peak)], {})], {});
  return [peak, sum, mixed];
}

interface Whole {
  readonly sizes: Sizes;
  readonly params: Attention;
  readonly blocks: AttentionBlocks;
}

/** The attention of a block of queries to all keys: the result and the log-sums. */
function attendRows(b: ProgramBuilder, start: Atom, operands: Named, whole: Whole): Var[] {
  const { sizes, params, blocks } = whole;
  const own = byName<keyof AttentionBlock>(operands);
  const { keyLength } = sizes;
  if (keyLength <= blocks.columns && !own.sinks) {
    return attendOnce(b, [start, newLiteral(0, "int32")], own, params);
  }
  const carry = emptySoftmax(b, own, sizes);
  const loop = { start, operands, carry, sums: [], sumDims: [], madeDims: [] };
  const limits = { keyLength, block: blocks.columns, params };
  const softmax = overKeys(b, loop, limits, (inner, given, starts, before) => ({
    carry: addBlock(inner, byName<keyof AttentionBlock>(given), starts, params, before),
    sums: [],
    made: [],
  })).carry;
  const [peak, sum, total] = [at(softmax, 0), at(softmax, 1), at(softmax, 2)];
  return attended(b, own, withRow(b, "div", total, divisor(b, sum, params)), peak, sum, params);
}

/** The same where one block holds all keys that these queries see. */
function attendOnce(b: ProgramBuilder, starts: Starts, own: AttentionBlock, params: Attention): Var[] {
  const { peak, exps, sum } = weigh(b, own, starts, params);
  const all = divisor(b, sum, params);
  // Narrow weights are rounded after the division, as in JAX; else there are fewer results to divide than weights.
  const isNarrow = own.value.type.dtype !== exps.type.dtype;
  const mixed = isNarrow
    ? mix(b, withRow(b, "div", exps, all), own, starts, params)
    : withRow(b, "div", mix(b, exps, own, starts, params), all);
  return attended(b, own, mixed, peak, sum, params);
}

/** What weights are divided by; those of a row without any are 0. */
function divisor(b: ProgramBuilder, sum: Var, params: Attention): Var {
  return mayHideAll(params) ? without(b, sum, 0, 1) : sum;
}

/** Results of rows of scores in the order of the op's results. */
function attended(
  b: ProgramBuilder,
  { query }: AttentionBlock,
  mixed: Var,
  peak: Var,
  sum: Var,
  params: Attention,
): Var[] {
  const reference = mayHideAll(params) ? finite(b, peak) : peak;
  const logSums = b.add("add", [reference, b.add("log", [sum], {})], {});
  return [asHeads(b, b.convert(mixed, query.type.dtype)), asSums(b, logSums)];
}

/** The operands, all floats marked alike. */
function markedAlike(b: ProgramBuilder, inputs: readonly Var[]): Var[] {
  return inputs.map((x) => (x.type.dtype === "bool" ? x : b.marked(x, b.axes)));
}

const rowCuts = ({ names, values }: Named) => names.map((name, i) => cutOf(name, at(values, i).type).rows);

/** What `attention` computes, for operands of these types. */
export function attentionProgram(
  params: Attention,
  types: readonly TensorType[],
  given?: AttentionBlocks,
): Program {
  const names: readonly BlockValue[] = ["query", "key", "value", ...(params.extras ?? [])];
  const sizes = sizesOf(at(types, 0), at(types, 1));
  const { length, keyLength } = sizes;
  const blocks = given ?? attentionBlocks(length, keyLength);
  return writeProgram(types, (b, inputs) => {
    const values = markedAlike(b, inputs);
    if (blocks.unrolled && !names.includes("sinks"))
      return attendUnrolled(b, { names, values }, { sizes, params, blocks });
    const loop = { length, block: blocks.rows, inputs: values, carry: [], joins: [1, 2] };
    const cut = { ...loop, cuts: rowCuts({ names, values }) };
    return overBlocks(b, cut, (inner, start, own) => ({
      carry: [],
      made: attendRows(inner, start, { names, values: own }, { sizes, params, blocks }),
    })).made;
  });
}

/** The first and last queries of blocks of `rows`. */
const rowBlocks = (length: number, rows: number): [first: number, end: number][] =>
  range(Math.ceil(length / rows)).map((i) => [i * rows, Math.min(length, (i + 1) * rows)]);

/** One block of queries after the other, each with the keys that it sees as one block. */
function attendUnrolled(b: ProgramBuilder, operands: Named, { sizes, params, blocks }: Whole): Var[] {
  const { length, keyLength } = sizes;
  const pieces = rowBlocks(length, blocks.rows).map(([first, end]) => {
    const [key, keyEnd] = keysSeen(params, first, end - first, keyLength);
    const own = byName<keyof AttentionBlock>(cutBlock(b, operands, [first, end], [key, keyEnd]));
    return attendOnce(b, [newLiteral(first, "int32"), newLiteral(key, "int32")], own, params);
  });
  const all = (i: number) => pieces.map((piece) => at(piece, i));
  return [joined(b, all(0), 1), joined(b, all(1), 2)];
}

function joined(b: ProgramBuilder, pieces: readonly Var[], dim: number): Var {
  return pieces.length === 1 ? at(pieces, 0) : b.add("concatenate", pieces, { dim });
}

type BackwardBlock = AttentionBlock & { readonly [N in "logSums" | "mixedCotangent" | "shared"]: Var };

/** The cotangents that a block of scores contributes, not yet rounded. */
function pullBlock(
  b: ProgramBuilder,
  block: BackwardBlock,
  starts: Starts,
  { params, sizes }: Whole,
  wantsBias: boolean,
): Var[] {
  const { query, key, value, bias, mixedCotangent: ct, logSums, shared } = block;
  const { wide } = sizes;
  const narrow = query.type.dtype;
  const [groups, ctGroups] = [inGroups(b, query, block), inGroups(b, ct, block)];
  const { scores, capped } = blockScores(b, block, starts, params);
  const weights = b.add("exp", [withRow(b, "sub", scores, perRow(b, logSums, sizes))], {});
  const weightCts = b.dot("brhgd,bshd->bhrgs", ctGroups, value, wide);
  const kept = dropSome(b, weightCts, block, starts, params);
  const pulled = b.add("mul", [weights, withRow(b, "sub", kept, perRow(b, shared, sizes))], {});
  const uncapped = params.softcap ? throughCap(b, pulled, capped, params.softcap) : pulled;
  const scoreCts = b.convert(times(b, uncapped, params.scale), narrow);
  const queryCt = b.dot("bhrgs,bshd->bhrgd", scoreCts, key, wide);
  // One sum over the rows of all query heads that a key head serves.
  const overRows = (x: Var, y: Var) => {
    const product = b.dot("bhrgs,brhgd->bhsd", x, y, wide);
    return b.transpose(product, [0, 2, 1, 3]);
  };
  const usedWeights = b.convert(dropSome(b, weights, block, starts, params), narrow);
  const all = [asHeads(b, queryCt), overRows(scoreCts, groups), overRows(usedWeights, ctGroups)];
  return bias && wantsBias ? [...all, sumLike(b, pulled, bias)] : all;
}

/** The cotangent of scores before the soft cap c · tanh(x / c), whose derivative is 1 − (y / c)². */
function throughCap(b: ProgramBuilder, ct: Var, capped: Var, softcap: number): Var {
  const ratio = times(b, capped, 1 / softcap);
  const slope = b.add("sub", [newLiteral(1, ct.type.dtype), b.add("mul", [ratio, ratio], {})], {});
  return b.add("mul", [ct, slope], {});
}

/**
 * Some results of a loop over queries around one over keys. A result that is not cut along one of them is a sum over
 * its blocks.
 */
class Sums {
  private readonly all: readonly number[];

  constructor(
    private readonly types: readonly TensorType[],
    private readonly cuts: readonly BlockDims[],
    private readonly dtype: DType,
  ) {
    this.all = types.map((_, i) => i);
  }

  /** The results that are, or are not, cut along both sides. */
  places(isCut: { readonly [S in keyof BlockDims]?: boolean }): number[] {
    const fits = (i: number, side: keyof BlockDims) =>
      isCut[side] === undefined || isCut[side] === (at(this.cuts, i)[side] !== undefined);
    return this.all.filter((i) => fits(i, "rows") && fits(i, "columns"));
  }

  dims(places: readonly number[], side: keyof BlockDims): number[] {
    return places.map((i) => at(this.cuts, i)[side] ?? 0);
  }

  zeros(b: ProgramBuilder, place: number, rows: number): Var {
    const { shape } = at(this.types, place);
    const dim = at(this.cuts, place).rows;
    const own = shape.map((n, d) => (d === dim ? rows : n));
    return b.full(0, this.dtype, own);
  }
}

/** The values of some results. */
type Found = ReadonlyMap<number, Var>;

const foundAt = (places: readonly number[], values: readonly Var[]): [number, Var][] =>
  places.map((place, i) => [place, at(values, i)]);
const among = (found: Found, places: readonly number[]) => places.flatMap((place) => found.get(place) ?? []);

/** Cotangents of a block of queries and all keys, added to what earlier queries contributed. */
function pullKeys(
  b: ProgramBuilder,
  start: Atom,
  operands: Named,
  whole: Whole,
  sums: Sums,
  before: Found,
): Found {
  const rows = at(byName<"query">(operands).query.type.shape, 1);
  const carried = sums.places({ columns: false });
  const summed = sums.places({ columns: true, rows: false });
  const pieces = sums.places({ columns: true, rows: true });
  const first = (place: number) => before.get(place) ?? sums.zeros(b, place, rows);
  const loop = {
    start,
    operands,
    carry: carried.map(first),
    sums: summed.map(first),
    sumDims: sums.dims(summed, "columns"),
    madeDims: sums.dims(pieces, "columns"),
  };
  const { sizes, params, blocks } = whole;
  const limits = { keyLength: sizes.keyLength, block: blocks.columns, params };
  const total = overKeys(b, loop, limits, (inner, own, starts, carry, columns) => {
    const block = byName<keyof BackwardBlock>(own);
    const found = pullBlock(inner, block, starts, whole, sums.places({}).length > 3);
    const plus = (places: readonly number[], old: readonly Var[]) =>
      places.map((place, i) => inner.add("add", [at(old, i), at(found, place)], {}));
    return {
      carry: plus(carried, carry),
      sums: plus(summed, columns),
      made: pieces.map((place) => at(found, place)),
    };
  });
  return new Map([
    ...foundAt(carried, total.carry),
    ...foundAt(summed, total.sums),
    ...foundAt(pieces, total.made),
  ]);
}

/** The cotangents of query, key and value, and of the bias if its type is given, block by block in the wide type. */
function pullRows(b: ProgramBuilder, operands: Named, whole: Whole, types: readonly TensorType[]): Var[] {
  const { sizes, blocks } = whole;
  const names = ["query", "key", "value", "bias"] as const;
  const cuts = types.map((type, i) => cutOf(at(names, i), type));
  const sums = new Sums(types, cuts, sizes.wide);
  const [cut, summed] = [sums.places({ rows: true }), sums.places({ rows: false })];
  const loop = {
    length: sizes.length,
    block: blocks.rows,
    inputs: operands.values,
    cuts: rowCuts(operands),
    carry: summed.map((place) => sums.zeros(b, place, sizes.length)),
    joins: sums.dims(cut, "rows"),
  };
  const { carry, made } = overBlocks(b, loop, (inner, start, values, before) => {
    const own = { names: operands.names, values };
    const found = pullKeys(inner, start, own, whole, sums, new Map(foundAt(summed, before)));
    return { carry: among(found, summed), made: among(found, cut) };
  });
  const found = new Map([...foundAt(summed, carry), ...foundAt(cut, made)]);
  return among(found, sums.places({}));
}

/** A sum over keys from `first` to before `end`. */
interface KeySum {
  readonly first: number;
  readonly end: number;
  readonly value: Var;
}

/** The sum of two where they overlap; the second one neither begins nor ends before the first one. */
function plus(b: ProgramBuilder, x: KeySum, y: KeySum): KeySum {
  const cut = ({ first, value }: KeySum, from: number, to: number) =>
    to > from ? [b.slice(value, 1, from - first, to - from)] : [];
  const middle = Math.min(Math.max(y.first, x.first), x.end);
  const [before, after] = [cut(x, x.first, middle), cut(y, x.end, y.end)];
  const [left, right] = [cut(x, middle, x.end), cut(y, middle, x.end)];
  const both = left.map((part, i) => b.add("add", [part, at(right, i)], {}));
  return { first: x.first, end: y.end, value: joined(b, [...before, ...both, ...after], 1) };
}

/** One block of queries after the other, each with the keys that it sees as one block. */
function pullUnrolled(b: ProgramBuilder, operands: Named, whole: Whole): Var[] {
  const { sizes, params, blocks } = whole;
  const { length, keyLength } = sizes;
  const queryCts: Var[] = [];
  let sums: readonly KeySum[] = [];
  for (const [first, end] of rowBlocks(length, blocks.rows)) {
    const [key, keyEnd] = keysSeen(params, first, end - first, keyLength);
    const own = byName<keyof BackwardBlock>(cutBlock(b, operands, [first, end], [key, keyEnd]));
    const starts: Starts = [newLiteral(first, "int32"), newLiteral(key, "int32")];
    const [queryCt, ...keyCts] = pullBlock(b, own, starts, whole, false);
    if (queryCt) queryCts.push(queryCt);
    const found = keyCts.map((value) => ({ first: key, end: keyEnd, value }));
    sums = sums.length === 0 ? found : found.map((sum, i) => plus(b, at(sums, i), sum));
  }
  const all = sums.map(({ first, end, value }) => padKeys(b, value, first, keyLength - end));
  return [joined(b, queryCts, 1), ...all];
}

/** Zeros for the keys before and after some. */
function padKeys(b: ProgramBuilder, x: Var, before: number, after: number): Var {
  if (before === 0 && after === 0) return x;
  const along = (n: number) => x.type.shape.map((_, d) => (d === 1 ? n : 0));
  const zero = newLiteral(0, x.type.dtype);
  return b.add("pad", [x, zero], { low: along(before), high: along(after), interior: along(0) });
}

/**
 * What `attentionBackward` computes, for operands of these types: the weights are recomputed from the log-sums, block
 * by block.
 */
export function attentionBackwardProgram(
  params: OpParams["attentionBackward"],
  types: readonly TensorType[],
  given?: AttentionBlocks,
): Program {
  const { extras = [], wants = [] } = params;
  const names = ["query", "key", "value", "logSums", "mixedCotangent", "mixed", ...extras] as const;
  const sizes = sizesOf(at(types, 0), at(types, 1));
  const { length, keyLength, wide } = sizes;
  const blocks = given ?? attentionBlocks(length, keyLength);
  return writeProgram(types, (b, inputs) => {
    const all = byName<BlockValue>({ names, values: markedAlike(b, inputs) });
    const wantedType = (want: AttentionWant) => {
      const { dtype, shape } = at(types, names.indexOf(want));
      return tensorType(dtype, [...all.logSums.type.shape.slice(0, 2), ...shape.slice(2)]);
    };
    const products = b.add("mul", [b.convert(all.mixedCotangent, wide), b.convert(all.mixed, wide)], {});
    const inner = b.transpose(b.add("reduceSum", [products], { dims: [3] }), [0, 2, 1]);
    const shared = all.logSumsCotangent ? b.add("sub", [inner, all.logSumsCotangent], {}) : inner;
    const logSums = mayHideAll(params) ? finite(b, all.logSums) : all.logSums;
    const unused: readonly BlockValue[] = ["mixed", "sinks", "logSumsCotangent", "logSums"];
    const own = names.filter((name) => !unused.includes(name));
    const operands: Named = {
      names: [...own, "logSums", "shared"],
      values: [...own.map((name) => all[name]), logSums, shared],
    };
    const whole = { sizes, params, blocks };
    const bias = wants.filter((want) => want === "bias").map(wantedType);
    const results = [...types.slice(0, 3), ...bias];
    const isOne = length <= blocks.rows && keyLength <= blocks.columns;
    const zero = newLiteral(0, "int32");
    const found = isOne
      ? pullBlock(b, byName<keyof BackwardBlock>(operands), [zero, zero], whole, bias.length > 0)
      : blocks.unrolled && bias.length === 0
        ? pullUnrolled(b, operands, whole)
        : pullRows(b, operands, whole, results);
    const rounded = results.map((type, i) => b.convert(at(found, i), type.dtype));
    const [queryCt, keyCt, valueCt, biasCt] = rounded;
    const more = wants.flatMap((want) =>
      want === "bias" ? (biasCt ?? []) : pullSinks(b, all.sinks, logSums, shared),
    );
    return [queryCt, keyCt, valueCt].flatMap((x) => x ?? []).concat(more);
  });
}

/** The cotangent of sinks: keys without a value, whose weights are exp(sink − logSums). */
function pullSinks(b: ProgramBuilder, sinks: Var, logSums: Var, shared: Var): Var {
  const { dtype, shape } = logSums.type;
  const spread = b.broadcast(b.convert(sinks, dtype), shape, [0, 1]);
  const weights = b.add("exp", [b.add("sub", [spread, logSums], {})], {});
  const pulled = b.add("neg", [b.add("mul", [weights, shared], {})], {});
  return b.convert(b.add("reduceSum", [pulled], { dims: [2] }), sinks.type.dtype);
}
