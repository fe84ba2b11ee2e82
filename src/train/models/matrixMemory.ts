/**
 * The matrix memory of xLSTM. With gate preactivations ĩ and f̃, position t reads position s ≤ t with weight
 * `exp(Σ_{s<j≤t} log σ(f̃_j) + ĩ_s)`, stabilised by the largest exponent of the row, and the sum of weights (at least the
 * stabilised one) normalises the result.
 *
 * Long sequences are computed in chunks, in parallel: positions of a chunk read each other, and of earlier chunks the
 * matrices that these leave behind. Devices that have parts of a sequence pass those on in the same way.
 */
import { ShapeError } from "../../ir/errors.js";
import type { MeshAxis } from "../../ir/mesh.js";
import { at } from "../../ir/shape.js";
import { boundAxis, meshSplit } from "../../nn/functions/contextMesh.js";
import { deviceIndex } from "../../nn/functions/ringAttention.js";
import { isInitializing, variable } from "../../nn/modules/variables.js";
import * as np from "../../numpy/index.js";
import { PartitionSpec } from "../../spmd/mesh/partitionSpec.js";
import { currentMesh } from "../../spmd/run/constraint.js";
import { shardMap } from "../../spmd/run/shardMap.js";
import * as ops from "../../trace/ops.js";
import type { Tensor } from "../../trace/tensor.js";
import * as tree from "../../trace/tree.js";
import { scan } from "../../transforms/control/scan.js";
import type { ModelConfig } from "./config.js";
import type { Reading } from "./reading.js";

/** The inputs of the matrix memory. */
export interface MemoryInputs {
  /** [batch, heads, length, size], as are key and value, whose size may be another. */
  readonly query: Tensor;
  readonly key: Tensor;
  readonly value: Tensor;
  /** [batch, heads, length], as is forgetGate. */
  readonly inputGate: Tensor;
  readonly forgetGate: Tensor;
  /**
   * The exponent that the stabiliser starts with: that of the empty memory before the first position, which every
   * position decays. −1e30, the default, has no influence.
   */
  readonly startExponent?: number;
  /** Which positions begin a document, and with it an empty memory: bool [batch, heads, length]; none by default. */
  readonly isStart?: Tensor;
  /** With a cache: which positions at the end of a row are padding, bool [batch, heads, length]; none by default. */
  readonly isPadding?: Tensor;
}

/** Where documents begin if rows hold several, and where rows are padded, for the memory of `numHeads` heads. */
export function markedPositions(
  { segmentIds, positions }: Reading,
  numHeads: number,
): Pick<MemoryInputs, "isStart" | "isPadding"> {
  if (positions.ndim < 2) return {};
  const [batch = 0, length = 0] = positions.shape;
  const marks = (x: Tensor) => np.broadcastTo(np.expandDims(x, 1), [batch, numHeads, length]);
  return segmentIds
    ? { isStart: marks(np.equal(positions, 0)) }
    : { isPadding: marks(np.less(positions, 0)) };
}

/** The exponent of an empty memory, which has no influence. */
const NOTHING = -1e30;

/** A chunk of a sequence, or all chunks along a dim before the length. */
interface Chunk extends Omit<MemoryInputs, "forgetGate" | "isStart" | "isPadding"> {
  /** The sum of the logarithms of the forget gates up to every position, from the start of its document or the chunk. */
  readonly decay: Tensor;
  /** The number of documents that have begun in the chunk up to every position, int32; undefined if none ever do. */
  readonly document?: Tensor | undefined;
}

/** What positions leave behind for later ones. */
interface Memory {
  /** [..., key size, value size] */
  readonly matrix: Tensor;
  /** The sum of keys with their weights: [..., key size]. */
  readonly total: Tensor;
  /** The exponent that matrix and total are stabilised by: [...]. */
  readonly exponent: Tensor;
  /** The logarithm of the factor by which these positions decay what was there before: [...]. */
  readonly decay: Tensor;
}

/** Values of one number for each memory, next to one of its tensors. */
function next(x: Tensor, { ndim }: Tensor): Tensor {
  return ops.reshape(x, [...x.shape, ...Array.from({ length: ndim - x.ndim }, () => 1)]);
}

