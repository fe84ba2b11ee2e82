/** The scores of a block of queries and keys: which are seen, what is added to them, which weights are dropped. */
import { sumType } from "../dtype.js";
import type { Attention, AttentionExtra } from "../ops.js";
import { type Atom, newLiteral, type Var } from "../program.js";
import { at, type Shape } from "../shape.js";
import type { ProgramBuilder } from "./programBuilder.js";

/** The operands of a block by name, with dims as those of the op. */
export type AttentionBlock = { readonly query: Var; readonly key: Var; readonly value: Var } & {
  readonly [N in AttentionExtra]?: Var | undefined;
};

/** The indices of the first query and the first key of a block. */
export type Starts = readonly [query: Atom, key: Atom];

/** Where dims `[batch, K, G, T, S]` are among those of scores. */
const scoreOrder = [0, 1, 3, 2, 4];

/** The sizes of a block's scores, `[batch, K, T, G, S]`. */
function scoresShape({ query, key }: AttentionBlock): [number, number, number, number, number] {
  const [batch = 0, length = 0, heads = 0] = query.type.shape;
  const [, keyLength = 0, keyHeads = 0] = key.type.shape;
  return [batch, keyHeads, length, heads / keyHeads, keyLength];
}

/** The query heads in groups that share keys: `[batch, T, K, G, H]`. */
export function inGroups(b: ProgramBuilder, x: Var, { key }: Pick<AttentionBlock, "key">): Var {
  const [batch = 0, length = 0, heads = 0, headSize = 0] = x.type.shape;
  const [, , keyHeads = 1] = key.type.shape;
  return b.reshape(x, [batch, length, keyHeads, heads / keyHeads, headSize]);
}

/** A value for every query head, `[batch, N]`, in groups: `[batch, K, 1, G]`. */
export function headsInGroups(b: ProgramBuilder, x: Var, { key }: Pick<AttentionBlock, "key">): Var {
  const [batch = 0, heads = 0] = x.type.shape;
  const [, , keyHeads = 1] = key.type.shape;
  return b.reshape(x, [batch, keyHeads, 1, heads / keyHeads]);
}

/** A bias or mask, sizes of 1 included, in the order of scores. */
function likeScores(b: ProgramBuilder, x: Var, block: AttentionBlock): Var {
  const [batch = 1, heads = 1, length = 1, keyLength = 1] = x.type.shape;
  const scores = scoresShape(block);
  const grouped = heads === 1 ? [1, 1] : [at(scores, 1), at(scores, 3)];
  const split = b.reshape(x, [batch, ...grouped, length, keyLength]);
  return b.broadcast(b.transpose(split, scoreOrder), scores, [0, 1, 2, 3, 4]);
}

/** The indices or positions of queries and keys, each `[length]` or `[batch, length]`. */
function placesOf(b: ProgramBuilder, block: AttentionBlock, starts: Starts): readonly [Var, Var] {
  const { queryPositions, keyPositions } = block;
  if (queryPositions && keyPositions) return [queryPositions, keyPositions];
  const [, , length, , keyLength] = scoresShape(block);
  const from = (start: Atom, size: number) => {
    const indices = b.add("iota", [], { dtype: "int32", shape: [size], dim: 0 });
    if (start.kind === "literal" && start.value === 0) return indices;
    return b.add("add", [indices, b.broadcast(start, [size], [])], {});
  };
  return [from(starts[0], length), from(starts[1], keyLength)];
}

/** Values of queries and keys against each other: `[T, S]` or `[batch, T, S]`. */
function inPairs(b: ProgramBuilder, query: Var, key: Var): readonly [Var, Var] {
  const rank = query.type.shape.length;
  const shape: Shape = [...query.type.shape, at(key.type.shape, rank - 1)];
  const batch = rank === 2 ? [0] : [];
  return [b.broadcast(query, shape, [...batch, rank - 1]), b.broadcast(key, shape, [...batch, rank])];
}

/** The conditions under which a query sees a key, each in the shape of the scores. */
function conditions(b: ProgramBuilder, block: AttentionBlock, starts: Starts, params: Attention): Var[] {
  const { causal, window: [before, after] = [-1, -1] } = params;
  const scores = scoresShape(block);
  const found: Var[] = [];
  const spread = (x: Var) => b.broadcast(x, scores, x.type.shape.length === 3 ? [0, 2, 4] : [2, 4]);
  const places: Var[] = [];
  if (causal || before >= 0 || after >= 0) {
    const [query, key] = placesOf(b, block, starts);
    const [row, column] = inPairs(b, query, key);
    const moved = (x: Var, by: number) => (by === 0 ? x : b.add("add", [x, newLiteral(by, "int32")], {}));
    if (causal) places.push(b.add("compare", [row, column], { direction: "ge" }));
    if (before >= 0) places.push(b.add("compare", [moved(column, before), row], { direction: "ge" }));
    if (after >= 0) places.push(b.add("compare", [moved(row, after), column], { direction: "ge" }));
    found.push(spread(places.reduce((x, y) => b.add("and", [x, y], {}))));
  }
  if (block.querySegments && block.keySegments) {
    const pairs = inPairs(b, block.querySegments, block.keySegments);
    found.push(spread(b.add("compare", pairs, { direction: "eq" })));
  }
  if (block.mask) found.push(likeScores(b, block.mask, block));
  return found;
}

/** The scores of a block. */
export interface BlockScores {
  /** What the softmax is taken of: −∞ for keys that are not seen. */
  readonly scores: Var;
  /** The scores after the soft cap, before the bias. */
  readonly capped: Var;
}

