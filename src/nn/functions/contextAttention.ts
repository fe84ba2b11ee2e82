/** Context parallelism: attention over a sequence that a mesh axis splits. */

import { oneOf } from "../../ir/arguments.js";
import { isFloat } from "../../ir/dtype.js";
import { DTypeError, ShapeError, ValueError } from "../../ir/errors.js";
import type { MeshAxis } from "../../ir/mesh.js";
import type { Attention } from "../../ir/ops.js";
import { type OptionsOf, optional, schema, type Values } from "../../ir/schema.js";
import { at, formatType } from "../../ir/shape.js";
import * as np from "../../numpy/index.js";
import { split } from "../../random/index.js";
import { allGather, allToAll } from "../../spmd/mesh/collectives.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import { lookUpAxes } from "../../trace/axes.js";
import * as ops from "../../trace/ops.js";
import { needTensor, tensorKind } from "../../trace/promote.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import {
  type AttentionResult,
  attentionCallOptions,
  attentionWithKeys,
  needBool,
  sidesOf,
} from "./attention.js";
import { boundAxis, meshSplit } from "./contextMesh.js";
import { sigmoid, softplus } from "./functions.js";
import {
  deviceBefore,
  deviceIndex,
  type PairFacts,
  ringAttention,
  type TokenFacts,
} from "./ringAttention.js";
import { zigzag } from "./zigzag.js";

/** How the devices of an axis exchange what their parts of a sequence need of each other. */
export type ContextParallelism = "ring" | "allToAll" | "gather";

/** Which tokens of a sequence a device holds: consecutive ones, or two chunks as `nn.zigzag` places them. */
export type ContextPlacement = "contiguous" | "zigzag";

const { causal, window, softcap, scale, sinks, dropoutRate } = attentionCallOptions.fields;

const contextOptions = schema({
  /** Whether queries see no later tokens. */
  causal,
  /** How many tokens before and after a query are seen; all by default. */
  window,
  /** Scores x become softcap · tanh(x / softcap); not limited by default. */
  softcap,
  /** The factor of the scores; 1 / √headDim by default. */
  scale,
  /** Scores without a value, one for each head, which take a share of each softmax: [heads]. */
  sinks,
  /**
   * Added to the scores: [batch, heads, length, tokens of all devices], in the order in which devices hold tokens; any
   * size may be 1.
   */
  bias: optional(tensorKind),
  /** Which tokens a query may see (true), in the same form. */
  mask: optional(tensorKind),
  /** The probability with which a weight becomes 0; needs `dropoutKey`. */
  dropoutRate,
  /** The random key for dropout, the same on all devices of the axis. */
  dropoutKey: optional(tensorKind),
  /**
   * `ring` (the default): keys and values travel around a ring while blocks are computed. `allToAll`: each device gets
   * the whole sequence of some heads. `gather`: each device gets all keys and values.
   */
  context: optional(oneOf<ContextParallelism>("ring", "allToAll", "gather"), "ring"),
  /** The mesh axis that splits the sequence. */
  axis: optional("string", "context"),
  /** Which tokens a device holds; `contiguous` by default. */
  placement: optional(oneOf<ContextPlacement>("contiguous", "zigzag"), "contiguous"),
  /** The positions of the tokens, if the placement does not tell them: integers [batch, length] or [length]. */
  positions: optional(tensorKind),
  /** Tokens see tokens of their own segment only: integers [batch, length]. */
  segmentIds: optional(tensorKind),
  /** The mesh axes that split the batch in the global view. */
  batchAxes: optional("strings", ["data", "fsdp", "expert"]),
  /** The mesh axis that splits the heads in the global view. */
  modelAxis: optional("string", "model"),
});

/** Options of {@link contextAttention}. */
export interface ContextAttentionOptions extends OptionsOf<typeof contextOptions> {}

type Given = Values<typeof contextOptions.fields>;

/** Everything that is split, so that a shard map can pass it on. */
interface Operands {
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  readonly facts: TokenFacts;
  readonly pairs: PairFacts;
  readonly sinks: Tensor | null;
}