/** What the positions of a chunk leave behind. */
function remember(chunk: Chunk): Memory {
  const { key, value, inputGate, decay } = chunk;
  const last = lastOf(decay);
  const all = next(last, decay).sub(decay).add(inputGate);
  const document = chunk.document && { number: chunk.document, last: lastOf(chunk.document) };
  // Only the last document is remembered.
  const exponents = document
    ? np.where(np.equal(document.number, next(document.last, decay)), all, NOTHING)
    : all;
  const peak = np.max(exponents, -1);
  const isNew = document && np.greater(document.last, 0);
  const exponent = isNew
    ? np.where(isNew, np.maximum(peak, last.add(chunk.startExponent ?? NOTHING)), peak)
    : peak;
  const scale = 1 / Math.sqrt(key.shape.at(-1) ?? 1);
  const weighted = key.mul(next(np.exp(exponents.sub(next(exponent, exponents))), key)).mul(scale);
  return {
    matrix: np.matmul(np.swapaxes(weighted, -1, -2), value),
    total: np.sum(weighted, -2),
    exponent,
    decay: isNew ? np.where(isNew, NOTHING, last) : last,
  };
}

/** The values of the last position. */
function lastOf(x: Tensor): Tensor {
  const length = at(x.shape, x.ndim - 1);
  return np.squeeze(ops.sliceDim(x, x.ndim - 1, length - 1, length), -1);
}

/** Which positions see which of a chunk: those before, of the same document. */
function isSeen(length: number, document: Tensor | undefined): Tensor {
  const rows = ops.iota("int32", [length, length], 0);
  const columns = ops.iota("int32", [length, length], 1);
  const isPast = np.greaterEqual(rows, columns);
  if (!document) return isPast;
  return np.logicalAnd(isPast, np.equal(np.expandDims(document, -1), np.expandDims(document, -2)));
}

/** What two parts of a sequence leave behind, one after the other. */
function afterBoth(first: Memory, second: Memory): Memory {
  const faded = first.exponent.add(second.decay);
  const exponent = np.maximum(faded, second.exponent);
  const [old, fresh] = [np.exp(faded.sub(exponent)), np.exp(second.exponent.sub(exponent))];
  const sum = (a: Tensor, b: Tensor) => a.mul(next(old, a)).add(b.mul(next(fresh, b)));
  return {
    matrix: sum(first.matrix, second.matrix),
    total: sum(first.total, second.total),
    exponent,
    decay: first.decay.add(second.decay),
  };
}

/** An empty memory like another. */
function emptyMemory({ matrix, total, exponent, decay }: Memory, start = NOTHING): Memory {
  return {
    matrix: np.zerosLike(matrix),
    total: np.zerosLike(total),
    exponent: np.zerosLike(exponent).add(start),
    decay: np.zerosLike(decay),
  };
}

/** What the positions of a chunk read, of each other and of the memory before. */
function read(chunk: Chunk, before: Partial<Memory> | undefined): Tensor {
  const { query, key, value, inputGate, decay, document, startExponent = NOTHING } = chunk;
  const [length, size] = [at(decay.shape, decay.ndim - 1), query.shape.at(-1) ?? 1];
  const exponent = np.expandDims(decay, -1).sub(np.expandDims(decay.sub(inputGate), -2));
  const masked = np.where(isSeen(length, document), exponent, NOTHING);
  const peak = np.max(masked, -1, { keepdims: true });
  // Documents that begin in the chunk have an empty memory before them.
  const isOld = document && np.equal(document, 0);
  const first = before?.exponent && next(before.exponent, decay);
  const carried =
    first && np.expandDims(decay.add(isOld ? np.where(isOld, first, startExponent) : first), -1);
  const largest = carried ? np.maximum(peak, carried) : peak;
  const weights = np.exp(masked.sub(largest));
  const scores = np
    .matmul(query, np.swapaxes(key, -1, -2))
    .mul(1 / Math.sqrt(size))
    .mul(weights);
  const own = np.sum(scores, -1, { keepdims: true });
  const least = np.exp(np.negative(largest));
  const share = (x: Tensor, total: Tensor) => x.div(np.maximum(np.abs(total), least).add(1e-6));
  if (!carried || !before.matrix || !before.total) return np.matmul(share(scores, own), value);
  const kept = np.exp(carried.sub(largest));
  const faded = query.mul(isOld ? np.where(np.expandDims(isOld, -1), kept, 0) : kept);
  const total = own.add(np.matmul(faded, np.expandDims(before.total, -1)));
  return np.matmul(share(scores, total), value).add(np.matmul(share(faded, total), before.matrix));
}

/** The length of the chunks of a sequence. */
function chunkLength(length: number): number {
  if (length <= LONGEST) return length;
  for (let size = LONGEST; size >= LONGEST / 4; size--) if (length % size === 0) return size;
  return length;
}

