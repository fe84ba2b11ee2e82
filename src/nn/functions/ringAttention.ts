/** Attention over a sequence that a mesh axis splits, with keys and values that travel around a ring. */
import { sumType } from "../../ir/dtype.js";
import type { MeshAxis } from "../../ir/mesh.js";
import type { Attention, AttentionExtra } from "../../ir/ops.js";
import { at } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { checkedAxes } from "../../trace/axes.js";
import { bind } from "../../trace/builder.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { customVjp } from "../../transforms/derivatives/customVjp.js";

/** What a device knows about its tokens, as queries or as keys: int32 [batch, length]. */
export interface TokenFacts {
  readonly segments?: Tensor;
  readonly positions?: Tensor;
}

/** Keys and values with what is known about their tokens. */
interface KeyBlock {
  readonly key: Tensor;
  readonly value: Tensor;
  readonly facts: TokenFacts;
}

/** What a device knows about its queries and the tokens of all devices, in the order in which these hold them. */
export interface PairFacts {
  /** Added to the scores: [batch, heads, length, tokens], where any size may be 1. */
  readonly bias?: Tensor;
  /** Which tokens a query may see; as the bias. */
  readonly mask?: Tensor;
  /** uint32 [batch, heads, 2] */
  readonly dropoutKeys?: Tensor;
}

/** What a ring computes on. */
export interface RingOperands extends KeyBlock {
  readonly query: Tensor;
  readonly pairs: PairFacts;
}

/** A result over some of the keys: [batch, length, heads, headDim] and [batch, length, heads]. */
interface Attended {
  readonly output: Tensor;
  readonly logSums: Tensor;
}

/** How blocks are computed and how far they travel. */
export interface Ring {
  readonly axis: MeshAxis;
  readonly params: Attention;
  /** After how many hops no device sees anything of the blocks. */
  readonly numHops: number;
  /** Whether tokens are placed by `zigzag` and attention is causal, so that half of each other block is never seen. */
  readonly isZigzag: boolean;
  /**
   * The positions of the block that arrives with a hop, int32 [batch, length], where the placement tells them;
   * undefined if it has the order of the queries.
   */
  readonly positions: (hop: number) => { readonly query: Tensor; readonly key: Tensor } | undefined;
}

/** Some of the tokens of a device, along a dim; 1 by default. */
interface Tokens {
  readonly take: (x: Tensor, dim?: number) => Tensor;
  /** Puts values of these tokens in their places, and the fill value in all others. */
  readonly put: (x: Tensor, fill: number, dim?: number) => Tensor;
}

/** The part of a block's scores that is computed at once. */
interface Tile {
  readonly hop: number;
  readonly queries: Tokens;
  readonly keys: Tokens;
  readonly params: Attention;
}

/** The position of this device along an axis, which differs between its devices. */
export const deviceIndex = (axis: MeshAxis): Tensor => ops.pvary(ops.axisIndex([axis]), checkedAxes([axis]));

/** The position of the device whose block arrives with a hop. */
export function deviceBefore(axis: MeshAxis, hop: number): Tensor {
  return np.remainder(deviceIndex(axis).add(axis.size - hop), axis.size).astype("int32");
}

const allTokens: Tokens = { take: (x) => x, put: (x) => x };

const halves = (x: Tensor, dim: number): readonly [Tensor, Tensor] => {
  const length = at(x.shape, dim);
  return [ops.sliceDim(x, dim, 0, length / 2), ops.sliceDim(x, dim, length / 2, length)];
};

const filled = (x: Tensor, fill: number) => np.full(x.shape, fill, x.dtype);

const lateHalf: Tokens = {
  take: (x, dim = 1) => halves(x, dim)[1],
  put: (x, fill, dim = 1) => ops.concatenate([filled(x, fill), x], dim),
};

const earlyHalf: Tokens = {
  take: (x, dim = 1) => halves(x, dim)[0],
  put: (x, fill, dim = 1) => ops.concatenate([x, filled(x, fill)], dim),
};

/** The early half on some devices, the late half on the others. */
const oneHalf = (isEarly: Tensor): Tokens => ({
  take: (x, dim = 1) => np.where(isEarly, ...halves(x, dim)),
  put: (x, fill, dim = 1) =>
    ops.concatenate([np.where(isEarly, x, filled(x, fill)), np.where(isEarly, filled(x, fill), x)], dim),
});

/** The tiles of the block that arrives with a hop; 0 is the device's own. */
function tilesOf({ axis, params, isZigzag }: Ring, hop: number): Tile[] {
  if (!isZigzag || hop === 0) return [{ hop, queries: allTokens, keys: allTokens, params }];
  // Chunk 2n − 1 − i of this device i sees chunk j of device j in any case. If j < i, chunk i sees it as well, else
  // chunk 2n − 1 − i sees chunk 2n − 1 − j. The other quarters lie in the future.
  const isBefore = np.greaterEqual(deviceIndex(axis), hop);
  const seen = params.window === undefined ? { ...params, causal: false } : params;
  const half = oneHalf(isBefore);
  return [
    { hop, queries: lateHalf, keys: earlyHalf, params: seen },
    { hop, queries: half, keys: half, params: seen },
  ];
}