/**
 * Attention as `nn.attention` computes it of a sequence to itself where a mesh axis splits the sequence: every device has the queries, keys and
 * values of some tokens, [batch, length, heads, headDim], and gets the results of those. Positions decide about causal
 * masks and windows, so that devices may hold any tokens.
 *
 * Inside of `shardMap` tensors are those of one device. Elsewhere they are whole, and the surrounding `withMesh` has the
 * axis; without it, or if it has one device, this is plain attention.
 *
 * `ring`: keys and values make n − 1 hops forward, and n with the sums of their cotangents backward. `allToAll`: an
 * all-to-all of queries, keys and values and one of the results, the same backward; the heads must split over the axis.
 * `gather`: all-gather of keys and values forward, reduce-scatter backward.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ context: 2 });
 * const part = P(null, "context");
 * const attend = (x: Tensor) => nn.contextAttention(x, x, x, { causal: true }).output;
 * const x = random.normal(random.key(0), [1, 6, 2, 4]);
 * shardMap(attend, { mesh, inSpecs: part, outSpecs: part })(x).shape; // [1, 6, 2, 4]
 * ```
 */
export function contextAttention(
  query: Tensor,
  key: Tensor,
  value: Tensor,
  options?: ContextAttentionOptions,
): AttentionResult {
  const given = contextOptions.read(options, "nn.contextAttention");
  const operands = checkedOperands([query, key, value], given);
  const axis = boundAxis(given.axis, "nn.contextAttention");
  checkPairs(operands, (axis?.size ?? 1) * at(query.shape, 1));
  return axis ? onDevice(operands, given, axis) : onMesh(operands, given);
}

/** The positions of the tokens that devices hold: of this one inside of `shardMap`, else of all in their order. */
function placedPositions(length: number, placement: ContextPlacement, axis: MeshAxis, index: Tensor): Tensor {
  const start = (chunk: Tensor, size: number) => chunk.mul(size).add(ops.iota("int32", [size], 0));
  if (placement === "contiguous") return start(index, length);
  const last = np.subtract(2 * axis.size - 1, index).astype("int32");
  return ops.concatenate([start(index, length / 2), start(last, length / 2)], 0);
}

const contextPositionsOptions = schema({
  /** The mesh axis that splits the sequence. */
  axis: optional("string", "context"),
  /** Which tokens a device holds; `contiguous` by default. */
  placement: optional(oneOf<ContextPlacement>("contiguous", "zigzag"), "contiguous"),
});

/** Options of {@link contextPositions}. */
export interface ContextPositionsOptions extends OptionsOf<typeof contextPositionsOptions> {}

/**
 * The positions of tokens, int32 [length]: inside of `shardMap` of the `length` tokens of this device, elsewhere of a whole
 * sequence in the order in which the surrounding mesh splits it.
 *
 * @example
 * ```ts
 * const mesh = Mesh.create({ context: 2 });
 * withMesh(mesh, () => nn.contextPositions(8, { placement: "zigzag" })); // [0, 1, 6, 7, 2, 3, 4, 5]
 * ```
 */
export function contextPositions(length: number, options?: ContextPositionsOptions): Tensor {
  const given = contextPositionsOptions.read(options, "nn.contextPositions");
  const axis = boundAxis(given.axis, "nn.contextAttention");
  if (axis) return placedPositions(length, given.placement, axis, deviceIndex(axis));
  const all = ops.iota("int32", [length], 0);
  const size = currentMesh()?.shape[given.axis] ?? 1;
  return given.placement === "zigzag" ? zigzag(all, size, 0) : all;
}

function checkedOperands(tensors: readonly [Tensor, Tensor, Tensor], given: Given): Operands {
  const names = ["query", "key", "value"];
  tensors.forEach((x, i) => {
    needTensor(x, at(names, i), "nn.contextAttention");
  });
  const types = tensors.map((x) => formatType(x.type)).join(", ");
  const dtype = tensors.map((x) => x.dtype).reduce(np.promoteTypes);
  if (!isFloat(dtype)) throw new DTypeError(`[nn.contextAttention] needs floats, got (${types})`);
  if (tensors.some(({ ndim }) => ndim !== 4)) {
    throw new ShapeError(
      `[nn.contextAttention] query, key and value must have 4 dims [batch, length, heads, headDim]; they are (${types})`,
    );
  }
  const lengths = new Set(tensors.map(({ shape }) => shape[1]));
  if (lengths.size > 1) {
    throw new ShapeError(
      `[nn.contextAttention] query, key and value must be of the same tokens; they are (${types})`,
    );
  }
  const [query, key, value] = tensors;
  const wide = (x: Tensor) => ops.convert(x, dtype);
  const tokens = [at(query.shape, 0), at(query.shape, 1)];
  const perToken = (x: Tensor) => np.broadcastTo(ops.convert(x, "int32"), tokens);
  const facts = {
    ...(given.segmentIds && { segments: perToken(given.segmentIds) }),
    ...(given.positions && { positions: perToken(given.positions) }),
  };
  const { bias, mask, dropoutRate, dropoutKey, sinks = null } = given;
  if (dropoutRate > 0 && !dropoutKey) {
    throw new ValueError("[nn.contextAttention] dropoutRate needs a dropoutKey");
  }
  const heads = [at(query.shape, 0), at(query.shape, 2)];
  const pairs = {
    ...(bias && { bias: isFloat(bias.dtype) ? bias : ops.convert(bias, "float32") }),
    ...(mask && { mask }),
    ...(dropoutRate > 0 && dropoutKey && { dropoutKeys: split(dropoutKey, heads) }),
  };
  return { query: wide(query), key: wide(key), value: wide(value), facts, pairs, sinks };
}