/** The longest chunk: the scores of its positions are a matrix. */
export const LONGEST = 256;

/** Sequences in chunks: [batch, heads, chunks, length of a chunk, …]. */
function inChunks({ forgetGate, startExponent, isStart, isPadding: _, ...inputs }: MemoryInputs): Chunk {
  const split = (x: Tensor) => {
    const [batch = 0, heads = 0, length = 0, ...rest] = x.shape;
    const size = chunkLength(length);
    return ops.reshape(x, [batch, heads, length / Math.max(1, size), size, ...rest]);
  };
  const logForget = split(logSigmoid(forgetGate));
  const document = isStart && np.cumsum(split(isStart).astype("int32"), -1);
  return {
    ...tree.map(split, inputs),
    decay: document ? decayOfDocuments(logForget, document) : np.cumsum(logForget, -1),
    document,
    ...(startExponent !== undefined && { startExponent }),
  };
}

function logSigmoid(x: Tensor): Tensor {
  return np.negative(np.logaddexp(0, np.negative(x)));
}

/** The sum of `logForget` from the first position of the document in the chunk on. */
function decayOfDocuments(logForget: Tensor, document: Tensor): Tensor {
  const length = at(document.shape, document.ndim - 1);
  return np.sum(np.where(isSeen(length, document), np.expandDims(logForget, -2), 0), -1);
}

/** The memory before every chunk, and after the last one. */
function overChunks(chunks: Memory): readonly [before: Memory, after: Memory] {
  const first = tree.map((x: Tensor) => ops.moveDim(x, 2, 0), chunks);
  const start = emptyMemory(tree.map((x: Tensor) => np.squeeze(ops.sliceDim(x, 0, 0, 1), 0), first));
  const [after, before] = scan(
    (memory: Memory, chunk: Memory) => [afterBoth(memory, chunk), memory],
    start,
    first,
  );
  return [tree.map((x: Tensor) => ops.moveDim(x, 0, 2), before), after];
}

/** What the devices before this one leave behind: in every step twice as many have been heard of. */
function fromDevicesBefore(own: Memory, axis: MeshAxis): Memory {
  const index = deviceIndex(axis);
  const from = (by: number, memory: Memory): Memory => {
    const pairs = Array.from({ length: axis.size - by }, (_, i) => [i, i + by] as const);
    const moved = tree.map((x: Tensor) => ops.ppermute(x, [axis], pairs), memory);
    // A device that nothing was sent to has zeros, which are an empty memory but for the exponent.
    return { ...moved, exponent: np.where(np.less(index, by), NOTHING, moved.exponent) };
  };
  let all = own;
  for (let by = 1; by < axis.size; by *= 2) all = afterBoth(from(by, all), all);
  return from(1, all);
}

/** The memory of whole sequences, or along an axis of those parts that its devices have. */
function memoryAlong(inputs: MemoryInputs, axis?: MeshAxis): Tensor {
  const { value, startExponent } = inputs;
  const chunks = inChunks(inputs);
  const output = (x: Tensor) => ops.reshape(x, value.shape);
  const isOne = at(chunks.decay.shape, 2) === 1;
  if (isOne && !axis) {
    const exponent =
      startExponent === undefined ? undefined : np.full(chunks.decay.shape.slice(0, 3), startExponent);
    return output(read(chunks, exponent && { exponent }));
  }
  const made = remember(chunks);
  const [before, after] = overChunks(made);
  const start = emptyMemory(after, startExponent);
  const earlier = axis ? afterBoth(start, fromDevicesBefore(after, axis)) : start;
  const known = tree.map((x: Tensor) => np.expandDims(x, 2), earlier);
  return output(read(chunks, afterBoth(known, before)));
}

/** The results of the matrix memory: like the values, [batch, heads, length, value size]. */
export function matrixMemory(inputs: MemoryInputs): Tensor {
  return memoryAlong(inputs);
}

const splitAxes = { axis: "context", batchAxes: ["data", "fsdp", "expert"], modelAxis: "model" };