/** Where the columns of the block that arrives with a hop begin among the tokens of all devices. */
function columnStarts({ axis }: Ring, hop: number, length: number): Tensor[] {
  const zero = ops.zeros({ dtype: "int32", shape: [] });
  return [zero, zero, zero, deviceBefore(axis, hop).mul(length)];
}

/** The part of a bias or mask that belongs to a tile. */
function pairsOf(ring: Ring, { hop, queries, keys }: Tile, x: Tensor, length: number): Tensor {
  const [batch = 0, heads = 0, rows = 0, columns = 0] = x.shape;
  const own = rows === 1 ? x : queries.take(x, 2);
  if (columns === 1) return own;
  const block = [batch, heads, at(own.shape, 2), length];
  return keys.take(ops.dynamicSlice(own, columnStarts(ring, hop, length), block), 3);
}

/** The operands of a tile, and the parameters that name them. */
function tileOperands(ring: Ring, tile: Tile, own: RingOperands, block: KeyBlock) {
  const { hop, queries, keys, params } = tile;
  const { bias, mask, dropoutKeys } = own.pairs;
  const length = at(block.key.shape, 1);
  const extras: [AttentionExtra, Tensor][] = [];
  if (bias) extras.push(["bias", pairsOf(ring, tile, bias, length)]);
  if (mask) extras.push(["mask", pairsOf(ring, tile, mask, length)]);
  const add = (query: Tensor | undefined, key: Tensor | undefined, what: "Segments" | "Positions") => {
    if (!query || !key) return;
    extras.push([`query${what}`, queries.take(query)], [`key${what}`, keys.take(key)]);
  };
  add(own.facts.segments, block.facts.segments, "Segments");
  if (params.causal || params.window || dropoutKeys) {
    const placed = own.facts.positions ? undefined : ring.positions(hop);
    add(own.facts.positions ?? placed?.query, block.facts.positions ?? placed?.key, "Positions");
  }
  if (dropoutKeys) extras.push(["dropoutKeys", dropoutKeys]);
  return {
    main: [queries.take(own.query), keys.take(block.key), keys.take(block.value)] as const,
    extras: extras.map(([, tensor]) => tensor),
    params: extras.length > 0 ? { ...params, extras: extras.map(([name]) => name) } : params,
  };
}

const swapped = (x: Tensor) => ops.transpose(x, [0, 2, 1]);

/** Sends what a device holds to the next device, or back by several. */
function shift<T>(values: T, { size, ...axis }: MeshAxis, by: number): T {
  const permutation = Array.from({ length: size }, (_, i) => [i, (i + by + size) % size] as const);
  return tree.map((x: Tensor) => ops.ppermute(x, [{ ...axis, size }], permutation), values);
}

/** The same values; what is computed from any of them waits for all. */
function together<T>(values: T): T {
  const { leaves, structure } = tree.flatten(values);
  return tree.unflatten<T>(structure, ops.optimizationBarrier(leaves as Tensor[]));
}

/** Results over different keys as one, weighted by the sums of their exponentials. */
function merge(a: Attended, b: Attended): Attended {
  const peak = np.maximum(a.logSums, b.logSums);
  // A query without keys has −∞ on both sides, whose difference is not a number.
  const base = np.where(np.isneginf(peak), 0, peak);
  const [forA, forB] = [np.exp(a.logSums.sub(base)), np.exp(b.logSums.sub(base))];
  const sum = forA.add(forB);
  const share = (x: Tensor) => np.expandDims(x.div(np.where(np.equal(sum, 0), 1, sum)), -1);
  return {
    output: a.output.mul(share(forA)).add(b.output.mul(share(forB))),
    logSums: np.log(sum).add(base),
  };
}

function attendBlock(ring: Ring, hop: number, own: RingOperands, block: KeyBlock): Attended {
  const results = tilesOf(ring, hop).map((tile) => {
    const { main, extras, params } = tileOperands(ring, tile, own, block);
    const results = ops.attention([...main, ...extras], params);
    const [output, logSums] = [at(results, 0), swapped(at(results, 1))];
    return {
      output: tile.queries.put(output.astype(logSums.dtype), 0),
      logSums: tile.queries.put(logSums, Number.NEGATIVE_INFINITY),
    };
  });
  return results.reduce(merge);
}

/** In each hop the next block is sent before this one is computed, so that both can take place at once. */
function forward(ring: Ring, own: RingOperands): Attended {
  let block: KeyBlock = { key: own.key, value: own.value, facts: own.facts };
  let result: Attended | undefined;
  for (let hop = 0; hop <= ring.numHops; hop++) {
    const next = hop < ring.numHops ? shift(block, ring.axis, 1) : block;
    const part = attendBlock(ring, hop, own, block);
    // A block is sent on only when the one before it is done, so that no device collects the keys of all.
    [block, result] = together([next, result ? merge(result, part) : part] as const);
  }
  const { output, logSums } = result ?? attendBlock(ring, 0, own, block);
  return { output: output.astype(own.query.dtype), logSums };
}

