/** Attention over a sequence that a mesh axis splits, with keys and values that travel around a ring. */
import { sumType } from "../ir/dtype.js";
import type { MeshAxis } from "../ir/mesh.js";
import type { Attention, AttentionExtra } from "../ir/ops.js";
import { at } from "../ir/shape.js";
import * as np from "../numpy/index.js";
import { checkedAxes } from "../trace/axes.js";
import { bind } from "../trace/builder.js";
import * as ops from "../trace/ops.js";
import type { Tensor } from "../trace/tensor.js";
import * as tree from "../trace/tree.js";
import { customVjp } from "../transforms/derivatives/customVjp.js";

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

/** What a ring computes on. */
export interface RingOperands extends KeyBlock {
  readonly query: Tensor;
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

/** Some of the tokens of a device, along dim 1. */
interface Tokens {
  readonly take: (x: Tensor) => Tensor;
  /** Puts values of these tokens in their places, and the fill value in all others. */
  readonly put: (x: Tensor, fill: number) => Tensor;
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

const allTokens: Tokens = { take: (x) => x, put: (x) => x };

const halves = (x: Tensor): readonly [Tensor, Tensor] => {
  const length = at(x.shape, 1);
  return [ops.sliceDim(x, 1, 0, length / 2), ops.sliceDim(x, 1, length / 2, length)];
};

const filled = (x: Tensor, fill: number) => np.full(x.shape, fill, x.dtype);

const lateHalf: Tokens = {
  take: (x) => halves(x)[1],
  put: (x, fill) => ops.concatenate([filled(x, fill), x], 1),
};

const earlyHalf: Tokens = {
  take: (x) => halves(x)[0],
  put: (x, fill) => ops.concatenate([x, filled(x, fill)], 1),
};

/** The early half on some devices, the late half on the others. */
const oneHalf = (isEarly: Tensor): Tokens => ({
  take: (x) => np.where(isEarly, ...halves(x)),
  put: (x, fill) =>
    ops.concatenate([np.where(isEarly, x, filled(x, fill)), np.where(isEarly, filled(x, fill), x)], 1),
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

/** The operands of a tile, and the parameters that name them. */
function tileOperands(ring: Ring, { hop, queries, keys, params }: Tile, own: RingOperands, block: KeyBlock) {
  const extras: [AttentionExtra, Tensor][] = [];
  const add = (query: Tensor | undefined, key: Tensor | undefined, what: "Segments" | "Positions") => {
    if (!query || !key) return;
    extras.push([`query${what}`, queries.take(query)], [`key${what}`, keys.take(key)]);
  };
  add(own.facts.segments, block.facts.segments, "Segments");
  if (params.causal || params.window) {
    const placed = own.facts.positions ? undefined : ring.positions(hop);
    add(own.facts.positions ?? placed?.query, block.facts.positions ?? placed?.key, "Positions");
  }
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
  // A query without keys has −∞ on both sides, whose difference is no number.
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
    });
    const wide = (i: number, to: Tokens) => to.put(at(pulled, i).astype(sumType(own.query.dtype)), 0);
    return [wide(0, tile.queries), wide(1, tile.keys), wide(2, tile.keys)] as const;
  });
  const [query, key, value] = parts.reduce((a, b) => [a[0].add(b[0]), a[1].add(b[1]), a[2].add(b[2])]);
  return { query, keyValue: [key, value] };
}

/** Keys and values travel once more, and the sums of their cotangents with them, then home. */
function backward(ring: Ring, own: RingOperands, result: Attended, ct: Attended): RingOperands["query"][] {
  let block: KeyBlock = { key: own.key, value: own.value, facts: own.facts };
  let query: Tensor | undefined;
  let sums: readonly [Tensor, Tensor] | undefined;
  for (let hop = 0; hop <= ring.numHops; hop++) {
    const next = hop < ring.numHops ? shift(block, ring.axis, 1) : block;
    const moving = sums && shift(sums, ring.axis, 1);
    const part = pullBlock(ring, hop, own, block, result, ct);
    const [key, value] = part.keyValue;
    sums = moving ? [moving[0].add(key), moving[1].add(value)] : [key, value];
    [block, query] = together([next, query ? query.add(part.query) : part.query] as const);
  }
  const home = shift(sums ?? [], ring.axis, -ring.numHops);
  return [query, ...home].flatMap((x) => x?.astype(own.query.dtype) ?? []);
}

/**
 * The attention of a device's queries to the keys of all devices. Forward, keys and values pass every device; backward
 * they do so again with the sums of their cotangents, so that nothing but a device's own tokens is kept in between.
 */
export function ringAttention(ring: Ring, operands: RingOperands): Attended {
  const { query, key, value, facts } = operands;
  const attend = customVjp(
    (q: Tensor, k: Tensor, v: Tensor, known: TokenFacts): Attended =>
      forward(ring, { query: q, key: k, value: v, facts: known }),
    {
      forward: (q, k, v, known) => {
        const own = { query: q, key: k, value: v, facts: known };
        const result = forward(ring, own);
        return [result, { own, result }] as const;
      },
      backward: ({ own, result }, ct) => {
        const [ofQuery = null, ofKey = null, ofValue = null] = backward(ring, own, result, ct);
        return [ofQuery, ofKey, ofValue, null];
      },
    },
  );
  return attend(query, key, value, facts);
}