/** {@link matrixMemory} of sequences that mesh axis `context` splits. */
function contextMemory({ startExponent, ...tensors }: MemoryInputs): Tensor {
  const mesh = currentMesh();
  const { axis } = splitAxes;
  const along = (own: typeof tensors, by: MeshAxis | undefined) =>
    memoryAlong({ ...own, ...(startExponent !== undefined && { startExponent }) }, by);
  const size = mesh?.shape[axis] ?? 1;
  if (!mesh || size === 1) return along(tensors, undefined);
  const [batch = 0, numHeads = 0, length = 0] = tensors.query.shape;
  if (length % size !== 0) {
    throw new ShapeError(
      `[matrixMemory] ${length} tokens do not split over axis "${axis}" (${length} / ${size} = ${Number((length / size).toPrecision(3))}): use a multiple of ${size}`,
    );
  }
  const { batch: rows, heads, axisNames } = meshSplit(mesh, splitAxes, batch, [numHeads], "matrixMemory");
  const spec = new PartitionSpec([rows, heads, axis]);
  return shardMap((own: typeof tensors) => along(own, boundAxis(axis, "matrixMemory")), {
    mesh,
    axisNames,
    inSpecs: [tree.map(() => spec, tensors)] as never,
    outSpecs: spec,
  })(tensors);
}

/** How the blocks of a model compute their memory. */
export function memoryFor({ cacheLength, context }: ModelConfig): (inputs: MemoryInputs) => Tensor {
  if (cacheLength !== undefined) return nextOfMatrixMemory;
  return context ? contextMemory : matrixMemory;
}

/**
 * {@link matrixMemory} for more positions of sequences whose memory is a state. One position decays the matrix of each
 * head and adds the outer product of its key and value; several are a chunk.
 */
function nextOfMatrixMemory(inputs: MemoryInputs): Tensor {
  const { query, value, startExponent = NOTHING } = inputs;
  const [batch = 0, heads = 0, length = 1, size = 1] = query.shape;
  const zeros = (...shape: number[]) => ops.zeros({ dtype: "float32", shape: [batch, heads, ...shape] });
  const memory = variable("cache", "memory", () => zeros(value.shape.at(-1) ?? 1, size));
  const total = variable("cache", "total", () => zeros(1, size));
  const largest = variable("cache", "largest", () => zeros(1).add(startExponent));
  const state = { matrix: memory.value, total: total.value, exponent: largest.value };
  const [output, after] = (length === 1 ? onePosition : oneChunk)(inputs, state);
  if (!isInitializing()) {
    memory.value = after.matrix;
    total.value = after.total;
    largest.value = after.exponent;
  }
  return output;
}

/**
 * The memory of sequences: {@link Memory} with one position, so that total is [..., 1, key size], and with the dims of
 * the matrix as what reads it sums over keys: [..., value size, key size].
 */
type State = Omit<Memory, "decay">;

function onePosition(inputs: MemoryInputs, before: State): [Tensor, State] {
  const { query, key, value, inputGate, forgetGate } = inputs;
  const faded = before.exponent.sub(np.logaddexp(0, np.negative(forgetGate)));
  const exponent = np.maximum(faded, inputGate);
  const fade = np.expandDims(np.exp(faded.sub(exponent)), -1);
  const scale = 1 / Math.sqrt(query.shape.at(-1) ?? 1);
  const scaled = key.mul(np.expandDims(np.exp(inputGate.sub(exponent)), -1)).mul(scale);
  const matrix = before.matrix.mul(fade).add(np.swapaxes(value, -1, -2).mul(scaled));
  const total = before.total.mul(fade).add(scaled);
  const seen = np.abs(np.sum(query.mul(total), -1, { keepdims: true }));
  const normalizer = np.maximum(seen, np.expandDims(np.exp(np.negative(exponent)), -1));
  const found = np.expandDims(np.sum(matrix.mul(query), -1), -2);
  return [found.div(normalizer.add(1e-6)), { matrix, total, exponent }];
}

/** Padding neither decays the memory nor adds to it. */
function oneChunk(inputs: MemoryInputs, state: State): [Tensor, State] {
  const { forgetGate, isPadding, ...rest } = inputs;
  const logForget = logSigmoid(forgetGate);
  const chunk: Chunk = {
    ...rest,
    decay: np.cumsum(isPadding ? np.where(isPadding, 0, logForget) : logForget, -1),
    inputGate: isPadding ? np.where(isPadding, NOTHING, rest.inputGate) : rest.inputGate,
  };
  const exponent = np.squeeze(state.exponent, -1);
  const turned = (matrix: Tensor) => np.swapaxes(matrix, -1, -2);
  const before = {
    ...{ matrix: turned(state.matrix), total: np.squeeze(state.total, -2) },
    ...{ exponent, decay: np.zerosLike(exponent) },
  };
  const after = afterBoth(before, remember(chunk));
  const total = np.expandDims(after.total, -2);
  const matrix = turned(after.matrix);
  return [read(chunk, before), { ...after, matrix, total, exponent: np.expandDims(after.exponent, -1) }];
}