/** Throws unless bias and mask are of the queries here and of all tokens. */
function checkPairs({ query, pairs: { bias, mask } }: Operands, numTokens: number): void {
  const [batch = 0, length = 0, heads = 0] = query.shape;
  const sizes = [batch, heads, length, numTokens];
  for (const [name, x] of [["bias", bias] as const, ["mask", mask] as const]) {
    if (!x) continue;
    if (name === "mask") needBool(x, "nn.contextAttention");
    if (x.ndim === 4 && x.shape.every((n, d) => n === 1 || n === sizes[d])) continue;
    throw new ShapeError(
      `[nn.contextAttention] the ${name} must be [${sizes.join(", ")}] (batch, heads, length, tokens of all devices), where any size may be 1; got ${formatType(x.type)}`,
    );
  }
}

/** The global view: a shard map over the axis, and over those that split batch and heads, which need nothing from it. */
function onMesh(operands: Operands, given: Given): AttentionResult {
  const mesh = currentMesh();
  const size = mesh?.shape[given.axis] ?? 1;
  const { query, key, facts } = operands;
  if (!mesh || size === 1) return attendWhole(operands, given);
  const [batch = 0, length = 0, heads = 0] = query.shape;
  const multiple = given.placement === "zigzag" ? 2 * size : size;
  if (length % multiple !== 0) {
    const chunks = given.placement === "zigzag" ? " in two chunks for each device" : "";
    throw new ShapeError(
      `[nn.contextAttention] ${length} tokens do not split over axis "${given.axis}"${chunks} (${length} / ${multiple} = ${Number((length / multiple).toPrecision(3))}): use a multiple of ${multiple}`,
    );
  }
  const axes = meshSplit(mesh, given, batch, [heads, at(key.shape, 2)], "nn.contextAttention");
  const { batch: batchEntry, heads: byHead } = axes;
  const tokens = new PartitionSpec([batchEntry, given.axis]);
  const perHead = new PartitionSpec([batchEntry, given.axis, byHead]);
  const sinkDims = operands.sinks?.ndim === 2 ? [at(operands.sinks.shape, 0) === 1 ? null : batchEntry] : [];
  const specs = {
    query: perHead,
    key: perHead,
    value: perHead,
    facts: tree.map(() => tokens, facts),
    pairs: pairSpecs(operands.pairs, [batchEntry, byHead, given.axis, null]),
    sinks: operands.sinks && new PartitionSpec([...sinkDims, byHead]),
  };
  const block = (own: Operands): AttentionResult =>
    onDevice(own, given, at(lookUpAxes(given.axis, "nn.contextAttention"), 0));
  return shardMap(block, {
    mesh,
    axisNames: axes.axisNames,
    inSpecs: [specs] as never,
    outSpecs: { output: perHead, logSumExp: perHead },
  })(operands);
}

/** Specs of what queries know about all tokens; sizes of 1 are not split. */
function pairSpecs(pairs: PairFacts, entries: readonly (readonly string[] | string | null)[]) {
  const spec = ({ shape }: Tensor) =>
    new PartitionSpec(shape.map((n, d) => (n === 1 ? null : (entries[d] ?? null))));
  const [batch = null, heads = null] = entries;
  return {
    ...(pairs.bias && { bias: spec(pairs.bias) }),
    ...(pairs.mask && { mask: spec(pairs.mask) }),
    ...(pairs.dropoutKeys && { dropoutKeys: new PartitionSpec([batch, heads]) }),
  };
}