interface Cotangents {
  readonly query: Tensor;
  readonly keyValue: readonly [Tensor, Tensor];
  /** Of the columns of this block. */
  readonly bias: Tensor | undefined;
}

/** The cotangent of a tile's bias in the place of a block's, summed where one value stands for several. */
function putBias({ queries, keys }: Tile, ct: Tensor, { shape }: Tensor): Tensor {
  const dims = [0, 1].filter((d) => shape[d] === 1 && ct.shape[d] !== 1);
  const summed = dims.length === 0 ? ct : np.sum(ct, dims, { keepdims: true });
  const rows = shape[2] === 1 ? summed : queries.put(summed, 0, 2);
  return shape[3] === 1 ? rows : keys.put(rows, 0, 3);
}

/** Adds the cotangent of a block's bias to that of all. */
function addBias(ring: Ring, hop: number, all: Tensor, own: Tensor | undefined, length: number): Tensor {
  if (!own) return all;
  if (all.shape[3] === 1) return all.add(own);
  return ops.dynamicUpdateSlice(all, own, columnStarts(ring, hop, length));
}

/** The cotangents of one block, from the results over all keys. */
function pullBlock(
  ring: Ring,
  hop: number,
  own: RingOperands,
  block: KeyBlock,
  result: Attended,
  ct: Attended,
): Cotangents {
  const parts = tilesOf(ring, hop).map((tile) => {
    const { main, extras, params } = tileOperands(ring, tile, own, block);
    const take = tile.queries.take;
    const results = [swapped(take(result.logSums)), take(ct.output), take(result.output)];
    const pulled = bind("attentionBackward", [...main, ...results, ...extras, swapped(take(ct.logSums))], {
      ...params,
      extras: [...(params.extras ?? []), "logSumsCotangent"],
      ...(own.pairs.bias && { wants: ["bias"] }),
    });
    const wide = (i: number, to: Tokens) => to.put(at(pulled, i).astype(sumType(own.query.dtype)), 0);
    const { bias } = own.pairs;
    return [
      wide(0, tile.queries),
      wide(1, tile.keys),
      wide(2, tile.keys),
      ...(bias ? [putBias(tile, at(pulled, 3), bias)] : []),
    ];
  });
  const sums = parts.reduce((a, b) => a.map((x, i) => x.add(at(b, i))));
  return { query: at(sums, 0), keyValue: [at(sums, 1), at(sums, 2)], bias: sums[3] };
}

/** Keys and values travel once more, and the sums of their cotangents with them, then home. */
function backward(ring: Ring, own: RingOperands, result: Attended, ct: Attended) {
  let block: KeyBlock = { key: own.key, value: own.value, facts: own.facts };
  let query: Tensor | undefined;
  let sums: readonly [Tensor, Tensor] | undefined;
  let bias = own.pairs.bias && filled(own.pairs.bias.astype(sumType(own.query.dtype)), 0);
  for (let hop = 0; hop <= ring.numHops; hop++) {
    const next = hop < ring.numHops ? shift(block, ring.axis, 1) : block;
    const moving = sums && shift(sums, ring.axis, 1);
    const part = pullBlock(ring, hop, own, block, result, ct);
    const [key, value] = part.keyValue;
    sums = moving ? [moving[0].add(key), moving[1].add(value)] : [key, value];
    bias &&= addBias(ring, hop, bias, part.bias, at(block.key.shape, 1));
    [block, query] = together([next, query ? query.add(part.query) : part.query] as const);
  }
  const home = shift(sums ?? [], ring.axis, -ring.numHops);
  const narrow = (x: Tensor | undefined) => x?.astype(own.query.dtype) ?? null;
  return {
    operands: [narrow(query), narrow(home[0]), narrow(home[1])] as const,
    bias: (own.pairs.bias && bias?.astype(own.pairs.bias.dtype)) ?? null,
  };
}

/**
 * The attention of a device's queries to the keys of all devices. Forward, keys and values pass every device; backward
 * they do so again with the sums of their cotangents, so that nothing but a device's own tokens is kept in between.
 */
export function ringAttention(ring: Ring, operands: RingOperands): Attended {
  const { query, key, value, facts, pairs } = operands;
  const attend = customVjp(
    (q: Tensor, k: Tensor, v: Tensor, known: TokenFacts, others: PairFacts): Attended =>
      forward(ring, { query: q, key: k, value: v, facts: known, pairs: others }),
    {
      forward: (q, k, v, known, others) => {
        const own = { query: q, key: k, value: v, facts: known, pairs: others };
        const result = forward(ring, own);
        return [result, { own, result }] as const;
      },
      backward: ({ own, result }, ct) => {
        const { operands, bias } = backward(ring, own, result, ct);
        const ofPairs = tree.map(() => null, own.pairs);
        return [...operands, null, { ...ofPairs, ...(own.pairs.bias && { bias }) }];
      },
    },
  );
  return attend(query, key, value, facts, pairs);
}