/** The products of a block's queries and keys as scores. */
export function blockScores(
  b: ProgramBuilder,
  block: AttentionBlock,
  starts: Starts,
  params: Attention,
): BlockScores {
  const { query, key, bias } = block;
  const wide = sumType(query.type.dtype);
  const products = b.dot("brhgd,bshd->bhrgs", inGroups(b, query, block), key, wide);
  const { scale, softcap } = params;
  const capped = softcap
    ? times(b, b.add("tanh", [times(b, products, scale / softcap)], {}), softcap)
    : times(b, products, scale);
  const biased = bias ? b.add("add", [capped, likeScores(b, b.convert(bias, wide), block)], {}) : capped;
  const seen = conditions(b, block, starts, params);
  if (seen.length === 0) return { scores: biased, capped };
  const isSeen = seen.reduce((x, y) => b.add("and", [x, y], {}));
  const hidden = newLiteral(Number.NEGATIVE_INFINITY, wide);
  return { scores: b.add("select", [isSeen, biased, hidden], {}), capped };
}

/** The value multiplied by a constant. */
export function times(b: ProgramBuilder, x: Var, factor: number): Var {
  return b.add("mul", [x, newLiteral(factor, x.type.dtype)], {});
}

/** Drops some of a block's weights, or what belongs to them, and scales the others up. */
export function dropSome(
  b: ProgramBuilder,
  weights: Var,
  block: AttentionBlock,
  starts: Starts,
  { dropoutRate: rate }: Attention,
): Var {
  const { dropoutKeys } = block;
  if (!dropoutKeys || !rate) return weights;
  const { shape, dtype } = weights.type;
  const word = (i: number) => {
    const [batch = 0, heads = 0] = dropoutKeys.type.shape;
    const own = b.reshape(b.slice(dropoutKeys, 2, i, 1), [batch, heads]);
    return b.broadcast(headsInGroups(b, own, block), shape, [0, 1, 2, 3]);
  };
  const counter = (x: Var, dim: number) => {
    const unsigned = b.add("bitcast", [x], { dtype: "uint32" });
    return b.broadcast(unsigned, shape, x.type.shape.length === 2 ? [0, dim] : [dim]);
  };
  const [rows, columns] = placesOf(b, block, starts);
  const bits = b.add("threefry2x32", [word(0), word(1), counter(rows, 2), counter(columns, 4)], {});
  const limit = newLiteral(Math.floor(rate * 2 ** 32), "uint32");
  const isKept = b.add("compare", [bits, limit], { direction: "ge" });
  return b.add("select", [isKept, times(b, weights, 1 / (1 - rate)), newLiteral(0, dtype)], {});
}

/** The least and the greatest of some integers: a value and an offset each. */
interface Range {
  readonly least: Atom;
  readonly greatest: readonly [Atom, offset: number];
}

/** The indices of a block of `length`, from the first on. */
const fromStart = (start: Atom, length: number): Range => ({ least: start, greatest: [start, length - 1] });

/** The positions or segments of a block. */
function rangeOf(b: ProgramBuilder, x: Var): Range {
  const dims = x.type.shape.map((_, d) => d);
  return {
    least: b.add("reduceMin", [x], { dims }),
    greatest: [b.add("reduceMax", [x], { dims }), 0],
  };
}

/**
 * Whether any query of a block may see any of its keys, as far as their indices or positions and their segments say;
 * undefined where these say nothing.
 */
export function isBlockSeen(
  b: ProgramBuilder,
  block: AttentionBlock,
  [queryStart, keyStart]: Starts,
  { causal, window: [before, after] = [-1, -1] }: Attention,
): Var | undefined {
  // There is one block only.
  if (queryStart.kind === "literal" && keyStart.kind === "literal") return undefined;
  const { queryPositions, keyPositions, querySegments, keySegments } = block;
  const [, , length, , keyLength] = scoresShape(block);
  const reaches = ({ greatest: [value, offset] }: Range, { least }: Range, by: number) =>
    b.add("compare", [b.add("add", [value, newLiteral(offset + by, "int32")], {}), least], {
      direction: "ge",
    });
  const tests: Var[] = [];
  const ahead = causal ? 0 : after;
  if (ahead >= 0 || before >= 0) {
    const query = queryPositions ? rangeOf(b, queryPositions) : fromStart(queryStart, length);
    const key = keyPositions ? rangeOf(b, keyPositions) : fromStart(keyStart, keyLength);
    if (ahead >= 0) tests.push(reaches(query, key, ahead));
    if (before >= 0) tests.push(reaches(key, query, before));
  }
  if (querySegments && keySegments) {
    const [query, key] = [rangeOf(b, querySegments), rangeOf(b, keySegments)];
    tests.push(reaches(query, key, 0), reaches(key, query, 0));
  }
  return tests.length === 0 ? undefined : tests.reduce((x, y) => b.add("and", [x, y], {}));
}

/** A score-shaped value as `[batch, N, T, S]`, summed over the queries or keys for which an operand has one value. */
export function sumLike(b: ProgramBuilder, x: Var, { type }: Var): Var {
  const [batch = 0, keyHeads = 0, length = 0, groups = 0, keyLength = 0] = x.type.shape;
  const whole = b.reshape(b.transpose(x, scoreOrder), [batch, keyHeads * groups, length, keyLength]);
  const dims = [2, 3].filter((d) => type.shape[d] === 1 && whole.type.shape[d] !== 1);
  if (dims.length === 0) return whole;
  const shape = whole.type.shape.map((n, d) => (dims.includes(d) ? 1 : n));
  return b.reshape(b.add("reduceSum", [whole], { dims }), shape);
}