/** The options of attention that need no exchange. */
function plainOptions({ causal, window, softcap, scale, dropoutRate }: Given) {
  return {
    causal,
    dropoutRate,
    ...(window !== undefined && { window }),
    ...(softcap !== undefined && { softcap }),
    ...(scale !== undefined && { scale }),
  };
}

/** Attention where a device has the whole sequence in its own order. */
function attendWhole({ query, key, value, facts, pairs, sinks }: Operands, given: Given): AttentionResult {
  const options = {
    ...plainOptions(given),
    ...(pairs.bias && { bias: pairs.bias }),
    ...(pairs.mask && { mask: pairs.mask }),
    ...(facts.segments && { segmentIds: facts.segments }),
    ...(facts.positions && { positions: facts.positions }),
    ...(sinks && { sinks }),
  };
  return attentionWithKeys([query, key, value], options, pairs.dropoutKeys);
}

/** The local view. */
function onDevice(operands: Operands, given: Given, axis: MeshAxis): AttentionResult {
  const length = at(operands.query.shape, 1);
  if (given.placement === "zigzag" && length % 2 !== 0) {
    throw new ShapeError(
      `[nn.contextAttention] a device's ${length} tokens are not two chunks of the same length, as placement zigzag has them (${length} / 2 = ${length / 2}): use an even number`,
    );
  }
  if (axis.size === 1) return attendWhole(operands, given);
  switch (given.context) {
    case "ring":
      return byRing(operands, given, axis);
    case "allToAll":
      return byHeads(operands, given, axis);
    case "gather":
      return byGathering(operands, given, axis);
  }
}

/** The positions of tokens for the whole batch, where masks need them. */
function positionsFor({ query, facts }: Operands, given: Given, axis: MeshAxis, index: Tensor): Tensor {
  const [batch = 0, length = 0] = query.shape;
  const placed = () => placedPositions(length, given.placement, axis, index);
  return facts.positions ?? np.broadcastTo(placed(), [batch, length]);
}

function byRing(operands: Operands, given: Given, axis: MeshAxis): AttentionResult {
  const { query, key, value, facts, pairs, sinks } = operands;
  const [batch = 0, length = 0, , headDim = 1] = query.shape;
  const { causal, window, placement } = given;
  const sides = window === undefined ? undefined : sidesOf(window);
  const params: Attention = {
    scale: given.scale ?? 1 / Math.sqrt(headDim),
    causal,
    ...(sides && { window: sides }),
    ...(given.softcap !== undefined && { softcap: given.softcap }),
    ...(pairs.dropoutKeys && { dropoutRate: given.dropoutRate }),
  };
  const isPlaced = facts.positions === undefined;
  const of = (index: Tensor) =>
    np.broadcastTo(placedPositions(length, placement, axis, index), [batch, length]);
  const ring = {
    axis,
    params,
    numHops: isPlaced && placement === "contiguous" ? hopsSeen(given, length, axis) : axis.size - 1,
    isZigzag: isPlaced && causal && placement === "zigzag",
    positions: (hop: number) => {
      // Which weights are dropped depends on positions.
      if (hop === 0 && !pairs.dropoutKeys && (placement === "contiguous" || !window)) return undefined;
      return { query: of(deviceIndex(axis)), key: of(deviceBefore(axis, hop)) };
    },
  };
  const { output, logSums } = ringAttention(ring, { query, key, value, facts, pairs });
  return sinks ? withSinks(output, logSums, sinks) : { output, logSumExp: logSums };
}

/** The number of hops after which a causal window ends, with consecutive tokens on every device. */
function hopsSeen({ causal, window }: Given, length: number, { size }: MeshAxis): number {
  const [before] = window === undefined ? [-1] : sidesOf(window);
  if (!causal || before < 0 || length === 0) return size - 1;
  return Math.min(size - 1, Math.ceil(before / length));
}

/** Results over all keys with a further key of each head that has no value. */
function withSinks(output: Tensor, logSums: Tensor, sinks: Tensor): AttentionResult {
  const score = np.expandDims(sinks.ndim === 1 ? np.expandDims(sinks, 0) : sinks, 1).astype(logSums.dtype);
  const above = logSums.sub(score);
  const share = np.expandDims(sigmoid(above), -1);
  return { output: output.mul(share).astype(output.dtype), logSumExp: softplus(above).add(score) };
}

function byGathering(operands: Operands, given: Given, axis: MeshAxis): AttentionResult {
  const { query, facts, pairs, sinks } = operands;
  const gathered = <T>(x: T) => allGather(x, given.axis, { dim: 1, tiled: true });
  const { key, value } = gathered({ key: operands.key, value: operands.value });
  const own = positionsFor(operands, given, axis, deviceIndex(axis));
  const options = {
    ...plainOptions(given),
    ...(pairs.bias && { bias: pairs.bias }),
    ...(pairs.mask && { mask: pairs.mask }),
    ...(facts.segments && { segmentIds: { query: facts.segments, key: gathered(facts.segments) } }),
    ...(needsPositions(given) && { positions: { query: own, key: gathered(own) } }),
    ...(sinks && { sinks }),
  };
  return attentionWithKeys([query, key, value], options, pairs.dropoutKeys);
}

/** Whether positions decide about anything. */
function needsPositions({ causal, window, dropoutRate }: Given): boolean {
  return causal || window !== undefined || dropoutRate > 0;
}

function byHeads(operands: Operands, given: Given, axis: MeshAxis): AttentionResult {
  const { query, facts, pairs, sinks } = operands;
  const { size } = axis;
  const [heads, keyHeads] = [at(query.shape, 2), at(operands.key.shape, 2)];
  checkHeads(heads, keyHeads, axis);
  // With fewer key heads than devices, several devices need the same one.
  const copies = keyHeads % size === 0 ? 1 : size / keyHeads;
  const all = <T>(x: T) => allToAll(x, given.axis, 2, 1, { tiled: true });
  const repeated = (x: Tensor) => all(copies === 1 ? x : np.repeat(x, copies, 2));
  const gathered = (x: Tensor) => allGather(x, given.axis, { dim: 1, tiled: true });
  const isOrdered = !facts.positions && given.placement === "contiguous";
  const index = deviceIndex(axis);
  const own = (x: Tensor, dim: number) => (x.shape[dim] === 1 ? x : ownHeads(x, dim, index, heads / size));
  const ofHeads = (x: Tensor) => {
    if (at(x.shape, 2) === 1) return own(x, 1);
    const isShared = at(x.shape, 1) === 1;
    return isShared
      ? allGather(x, given.axis, { dim: 2, tiled: true })
      : allToAll(x, given.axis, 1, 2, { tiled: true });
  };
  const options = {
    ...plainOptions(given),
    ...(pairs.bias && { bias: ofHeads(pairs.bias) }),
    ...(pairs.mask && { mask: ofHeads(pairs.mask) }),
    ...(facts.segments && { segmentIds: gathered(facts.segments) }),
    ...(!isOrdered &&
      needsPositions(given) && { positions: gathered(positionsFor(operands, given, axis, index)) }),
    ...(sinks && { sinks: own(sinks, sinks.ndim - 1) }),
  };
  const { output, logSumExp } = attentionWithKeys(
    [all(query), repeated(operands.key), repeated(operands.value)],
    options,
    pairs.dropoutKeys && own(pairs.dropoutKeys, 1),
  );
  const back = (x: Tensor) => allToAll(x, given.axis, 1, 2, { tiled: true });
  return { output: back(output), logSumExp: back(logSumExp) };
}

/** The part of a dim of heads that belongs to those of this device. */
function ownHeads(x: Tensor, dim: number, index: Tensor, count: number): Tensor {
  const zero = ops.zeros({ dtype: "int32", shape: [] });
  const starts = x.shape.map((_, d) => (d === dim ? index.mul(count) : zero));
  return ops.dynamicSlice(
    x,
    starts,
    x.shape.map((n, d) => (d === dim ? count : n)),
  );
}

function checkHeads(heads: number, keyHeads: number, { name, size }: MeshAxis): void {
  const ratio = (a: number, b: number) => `${a} / ${b} = ${Number((a / b).toPrecision(3))}`;
  if (heads % size !== 0) {
    throw new ShapeError(
      `[nn.contextAttention] ${heads} heads do not split over axis "${name}" (${ratio(heads, size)}): use a multiple of ${size} for context "allToAll", or "ring"`,
    );
  }
  if (keyHeads % size === 0 || size % keyHeads === 0) return;
  throw new ShapeError(
    `[nn.contextAttention] ${keyHeads} key heads do not split over axis "${name}" (${ratio(keyHeads, size)}): use a multiple or a divisor of ${size} for context "allToAll", or "ring"`,
  );
}
